//! Tests that NICs deliver packets to the queue of the worker that owns the session. The tests compute the RSS hash bit
//! by bit, with the keys that devices get.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain};
use sluice_engine::packet::counters::HandOffCause;
use sluice_engine::session::family::{Family, V4};
use sluice_engine::snapshot::inside_hosts::InsideHosts;
use sluice_engine::snapshot::steering::{Affinity, HashFields};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix, SourceAction, SourceRule};
use sluice_nat::{Behaviour, Blocks, MappingBehaviour, PortSelection};
use sluice_testkit::packet::{self, flag};
use sluice_wire::Tuple4;

const WORKERS: usize = 4;
const HOSTS: u8 = 40;

/// The worker that a NIC selects for an IPv4 frame with ports.
fn card(rig: &Rig, interface: u16, frame: &[u8]) -> usize {
    let steering = &rig.plane.start_parameters().steering;
    let outside = interface == OUTSIDE;
    let tuple = &frame[26..38];
    let input = match (steering.hash_fields(), outside) {
        (HashFields::FiveTuple, _) => tuple.to_vec(),
        (HashFields::Subset, false) => tuple[..4].to_vec(),
        (HashFields::Subset, true) => [&tuple[4..8], &tuple[10..12]].concat(),
    };
    // The indirection table has one entry for each shard, which refers to the shard's owner.
    let shards = steering.shards().count();
    let entry = steering.key(outside).hash(&input) & (shards - 1);
    usize::from(rig.plane.start_parameters().owners.of(entry as u16).unwrap())
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn remote(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, number as u8), 80 + number)
}

fn rig(plan: Plan) -> Rig {
    let mut rig = Rig::new(Plan {
        workers: WORKERS,
        shards: 16,
        ..plan
    });
    for number in 0..HOSTS {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

fn handed_over(rig: &Rig, cause: HandOffCause) -> u64 {
    let counters = rig.plane.counters().iter();
    counters.map(|worker| worker.handed_off[cause as usize].get()).sum()
}

fn sum(rig: &Rig, counter: impl Fn(&sluice_engine::packet::counters::WorkerCounters) -> u64) -> u64 {
    rig.plane.counters().iter().map(|worker| counter(worker)).sum()
}

/// Sends flows of all hosts, three packets in each direction, to the workers that the NIC selects. Returns the number of packets.
fn traffic(rig: &mut Rig) -> u64 {
    let mut count = 0;
    for number in 0..HOSTS {
        let mut answers = Vec::new();
        for port in 0..12u16 {
            let source = SocketAddrV4::new(host(number), 2000 + port);
            for flags in [flag::SYN, flag::ACK, flag::ACK] {
                let frame = packet::tcp4(source, remote(port))
                    .flags(flags)
                    .macs(HOST_MAC, INSIDE_MAC)
                    .build();
                let worker = card(rig, INSIDE, &frame);
                let sent = rig.send_at(worker, INSIDE, &frame);
                assert_eq!(1, sent.len());
                answers.push(rig::flow(&sent[0].frame));
                count += 1;
            }
        }
        for (public, remote) in answers {
            let frame = packet::tcp4(remote, public)
                .flags(flag::SYN | flag::ACK)
                .macs(ROUTER_MAC, OUTSIDE_MAC)
                .build();
            let worker = card(rig, OUTSIDE, &frame);
            assert_eq!(1, rig.send_at(worker, OUTSIDE, &frame).len());
            count += 1;
        }
    }
    rig.check();
    count
}

fn dependent() -> Behaviour {
    Behaviour {
        mapping: MappingBehaviour::AddressAndPortDependent,
        ..Behaviour::default()
    }
}

#[test]
fn subset_steering_hands_nothing_over_whatever_the_mapping() {
    let blocks: fn(&mut sluice_nat::Pool<u32>) = |pool| {
        pool.blocks = Some(Blocks {
            size: 64,
            ..Blocks::default()
        });
    };
    for change_pool in [|_: &mut _| {}, blocks] {
        for behaviour in [Behaviour::default(), dependent()] {
            let mut rig = rig(Plan {
                behaviour,
                change_pool,
                ..Plan::default()
            });
            traffic(&mut rig);
            assert_eq!(0, sum(&rig, |worker| worker.all_handed_off()));
            assert!(rig.plane.counters().iter().all(|worker| worker.packets.get() > 100));
        }
    }
}

#[test]
fn five_tuple_steering_hands_nothing_over_where_a_port_fits() {
    let mut rig = rig(Plan {
        behaviour: dependent(),
        hashed: HashFields::FiveTuple,
        together: Affinity::Flows,
        ..Plan::default()
    });
    traffic(&mut rig);
    assert_eq!(0, sum(&rig, |worker| worker.all_handed_off()));
    assert_eq!(u64::from(HOSTS) * 12, sum(&rig, |worker| worker.ports_steered.get()));
    assert_eq!(0, sum(&rig, |worker| worker.missteered_ports.get()));
}

#[test]
fn flows_that_take_no_port_of_a_pool_are_not_counted_among_steered_ports() {
    let public = Ipv4Addr::new(203, 0, 113, 200).to_bits();
    let mut rig = rig(Plan {
        behaviour: dependent(),
        hashed: HashFields::FiveTuple,
        together: Affinity::Flows,
        sources: vec![SourceRule {
            outside: Some(OUTSIDE),
            ..SourceRule::of(Prefix::host(host(0).to_bits()), SourceAction::Static(public))
        }],
        forwards: vec![DestinationRule {
            context: 0,
            protocol: None,
            external: Prefix::host(public),
            ports: None,
            inbound: None,
            action: DestinationAction::Static(host(0).to_bits()),
        }],
        ..Plan::default()
    });
    traffic(&mut rig);
    let (hosts, created) = (u64::from(HOSTS), sum(&rig, |worker| worker.sessions_created.get()));
    assert_eq!(hosts * 12, created);
    assert_eq!((hosts - 1) * 12, sum(&rig, |worker| worker.ports_steered.get()));
    assert_eq!(0, sum(&rig, |worker| worker.missteered_ports.get()));
}

#[test]
fn five_tuple_steering_with_few_ports_hands_misfits_over_and_counts_them() {
    let mut rig = rig(Plan {
        behaviour: dependent(),
        hashed: HashFields::FiveTuple,
        together: Affinity::Flows,
        // There is one block of 64 ports for each shard, and half of the blocks are in use.
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (1024, 2047),
        ..Plan::default()
    });
    traffic(&mut rig);
    let missteered_ports = sum(&rig, |worker| worker.missteered_ports.get());
    assert!(missteered_ports > 0 && missteered_ports < 100, "{missteered_ports}");
    // Each flow has three answers. Answers for another shard of the same worker are not handed over.
    let over = handed_over(&rig, HandOffCause::Session);
    assert!(over > 0 && over <= 3 * missteered_ports, "{over} of {missteered_ports}");
}

#[test]
fn five_tuple_steering_with_endpoint_independent_mappings_hands_over_what_chance_says() {
    let mut rig = rig(Plan {
        hashed: HashFields::FiveTuple,
        ..Plan::default()
    });
    let count = traffic(&mut rig);
    let over = handed_over(&rig, HandOffCause::Session);
    let expected = count as f64 * (1.0 - 1.0 / WORKERS as f64);
    assert!((over as f64 / expected - 1.0).abs() < 0.15, "{over} of {count}");
}

#[test]
fn ports_that_are_kept_are_steered_by_their_address_or_counted_apart() {
    let plan = |ports_together| Plan {
        // There are as many addresses as shards, starting at a multiple of that number, so that each shard has one
        // address.
        pool: vec![(rig::POOL.to_bits() + 6, rig::POOL.to_bits() + 21)],
        change_pool: |pool| pool.selection = PortSelection::Preserve,
        ports_together,
        ..Plan::default()
    };
    let mut by_address = rig(plan(65_536));
    traffic(&mut by_address);
    assert_eq!(0, sum(&by_address, |worker| worker.all_handed_off()));
    // The NICs distribute ports in blocks of a different size.
    let mut rig = rig(plan(64));
    traffic(&mut rig);
    assert!(handed_over(&rig, HandOffCause::KeptPort) > 0);
    assert_eq!(
        handed_over(&rig, HandOffCause::KeptPort),
        sum(&rig, |worker| worker.all_handed_off())
    );
}

#[test]
fn pool_with_fewer_blocks_of_ports_than_shards_serves_every_host_and_is_handed_over() {
    let mut rig = rig(Plan {
        pool: vec![(rig::POOL.to_bits() + 6, rig::POOL.to_bits() + 37)],
        pool_ports: (1024, 1279),
        ..Plan::default()
    });
    traffic(&mut rig);
    let over = handed_over(&rig, HandOffCause::Session);
    assert!(over > 0);
    assert_eq!(over, sum(&rig, |worker| worker.all_handed_off()));
}

#[test]
fn ports_that_are_kept_serve_every_host_wherever_the_addresses_begin() {
    let mut rig = rig(Plan {
        pool: vec![(rig::POOL.to_bits() + 3, rig::POOL.to_bits() + 18)],
        change_pool: |pool| pool.selection = PortSelection::Preserve,
        ports_together: 65_536,
        ..Plan::default()
    });
    traffic(&mut rig);
    let over = handed_over(&rig, HandOffCause::KeptPort);
    assert!(over > 0);
    assert_eq!(over, sum(&rig, |worker| worker.all_handed_off()));
}

#[test]
fn errors_about_a_flow_reach_its_shard_and_are_counted_apart() {
    let mut rig = rig(Plan {
        behaviour: dependent(),
        hashed: HashFields::FiveTuple,
        together: Affinity::Flows,
        ..Plan::default()
    });
    let mut sent = 0;
    for number in 0..HOSTS {
        let frame = packet::tcp4(SocketAddrV4::new(host(number), 2000), remote(7)).flags(flag::SYN);
        let frame = frame.macs(HOST_MAC, INSIDE_MAC).build();
        let worker = card(&rig, INSIDE, &frame);
        let (public, remote) = rig::flow(&rig.send_at(worker, INSIDE, &frame)[0].frame);
        let quoted = packet::tcp4(public, remote).build();
        let error = packet::icmp4_error(*remote.ip(), *public.ip(), 3, 1, &quoted, 60);
        let error = error.macs(ROUTER_MAC, OUTSIDE_MAC).build();
        sent += rig.send_at(usize::from(number) % WORKERS, OUTSIDE, &error).len();
    }
    assert_eq!(usize::from(HOSTS), sent);
    assert!(handed_over(&rig, HandOffCause::IcmpError) > u64::from(HOSTS) / 2);
    assert_eq!(
        handed_over(&rig, HandOffCause::IcmpError),
        sum(&rig, |worker| worker.all_handed_off())
    );
}

#[test]
fn flows_of_forwarded_ports_come_to_one_shard_from_both_sides() {
    let adjacencies = [
        (HashFields::Subset, Affinity::Hosts),
        (HashFields::FiveTuple, Affinity::Flows),
    ];
    for (hashed, together) in adjacencies {
        let mut rig = rig(Plan {
            behaviour: dependent(),
            hashed,
            together,
            forwards: vec![DestinationRule {
                context: 0,
                protocol: Some(6),
                external: Prefix::host(Ipv4Addr::new(203, 0, 113, 120).to_bits()),
                ports: Some((80, 80)),
                inbound: None,
                action: DestinationAction::Host(host(3).to_bits(), Some(8080)),
            }],
            ..Plan::default()
        });
        let external = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 120), 80);
        for number in 0..60 {
            let frame = packet::tcp4(remote(number), external)
                .flags(flag::SYN)
                .macs(ROUTER_MAC, OUTSIDE_MAC)
                .build();
            let worker = card(&rig, OUTSIDE, &frame);
            assert_eq!(1, rig.send_at(worker, OUTSIDE, &frame).len());
            let answer = packet::tcp4(SocketAddrV4::new(host(3), 8080), remote(number)).flags(flag::SYN | flag::ACK);
            let answer = answer.macs(HOST_MAC, INSIDE_MAC).build();
            let worker = card(&rig, INSIDE, &answer);
            let sent = rig.send_at(worker, INSIDE, &answer);
            assert_eq!(external, rig::flow(&sent[0].frame).0);
        }
        rig.check();
    }
}

/// The shard of each packet of a flow, according to a gateway's rules. A packet is given by its source, destination and
/// interface.
fn shards_of(
    rig: &Rig,
    hosts: Option<InsideHosts<u32>>,
    protocol: u8,
    packets: [(SocketAddrV4, SocketAddrV4, bool); 2],
) -> [u16; 2] {
    let start = rig.plane.start_parameters();
    let mut nat = rig.plane.snapshot().nat4.clone();
    nat.hosts = hosts;
    packets.map(|(from, to, outside)| {
        let tuple = Tuple4 {
            source: from.ip().to_bits(),
            destination: to.ip().to_bits(),
            source_port: from.port(),
            destination_port: to.port(),
            context: 0,
        };
        let key = V4::make_key(tuple, protocol);
        start.steering.shard_of::<V4>(&nat, &key, 0, outside)
    })
}

#[test]
fn flows_without_ports_come_to_one_shard_where_every_interface_is_outside() {
    const GRE: u8 = 47;
    let rig = rig(Plan::default());
    let port0 = |address: &Ipv4Addr| SocketAddrV4::new(*address, 0);
    for number in 0..HOSTS {
        let (host, remote) = (port0(&host(number)), port0(remote(number.into()).ip()));
        for comes_outside in [false, true] {
            let packets = [(host, remote, comes_outside), (remote, port0(&rig::POOL), true)];
            let [there, back] = shards_of(&rig, None, GRE, packets);
            assert_eq!(there, back, "{host} {remote} {comes_outside}");
        }
    }
}

#[test]
fn forwarded_flows_between_hosts_that_translation_knows_come_to_one_shard() {
    let external = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 120), 80);
    for (hashed, together) in [
        (HashFields::Subset, Affinity::Hosts),
        (HashFields::FiveTuple, Affinity::Flows),
    ] {
        for protocol in [6, 47] {
            let with_ports = protocol == 6;
            let rig = rig(Plan {
                behaviour: dependent(),
                hashed,
                together,
                forwards: vec![DestinationRule {
                    context: 0,
                    protocol: Some(protocol),
                    external: Prefix::host(external.ip().to_bits()),
                    ports: with_ports.then_some((80, 80)),
                    inbound: None,
                    action: DestinationAction::Host(host(3).to_bits(), with_ports.then_some(8080)),
                }],
                ..Plan::default()
            });
            for number in 0..60 {
                // One network is numerically before the network of the host, the other network after it.
                let first = Ipv4Addr::new([10, 198][usize::from(number % 2)], 51, 100, 0);
                let networks = [host(0), first].map(|first| (first.to_bits(), first.to_bits() + 255));
                let of = |address: Ipv4Addr, port| SocketAddrV4::new(address, if with_ports { port } else { 0 });
                let stranger = of(Ipv4Addr::from_bits(first.to_bits() + u32::from(number)), 80 + number);
                let there = (stranger, of(*external.ip(), 80), true);
                let back = (of(host(3), 8080), stranger, number % 3 == 0);
                let [there, back] = shards_of(
                    &rig,
                    Some(InsideHosts::new(networks.map(|(first, last)| (0, first, last)).into())),
                    protocol,
                    [there, back],
                );
                assert_eq!(there, back, "{stranger} {protocol}");
            }
        }
    }
}

#[test]
fn pool_that_keeps_hosts_together_is_refused_where_flows_spread() {
    use sluice_engine::control::plane::ControlPlaneError;
    let plan = Plan {
        behaviour: dependent(),
        hashed: HashFields::FiveTuple,
        together: Affinity::Flows,
        ..Plan::default()
    };
    let (snapshot, routes) = rig::snapshot(&Plan::default());
    let mut rig = rig(plan);
    assert!(matches!(
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)),
        Err(ControlPlaneError::SteeringConflict)
    ));
}
