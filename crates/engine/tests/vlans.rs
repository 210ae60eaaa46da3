//! Tests of interfaces with any number of tags, on the ingress and on the egress interface.

use std::cell::Cell;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_engine::snapshot::Priority;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::vlan::Tag;

/// Tags of an interface: TPID and VLAN.
type Tags = &'static [(u16, u16)];

fn tagged(frame: &Frame, tags: &[(u16, u16)]) -> Frame {
    tags.iter()
        .fold(frame.clone(), |frame, &(protocol, vlan)| frame.tag(protocol, vlan))
}

thread_local! {
    /// Priority of the tags of both interfaces.
    static PRIORITY: Cell<Priority> = const { Cell::new(Priority::Keep) };
}

const NONE: Tags = &[];
const ONE: Tags = &[(0x8100, 100)];
const SERVICE: Tags = &[(0x88a8, 200)];
const TWO: Tags = &[(0x88a8, 300), (0x8100, 30)];
/// Tags with the TPID of QinQ before 802.1ad.
const QINQ: Tags = &[(0x9100, 300), (0x8100, 30)];

fn tags(tags: Tags) -> Vec<Tag> {
    tags.iter()
        .map(|&(protocol, control)| Tag { protocol, control })
        .collect()
}

macro_rules! rig {
    ($inside:expr, $outside:expr, $translate:expr) => {
        Rig::new(Plan {
            translate: $translate,
            interfaces: |interfaces| {
                interfaces[0].tags = tags($inside);
                interfaces[1].tags = tags($outside);
                interfaces
                    .iter_mut()
                    .for_each(|interface| interface.priority = PRIORITY.get());
            },
            ..Plan::default()
        })
    };
}

fn rigs(translate: bool) -> Vec<(Tags, Tags, Rig)> {
    vec![
        (NONE, ONE, rig!(NONE, ONE, translate)),
        (ONE, NONE, rig!(ONE, NONE, translate)),
        (NONE, TWO, rig!(NONE, TWO, translate)),
        (TWO, NONE, rig!(TWO, NONE, translate)),
        (ONE, TWO, rig!(ONE, TWO, translate)),
        (TWO, SERVICE, rig!(TWO, SERVICE, translate)),
        (TWO, TWO, rig!(TWO, TWO, translate)),
    ]
}

#[test]
fn datagram_changes_its_tags_with_its_interface() {
    for translate in [false, true] {
        for (inside, outside, mut rig) in rigs(translate) {
            let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question");
            let sent = rig.host_sends(&tagged(&question, inside));
            assert_eq!(1, sent.len(), "{inside:?} {outside:?} {:?}", rig.all_drops());
            let (source, remote) = flow(&sent[0].frame);
            let expected = packet::udp4(source, remote)
                .payload(b"question")
                .ttl(63)
                .macs(OUTSIDE_MAC, ROUTER_MAC);
            assert_eq!(tagged(&expected, outside).build(), sent[0].frame);
            assert_eq!(OUTSIDE, sent[0].port);

            let answer = packet::udp4(remote, source).payload(b"answer");
            let sent = rig.router_sends(&tagged(&answer, outside));
            assert_eq!(1, sent.len(), "{inside:?} {outside:?} {:?}", rig.all_drops());
            let host: std::net::SocketAddrV4 = "192.168.1.10:5000".parse().unwrap();
            let expected = packet::udp4(remote, host)
                .payload(b"answer")
                .ttl(63)
                .macs(INSIDE_MAC, HOST_MAC);
            assert_eq!(tagged(&expected, inside).build(), sent[0].frame);
        }
    }
}

#[test]
fn ipv6_datagram_changes_its_tags_with_its_interface() {
    for (inside, outside, mut rig) in rigs(false) {
        let question = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(b"question");
        let sent = rig.host_sends(&tagged(&question, inside));
        let expected = tagged(&question, outside).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(expected.build(), sent[0].frame);
    }
}

#[test]
fn gateways_own_answers_and_errors_carry_the_tags() {
    for (inside, _, mut rig) in rigs(false) {
        let ping = packet::icmp4_echo("192.168.1.10", "192.168.1.1", 7, 1);
        let arp = packet::arp_request(HOST_MAC, "192.168.1.10", "192.168.1.1");
        let dead = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").ttl(1);
        let long = packet::udp4("192.168.1.10:5000", "198.51.100.7:53")
            .payload(&[0; 1473])
            .dont_fragment();
        let mut head = Vec::new();
        for (protocol, vlan) in inside {
            head.extend([protocol.to_be_bytes(), vlan.to_be_bytes()].concat());
        }
        let queried = [&arp[..12], &head, &arp[12..]].concat();
        for frame in [
            queried,
            tagged(&ping, inside).macs(HOST_MAC, INSIDE_MAC).build(),
            tagged(&dead, inside).macs(HOST_MAC, INSIDE_MAC).build(),
            tagged(&long, inside).macs(HOST_MAC, INSIDE_MAC).build(),
        ] {
            let sent = rig.send(INSIDE, &frame);
            assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
            assert_eq!(INSIDE, sent[0].port);
            assert_eq!(head[..], sent[0].frame[12..12 + head.len()]);
            assert_eq!([HOST_MAC, INSIDE_MAC].concat(), sent[0].frame[..12]);
            assert!(rig::is_valid(&sent[0].frame));
        }
    }
}

#[test]
fn question_for_a_neighbour_carries_the_tags() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        translate: false,
        interfaces: |interfaces| interfaces[1].tags = tags(TWO),
        ..Plan::default()
    });
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:53"));
    let arp = packet::arp_request(OUTSIDE_MAC, "203.0.113.1", "203.0.113.254");
    let tags = [0x88, 0xa8, 1, 44, 0x81, 0, 0, 30];
    assert_eq!([&arp[..12], &tags, &arp[12..]].concat(), sent[0].frame);
}

#[test]
fn datagram_cut_keeps_the_tags_of_its_way_out() {
    for (inside, outside) in [(NONE, TWO), (TWO, NONE), (ONE, SERVICE)] {
        let mut rig = match (inside.len(), outside.len()) {
            (0, _) => rig!(NONE, TWO, true),
            (2, _) => rig!(TWO, NONE, true),
            _ => rig!(ONE, SERVICE, true),
        };
        let mut long = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[7; 1480]);
        if let packet::Network::V4(header) = &mut long.network {
            header.dont_fragment = false;
        }
        let sent = rig.host_sends(&tagged(&long, inside));
        assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
        for fragment in sent {
            let layers = sluice_wire::layers::parse(&fragment.frame).unwrap();
            assert_eq!(outside.len(), layers.tags as usize);
            assert!(layers.end - layers.l3 <= 1500);
        }
    }
}

#[test]
fn priority_of_a_tag_does_not_choose_the_interface() {
    let mut rig = rig!(ONE, NONE, false);
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").tag(0x8100, 0xe000 | 100);
    assert_eq!(1, rig.host_sends(&question).len());
}

#[test]
fn frame_of_an_unknown_vlan_is_dropped_by_name() {
    let mut rig = rig!(ONE, NONE, false);
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53");
    for tags in [
        NONE,
        SERVICE,
        TWO,
        &[(0x88a8, 100)],
        &[(0x8100, 101)],
        &[(0x8100, 100), (0x8100, 100)],
    ] {
        assert!(rig.host_sends(&tagged(&question, tags)).is_empty(), "{tags:?}");
    }
    assert_eq!(vec![("unknown-vlan", 6)], rig.all_drops());
}

/// A frame with tags after its MAC addresses: TPID and control information of each tag, outermost first.
fn behind(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(protocol, control)| {
        let ([a, b], [c, d]) = (protocol.to_be_bytes(), control.to_be_bytes());
        [a, b, c, d]
    });
    [&frame[..12], &tags.collect::<Vec<_>>(), &frame[12..]].concat()
}

/// Priority tags, with and without a priority, with the TPIDs of C-tags and S-tags.
const PRIORITIES: [(u16, u16); 3] = [(0x8100, 0), (0x8100, 0xa000), (0x88a8, 0xe000)];

#[test]
fn frame_behind_a_priority_tag_is_one_of_the_interface_that_it_would_be_without() {
    for translate in [false, true] {
        for (inside, outside, mut rig) in rigs(translate) {
            for priority in PRIORITIES {
                let v4 = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question");
                let v6 = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(b"question");
                for question in [v4, v6] {
                    let without = rig.host_sends(&tagged(&question, inside));
                    let frame = tagged(&question, inside).macs(HOST_MAC, INSIDE_MAC).build();
                    let with = rig.send(INSIDE, &behind(&frame, &[priority]));
                    assert_eq!(1, with.len(), "{inside:?} {outside:?} {:?}", rig.all_drops());
                    let kept = if outside.is_empty() { 0 } else { priority.1 >> 8 };
                    let mut expected = without[0].frame.clone();
                    for k in 0..outside.len() {
                        expected[14 + 4 * k] |= kept as u8;
                    }
                    assert_eq!(expected, with[0].frame);
                }
            }
        }
    }
}

#[test]
fn discovery_behind_a_priority_tag_is_answered_by_the_tags_of_the_interface() {
    for (inside, _, mut rig) in rigs(false) {
        let arp = packet::arp_request(HOST_MAC, "192.168.1.10", "192.168.1.1");
        let option = [&[1, 1][..], &HOST_MAC].concat();
        let v6 = packet::neighbour("2001:db8:1::10", "ff02::1:ff00:1", 135, 0, "2001:db8:1::1", &option)
            .macs(HOST_MAC, [0x33, 0x33, 0xff, 0, 0, 1]);
        for question in [arp, v6.build()] {
            let sent = rig.send(INSIDE, &behind(&behind(&question, inside), &[(0x8100, 0xa000)]));
            assert_eq!(1, sent.len(), "{inside:?} {:?}", rig.all_drops());
            assert_eq!(HOST_MAC, sent[0].frame[..6]);
            let kind = if question[12] == 8 { [8, 6] } else { [0x86, 0xdd] };
            let head = behind(&[0; 12], inside);
            assert_eq!(head[12..], sent[0].frame[12..head.len()]);
            assert_eq!(kind, sent[0].frame[head.len()..head.len() + 2]);
        }
    }
}

#[test]
fn priority_is_kept_between_tags_and_that_of_its_interface_where_one_is_set() {
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question");
    let priorities = |priority| -> Vec<u8> {
        PRIORITY.set(priority);
        let mut all = Vec::new();
        for (inside, outside, mut rig) in rigs(false) {
            let frame = question.clone().macs(HOST_MAC, INSIDE_MAC).build();
            let tags: Vec<_> = inside
                .iter()
                .map(|(protocol, vlan)| (*protocol, vlan | 0xb000))
                .collect();
            let sent = rig.send(INSIDE, &behind(&frame, &tags));
            assert_eq!(1, sent.len(), "{inside:?} {outside:?} {:?}", rig.all_drops());
            for (k, (_, vlan)) in outside.iter().enumerate() {
                let [high, low] = [sent[0].frame[14 + 4 * k], sent[0].frame[15 + 4 * k]];
                assert_eq!(*vlan, u16::from_be_bytes([high & 0x0f, low]));
                all.push(high & 0xf0);
            }
        }
        all
    };
    let kept = vec![0, 0, 0, 0xb0, 0xb0, 0xb0, 0xb0, 0xb0];
    assert_eq!(kept, priorities(Priority::Keep));
    assert_eq!(vec![0xc0; 8], priorities(Priority::Set(6)));
}

#[test]
fn priority_that_is_set_is_that_of_the_gateways_own_frames() {
    PRIORITY.set(Priority::Set(5));
    let mut rig = rig!(ONE, TWO, false);
    let arp = packet::arp_request(HOST_MAC, "192.168.1.10", "192.168.1.1");
    let sent = rig.send(INSIDE, &behind(&arp, &[(0x8100, 100)]));
    assert_eq!([0x81, 0, 0xa0, 100], sent[0].frame[12..16]);
    let ping = packet::icmp4_echo("192.168.1.10", "192.168.1.1", 7, 1).tag(0x8100, 100);
    let sent = rig.host_sends(&ping);
    assert_eq!([0x81, 0, 0xa0, 100], sent[0].frame[12..16]);
}

#[test]
fn service_tag_of_an_older_type_is_one_where_it_is_configured() {
    for protocol in [0x9100, 0x9200] {
        let mut rig = rig!(QINQ, NONE, false);
        let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53")
            .macs(HOST_MAC, INSIDE_MAC)
            .build();
        let sent = rig.send(INSIDE, &behind(&question, &[(protocol, 300), (0x8100, 30)]));
        let [forwarded, unknown] = if protocol == 0x9100 { [1, 0] } else { [0, 1] };
        assert_eq!(
            (forwarded, unknown),
            (sent.len() as u64, rig.drops("unknown-vlan")),
            "{:?}",
            rig.all_drops()
        );
        let answer = packet::udp4("198.51.100.7:53", "192.168.1.10:5000")
            .macs(ROUTER_MAC, OUTSIDE_MAC)
            .build();
        let sent = rig.send(OUTSIDE, &answer);
        assert_eq!([0x91, 0, 1, 44, 0x81, 0, 0, 30], sent[0].frame[12..20]);
    }
}
