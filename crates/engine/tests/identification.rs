//! Tests of the IP IDs of packets whose source address several hosts share (RFC 6864). Datagrams that a receiver may
//! have to reassemble get unique IP IDs; all other datagrams keep theirs.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig, plain};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, Network};
use sluice_wire::Checksums;

const HOSTS: u8 = 20;

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

/// A gateway with one outside address for all hosts.
fn shared(workers: usize) -> Rig {
    let mut rig = Rig::new(Plan {
        workers,
        shards: 16,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        fragments: sluice_engine::snapshot::fragment_limits::FragmentLimits {
            datagrams: 4096,
            ..Default::default()
        },
        ..Plan::default()
    });
    know_hosts(&mut rig);
    rig
}

fn know_hosts(rig: &mut Rig) {
    for number in 0..HOSTS {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
}

/// An unfragmented datagram with this IP ID. The Don't Fragment flag is not set.
fn numbered(frame: Frame, identification: u16) -> Frame {
    with(frame, identification, false)
}

fn with(mut frame: Frame, identification: u16, dont_fragment: bool) -> Frame {
    let Network::V4(header) = &mut frame.network else {
        panic!("IPv4 alone has them")
    };
    (header.identification, header.dont_fragment) = (identification, dont_fragment);
    frame
}

fn datagram(number: u8) -> Frame {
    packet::udp4(SocketAddrV4::new(host(number), 5000), remote()).payload(b"question")
}

/// The first and the last fragment of a datagram.
fn pieces(whole: &Frame, identification: u16) -> [Vec<u8>; 2] {
    let last = {
        let mut last = whole.clone().payload(&[2; 20]);
        last.transport = packet::Transport::Raw(packet::IpNumber(17));
        last
    };
    [(whole.clone().payload(&[1; 24]), 0, true), (last, 4, false)].map(|(frame, offset, more)| {
        let frame = frame
            .macs(HOST_MAC, INSIDE_MAC)
            .fragment(offset, more, identification.into());
        with(frame, identification, false).build()
    })
}

fn identification(frame: &[u8]) -> u16 {
    assert!(rig::is_valid(frame));
    u16::from_be_bytes([frame[18], frame[19]])
}

#[track_caller]
fn only(rig: &Rig, sent: Vec<rig::Sent>) -> u16 {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    identification(&sent[0].frame)
}

#[test]
fn rfc6864_section5_3_1_datagrams_of_hosts_that_share_an_address_never_have_the_same_identification() {
    let mut rig = shared(1);
    let mut seen = BTreeSet::new();
    for same in 0..500 {
        for number in 0..HOSTS {
            let sent = rig.host_sends(&numbered(datagram(number), same));
            assert!(seen.insert(only(&rig, sent)));
        }
    }
}

#[test]
fn rfc6864_section5_3_1_a_host_that_gives_one_identification_to_all_is_helped() {
    let mut rig = shared(1);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let sent = rig.host_sends(&numbered(datagram(0), 0));
        assert!(seen.insert(only(&rig, sent)));
    }
}

#[test]
fn rfc6864_section4_atomic_datagrams_keep_their_identification() {
    let mut rig = shared(1);
    for number in 0..2 {
        let sent = rig.host_sends(&with(datagram(number), 4711, true));
        assert_eq!(4711, only(&rig, sent));
    }
}

#[test]
fn rfc6864_section5_3_1_fragments_of_a_datagram_share_an_identification_that_no_other_has() {
    let mut rig = shared(1);
    let mut seen = BTreeSet::new();
    for (round, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        for number in 0..HOSTS {
            // The IP IDs of unfragmented datagrams to one destination must differ as well.
            let sent = rig.host_sends(&numbered(datagram(number), 9));
            assert!(seen.insert(only(&rig, sent)));
            let pieces = pieces(&datagram(number), 9 + round as u16);
            let sent: Vec<_> = order
                .iter()
                .flat_map(|&piece| rig.send(INSIDE, &pieces[piece]))
                .collect();
            assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
            let given = identification(&sent[0].frame);
            assert_eq!(given, identification(&sent[1].frame));
            assert!(seen.insert(given));
        }
    }
}

#[test]
fn rfc6864_section5_3_1_fragments_of_many_hosts_at_once_keep_together() {
    for workers in [1, 4] {
        let mut rig = shared(workers);
        let all: Vec<_> = (0..HOSTS).map(|number| pieces(&datagram(number), 77)).collect();
        for (number, pieces) in all.iter().enumerate() {
            rig.wires[number % workers].inject(INSIDE, &pieces[1], Checksums::Unverified);
        }
        rig.round();
        assert!(rig.sent().is_empty());
        for (number, pieces) in all.iter().enumerate() {
            rig.wires[(number + 1) % workers].inject(INSIDE, &pieces[0], Checksums::Unverified);
        }
        rig.round();
        rig.pass(200);
        let sent = rig.sent();
        assert_eq!(2 * usize::from(HOSTS), sent.len(), "{:?}", rig.all_drops());
        let of = |later: bool| {
            let frames = sent.iter().filter(move |sent| (sent.frame[21] != 0) == later);
            frames.map(|sent| identification(&sent.frame)).collect::<BTreeSet<_>>()
        };
        assert_eq!(usize::from(HOSTS), of(false).len());
        assert_eq!(of(false), of(true));
    }
}

#[test]
fn rfc6864_section5_3_1_what_the_gateway_cuts_has_the_new_identification_in_every_piece() {
    let mut rig = Rig::new(Plan {
        outside_mtu: 600,
        ..Plan::default()
    });
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let sent = rig.host_sends(&numbered(datagram(0).payload(&[7; 1400]), 9));
        assert_eq!(3, sent.len(), "{:?}", rig.all_drops());
        let given: BTreeSet<_> = sent.iter().map(|sent| identification(&sent.frame)).collect();
        assert_eq!(1, given.len());
        seen.extend(given);
    }
    assert_eq!(2, seen.len());
}

#[test]
fn rfc6864_section5_3_1_icmp_queries_and_errors_from_inside_are_numbered_too() {
    let mut rig = shared(1);
    let mut seen = BTreeSet::new();
    for number in 0..4 {
        let ping = packet::icmp4_echo(host(number), *remote().ip(), 7, 1);
        let sent = rig.host_sends(&numbered(ping, 9));
        assert!(seen.insert(only(&rig, sent)));
        let public = rig.public(&datagram(number));
        let answer = packet::udp4(remote(), public);
        assert_eq!(1, rig.router_sends(&answer).len());
        let quoted = packet::udp4(remote(), SocketAddrV4::new(host(number), 5000)).build();
        let error = packet::icmp4_error(host(number), *remote().ip(), 3, 3, &quoted, 548);
        let sent = rig.host_sends(&numbered(error, 9));
        assert!(seen.insert(only(&rig, sent)));
    }
}

#[test]
fn rfc6864_section5_3_1_datagrams_between_inside_hosts_are_numbered_once() {
    let mut rig = shared(1);
    let public = rig.public(&datagram(0));
    let mut seen = BTreeSet::new();
    for number in 1..HOSTS {
        let source = SocketAddrV4::new(host(number), 5000);
        let sent = rig.host_sends(&numbered(packet::udp4(source, public), 9));
        assert_eq!(INSIDE, sent[0].port);
        assert_eq!(*rig::flow(&sent[0].frame).1.ip(), host(0));
        assert!(seen.insert(only(&rig, sent)));
        let pieces = pieces(&packet::udp4(source, public), 9);
        let sent: Vec<_> = pieces.iter().flat_map(|piece| rig.send(INSIDE, piece)).collect();
        assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(identification(&sent[0].frame), identification(&sent[1].frame));
        assert!(seen.insert(identification(&sent[0].frame)));
    }
}

#[test]
fn identification_of_what_comes_from_outside_stays() {
    let mut rig = shared(1);
    let public = rig.public(&datagram(0));
    let answer = numbered(packet::udp4(remote(), public), 4711);
    let sent = rig.router_sends(&answer);
    assert_eq!(4711, only(&rig, sent));
    let quoted = numbered(packet::udp4(public, remote()), 815).build();
    let error = packet::icmp4_error("198.51.100.1", *public.ip(), 3, 1, &quoted, 548);
    let sent = rig.router_sends(&numbered(error, 4712));
    assert_eq!(815u16.to_be_bytes(), sent[0].frame[46..48]);
    assert_eq!(4712, only(&rig, sent));
}

#[test]
fn identification_of_answers_of_a_forwarded_port_is_the_gateways() {
    let external: SocketAddrV4 = "203.0.113.20:5353".parse().unwrap();
    let mut rig = Rig::new(Plan {
        forwards: vec![DestinationRule {
            context: 0,
            protocol: Some(17),
            external: Prefix::host(external.ip().to_bits()),
            ports: Some((5353, 5353)),
            inbound: None,
            action: DestinationAction::Host(host(0).to_bits(), Some(53)),
        }],
        ..Plan::default()
    });
    let question = numbered(packet::udp4(remote(), external), 4711);
    let sent = rig.router_sends(&question);
    assert_eq!(4711, only(&rig, sent));
    let answer = numbered(packet::udp4(SocketAddrV4::new(host(0), 53), remote()), 4711);
    let first = rig.host_sends(&answer);
    let second = rig.host_sends(&answer);
    assert_ne!(only(&rig, first), only(&rig, second));
}

#[test]
fn identification_is_kept_where_the_pool_says_so_or_nothing_is_translated() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan {
            translate,
            change_pool: |pool| pool.renumber = false,
            ..Plan::default()
        });
        let sent = rig.host_sends(&numbered(datagram(0), 4711));
        assert_eq!(4711, only(&rig, sent));
        for piece in pieces(&datagram(0), 815) {
            let sent = rig.send(INSIDE, &piece);
            assert_eq!(815, only(&rig, sent));
        }
    }
}

#[test]
fn identification_of_a_capture_is_the_same_with_any_number_of_workers() {
    let given = |workers: usize| {
        let mut rig = shared(workers);
        let mut given = Vec::new();
        for round in 0..40 {
            for number in 0..HOSTS {
                let at = usize::from(number) % workers;
                let whole = numbered(datagram(number), round).macs(HOST_MAC, INSIDE_MAC).build();
                for frame in pieces(&datagram(number), round).iter().chain([&whole]) {
                    let sent = rig.send_at(at, INSIDE, frame);
                    given.push(only(&rig, sent));
                }
            }
        }
        given
    };
    let alone = given(1);
    assert_eq!(alone, given(2));
    assert_eq!(alone, given(4));
}
