//! Tests with a fake card, because no driver without a card supports these fields, keys and tables.

mod fake;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use sluice_table::toeplitz::{self, Key};

use super::*;
use fake::{Deviations, Fake, Packet, every_function, own_key, without};

fn steering_request(steering: Steering) -> SteeringRequest {
    SteeringRequest {
        steering,
        key: Some(HashKey::from(&Key::VERIFICATION)),
        fallback_key: None,
        table: Vec::new(),
        queues: 8,
    }
}

/// A key that differs from [`Key::VERIFICATION`].
fn other_key() -> HashKey {
    let bytes: Vec<u8> = (0..toeplitz::KEY_BYTES as u32).map(|at| (at * 151 + 7) as u8).collect();
    HashKey::new(&bytes).expect("a key of 52 bytes")
}

fn even(queues: u16, entries: usize) -> Vec<u16> {
    (0..queues).cycle().take(entries).collect()
}

/// Packets of one address family, either TCP or UDP.
fn packets(
    source: impl Strategy<Value = u128>,
    destination: impl Strategy<Value = u128>,
) -> impl Strategy<Value = Packet> {
    (
        source,
        destination,
        any::<(u16, u16)>(),
        any::<bool>(),
        prop_oneof![Just(6u8), Just(17)],
    )
        .prop_map(|(source, destination, ports, v4, protocol)| Packet {
            protocol,
            source: address(source, v4),
            destination: address(destination, v4),
            ports,
        })
}

fn address(bits: u128, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }
}

proptest! {
    #[test]
    fn packets_of_one_source_come_to_one_queue(
        packet in packets(any::<u128>(), any::<u128>()), other: u128, ports: (u16, u16), protocol: u8,
    ) {
        let card = Fake::new();
        let steered = card.open(&steering_request(Steering::Source));
        prop_assert_eq!(Some(Steering::Source), steered.steering);
        let destination = address(other, packet.source.is_ipv4());
        let next = Packet { destination, ports, protocol, ..packet };
        prop_assert_eq!(card.queue_of(&packet), card.queue_of(&next));
        prop_assert_eq!(Some(card.queue_of(&packet)), steered.queue_of(card.hash_of(&packet).expect("is hashed")));
    }

    #[test]
    fn packets_to_one_address_and_port_come_to_one_queue(
        packet in packets(any::<u128>(), any::<u128>()), other: u128, port: u16,
    ) {
        let card = Fake::new();
        let steered = card.open(&steering_request(Steering::Destination));
        prop_assert_eq!(Some(Steering::Destination), steered.steering);
        let source = address(other, packet.source.is_ipv4());
        let next = Packet { source, ports: (port, packet.ports.1), protocol: 23 - packet.protocol, ..packet };
        prop_assert_eq!(card.queue_of(&packet), card.queue_of(&next));
        prop_assert_eq!(Some(card.queue_of(&packet)), steered.queue_of(card.hash_of(&packet).expect("is hashed")));
    }
}

#[test]
fn sources_spread_over_all_queues() {
    let packet = |host: u32| Packet {
        protocol: 17,
        source: Ipv4Addr::from_bits(0x0a00_0000 + host).into(),
        destination: Ipv4Addr::new(192, 0, 2, 1).into(),
        ports: (1, 2),
    };
    let card = Fake::new();
    card.open(&steering_request(Steering::Source));
    let mut counts = [0; 8];
    (0..1024).for_each(|host| counts[usize::from(card.queue_of(&packet(host)))] += 1);
    assert_eq!([128; 8], counts);
}

#[test]
fn flows_come_where_published_hashes_say() {
    for (source, source_port, destination, destination_port, expected) in [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f),
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf),
    ] {
        let packet = Packet {
            protocol: 6,
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            ports: (source_port, destination_port),
        };
        for key_bytes in [40, 52] {
            let card = Fake::with(Capabilities {
                key_bytes,
                table_entries: 512,
                ..Fake::new().capabilities
            });
            let steered = card.open(&SteeringRequest {
                queues: 128,
                ..steering_request(Steering::FiveTuple)
            });
            assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls);
            assert_eq!(Some(expected), card.hash_of(&packet), "{source}");
            assert_eq!((expected & 127) as u16, card.queue_of(&packet), "{source}");
            assert_eq!(Some(card.queue_of(&packet)), steered.queue_of(expected));
        }
    }
}

#[test]
fn card_that_can_not_hash_the_source_alone_hashes_flows_and_says_why() {
    let card = Fake::offering(without(every_function(), Functions::L3_SOURCE_ONLY));
    let steered = card.open(&SteeringRequest {
        fallback_key: Some(other_key()),
        ..steering_request(Steering::Source)
    });
    assert_eq!(Some(Steering::FiveTuple), steered.steering);
    assert_eq!(
        "hashes addresses and ports: the device can't hash only the source address",
        steered.to_string()
    );
    assert_eq!(Some(other_key().resized(40)), steered.key, "the key drawn for flows");
}

#[test]
fn card_that_steers_as_wished_says_so_and_is_not_set_again() {
    let card = Fake::new();
    let steered = card.open(&steering_request(Steering::Destination));
    assert_eq!("hashes destination address and port", steered.to_string());
    assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls);
    assert_eq!(Some(HashKey::from(&Key::VERIFICATION).resized(40)), steered.key);
    assert_eq!(Some(even(8, 128)), steered.table);
    assert!(steered.delivers_hash);
    assert_eq!((0, 1), card.set.get(), "configuration was enough for the hash");
}

#[test]
fn card_that_refuses_or_drops_a_subset_is_asked_for_flows() {
    for (deviations, text) in [
        (
            Deviations {
                refuses_subsets: true,
                ..Deviations::default()
            },
            "hashes addresses and ports: the device reports that it can hash only the source address, but refuses this setting (Invalid argument)",
        ),
        (
            Deviations {
                drops_subsets: true,
                ..Deviations::default()
            },
            "hashes addresses and ports: the device was set to hash only the source address, but hashes addresses without ports",
        ),
    ] {
        let steered = Fake::deviating(deviations).open(&steering_request(Steering::Source));
        assert_eq!(Some(Steering::FiveTuple), steered.steering);
        assert_eq!(text, steered.to_string());
        assert_eq!(1, steered.shortfalls.len());
    }
}

#[test]
fn card_that_refuses_the_key_still_hashes_the_fields() {
    let card = Fake::deviating(Deviations {
        refuses_key: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!(
        "hashes only the source address: the device refuses the configured RSS key (Operation not supported) and keeps its own key",
        steered.to_string()
    );
    assert_eq!(Some(own_key(40)), steered.key, "the key that it hashes with is known");
}

#[test]
fn card_that_keeps_another_key_is_found_out() {
    let card = Fake::deviating(Deviations {
        ignores_key: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!(vec![Shortfall::OtherKey], steered.shortfalls);
    assert_eq!(Some(own_key(40)), steered.key);
}

#[test]
fn card_that_takes_the_key_only_when_it_runs_gets_it_then() {
    let card = Fake::deviating(Deviations {
        key_only_when_running: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!(Vec::<Shortfall>::new(), steered.shortfalls);
    assert_eq!(Some(HashKey::from(&Key::VERIFICATION).resized(40)), steered.key);
    assert_eq!(1, card.set.get().0);
}

#[test]
fn card_that_is_fixed_when_it_runs_keeps_what_it_was_configured_with() {
    let fixed = Deviations {
        fixed_when_running: true,
        ..Deviations::default()
    };
    assert_eq!(
        Vec::<Shortfall>::new(),
        Fake::deviating(fixed)
            .open(&steering_request(Steering::Source))
            .shortfalls
    );
    let fixed_without_key = Deviations {
        key_only_when_running: true,
        ..fixed
    };
    let steered = Fake::deviating(fixed_without_key).open(&steering_request(Steering::Source));
    let reason = "Operation not supported".into();
    assert_eq!(vec![Shortfall::KeyDeclined { reason }], steered.shortfalls);
    assert_eq!(Some(Steering::Source), steered.steering);
}

#[test]
fn card_with_a_longer_key_gets_all_of_it() {
    let card = Fake::with(Capabilities {
        key_bytes: 52,
        ..Fake::new().capabilities
    });
    let steered = card.open(&SteeringRequest {
        key: Some(other_key()),
        ..steering_request(Steering::Source)
    });
    assert_eq!(Some(other_key()), steered.key);
    let short = HashKey::new(&other_key().bytes()[..40]).expect("40 bytes");
    let steered = card.open(&SteeringRequest {
        key: Some(short.clone()),
        ..steering_request(Steering::Source)
    });
    let begun_again = [short.bytes(), &short.bytes()[..12]].concat();
    assert_eq!(Some(begun_again), steered.key.map(|key| key.bytes().to_vec()));
    assert_eq!(
        Err(SteeringError::ShortKey { bytes: 39 }),
        HashKey::new(&short.bytes()[..39])
    );
}

#[test]
fn card_that_tells_nothing_is_not_relied_on() {
    let card = Fake::deviating(Deviations {
        hides_everything: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!((None, None), (steered.steering, steered.functions));
    assert_eq!(
        "software distributes: the device does not report which fields it hashes (Operation not supported)",
        steered.to_string()
    );
    let card = Fake::deviating(Deviations {
        hides_key: true,
        hides_table: true,
        ..Deviations::default()
    });
    let steered = card.open(&steering_request(Steering::Source));
    assert_eq!((None, None), (steered.key.clone(), steered.table.clone()));
    assert_eq!(
        "hashes only the source address: the device does not report its RSS key; the device does not report its RSS indirection table (Operation not supported)",
        steered.to_string()
    );
    assert_eq!(None, steered.queue_of(7));
}

#[test]
fn card_without_ports_or_without_hash_leaves_it_to_software() {
    let addresses = Functions::IPV4 | Functions::IPV6;
    let steered = Fake::offering(addresses).open(&steering_request(Steering::Destination));
    assert_eq!((None, Some(addresses)), (steered.steering, steered.functions));
    assert_eq!(
        "hashes addresses without ports, so that software distributes packets to shards: the device can't hash destination address and port",
        steered.to_string()
    );
    let card = Fake::offering(Functions::default());
    let steered = card.open(&steering_request(Steering::Destination));
    assert_eq!(
        "software distributes: the device has no RSS hash that can be set",
        steered.to_string()
    );
    assert_eq!((0, 0), card.set.get());
}

#[test]
fn card_of_one_family_says_what_becomes_of_the_other() {
    let v4 = Functions::IPV4 | Functions::L3_SOURCE_ONLY;
    let steered = Fake::offering(v4).open(&steering_request(Steering::Source));
    assert_eq!(
        "hashes only the source address: IPv6 is not hashed, and its packets arrive on a single queue",
        steered.to_string()
    );
}

#[test]
fn one_queue_sets_nothing() {
    let card = Fake::new();
    let steered = card.open(&SteeringRequest {
        queues: 1,
        ..steering_request(Steering::Source)
    });
    assert_eq!("a single queue, without steering", steered.to_string());
    assert_eq!((None, None, None), (steered.steering, steered.key, steered.table));
    assert_eq!((0, 0), card.set.get());
}

#[test]
fn configuration_that_fails_for_another_reason_is_not_tried_again() {
    let mut tries = 0;
    let fail = |_: &Attempt| {
        tries += 1;
        Err("no memory")
    };
    let capabilities = Fake::new().capabilities;
    let error = configure(&steering_request(Steering::Source), &capabilities, fail, |_| None).expect_err("no memory");
    assert_eq!(("no memory", 1), (error, tries));
}

#[test]
fn configuration_that_fails_always_tells_its_first_error() {
    let mut tries = 0;
    let fail = |_: &Attempt| {
        tries += 1;
        Err(tries)
    };
    let capabilities = Fake::new().capabilities;
    let error = configure(&steering_request(Steering::Source), &capabilities, fail, |error| {
        Some(error.to_string())
    });
    // The five attempts are: source with key, source without key, five-tuple with key, five-tuple without key, and no
    // hash.
    assert_eq!(1, error.expect_err("it fails"));
    assert_eq!(5, tries);
}

#[test]
fn wish_for_fewer_queues_leads_to_those_alone() {
    let steering_request = SteeringRequest {
        table: vec![0, 1, 2, 3],
        queues: 4,
        ..steering_request(Steering::FiveTuple)
    };
    let fewer = steering_request.with_queues(2);
    assert_eq!(
        (vec![0, 1, 0, 1], 2, Ok(())),
        (fewer.table.clone(), fewer.queues, fewer.check())
    );
}
