//! Tests of the translation of fragments that arrive in any order. The memory is bounded.

use std::net::SocketAddrV4;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig};
use sluice_engine::snapshot::fragment_limits::FragmentLimits;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.10".parse().unwrap(), port)
}

/// The fragments of a datagram, with 64 bytes each. The first fragment contains the checksum of the whole datagram.
fn pieces(whole: &Frame, identification: u32) -> Vec<Vec<u8>> {
    let frame = whole.clone().macs(HOST_MAC, INSIDE_MAC).build();
    let payload = &frame[34..];
    let count = payload.len().div_ceil(64);
    payload
        .chunks(64)
        .enumerate()
        .map(|(piece, part)| {
            let mut header = whole.clone();
            header.transport = packet::Transport::Raw(packet::IpNumber(whole.protocol()));
            header
                .payload(part)
                .macs(HOST_MAC, INSIDE_MAC)
                .fragment(piece as u16 * 8, piece + 1 < count, identification)
                .build()
        })
        .collect()
}

/// Reassembles the payloads of IPv4 fragments by their offsets.
fn reassembled(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    let offset = |frame: &Vec<u8>| usize::from(u16::from_be_bytes([frame[20] & 0x1f, frame[21]])) * 8;
    let mut frames: Vec<_> = frames.iter().collect();
    frames.sort_by_key(|frame| offset(frame));
    for frame in frames {
        assert_eq!(whole.len(), offset(frame));
        whole.extend_from_slice(&frame[34..]);
    }
    whole
}

/// Checks that the sent fragments form the translated datagram `whole`.
#[track_caller]
fn assert_translated(rig: &Rig, whole: &Frame, sent: &[rig::Sent], count: usize) {
    assert_eq!(count, sent.len(), "{:?}", rig.all_drops());
    assert!(sent.iter().all(|sent| sent.port == OUTSIDE));
    let frames: Vec<_> = sent.iter().map(|sent| sent.frame.clone()).collect();
    let payload = reassembled(&frames);
    let first = frames
        .iter()
        .find(|frame| frame[20] & 0x1f == 0 && frame[21] == 0)
        .unwrap();
    let public = rig::flow(first).0;
    let expected = match whole.protocol() {
        17 => packet::udp4(public, remote()).payload(&whole.payload).build(),
        _ => packet::icmp4_echo(*public.ip(), *remote().ip(), public.port(), 1)
            .payload(&whole.payload)
            .build(),
    };
    assert_eq!(expected[34..], payload[..]);
    assert!(frames.iter().all(|frame| frame[26..34] == expected[26..34]));
    assert!(frames.iter().all(|frame| frame[22] == 63));
}

fn datagram() -> Frame {
    packet::udp4(inside(5000), remote()).payload(&std::array::from_fn::<u8, 300, _>(|k| k as u8))
}

#[test]
fn rfc4787_req14_fragments_in_any_order_one_by_one_are_translated_like_their_datagram() {
    let ping = packet::icmp4_echo(rig::HOST, "198.51.100.7", 7, 1).payload(&[9; 300]);
    for whole in [datagram(), ping] {
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
            let mut rig = Rig::new(Plan::default());
            let pieces = pieces(&whole, 77);
            let mut sent = Vec::new();
            for piece in order {
                sent.extend(rig.send(INSIDE, &pieces[piece]));
            }
            assert_translated(&rig, &whole, &sent, 5);
            assert_eq!(1, rig.live());
        }
    }
}

#[test]
fn fragments_in_any_order_in_one_burst_are_translated_like_their_datagram() {
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
        let mut rig = Rig::new(Plan::default());
        let pieces = pieces(&datagram(), 77);
        for piece in order {
            rig.wires[0].inject(INSIDE, &pieces[piece], Checksums::Unverified);
        }
        rig.round();
        let sent = rig.sent();
        assert_translated(&rig, &datagram(), &sent, 5);
    }
}

#[test]
fn fragments_of_an_echo_request_open_their_session_at_whichever_worker() {
    for workers in [1, 2] {
        let mut rig = Rig::new(Plan {
            workers,
            ..Plan::default()
        });
        for identifier in 1..17 {
            // The hosts are chosen so that sessions belong to both workers.
            let host = format!("192.168.1.{}", 10 + identifier);
            let whole = packet::icmp4_echo(host.as_str(), "198.51.100.7", identifier, 1).payload(&[7; 150]);
            let pieces = pieces(&whole, 100 + u32::from(identifier));
            rig.wires[0].inject(INSIDE, &pieces[0], Checksums::Unverified);
            // Answers need a neighbour entry for the host, so the fragment is parked until this entry exists. A later
            // fragment that arrives then may overtake the parked fragment on the way to the session's worker.
            rig.round();
            let answer = packet::arp_reply(HOST_MAC, host.as_str(), INSIDE_MAC, "192.168.1.1");
            rig.wires[0].inject(INSIDE, &answer, Checksums::Unverified);
            for piece in &pieces[1..] {
                rig.wires[0].inject(INSIDE, piece, Checksums::Unverified);
            }
            rig.round();
            rig.round();
            let outside = rig.sent().iter().filter(|sent| sent.port == OUTSIDE).count();
            assert_eq!(3, outside, "{workers} workers, {identifier}: {:?}", rig.all_drops());
        }
        rig.check();
    }
}

#[test]
fn fragments_whose_first_is_missing_are_dropped_by_name_in_time() {
    let mut rig = Rig::new(Plan::default());
    let pieces = pieces(&datagram(), 77);
    for piece in &pieces[1..] {
        assert!(rig.send(INSIDE, piece).is_empty());
    }
    assert!(rig.all_drops().is_empty());
    rig.pass(2500);
    assert_eq!(vec![("fragment-timeout", 4)], rig.all_drops());
    assert_eq!(0, rig.workers[0].io_mut().parked());
}

#[test]
fn fragments_beyond_the_bound_of_a_datagram_are_dropped_and_the_others_wait() {
    let mut rig = Rig::new(Plan::default());
    let long = packet::udp4(inside(5000), remote()).payload(&[7; 1000]);
    let pieces = pieces(&long, 77);
    assert_eq!(16, pieces.len());
    for piece in &pieces[1..] {
        assert!(rig.send(INSIDE, piece).is_empty());
    }
    assert_eq!(vec![("fragments-full", 7)], rig.all_drops());
    assert_eq!(
        9,
        rig.send(INSIDE, &pieces[0]).len(),
        "the first and the eight that waited"
    );
}

#[test]
fn rfc4787_req14a_datagrams_beyond_the_table_are_dropped_by_name() {
    let mut rig = Rig::new(Plan {
        fragments: FragmentLimits {
            datagrams: 8,
            ..FragmentLimits::default()
        },
        ..Plan::default()
    });
    for identification in 0..20 {
        assert!(rig.send(INSIDE, &pieces(&datagram(), identification)[1]).is_empty());
    }
    assert_eq!(vec![("fragments-full", 12)], rig.all_drops());
    rig.pass(2500);
    assert_eq!(12, rig.drops("fragments-full"));
    assert_eq!(8, rig.drops("fragment-timeout"));
    assert!(rig.send(INSIDE, &pieces(&datagram(), 100)[1]).is_empty());
    assert_eq!(12, rig.drops("fragments-full"));
}

#[test]
fn rfc4787_req14a_fragments_beyond_what_may_wait_in_all_are_dropped_by_name() {
    let limits = FragmentLimits {
        datagrams: 64,
        parked: 3,
        ..FragmentLimits::default()
    };
    let plan = || Plan {
        fragments: limits,
        ..Plan::default()
    };
    let later: Vec<_> = (0..5).map(|number| pieces(&datagram(), number)[1].clone()).collect();
    let mut one_by_one = Rig::new(plan());
    for piece in &later {
        assert!(one_by_one.send(INSIDE, piece).is_empty());
    }
    let mut together = Rig::new(plan());
    for piece in &later {
        together.wires[0].inject(INSIDE, piece, Checksums::Unverified);
    }
    together.round();
    for mut rig in [one_by_one, together] {
        assert_eq!(vec![("fragments-full", 2)], rig.all_drops());
        assert_eq!(3, rig.workers[0].io_mut().parked());
        // Entries become free when the first fragment of their datagram arrives, and when the datagram times out.
        assert_eq!(2, rig.send(INSIDE, &pieces(&datagram(), 0)[0]).len());
        assert!(rig.send(INSIDE, &pieces(&datagram(), 9)[1]).is_empty());
        rig.pass(2500);
        assert_eq!((2, 3), (rig.drops("fragments-full"), rig.drops("fragment-timeout")));
        assert!(rig.send(INSIDE, &pieces(&datagram(), 10)[1]).is_empty());
        assert_eq!((2, 1), (rig.drops("fragments-full"), rig.workers[0].io_mut().parked()));
    }
}

#[test]
fn fragments_wait_as_long_as_is_configured() {
    let mut rig = Rig::new(Plan {
        fragments: FragmentLimits {
            datagrams: 64,
            timeout: 5_000_000_000,
            ..FragmentLimits::default()
        },
        ..Plan::default()
    });
    rig.send(INSIDE, &pieces(&datagram(), 77)[1]);
    rig.pass(4500);
    assert!(rig.all_drops().is_empty());
    rig.pass(1000);
    assert_eq!(vec![("fragment-timeout", 1)], rig.all_drops());
}

#[test]
fn first_fragments_that_release_more_than_a_burst_lose_none() {
    let mut rig = Rig::new(Plan {
        fragments: FragmentLimits {
            datagrams: 256,
            ..FragmentLimits::default()
        },
        ..Plan::default()
    });
    let datagrams: Vec<_> = (0..32)
        .map(|k| pieces(&packet::udp4(inside(1000 + k), remote()).payload(&[7; 560]), k.into()))
        .collect();
    for datagram in &datagrams {
        for piece in &datagram[1..9] {
            rig.wires[0].inject(INSIDE, piece, Checksums::Unverified);
        }
    }
    rig.round();
    assert_eq!(256, rig.workers[0].io_mut().parked());
    for datagram in &datagrams {
        rig.wires[0].inject(INSIDE, &datagram[0], Checksums::Unverified);
    }
    rig.round();
    rig.pass(500);
    assert_eq!(9 * 32, rig.sent().len(), "{:?}", rig.all_drops());
    assert!(rig.all_drops().is_empty(), "{:?}", rig.all_drops());
}

#[test]
fn ipv6_fragments_without_translation_are_forwarded_as_they_are() {
    let mut rig = Rig::new(Plan::default());
    let whole = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(&[5; 64]);
    for frame in [
        whole.clone().fragment(0, true, 9),
        whole.payload(&[6; 20]).fragment(9, false, 9),
    ] {
        let sent = rig.host_sends(&frame);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let expected = frame.ttl(63).macs(rig::OUTSIDE_MAC, rig::ROUTER_MAC);
        assert_eq!(expected.build(), sent[0].frame);
    }
}
