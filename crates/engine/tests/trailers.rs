//! Tests that bytes which follow the IP datagram in a frame are not forwarded. These bytes have a meaning only on the
//! link on which the frame arrived.

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, is_valid};
use crate::tunnelled;
use sluice_engine::snapshot::Interface;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::layers;
use sluice_wire::vlan::Tag;

const SECRET: &[u8] = b"SECRET-OF-THE-LINK-WHICH-NOBODY-ELSE-IS-TO-READ-AS-IT-IS-ITS-OWN";

/// A frame with this number of trailer bytes after its datagram.
fn trailed(frame: &Frame, length: usize) -> Vec<u8> {
    [frame.build(), SECRET[..length].to_vec()].concat()
}

/// Packets of the inside host, short and long, over both families.
fn questions() -> Vec<Frame> {
    let long = [7; 90];
    let all = [
        packet::udp4("192.168.1.10:5000", "198.51.100.7:53"),
        packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question"),
        packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&long),
        packet::tcp4("192.168.1.10:5001", "198.51.100.7:80").flags(2),
        packet::icmp4_echo("192.168.1.10", "198.51.100.7", 7, 1).payload(b"echo"),
        packet::udp4("192.168.1.10:5000", "198.51.100.7:53")
            .payload(&long[..40])
            .fragment(0, true, 5),
        packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(b"question"),
        packet::icmp6_echo("2001:db8:1::10", "2001:db8:9::7", 7, 1),
    ];
    all.into()
}

/// Checks that the frame ends with its datagram, or is padded with zeros to Ethernet's minimum length.
#[track_caller]
fn ends_with_its_datagram(frame: &[u8]) {
    let end = usize::from(layers::parse(frame).unwrap().end);
    assert!(frame.len() == end || frame.len() <= 60, "{end} of {}", frame.len());
    assert_eq!(vec![0; frame.len() - end], frame[end..]);
}

#[test]
fn trailer_ends_with_its_link_for_routed_and_translated_packets_behind_any_tags() {
    let tags: [&[u16]; 3] = [&[], &[100], &[300, 30]];
    for (count, inside) in tags.iter().enumerate() {
        for translate in [false, true] {
            for question in questions() {
                for length in [1, 5, 6, 7, 8, 18, SECRET.len()] {
                    let interfaces: fn(&mut Vec<Interface>) = match count {
                        0 => |_| {},
                        1 => |all| all[0].tags = vec![Tag::vlan(100)],
                        _ => |all| all[0].tags = vec![Tag::vlan(300), Tag::vlan(30)],
                    };
                    let mut rig = Rig::new(Plan {
                        translate,
                        interfaces,
                        ..Plan::default()
                    });
                    let question = inside
                        .iter()
                        .fold(question.clone(), |frame, vlan| frame.tag(0x8100, *vlan));
                    let question = question.macs(HOST_MAC, INSIDE_MAC);
                    let sent = rig.send(INSIDE, &trailed(&question, length));
                    assert_eq!(1, sent.len(), "{question:?} {:?}", rig.all_drops());
                    ends_with_its_datagram(&sent[0].frame);
                }
            }
        }
    }
}

#[test]
fn answer_and_hairpinned_packet_end_with_their_datagrams() {
    let mut rig = Rig::new(Plan::default());
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question");
    let public = rig.public(&question);
    let answer = packet::udp4("198.51.100.7:53", public).macs(ROUTER_MAC, OUTSIDE_MAC);
    let sent = rig.send(OUTSIDE, &trailed(&answer, 60));
    assert_eq!(1, sent.len());
    ends_with_its_datagram(&sent[0].frame);
    let looped = packet::udp4("192.168.1.10:6000", public)
        .payload(b"loop")
        .macs(HOST_MAC, INSIDE_MAC);
    let sent = rig.send(INSIDE, &trailed(&looped, 60));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(public.ip(), flow(&sent[0].frame).0.ip());
    ends_with_its_datagram(&sent[0].frame);
}

#[test]
fn padding_of_the_shortest_frame_is_zero_whatever_it_was() {
    for length in 0..=18 {
        let mut rig = Rig::new(Plan {
            translate: false,
            ..Plan::default()
        });
        let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&SECRET[..length]);
        let frame = trailed(&question.clone().macs(HOST_MAC, INSIDE_MAC), 18 - length);
        let sent = rig.send(INSIDE, &frame);
        let expected = question.padded(60).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC).build();
        assert_eq!(expected, sent[0].frame);
    }
}

#[test]
fn error_and_echo_reply_of_the_gateway_end_with_their_datagrams() {
    let last = packet::udp4("192.168.1.10:5000", "198.51.100.7:53")
        .payload(b"q")
        .ttl(1);
    for question in [last, packet::icmp4_echo("192.168.1.10", "192.168.1.1", 7, 1)] {
        let mut rig = Rig::new(Plan {
            translate: false,
            ..Plan::default()
        });
        let sent = rig.send(INSIDE, &trailed(&question.macs(HOST_MAC, INSIDE_MAC), 60));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        ends_with_its_datagram(&sent[0].frame);
        assert!(is_valid(&sent[0].frame));
    }
}

#[test]
fn trailer_goes_neither_into_a_tunnel_nor_out_of_one() {
    for tunnel in tunnelled::all() {
        let mut rig = tunnelled::rig(tunnel);
        let question = packet::udp4("192.168.1.10:5000", "10.77.0.5:53").payload(b"question");
        let sent = rig.send(INSIDE, &trailed(&question.macs(HOST_MAC, INSIDE_MAC), 60));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        ends_with_its_datagram(&sent[0].frame);
        assert!(!sent[0].frame.windows(6).any(|bytes| bytes == b"SECRET"), "{tunnel:?}");

        // One trailer follows the outer datagram, the second trailer follows the inner datagram.
        let answer = packet::udp4("10.77.0.5:53", "192.168.1.10:5000").payload(b"answer");
        let mut inner = tunnelled::arriving(&tunnel, &answer);
        inner.payload.extend(SECRET);
        let outer = tunnelled::arriving(&tunnel, &answer).macs(ROUTER_MAC, OUTSIDE_MAC);
        for frame in [trailed(&outer, 60), inner.macs(ROUTER_MAC, OUTSIDE_MAC).build()] {
            let sent = rig.send(OUTSIDE, &frame);
            assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
            ends_with_its_datagram(&sent[0].frame);
            assert!(!sent[0].frame.windows(6).any(|bytes| bytes == b"SECRET"), "{tunnel:?}");
        }
    }
}
