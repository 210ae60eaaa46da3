//! Tests of fragmented datagrams in inspected sessions. A pattern in the payload never passes, however its bytes are
//! distributed over the fragments.

use std::net::{SocketAddrV4, SocketAddrV6};

use crate::inspected::{self, Ledger, ledger, piece, pieces, plan};
use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig};
use sluice_engine::worker::request::{Reply, Request};
use sluice_inspect::stream::{Exception, Policy as Exceptional};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

const PLANTED: &[u8] = b"planted here";

fn udp4() -> Frame {
    let host: SocketAddrV4 = "192.168.1.10:5000".parse().unwrap();
    packet::udp4(host, "198.51.100.7:99".parse::<SocketAddrV4>().unwrap()).macs(HOST_MAC, INSIDE_MAC)
}

fn v6(port: u16) -> [SocketAddrV6; 2] {
    [format!("[2001:db8:1::10]:{port}"), "[2001:db8:9::7]:99".to_owned()].map(|text| text.parse().unwrap())
}

fn udp6() -> Frame {
    let [host, remote] = v6(5000);
    packet::udp6(host, remote).macs(HOST_MAC, INSIDE_MAC)
}

/// A gateway that inspects but does not translate.
fn plain() -> Plan {
    Plan {
        translate: false,
        ..plan()
    }
}

/// 96 bytes that contain a pattern at an offset.
fn around(place: usize, planted: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'.'; 96];
    bytes[place..place + planted.len()].copy_from_slice(planted);
    bytes
}

fn inject(rig: &mut Rig, frame: &Frame) {
    let bytes = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
    rig.wires[0].inject(INSIDE, &bytes, Checksums::Unverified);
}

/// The frames that leave when frames arrive one by one, or in one burst if `at_once` is set.
fn send(rig: &mut Rig, frames: &[Frame], at_once: bool) -> Vec<Vec<u8>> {
    for frame in frames {
        inject(rig, frame);
        if !at_once {
            rig.round();
        }
    }
    rig.round();
    rig.round();
    rig.sent().into_iter().map(|sent| sent.frame).collect()
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn ordered(pieces: &[Frame], order: [usize; 3]) -> Vec<Frame> {
    order.map(|place| pieces[place].clone()).to_vec()
}

/// The payloads of fragments after the IP and fragment headers, in the order of their offsets.
fn carried(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<(u16, &[u8])> = frames.iter().map(|frame| part(frame)).collect();
    parts.sort_unstable();
    parts.into_iter().flat_map(|(_, bytes)| bytes).copied().collect()
}

fn part(frame: &[u8]) -> (u16, &[u8]) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    match word(12) {
        0x0800 => (word(20) & 0x1fff, &frame[34..]),
        _ => (word(56) >> 3, &frame[62..]),
    }
}

#[test]
fn harmless_datagrams_pass_whatever_the_order_of_their_fragments() {
    for whole in [udp4(), udp6()] {
        let whole = whole.payload(&around(0, b"harmless"));
        let parts = pieces(&whole, &[4, 8], 7);
        for order in ORDERS {
            for (workers, at_once) in [(1, false), (1, true), (4, false), (4, true)] {
                let mut rig = Rig::new(Plan { workers, ..plain() });
                let sent = send(&mut rig, &ordered(&parts, order), at_once);
                assert_eq!(3, sent.len(), "{order:?} {workers} {at_once} {:?}", rig.all_drops());
                assert_eq!(around(0, b"harmless"), carried(&sent)[8..]);
                let expected = Ledger {
                    received: 3,
                    inspected: 3,
                    ..Ledger::default()
                };
                assert_eq!(expected, ledger(&mut rig));
                rig.check();
            }
        }
    }
}

#[test]
fn fragments_leave_in_the_order_in_which_they_came() {
    for at_once in [false, true] {
        let mut rig = Rig::new(plain());
        let parts = pieces(&udp4().payload(&around(0, b"harmless")), &[4, 8], 7);
        let sent = send(&mut rig, &ordered(&parts, [0, 2, 1]), at_once);
        assert_eq!(
            vec![0, 8, 4],
            sent.iter().map(|frame| part(frame).0).collect::<Vec<_>>()
        );
    }
}

#[test]
fn translated_datagram_in_fragments_leaves_with_the_checksum_of_the_translated_one() {
    let mut rig = Rig::new(plan());
    let whole = udp4().payload(&around(0, b"harmless"));
    let expected = rig.host_sends(&whole).remove(0).frame;
    let sent = send(&mut rig, &pieces(&whole, &[4, 8], 7), false);
    assert_eq!(expected[34..], carried(&sent));
}

#[test]
fn what_is_planted_over_fragments_does_not_pass_in_any_place_or_order() {
    for whole in [udp4(), udp6()] {
        // The offset of the pattern varies from before the first fragment boundary to after the second fragment
        // boundary.
        for place in 10..60 {
            let parts = pieces(&whole.clone().payload(&around(place, PLANTED)), &[4, 5], 7);
            for order in ORDERS {
                let mut rig = Rig::new(plain());
                let sent = send(&mut rig, &ordered(&parts, order), place % 2 == 0);
                assert_eq!(0, sent.len(), "{place} {order:?}");
                assert_eq!(3, rig.drops("signature"), "{place} {order:?} {:?}", rig.all_drops());
                assert_eq!(3, ledger(&mut rig).dropped);
                assert_eq!(1, inspected::alerts(&mut rig).len());
            }
        }
    }
}

#[test]
fn fragments_that_overlap_are_dropped_with_all_of_their_datagram() {
    for whole in [udp4(), udp6()] {
        let built = pieces(&whole.clone().payload(&around(20, PLANTED)), &[4, 8], 7);
        // A middle fragment overlaps adjacent fragments, or contains different data.
        for (from, to) in [(24, 64), (32, 72), (24, 72), (40, 56), (32, 56)] {
            let other = piece(&whole, from, &vec![b'x'; to - from], true, 7);
            for order in ORDERS {
                let mut rig = Rig::new(plain());
                let mut frames = ordered(&built, order);
                frames.insert(1, other.clone());
                let sent = send(&mut rig, &frames, false);
                assert_eq!(0, sent.len(), "{from} {to} {order:?}");
                let dropped = rig.drops("inspection-fragment-overlap");
                assert_eq!(4, dropped, "{from} {to} {order:?} {:?}", rig.all_drops());
                assert_eq!(4, ledger(&mut rig).dropped);
            }
        }
    }
}

#[test]
fn fragment_that_comes_twice_is_dropped_alone() {
    for whole in [udp4(), udp6()] {
        let parts = pieces(&whole.payload(&around(0, b"harmless")), &[4, 8], 7);
        let mut rig = Rig::new(plain());
        let twice = [&parts[0], &parts[1], &parts[1], &parts[2]].map(Frame::clone);
        assert_eq!(3, send(&mut rig, &twice, false).len());
        assert_eq!(1, rig.drops("inspection-fragment-copy"));
        assert_eq!((3, 1), (ledger(&mut rig).inspected, ledger(&mut rig).dropped));
    }
}

#[test]
fn fragments_that_do_not_agree_where_their_datagram_ends_are_dropped() {
    for whole in [udp4(), udp6()] {
        let parts = pieces(&whole.clone().payload(&around(0, b"harmless")), &[4, 8], 7);
        for other in [
            // Contradictory fragments: another fragment that claims to be the last, a last fragment that ends before
            // data that has arrived, and data after the end.
            piece(&whole, 104, &[b'x'; 8], false, 7),
            piece(&whole, 64, &[b'x'; 16], false, 7),
            piece(&whole, 104, &[b'x'; 8], true, 7),
        ] {
            let mut rig = Rig::new(plain());
            let frames = [&parts[0], &parts[2], &other, &parts[1]].map(Frame::clone);
            assert_eq!(0, send(&mut rig, &frames, false).len());
            let misfit = rig.drops("inspection-fragment-inconsistent") + rig.drops("inspection-fragment-overlap");
            assert_eq!(4, misfit, "{:?}", rig.all_drops());
            ledger(&mut rig);
        }
    }
}

#[test]
fn fragments_of_a_datagram_that_does_not_become_whole_are_dropped_in_time_and_leave_room() {
    let mut rig = Rig::new(plain());
    let parts = pieces(&udp4().payload(&around(0, b"harmless")), &[4, 8], 7);
    assert_eq!(0, send(&mut rig, &parts[..2], false).len());
    assert_eq!(2, ledger(&mut rig).waiting);
    rig.pass(2_500);
    assert_eq!(2, rig.drops("inspection-fragment-timeout"));
    assert_eq!((0, 2), (ledger(&mut rig).waiting, ledger(&mut rig).dropped));
    // A later datagram with the same IP ID is independent of the dropped datagram.
    assert_eq!(3, send(&mut rig, &parts, false).len());
    rig.check();
}

#[test]
fn datagrams_bytes_and_fragments_that_wait_are_bounded() {
    let first = |identification| pieces(&udp4().payload(&around(0, b"harmless")), &[4, 8], identification).remove(0);
    // The table has four entries for datagrams. One source may use half of the entries.
    let mut rig = Rig::new(plain());
    for identification in 0..6 {
        send(&mut rig, &[first(identification)], false);
    }
    assert_eq!(4, rig.drops("inspection-fragments-full"));
    assert_eq!(2, ledger(&mut rig).waiting);
    // The memory for fragments has seventy bytes. When a third fragment with 32 bytes arrives, the oldest fragment is
    // evicted.
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            inspected::inspected(snapshot);
            inspected::change(snapshot, |inspection| inspection.fragments.bytes = 70);
        },
        ..plain()
    });
    for identification in 0..3 {
        send(&mut rig, &[first(identification)], false);
    }
    assert_eq!(1, rig.drops("inspection-fragments-full"));
    // Send sixty-four fragments of one datagram.
    let mut rig = Rig::new(plain());
    let whole = udp4().payload(&[b'.'; 8 * 70]);
    let cuts: Vec<usize> = (1..71).collect();
    assert_eq!(0, send(&mut rig, &pieces(&whole, &cuts, 7), false).len());
    assert_eq!(71 - 64, rig.drops("inspection-fragments-full"));
    ledger(&mut rig);
    rig.check();
}

#[test]
fn datagram_of_fragments_with_a_wrong_checksum_is_what_the_policy_says() {
    for whole in [udp4(), udp6()] {
        let mut parts = pieces(&whole.payload(&around(0, b"harmless")), &[4, 8], 7);
        parts[2].payload[5] ^= 1;
        let mut rig = Rig::new(plain());
        assert_eq!(0, send(&mut rig, &parts, false).len());
        assert_eq!(3, rig.drops("stream-bad-checksum"));
        let mut rig = Rig::new(Plan {
            snapshot: |snapshot| {
                inspected::inspected(snapshot);
                inspected::say(snapshot, Exception::BadChecksum, Exceptional::Pass);
            },
            ..plain()
        });
        assert_eq!(3, send(&mut rig, &parts, false).len());
        assert_eq!(3, ledger(&mut rig).bypassed);
    }
}

#[test]
fn long_datagram_in_fragments_that_come_last_first_passes() {
    let mut rig = Rig::new(plain());
    let payload: Vec<u8> = (0..10_000).map(|k| k as u8).collect();
    let whole = udp4().payload(&payload);
    let mut parts = pieces(&whole, &[180, 360, 540, 720, 900, 1080], 7);
    parts.reverse();
    let sent = send(&mut rig, &parts, false);
    assert_eq!(7, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(payload, carried(&sent)[8..]);
}

/// An untranslated connection over IPv4 or IPv6.
struct Line {
    v6: bool,
}

impl Line {
    fn open(rig: &mut Rig, v6: bool) -> Self {
        let line = Self { v6 };
        for frame in [
            line.segment(true).flags(flag::SYN).numbers(99, 0),
            line.segment(false).flags(flag::SYN | flag::ACK).numbers(499, 100),
            line.segment(true).flags(flag::ACK).numbers(100, 500),
        ] {
            let sent = match frame.source_mac == HOST_MAC {
                true => rig.host_sends(&frame),
                false => rig.router_sends(&frame),
            };
            assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        }
        line
    }

    fn segment(&self, out: bool) -> Frame {
        let frame = if self.v6 {
            let [host, remote] = v6(4000);
            if out {
                packet::tcp6(host, remote)
            } else {
                packet::tcp6(remote, host)
            }
        } else {
            let [host, remote] =
                ["192.168.1.10:4000", "198.51.100.7:99"].map(|end| end.parse::<SocketAddrV4>().unwrap());
            if out {
                packet::tcp4(host, remote)
            } else {
                packet::tcp4(remote, host)
            }
        };
        frame.macs(if out { HOST_MAC } else { INSIDE_MAC }, INSIDE_MAC)
    }

    fn data(&self, place: u32, bytes: &[u8]) -> Frame {
        let frame = self.segment(true).flags(flag::ACK | flag::PSH);
        frame.numbers(100 + place, 500).payload(bytes)
    }
}

/// The data of segments in these frames. Some frames are fragments.
fn data(frames: &[Vec<u8>]) -> Vec<u8> {
    carried(frames)[20..].to_vec()
}

#[test]
fn segment_in_fragments_is_part_of_its_stream() {
    for v6 in [false, true] {
        for order in ORDERS {
            let mut rig = Rig::new(plain());
            let line = Line::open(&mut rig, v6);
            let parts = pieces(&line.data(0, &around(88, b"planted ")), &[4, 8], 7);
            let sent = send(&mut rig, &ordered(&parts, order), false);
            assert_eq!(3, sent.len(), "{v6} {order:?} {:?}", rig.all_drops());
            assert_eq!(around(88, b"planted "), data(&sent));
            // The remaining bytes of the pattern are not delivered.
            assert_eq!(0, rig.host_sends(&line.data(96, b"here")).len());
            assert_eq!(1, rig.drops("signature"));
            ledger(&mut rig);
        }
    }
}

#[test]
fn what_is_planted_over_a_segment_in_fragments_does_not_pass() {
    for v6 in [false, true] {
        for place in (0..84).step_by(3) {
            let mut rig = Rig::new(plain());
            let line = Line::open(&mut rig, v6);
            let parts = pieces(&line.data(0, &around(place, PLANTED)), &[4, 8], 7);
            assert_eq!(0, send(&mut rig, &ordered(&parts, [2, 0, 1]), false).len());
            assert_eq!(3, rig.drops("signature"), "{place} {:?}", rig.all_drops());
        }
    }
}

#[test]
fn segment_in_fragments_ahead_of_a_gap_passes_and_is_inspected_with_what_fills_it() {
    for v6 in [false, true] {
        for at_once in [false, true] {
            let mut rig = Rig::new(plain());
            let line = Line::open(&mut rig, v6);
            let parts = pieces(&line.data(4, &around(0, b" here")), &[4, 8], 7);
            let sent = send(&mut rig, &parts, at_once);
            assert_eq!(3, sent.len(), "{:?}", rig.all_drops());
            assert_eq!(around(0, b" here"), data(&sent));
            assert_eq!(1, send(&mut rig, &[line.data(100, b"the end")], at_once).len());
            assert_eq!(1, send(&mut rig, &[line.data(0, b"well")], at_once).len());
            assert_eq!((0, 0), (ledger(&mut rig).waiting, ledger(&mut rig).dropped));
            // A pattern that spans two segments does not pass completely.
            let mut rig = Rig::new(plain());
            let line = Line::open(&mut rig, v6);
            let parts = pieces(&line.data(7, &around(0, b" here")), &[4, 8], 7);
            assert_eq!(3, send(&mut rig, &parts, at_once).len());
            assert_eq!(0, send(&mut rig, &[line.data(0, b"planted")], at_once).len());
            assert_eq!(1, rig.drops("signature"), "{:?}", rig.all_drops());
            ledger(&mut rig);
            rig.check();
        }
    }
}

#[test]
fn copy_in_fragments_that_differs_from_what_was_sent_does_not_pass() {
    for v6 in [false, true] {
        let mut rig = Rig::new(plain());
        let line = Line::open(&mut rig, v6);
        assert_eq!(1, rig.host_sends(&line.data(0, &around(0, b"first"))).len());
        let same = pieces(&line.data(0, &around(0, b"first")), &[4, 8], 7);
        assert_eq!(3, send(&mut rig, &same, false).len());
        let other = pieces(&line.data(0, &around(0, b"other")), &[4, 8], 8);
        assert_eq!(0, send(&mut rig, &other, false).len());
        assert_eq!(3, rig.drops("inspection-fragment-rewritten"));
        ledger(&mut rig);
    }
}

#[test]
fn rejected_datagram_in_fragments_is_dropped_and_nobody_told() {
    for order in ORDERS {
        let mut rig = Rig::new(plain());
        let ask = packet::udp4("192.168.1.10:5353", "198.51.100.7:53").payload(&around(20, b"\x04evil"));
        assert_eq!(
            0,
            send(&mut rig, &ordered(&pieces(&ask, &[4, 8], 7), order), false).len()
        );
        assert_eq!(3, rig.drops("signature"));
        ledger(&mut rig);
        rig.check();
    }
}

#[test]
fn fragments_that_wait_go_along_when_their_shard_goes_to_another_worker() {
    let mut rig = Rig::new(Plan {
        workers: 2,
        shards: 2,
        ..plain()
    });
    let whole = udp4().payload(&around(0, b"harmless"));
    let parts = pieces(&whole, &[4, 8], 7);
    assert_eq!(0, send(&mut rig, &parts[..2], false).len());
    for shard in 0..2 {
        let from = usize::from(rig.plane.start_parameters().owners.of(shard).unwrap());
        let to = 1 - from;
        assert!(matches!(rig.ask(to, Request::Expect { shard }), Reply::Done));
        assert!(matches!(
            rig.ask(from, Request::StartRelease { shard, to: to as u16 }),
            Reply::Done
        ));
        assert!(matches!(rig.ask(from, Request::Release), Reply::Done));
        while rig.plane.start_parameters().owners.of(shard) != Some(to as u16) {
            rig.round();
        }
        rig.round();
    }
    assert_eq!(2, ledger(&mut rig).waiting, "{:?}", rig.all_drops());
    assert_eq!(3, send(&mut rig, &parts[2..], false).len());
    let expected = Ledger {
        received: 3,
        inspected: 3,
        ..Ledger::default()
    };
    assert_eq!(expected, ledger(&mut rig));
    rig.check();
}
