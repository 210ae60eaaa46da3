//! The gateway's main job, packet by packet.

mod rig;

use rig::{HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, POOL, Plan, ROUTER_MAC, Rig};
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
    let key = layers::parse(&sent[0].frame).unwrap().key4(&sent[0].frame, 0).tuple;
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
    // The way back is asked for before a session is made.
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
    // Identification and time to live are the gateway's to choose.
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
    let key = layers.key4(&sent[0].frame, 0).tuple;
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
    // Nobody's address, and the pool asked for on another link.
    let nobody = packet::arp_request(ROUTER_MAC, "203.0.113.254", "203.0.113.77");
    assert!(rig.send(OUTSIDE, &nobody).is_empty());
    let elsewhere = packet::arp_request(HOST_MAC, HOST, pool.as_str());
    assert!(rig.send(INSIDE, &elsewhere).is_empty());
}
