//! Tests of basic functions of the gateway, packet by packet.

use crate::rig::{HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, POOL, Plan, ROUTER_MAC, Rig};
use sluice_testkit::packet::{self, flag};
use sluice_wire::layers;

fn tcp(source: &str, destination: &str, flags: u8) -> packet::Frame {
    packet::tcp4(source, destination).flags(flags)
}

#[test]
fn established_tcp_both_directions_are_translated_and_nothing_else_changes() {
    let mut rig = Rig::new(Plan::default());
    let syn = tcp("192.168.1.10:40000", "198.51.100.7:80", flag::SYN)
        .macs(HOST_MAC, INSIDE_MAC)
        .ttl(64);
    let sent = rig.send(INSIDE, &syn.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(OUTSIDE, sent[0].port);
    let key = layers::parse(&sent[0].frame).unwrap().key4(&sent[0].frame, 0).tuple();
    let public = std::net::Ipv4Addr::from_bits(key.source);
    let source = std::net::SocketAddrV4::new(public, key.source_port);
    let remote: std::net::SocketAddrV4 = "198.51.100.7:80".parse().unwrap();
    let expected = packet::tcp4(source, remote)
        .flags(flag::SYN)
        .macs(OUTSIDE_MAC, ROUTER_MAC)
        .ttl(63);
    assert_eq!(expected.build(), sent[0].frame);

    let answer = packet::tcp4(remote, source)
        .flags(flag::SYN | flag::ACK)
        .macs(ROUTER_MAC, OUTSIDE_MAC)
        .ttl(60);
    let sent = rig.send(OUTSIDE, &answer.build());
    let inside: std::net::SocketAddrV4 = "192.168.1.10:40000".parse().unwrap();
    let expected = packet::tcp4(remote, inside)
        .flags(flag::SYN | flag::ACK)
        .macs(INSIDE_MAC, HOST_MAC)
        .ttl(59);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(expected.build(), sent[0].frame);
    assert_eq!(INSIDE, sent[0].port);
}

#[test]
fn unsolicited_packet_from_outside_is_dropped_and_counted() {
    let mut rig = Rig::new(Plan::default());
    let probe = packet::udp4("198.51.100.7:53", "203.0.113.10:5000").macs(ROUTER_MAC, OUTSIDE_MAC);
    assert!(rig.send(OUTSIDE, &probe.build()).is_empty());
    assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
}

#[test]
fn neighbour_unknown_is_asked_for_and_the_packet_waits() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        ..Plan::default()
    });
    let datagram = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").macs(HOST_MAC, INSIDE_MAC);
    let sent = rig.send(INSIDE, &datagram.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        packet::arp_request(OUTSIDE_MAC, "203.0.113.1", "203.0.113.254"),
        sent[0].frame
    );
    let reply = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
    let sent = rig.send(OUTSIDE, &reply);
    // The next hop of the reverse direction is resolved before the session is created.
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(packet::arp_request(INSIDE_MAC, "192.168.1.1", HOST), sent[0].frame);
    let sent = rig.send(INSIDE, &packet::arp_reply(HOST_MAC, HOST, INSIDE_MAC, "192.168.1.1"));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(OUTSIDE, sent[0].port);
    assert_eq!(&ROUTER_MAC, &sent[0].frame[..6]);
}

#[test]
fn echo_request_to_the_gateway_is_answered() {
    let mut rig = Rig::new(Plan::default());
    let ping = packet::icmp4_echo(HOST, "192.168.1.1", 7, 1)
        .macs(HOST_MAC, INSIDE_MAC)
        .payload(b"abc");
    let sent = rig.send(INSIDE, &ping.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::icmp4_echo_reply("192.168.1.1", HOST, 7, 1)
        .macs(INSIDE_MAC, HOST_MAC)
        .payload(b"abc");
    let (mut expected, mut frame) = (expected.build(), sent[0].frame.clone());
    // The gateway chooses the IP ID and the TTL.
    for bytes in [&mut expected, &mut frame] {
        bytes[18..26].fill(0);
    }
    assert_eq!(expected, frame);
}

#[test]
fn ping_through_the_gateway_keeps_its_identifier_inside() {
    let mut rig = Rig::new(Plan::default());
    let ping = packet::icmp4_echo(HOST, "198.51.100.7", 7, 1)
        .macs(HOST_MAC, INSIDE_MAC)
        .payload(b"abc");
    let sent = rig.send(INSIDE, &ping.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let layers = layers::parse(&sent[0].frame).unwrap();
    let key = layers.key4(&sent[0].frame, 0).tuple();
    let public = std::net::Ipv4Addr::from_bits(key.source);
    let remote: std::net::Ipv4Addr = "198.51.100.7".parse().unwrap();
    let reply = packet::icmp4_echo_reply(remote, public, key.source_port, 1)
        .macs(ROUTER_MAC, OUTSIDE_MAC)
        .payload(b"abc");
    let sent = rig.send(OUTSIDE, &reply.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let inside: std::net::Ipv4Addr = HOST.parse().unwrap();
    let expected = packet::icmp4_echo_reply(remote, inside, 7, 1)
        .macs(INSIDE_MAC, HOST_MAC)
        .payload(b"abc");
    let ttl = sent[0].frame[22];
    assert_eq!(expected.ttl(ttl).build(), sent[0].frame);
}

#[test]
fn arp_request_for_a_pool_address_on_the_link_is_answered_outside_alone() {
    let mut rig = Rig::new(Plan::default());
    let pool = POOL.to_string();
    let sent = rig.send(
        OUTSIDE,
        &packet::arp_request(ROUTER_MAC, "203.0.113.254", pool.as_str()),
    );
    let expected = packet::arp_reply(OUTSIDE_MAC, pool.as_str(), ROUTER_MAC, "203.0.113.254");
    assert_eq!(
        vec![expected],
        sent.into_iter().map(|sent| sent.frame).collect::<Vec<_>>()
    );
    // One request is for an unused address, the other request for the pool's address on another link.
    let nobody = packet::arp_request(ROUTER_MAC, "203.0.113.254", "203.0.113.77");
    assert!(rig.send(OUTSIDE, &nobody).is_empty());
    let elsewhere = packet::arp_request(HOST_MAC, HOST, pool.as_str());
    assert!(rig.send(INSIDE, &elsewhere).is_empty());
}

/// The fragments of a message, each in a frame.
fn fragments(whole: &[u8], header: usize, raw: impl Fn() -> packet::Frame) -> Vec<Vec<u8>> {
    let message = &whole[14 + header..];
    let pieces = message.chunks(1400).enumerate();
    pieces
        .map(|(place, piece)| {
            let more = (place + 1) * 1400 < message.len();
            raw().payload(piece).fragment(place as u16 * 175, more, 77).build()
        })
        .collect()
}

/// An echo request of 3,000 bytes arrives in fragments, in any order. The gateway answers it, whether sessions are
/// enabled or not.
#[test]
fn echo_request_in_fragments_is_answered_in_fragments() {
    let data: Vec<u8> = (0..3000).map(|number| number as u8).collect();
    for (translate, v6) in [(false, false), (true, false), (false, true), (true, true)] {
        let (asks, answers, header) = match v6 {
            false => (
                packet::icmp4_echo(HOST, "192.168.1.1", 5, 1).macs(HOST_MAC, INSIDE_MAC),
                packet::icmp4_echo_reply("192.168.1.1", HOST, 5, 1).macs(INSIDE_MAC, HOST_MAC),
                20,
            ),
            true => (
                packet::icmp6_echo("2001:db8:1::10", "2001:db8:1::1", 5, 1).macs(HOST_MAC, INSIDE_MAC),
                packet::frame6(
                    "2001:db8:1::1".parse().unwrap(),
                    "2001:db8:1::10".parse().unwrap(),
                    packet::Transport::Icmp6(packet::Icmpv6Type::EchoReply(packet::IcmpEchoHeader { id: 5, seq: 1 })),
                )
                .macs(INSIDE_MAC, HOST_MAC),
                40,
            ),
        };
        let raw = |like: &packet::Frame| {
            let protocol = if v6 { 58 } else { 1 };
            let mut frame = like.clone();
            frame.transport = packet::Transport::Raw(packet::IpNumber(protocol));
            frame
        };
        let whole = asks.clone().payload(&data).build();
        let wanted = fragments(&answers.clone().payload(&data).build(), header, || raw(&answers));
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut rig = Rig::new(Plan {
                translate,
                ..Plan::default()
            });
            let sent = fragments(&whole, header, || raw(&asks));
            let mut came: Vec<_> = order.iter().flat_map(|&place| rig.send(INSIDE, &sent[place])).collect();
            came.extend(rig.sent());
            let mut came: Vec<_> = came.into_iter().map(|sent| sent.frame).collect();
            came.sort();
            let mut wanted = wanted.clone();
            wanted.sort();
            assert_eq!(wanted, came, "{translate} {v6} {order:?} {:?}", rig.all_drops());
        }
    }
}

#[test]
fn fragments_to_the_gateway_that_ask_nothing_are_not_answered() {
    let mut rig = Rig::new(Plan::default());
    let whole = packet::icmp4_echo_reply(HOST, "192.168.1.1", 5, 1)
        .payload(&[7; 3000])
        .build();
    let raw = || {
        let mut frame = packet::icmp4_echo(HOST, "192.168.1.1", 5, 1).macs(HOST_MAC, INSIDE_MAC);
        frame.transport = packet::Transport::Raw(packet::IpNumber(1));
        frame
    };
    for frame in fragments(&whole, 20, raw) {
        assert!(rig.send(INSIDE, &frame).is_empty());
    }
    assert_eq!(3, rig.drops("no-local-service"), "{:?}", rig.all_drops());
    // If the first fragment does not arrive, the later fragments are dropped after a timeout.
    let whole = packet::icmp4_echo(HOST, "192.168.1.1", 5, 1)
        .payload(&[7; 3000])
        .build();
    for frame in &fragments(&whole, 20, || raw().ttl(60))[1..] {
        let mut frame = frame.clone();
        frame[18..20].copy_from_slice(&[9, 9]);
        frame[24..26].fill(0);
        let sum = etherparse::Ipv4Header::from_slice(&frame[14..])
            .unwrap()
            .0
            .calc_header_checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert!(rig.send(INSIDE, &frame).is_empty());
    }
    rig.seconds(5);
    assert_eq!(
        2,
        rig.all_drops()
            .iter()
            .filter(|drop| drop.0 != "no-local-service")
            .map(|drop| drop.1)
            .sum::<u64>()
    );
}
