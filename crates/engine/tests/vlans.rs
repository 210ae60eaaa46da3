//! Interfaces behind tags: in with so many, out with so many.

mod rig;

use rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::vlan::Tag;

/// Tags of the inside and of the outside interface: protocol and VLAN.
type Tags = &'static [(u16, u16)];

fn tagged(frame: &Frame, tags: &[(u16, u16)]) -> Frame {
    tags.iter()
        .fold(frame.clone(), |frame, &(protocol, vlan)| frame.tag(protocol, vlan))
}

const NONE: Tags = &[];
const ONE: Tags = &[(0x8100, 100)];
const SERVICE: Tags = &[(0x88a8, 200)];
const TWO: Tags = &[(0x88a8, 300), (0x8100, 30)];

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
        let asked = [&arp[..12], &head, &arp[12..]].concat();
        for frame in [
            asked,
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
