//! Tests of ICMP errors for translated packets (RFC 5508, section 4), from inside and from outside. The quoted packet
//! is translated as well.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_engine::worker::request::Filter;
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, flag};

const MIDDLE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn remote() -> SocketAddrV4 {
    "198.51.100.7:80".parse().unwrap()
}

fn inside() -> SocketAddrV4 {
    "192.168.1.10:40000".parse().unwrap()
}

fn host() -> Ipv4Addr {
    HOST.parse().unwrap()
}

/// For each kind of flow from inside: a packet in its untranslated and in its translated form.
fn flows(public: SocketAddrV4) -> [(Frame, Frame); 3] {
    [
        (
            packet::tcp4(inside(), remote()).flags(flag::SYN),
            packet::tcp4(public, remote()).flags(flag::SYN),
        ),
        (
            packet::udp4(inside(), remote()).payload(b"question"),
            packet::udp4(public, remote()).payload(b"question"),
        ),
        (
            packet::icmp4_echo(host(), *remote().ip(), 40_000, 1).payload(b"ping"),
            packet::icmp4_echo(*public.ip(), *remote().ip(), public.port(), 1).payload(b"ping"),
        ),
    ]
}

const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

#[test]
fn rfc5508_req4_error_from_outside_arrives_with_the_quote_as_the_host_sent_it() {
    for kind in 0..3 {
        for (error, code) in [(3, 1), (3, 4), (11, 0), (12, 0)] {
            for quote in [28, 48, 1000] {
                let mut rig = Rig::new(Plan::default());
                let public = rig.public(&flows(NOWHERE)[kind].0);
                let (sent_inside, seen_outside) = &flows(public)[kind];
                let quoted = seen_outside.clone().ttl(1).build();
                let icmp_error = packet::icmp4_error(MIDDLE, *public.ip(), error, code, &quoted, quote);
                let sent = rig.router_sends(&icmp_error.ttl(50));
                assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
                let quoted = sent_inside.clone().ttl(1).build();
                let expected = packet::icmp4_error(MIDDLE, host(), error, code, &quoted, quote).ttl(49);
                assert_eq!(
                    expected.macs(INSIDE_MAC, HOST_MAC).build(),
                    sent[0].frame,
                    "{kind} {error} {quote}"
                );
                assert_eq!(INSIDE, sent[0].port);
            }
        }
    }
}

#[test]
fn error_from_the_remote_itself_keeps_its_source() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&flows(NOWHERE)[1].0);
    let (sent_inside, seen_outside) = &flows(public)[1];
    let quoted = seen_outside.build();
    let sent = rig.router_sends(&packet::icmp4_error(*remote().ip(), *public.ip(), 3, 3, &quoted, 548));
    let expected = packet::icmp4_error(*remote().ip(), host(), 3, 3, &sent_inside.build(), 548).ttl(63);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

#[test]
fn rfc5508_req5_error_from_inside_leaves_from_the_public_address_with_the_quote_as_the_remote_sent_it() {
    for source in [host(), Ipv4Addr::new(192, 168, 1, 77)] {
        let mut rig = Rig::new(Plan::default());
        let public = rig.public(&flows(NOWHERE)[1].0);
        let came = packet::udp4(remote(), public).payload(b"answer").ttl(60);
        let went = packet::udp4(remote(), inside()).payload(b"answer").ttl(60);
        let icmp_error = packet::icmp4_error(source, *remote().ip(), 3, 3, &went.build(), 548);
        let sent = rig.host_sends(&icmp_error);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let expected = packet::icmp4_error(*public.ip(), *remote().ip(), 3, 3, &came.build(), 548).ttl(63);
        assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
        assert_eq!(OUTSIDE, sent[0].port);
    }
}

#[test]
fn error_about_a_forwarded_port_is_translated_both_ways() {
    let rule = DestinationRule {
        context: 0,
        protocol: Some(17),
        external: Prefix::host(Ipv4Addr::new(203, 0, 113, 20).to_bits()),
        ports: Some((5353, 5353)),
        inbound: None,
        action: DestinationAction::Host(host().to_bits(), Some(53)),
    };
    let external: SocketAddrV4 = "203.0.113.20:5353".parse().unwrap();
    let target: SocketAddrV4 = "192.168.1.10:53".parse().unwrap();
    let mut rig = Rig::new(Plan {
        forwards: vec![rule],
        ..Plan::default()
    });
    let question = packet::udp4(remote(), external).payload(b"question");
    assert_eq!(1, rig.router_sends(&question).len());
    let arrived = packet::udp4(remote(), target).payload(b"question").ttl(63);
    let sent = rig.host_sends(&packet::icmp4_error(
        host(),
        *remote().ip(),
        3,
        3,
        &arrived.build(),
        548,
    ));
    let quoted = packet::udp4(remote(), external).payload(b"question").ttl(63);
    let expected = packet::icmp4_error(*external.ip(), *remote().ip(), 3, 3, &quoted.build(), 548).ttl(63);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);

    let answer = packet::udp4(external, remote()).payload(b"answer").ttl(9);
    let sent = rig.router_sends(&packet::icmp4_error(
        MIDDLE,
        *external.ip(),
        11,
        0,
        &answer.build(),
        548,
    ));
    let quoted = packet::udp4(target, remote()).payload(b"answer").ttl(9);
    let expected = packet::icmp4_error(MIDDLE, host(), 11, 0, &quoted.build(), 548).ttl(63);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

#[test]
fn rfc5508_req4_req5_error_without_a_session_is_dropped_whichever_side_it_comes_from() {
    let mut rig = Rig::new(Plan::default());
    let public = SocketAddrV4::new(rig::POOL, 5000);
    let quoted = packet::udp4(public, remote()).build();
    assert!(
        rig.router_sends(&packet::icmp4_error(MIDDLE, rig::POOL, 3, 1, &quoted, 548))
            .is_empty()
    );
    assert_eq!(vec![("icmp-error-without-session", 1)], rig.all_drops());
    // Without translation, an error from inside would reveal a private source address to the outside.
    let quoted = packet::udp4(remote(), inside()).build();
    let sent = rig.host_sends(&packet::icmp4_error(host(), *remote().ip(), 3, 3, &quoted, 548));
    assert!(sent.is_empty(), "{:?}", flow(&sent[0].frame));
    assert_eq!(vec![("icmp-error-without-session", 2)], rig.all_drops());
}

#[test]
fn rfc5508_req3a_error_with_a_wrong_quote_is_dropped() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&flows(NOWHERE)[1].0);
    let mut quoted = packet::udp4(public, remote()).build();
    quoted[24] ^= 1;
    let error = packet::icmp4_error(MIDDLE, *public.ip(), 3, 1, &quoted, 548);
    assert!(rig.router_sends(&error).is_empty());
    assert_eq!(vec![("quoted-checksum", 1)], rig.all_drops());
    let quoted = packet::udp4(public, remote()).build();
    let elsewhere = Ipv4Addr::from_bits(public.ip().to_bits() ^ 1);
    let error = packet::icmp4_error(MIDDLE, elsewhere, 3, 1, &quoted, 548);
    assert!(rig.router_sends(&error).is_empty());
    assert_eq!(
        vec![("quoted-checksum", 1), ("bad-icmp-quote", 1)]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>(),
        rig.all_drops().into_iter().collect()
    );
}

#[test]
fn rfc5508_req6_error_neither_refreshes_nor_ends_a_session() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&flows(NOWHERE)[1].0);
    let quoted = flows(public)[1].1.build();
    rig.seconds(200);
    let error = packet::icmp4_error(MIDDLE, *public.ip(), 3, 3, &quoted, 548);
    assert_eq!(1, rig.router_sends(&error).len());
    assert_eq!(100, rig.sessions(Filter::default())[0].seconds_left);
    assert!(!rig.sessions(Filter::default())[0].answered);
    rig.seconds(101);
    assert_eq!(0, rig.live());
}

#[test]
fn rfc5508_req10a_ttl_that_runs_out_in_a_session_is_reported_from_the_interface_it_came_in_by() {
    let mut rig = Rig::new(Plan::default());
    let probe = packet::udp4(inside(), remote()).payload(b"traceroute").ttl(1);
    let sent = rig.host_sends(&probe);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((INSIDE, 0), (sent[0].port, rig.live()));
    let gateway = Ipv4Addr::new(192, 168, 1, 1);
    let expected = packet::icmp4_error(gateway, host(), 11, 0, &probe.build(), 548);
    assert_same_but_identification(&expected.macs(INSIDE_MAC, HOST_MAC), &sent[0].frame);

    let public = rig.public(&packet::udp4(inside(), remote()));
    let answer = packet::udp4(remote(), public).ttl(1);
    let sent = rig.router_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::icmp4_error(
        Ipv4Addr::new(203, 0, 113, 1),
        *remote().ip(),
        11,
        0,
        &answer.build(),
        548,
    );
    assert_same_but_identification(&expected.macs(OUTSIDE_MAC, ROUTER_MAC), &sent[0].frame);
    assert_eq!(vec![("ttl-exceeded", 2)], rig.all_drops());
}

#[test]
fn rfc4787_req13_rfc5508_req10a_datagram_too_long_for_the_outside_link_is_reported_with_its_mtu() {
    let mut rig = Rig::new(Plan {
        outside_mtu: 1400,
        ..Plan::default()
    });
    let long = packet::udp4(inside(), remote()).payload(&[7; 1373]).dont_fragment();
    let sent = rig.host_sends(&long);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(INSIDE, sent[0].port);
    assert_eq!(&[3, 4], &sent[0].frame[34..36]);
    assert_eq!(&[0, 0, 5, 120], &sent[0].frame[38..42]);
    assert_eq!(long.build()[14..60], sent[0].frame[42..88]);
    assert!(rig::is_valid(&sent[0].frame));
    assert_eq!(vec![("too-big", 1)], rig.all_drops());
    let fits = packet::udp4(inside(), remote()).payload(&[7; 1372]).dont_fragment();
    assert_eq!(OUTSIDE, rig.host_sends(&fits)[0].port);
}

/// Compares frames, except for the fields that the gateway chooses: IP ID, flags, type of service and TTL.
fn assert_same_but_identification(expected: &Frame, frame: &[u8]) {
    assert!(rig::is_valid(frame));
    let (mut expected, mut frame) = (expected.build(), frame.to_vec());
    for bytes in [&mut expected, &mut frame] {
        bytes[15] = 0;
        bytes[18..26].fill(0);
    }
    assert_eq!(expected, frame);
}
