//! Tests with arbitrary bytes from inside and outside through the whole gateway. The gateway must not panic, and every
//! packet must be counted.

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::snapshot::fragment_limits::FragmentLimits;
use sluice_engine::snapshot::sites::{SiteKey, SiteSettings, TagRange};
use sluice_nat::sites::{Terminal, context};
use sluice_testkit::packet::{Frame, Network, Transport};
use sluice_testkit::strategy;
use sluice_wire::Checksums;
use sluice_wire::vlan::Tag;

fn checksums() -> impl Strategy<Value = Checksums> {
    prop::sample::select(vec![
        Checksums::Unverified,
        Checksums::Vouched,
        Checksums::BadL3,
        Checksums::BadL4,
        Checksums::PartialChecksum,
    ])
}

/// Changes a frame so that the gateway processes it: the frame is addressed to the gateway's port, and its IP addresses
/// are known addresses.
fn aimed(mut frame: Frame, interface: u16, choice: u8) -> Frame {
    let (source, destination) = match interface {
        0 => (HOST_MAC, INSIDE_MAC),
        _ => (ROUTER_MAC, OUTSIDE_MAC),
    };
    if choice & 1 == 0 {
        frame.tags.clear();
    }
    if let Network::V4(header) = &mut frame.network {
        let near = [192, 168, 1, 10];
        let public = [[203, 0, 113, 10], [203, 0, 113, 1], [203, 0, 113, 11], near][usize::from(choice >> 1 & 3)];
        match interface {
            0 => header.source = near,
            _ => header.destination = public,
        }
        if choice & 8 != 0 {
            header.time_to_live = 1 + (choice >> 4);
        }
    }
    // Only few ports are used, so that flows recur.
    if let Transport::Udp(from, to) = &mut frame.transport {
        (*from, *to) = (*from % 4 + 1, *to % 4 + 1);
    }
    frame.macs(source, destination)
}

fn frames() -> impl Strategy<Value = Vec<(u16, Vec<u8>, Checksums)>> {
    let whole = prop_oneof![
        4 => strategy::frame(),
        1 => strategy::fragment().prop_map(|(_, frame)| frame),
    ];
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let aimed = (
        whole,
        0..2u16,
        any::<u8>(),
        prop_oneof![2 => Just(Vec::new()), 1 => edits],
    )
        .prop_map(|(frame, interface, choice, edits)| {
            let mut bytes = aimed(frame, interface, choice).build();
            for (at, value) in edits {
                // Only bytes after the MAC addresses are changed, so that the frame is still addressed to the gateway.
                let at = 12 + at.index(bytes.len() - 12);
                bytes[at] = value;
            }
            (interface, bytes)
        });
    let damaged = (strategy::damaged(), 0..2u16).prop_map(|(mut bytes, interface)| {
        let ours = if interface == 0 { INSIDE_MAC } else { OUTSIDE_MAC };
        if let Some(head) = bytes.first_chunk_mut::<6>() {
            *head = ours;
        }
        (interface, bytes)
    });
    let noise = (vec(any::<u8>(), 0..200), 0..2u16).prop_map(|(bytes, interface)| (interface, bytes));
    let any = prop_oneof![6 => aimed, 3 => damaged, 1 => noise];
    vec(
        (any, prop_oneof![3 => Just(Checksums::Vouched), 2 => checksums()]),
        1..40,
    )
    .prop_map(|frames| frames.into_iter().map(|((i, bytes), c)| (i, bytes, c)).collect())
}

fn sites() -> SiteSettings {
    let row = TagRange {
        outer: 100,
        first: 1,
        count: 2,
        context: context(0, 0, false),
    };
    SiteSettings {
        access_interfaces: vec![(INSIDE, SiteKey::Tags(vec![row]))],
        publics: vec![OUTSIDE],
        relays: vec![(0, u32::from_be_bytes([192, 168, 1, 1]))],
    }
}

fn small(workers: usize, translate: bool, known: bool) -> Plan {
    Plan {
        workers,
        translate,
        known_neighbours: known,
        sessions: 64,
        fragments: FragmentLimits {
            datagrams: 16,
            ..FragmentLimits::default()
        },
        pool_ports: (1024, 2047),
        outside_mtu: 700,
        interfaces: |interfaces| {
            for interface in interfaces {
                interface.stateful[1] = interface.stateful[0];
            }
        },
        ..Plan::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn gateway_any_frames_nothing_panics_and_nothing_is_lost(
        frames in frames(), workers in prop::sample::select(vec![1usize, 2]),
        translate in prop::bool::weighted(0.8), known in any::<bool>(),
    ) {
        let mut rig = Rig::new(small(workers, translate, known));
        let _capture = sluice_testkit::capture::on_failure("engine-hostile", frames.iter().map(|(_, bytes, _)| bytes));
        for (burst, chunk) in frames.chunks(7).enumerate() {
            for (interface, bytes, checksums) in chunk {
                rig.wires[burst % workers].inject(*interface, bytes, *checksums);
            }
            rig.round();
            // All sent frames must have valid headers.
            for sent in rig.sent() {
                prop_assert!(sluice_wire::layers::parse(&sent.frame).is_ok() || sent.frame.len() >= 34);
            }
            rig.pass(300);
        }
        // All parked packets are released eventually, and every session ends and releases its port.
        rig.seconds(10);
        prop_assert!(rig.workers.iter_mut().all(|worker| worker.io_mut().parked() == 0));
        rig.seconds(320);
        for _ in 0..80 {
            rig.seconds(1);
            rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 100_000_000_000);
        }
        rig.round();
        prop_assert_eq!(0, rig.live());
    }

    #[test]
    fn gateway_of_sites_any_frames_with_their_tags_nothing_panics_and_nothing_is_lost(
        frames in frames(), workers in prop::sample::select(vec![1usize, 2]), lost in any::<prop::sample::Index>(),
    ) {
        let mut rig = Rig::new(Plan {
            sites: Some((sites, 2, 4)),
            site_networks: vec![(0, rig::v4("203.0.113.8"), rig::v4("203.0.113.15"))],
            ..small(workers, false, true)
        });
        let _capture = sluice_testkit::capture::on_failure("engine-hostile-sites", frames.iter().map(|(_, bytes, _)| bytes));
        let public = u32::from_be_bytes([203, 0, 113, 10]);
        let writer = rig.writer.as_mut().unwrap();
        for site in 0..2 {
            writer.set_site(site, Some([6, 0, 0, 0, 0, site as u8]), None).unwrap();
            writer.set_public(site, 0, Some(public + site)).unwrap();
            let terminal = Terminal {
                context: context(site, 0, false),
                address: u32::from_be_bytes([192, 168, 1, 10]),
                mac: HOST_MAC,
                interface: INSIDE,
                tags: [Some(Tag::service(100)), Some(Tag::vlan(1 + site as u16))],
            };
            writer.add_terminal(&terminal).unwrap();
        }
        let lost = lost.index(frames.len());
        for (number, (interface, bytes, checksums)) in frames.iter().enumerate() {
            if number == lost {
                rig.writer.as_mut().unwrap().set_public(0, 0, None).unwrap();
            }
            let mut bytes = bytes.clone();
            if *interface == INSIDE && bytes.len() >= 12 && number % 8 != 0 {
                bytes.splice(12..12, [0x88, 0xa8, 0, 100, 0x81, 0, 0, 1 + (number % 3) as u8]);
            } else if *interface == OUTSIDE && bytes.len() >= 6 && number % 2 == 0 {
                bytes[..6].copy_from_slice(&[6, 0, 0, 0, 0, (number % 3) as u8]);
            }
            rig.wires[number % workers].inject(*interface, &bytes, *checksums);
            rig.round();
        }
        rig.seconds(8);
        prop_assert!(rig.live() <= 64);
    }
}
