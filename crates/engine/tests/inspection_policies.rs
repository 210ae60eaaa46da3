//! Tests of the policies for packets that can't be inspected, and of the overload actions of each class. Every packet
//! must be counted.

use std::net::SocketAddrV4;

use crate::inspected::{self, Ledger, Talk, assured, bypassed, ledger, pieces, plan, say};
use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig};
use proptest::prelude::*;
use sluice_engine::features::inspection::{Class, InspectionPolicy, Overload, Shed};
use sluice_engine::snapshot::Snapshot;
use sluice_inspect::Skipped;
use sluice_inspect::protocols::Anomaly;
use sluice_inspect::stream::{Exception, Policy as Exceptional};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

/// A plan with a changed policy for one exception.
macro_rules! saying {
    ($exception:ident, $said:ident) => {
        Plan {
            snapshot: |snapshot| {
                inspected::inspected(snapshot);
                say(snapshot, Exception::$exception, Exceptional::$said);
            },
            ..plan()
        }
    };
}

fn segment(port: u16, flags: u8, place: u32, data: &[u8]) -> Frame {
    let host = SocketAddrV4::new(rig::HOST.parse().unwrap(), port);
    let frame = packet::tcp4(host, "198.51.100.7:80".parse::<SocketAddrV4>().unwrap()).flags(flags);
    frame.numbers(1001u32.wrapping_add(place), 9001).payload(data)
}

/// A segment of a connection whose handshake the gateway has not seen.
fn midst(place: u32, data: &[u8]) -> Frame {
    segment(4000, flag::ACK | flag::PSH, place, data)
}

#[test]
fn connection_in_its_midst_that_is_not_translated_is_inspected_from_there() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..plan()
    });
    assert_eq!(
        1,
        rig.host_sends(&segment(4000, flag::ACK, 0, b"")).len(),
        "{:?}",
        rig.all_drops()
    );
    let [host, remote] = ["192.168.1.10:4000", "198.51.100.7:80"].map(|end| end.parse::<SocketAddrV4>().unwrap());
    let answer = packet::tcp4(remote, host)
        .flags(flag::ACK)
        .numbers(9001, 1001)
        .payload(b"so?");
    assert_eq!(1, rig.router_sends(&answer).len(), "{:?}", rig.all_drops());
    assert_eq!(1, rig.host_sends(&midst(0, b"some ev")).len());
    assert_eq!(0, rig.host_sends(&midst(7, b"il")).len());
    assert_eq!((1, 1), (rig.drops("signature"), rig.live()));
    let expected = Ledger {
        received: 4,
        inspected: 3,
        dropped: 1,
        ..Ledger::default()
    };
    assert_eq!(expected, ledger(&mut rig));
    // The session has the timeout of an established connection.
    rig.seconds(600);
    assert_eq!(1, rig.live());
}

#[test]
fn message_that_hosts_read_differently_is_counted_and_ends_its_flow_where_the_policy_says_so() {
    let smuggled = b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for (plan, goes_on) in [(plan(), 1), (saying!(DecodeAnomaly, DropFlow), 0)] {
        let mut rig = Rig::new(plan);
        let talk = Talk::open(&mut rig, 4000);
        assert_eq!(goes_on, rig.host_sends(&talk.data(0, smuggled)).len());
        let next = talk.data(smuggled.len() as u32, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(goes_on, rig.host_sends(&next).len());
        let dropped = [rig.drops("inspection-decode-anomaly"), rig.drops("flow-dropped")];
        assert_eq!([1 - goes_on as u64; 2], dropped);
        ledger(&mut rig);
        let met = |anomaly: Anomaly| -> u64 {
            let counters = rig.plane.counters().iter();
            counters
                .map(|worker| worker.inspection.anomalies.get(anomaly as usize))
                .sum()
        };
        assert_eq!([1, 0], [Anomaly::LengthAndChunked, Anomaly::Nul].map(met));
    }
}

#[test]
fn connection_in_its_midst_goes_on_uninspected_or_has_no_session_as_its_policy_says() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..saying!(Midstream, Bypass)
    });
    for (place, data) in [(0, &b"evil"[..]), (4, b"evil")] {
        assert_eq!(1, rig.host_sends(&midst(place, data)).len());
    }
    assert_eq!(
        (1, 1),
        (bypassed(&rig, Skipped::Midstream), bypassed(&rig, Skipped::Bypassed))
    );
    assert_eq!(2, ledger(&mut rig).bypassed);
    for plan in [saying!(Midstream, DropPacket), saying!(Midstream, DropFlow)] {
        let mut rig = Rig::new(Plan {
            translate: false,
            ..plan
        });
        assert_eq!(0, rig.host_sends(&midst(0, b"data")).len());
        assert_eq!((1, 0), (rig.drops("tcp-not-opening"), rig.live()));
    }
    // No session is created if the former translation is unknown, or if the packet is a reset or a SYN-ACK.
    let mut rig = Rig::new(plan());
    assert_eq!(0, rig.host_sends(&midst(0, b"data")).len());
    let mut rig2 = Rig::new(Plan {
        translate: false,
        ..plan()
    });
    for flags in [flag::RST, flag::SYN | flag::ACK] {
        assert_eq!(0, rig2.host_sends(&segment(4000, flags, 0, b"")).len());
    }
    assert_eq!((1, 2), (rig.drops("tcp-not-opening"), rig2.drops("tcp-not-opening")));
}

fn wrong(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

#[test]
fn segment_with_a_wrong_checksum_does_not_come_into_its_stream() {
    let pass = |plan: Plan, checksums: Checksums| {
        let mut rig = Rig::new(plan);
        let talk = Talk::open(&mut rig, 4000);
        rig.wires[0].inject(INSIDE, &wrong(&talk.data(0, b"fine")), checksums);
        rig.round();
        let first = rig.sent().len();
        let then = rig.host_sends(&talk.data(0, b"fine")).len();
        ledger(&mut rig);
        (rig, [first, then])
    };
    for checksums in [Checksums::Unverified, Checksums::BadL4] {
        let (rig, passed) = pass(plan(), checksums);
        assert_eq!([0, 1], passed);
        assert_eq!(1, rig.drops("bad-transport-checksum"));
        let (rig, passed) = pass(saying!(BadChecksum, DropFlow), checksums);
        assert_eq!([0, 0], passed);
        assert_eq!((1, 1), (rig.drops("stream-bad-checksum"), rig.drops("flow-dropped")));
        let (mut rig, passed) = pass(saying!(BadChecksum, Pass), checksums);
        assert_eq!([1, 1], passed);
        assert_eq!(1, bypassed(&rig, Skipped::BadChecksum));
        assert_eq!(0, rig.host_sends(&segment(4000, flag::ACK, 4, b"evil")).len());
        assert_eq!(1, rig.drops("signature"));
        let (mut rig, passed) = pass(saying!(BadChecksum, Bypass), checksums);
        assert_eq!([1, 1], passed);
        assert_eq!(1, rig.host_sends(&segment(4000, flag::ACK, 4, b"evil")).len());
        assert_eq!(
            (1, 2),
            (bypassed(&rig, Skipped::BadChecksum), bypassed(&rig, Skipped::Bypassed))
        );
    }
}

#[test]
fn segment_that_its_device_vouches_for_is_not_summed_again() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 4000);
    rig.wires[0].inject(INSIDE, &wrong(&talk.data(0, b"fine")), Checksums::Vouched);
    rig.round();
    assert_eq!(1, rig.sent().len());
}

#[test]
fn flow_that_no_place_is_left_for_is_dropped_or_goes_on_as_its_policy_says() {
    let send = |plan: Plan| {
        let mut rig = Rig::new(Plan { shards: 1, ..plan });
        const OTHER: &str = "192.168.1.11";
        rig.know(INSIDE, rig::plain(OTHER), HOST_MAC);
        // One source uses all flow entries except the last one, which is left for another source.
        assert_eq!(
            7,
            (7000..7007).filter(|&port| assured(&mut rig, rig::HOST, port)).count()
        );
        assert!(assured(&mut rig, OTHER, 7000));
        let ask = packet::udp4(SocketAddrV4::new(rig::HOST.parse().unwrap(), 7008), "198.51.100.7:9");
        let sent = [(), ()].map(|()| rig.host_sends(&ask).len());
        ledger(&mut rig);
        (rig, sent)
    };
    let (rig, sent) = send(plan());
    assert_eq!(([0, 0], 2), (sent, rig.drops("inspection-full")));
    let (rig, sent) = send(saying!(NoMemory, Pass));
    assert_eq!(([1, 1], 2), (sent, bypassed(&rig, Skipped::NoMemory)));
    let (rig, sent) = send(saying!(NoMemory, Bypass));
    assert_eq!([1, 1], sent);
    assert_eq!(
        (1, 1),
        (bypassed(&rig, Skipped::NoMemory), bypassed(&rig, Skipped::Bypassed))
    );
}

#[test]
fn flow_of_a_source_that_has_its_share_is_dropped_or_goes_on_as_its_policy_says() {
    let send = |plan: Plan| {
        let mut rig = Rig::new(Plan { shards: 1, ..plan });
        let assured: Vec<_> = (7000..7008).map(|port| assured(&mut rig, rig::HOST, port)).collect();
        ledger(&mut rig);
        (rig, assured)
    };
    let (rig, assured) = send(plan());
    assert_eq!((Some(&false), 1), (assured.last(), rig.drops("inspection-source-full")));
    for plan in [saying!(SourceFull, Pass), saying!(SourceFull, Bypass)] {
        let (rig, assured) = send(plan);
        assert_eq!((vec![true; 8], 1), (assured, bypassed(&rig, Skipped::SourceFull)));
    }
    let (mut rig, _) = send(saying!(SourceFull, DropFlow));
    let ask = packet::udp4(SocketAddrV4::new(rig::HOST.parse().unwrap(), 7007), "198.51.100.7:9");
    assert_eq!(0, rig.host_sends(&ask).len());
    assert_eq!(1, rig.drops("flow-dropped"), "{:?}", rig.all_drops());
}

#[test]
fn stream_that_no_window_is_left_for_is_dropped_or_goes_on_as_its_policy_says() {
    let send = |mut plan: Plan| {
        plan.inspection.as_mut().unwrap().streams.windows = 1;
        let mut rig = Rig::new(Plan { shards: 1, ..plan });
        let first = Talk::open(&mut rig, 4000);
        assert_eq!(1, rig.host_sends(&first.data(0, b"first")).len());
        let second = Talk::open(&mut rig, 4001);
        let sent =
            [(0, &b"fine"[..]), (4, b"fine")].map(|(place, data)| rig.host_sends(&second.data(place, data)).len());
        ledger(&mut rig);
        (rig, sent)
    };
    let (rig, sent) = send(plan());
    assert_eq!([0, 0], sent);
    assert_eq!(2, rig.drops("stream-no-memory"));
    let (rig, sent) = send(saying!(NoMemory, DropFlow));
    assert_eq!([0, 0], sent);
    assert_eq!((1, 1), (rig.drops("stream-no-memory"), rig.drops("flow-dropped")));
    for plan in [saying!(NoMemory, Pass), saying!(NoMemory, Bypass)] {
        let (rig, sent) = send(plan);
        assert_eq!([1, 1], sent);
        assert_eq!(
            (1, 1),
            (bypassed(&rig, Skipped::NoMemory), bypassed(&rig, Skipped::Bypassed))
        );
    }
}

/// Actions for each class: web traffic is inspected to a smaller depth, DNS is dropped, and the traffic of one network
/// and all other UDP traffic bypass inspection.
fn shedding(inspection: &mut InspectionPolicy) {
    inspection.overload = Overload {
        begins: 64,
        ends: 16,
        classes: vec![
            Class {
                networks: vec![("198.51.100.99".parse().unwrap(), 32)],
                shed: Shed::Inspect,
                ..Class::default()
            },
            Class {
                protocol: Some(6),
                ports: vec![80..=80],
                shed: Shed::Less(8),
                ..Class::default()
            },
            Class {
                ports: vec![53..=53],
                shed: Shed::Drop,
                ..Class::default()
            },
            Class {
                networks: vec![("198.51.100.0".parse().unwrap(), 24)],
                shed: Shed::Bypass,
                ..Class::default()
            },
        ],
    };
}

fn overloaded(snapshot: &mut Snapshot) {
    inspected::inspected(snapshot);
    inspected::change(snapshot, shedding);
}

/// The frames that leave when the host sends frames while the worker is overloaded.
fn in_overload(rig: &mut Rig, frames: &[Frame]) -> Vec<Vec<u8>> {
    // Filler frames from an unknown host cause the overload, and are not inspected.
    let filler = [&[2, 0, 0, 0, 9, 9][..], &[2, 0, 0, 0, 9, 8], &[0x88, 0xb5], &[0; 50]].concat();
    for _ in 0..64 {
        rig.wires[0].inject(INSIDE, &filler, Checksums::Unverified);
    }
    for frame in frames {
        let bytes = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
        rig.wires[0].inject(INSIDE, &bytes, Checksums::Unverified);
    }
    rig.round();
    rig.sent().into_iter().map(|sent| sent.frame).collect()
}

fn datagram(to: &str, data: &[u8]) -> Frame {
    packet::udp4("192.168.1.10:5000", to.parse::<SocketAddrV4>().unwrap()).payload(data)
}

fn shedder() -> Plan {
    Plan {
        snapshot: overloaded,
        ..plan()
    }
}

#[test]
fn flows_of_a_class_that_is_bypassed_are_not_inspected_and_counted() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            inspected::inspected(snapshot);
            inspected::change(snapshot, |inspection| {
                inspection.bypass = vec![Class {
                    protocol: Some(17),
                    networks: vec![("198.51.100.8".parse().unwrap(), 29)],
                    ..Class::default()
                }];
            });
        },
        ..plan()
    });
    // Identical data is sent in an inspected class and in a bypassed class.
    assert_eq!(0, rig.host_sends(&datagram("198.51.100.7:99", b"planted here")).len());
    for _ in 0..3 {
        assert_eq!(1, rig.host_sends(&datagram("198.51.100.15:99", b"planted here")).len());
    }
    assert_eq!(
        (1, 2),
        (bypassed(&rig, Skipped::Class), bypassed(&rig, Skipped::Bypassed))
    );
    assert_eq!(1, rig.plane.counters()[0].inspection.bypassed_flows.get());
    let expected = Ledger {
        received: 4,
        bypassed: 3,
        dropped: 1,
        ..Ledger::default()
    };
    assert_eq!(expected, ledger(&mut rig));
}

#[test]
fn classes_under_overload_are_bypassed_dropped_or_inspected_as_is_said() {
    let mut rig = Rig::new(shedder());
    let frames = [
        datagram("198.51.100.7:53", b"what"),
        datagram("198.51.100.7:99", b"planted here"),
        datagram("198.51.100.99:99", b"planted here"),
    ];
    assert_eq!(1, in_overload(&mut rig, &frames).len(), "{:?}", rig.all_drops());
    assert_eq!((1, 1), (rig.drops("inspection-overload"), rig.drops("signature")));
    assert_eq!(1, bypassed(&rig, Skipped::Overload));
    assert_eq!(1, rig.plane.counters()[0].inspection.overloads.get());
    let expected = Ledger {
        received: 3,
        bypassed: 1,
        dropped: 2,
        ..Ledger::default()
    };
    assert_eq!(expected, ledger(&mut rig));
    // The overload has ended, and all flows are inspected again. Packets of rejected flows are still dropped.
    assert_eq!(0, rig.plane.counters()[0].inspection.overloaded.get());
    assert_eq!(1, rig.host_sends(&datagram("198.51.100.7:53", b"what")).len());
    assert_eq!(0, rig.host_sends(&datagram("198.51.100.7:99", b"planted here")).len());
    assert_eq!(0, in_overload(&mut rig, &[datagram("198.51.100.7:99", b"fine")]).len());
    assert_eq!(1, rig.drops("flow-dropped"));
    ledger(&mut rig);
}

#[test]
fn connection_under_overload_is_inspected_to_a_smaller_depth() {
    let mut rig = Rig::new(shedder());
    let talk = Talk::open(&mut rig, 4000);
    assert_eq!(0, in_overload(&mut rig, &[talk.data(0, b"evil")]).len());
    assert_eq!(1, rig.drops("signature"));
    let talk = Talk::open(&mut rig, 4001);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"eight is enough")).len());
    assert_eq!(1, in_overload(&mut rig, &[talk.data(15, b"evil")]).len());
    assert_eq!(
        (1, 1),
        (
            bypassed(&rig, Skipped::Overload),
            rig.plane.counters()[0].inspection.bypassed_flows.get()
        )
    );
    assert_eq!(1, rig.host_sends(&talk.data(19, b"evil")).len());
    assert_eq!(1, bypassed(&rig, Skipped::Bypassed));
    // Without overload, the inspection depth is not limited.
    let talk = Talk::open(&mut rig, 4002);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"eight is enough")).len());
    assert_eq!(0, rig.host_sends(&talk.data(15, b"evil")).len());
    ledger(&mut rig);
}

#[test]
fn connection_with_a_gap_is_bypassed_under_overload() {
    let mut rig = Rig::new(shedder());
    let syn = |flags, place: u32, data: &[u8]| {
        let frame = packet::tcp4("192.168.1.10:4000", "198.51.100.7:99").flags(flags);
        frame.numbers(1000 + place, 0).payload(data)
    };
    assert_eq!(1, rig.host_sends(&syn(flag::SYN, 0, b"")).len());
    assert_eq!(1, rig.host_sends(&syn(flag::ACK, 5, b"later")).len());
    let sent = in_overload(&mut rig, &[syn(flag::ACK, 1, b"soon")]);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((0, 1), (ledger(&mut rig).waiting, ledger(&mut rig).bypassed));
    rig.check();
}

#[test]
fn segment_ahead_of_a_gap_without_memory_is_dropped_or_goes_on_as_its_policy_says() {
    let send = |mut plan: Plan| {
        plan.inspection.as_mut().unwrap().streams.share = 5 * 2048;
        let mut rig = Rig::new(plan);
        let talk = Talk::open(&mut rig, 4000);
        let places = [8000, 16_000, 24_000, 32_000];
        let sent = places.map(|place| rig.host_sends(&talk.data(place, b"some ev")).len());
        (rig, talk, sent)
    };
    let (mut rig, talk, sent) = send(plan());
    assert_eq!([1, 1, 1, 0], sent);
    assert_eq!(1, rig.drops("stream-gap-full"));
    assert_eq!(1, rig.host_sends(&talk.data(0, b"fine")).len());
    let (mut rig, talk, sent) = send(saying!(GapFull, DropFlow));
    assert_eq!([1, 1, 1, 0], sent);
    assert_eq!(0, rig.host_sends(&talk.data(0, b"fine")).len());
    assert_eq!((1, 1), (rig.drops("stream-gap-full"), rig.drops("flow-dropped")));
    let (mut rig, talk, sent) = send(saying!(GapFull, Bypass));
    assert_eq!([1, 1, 1, 1], sent);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"evil")).len());
    assert_eq!(
        (1, 1),
        (bypassed(&rig, Skipped::GapFull), bypassed(&rig, Skipped::Bypassed))
    );
    // After the gap, inspection continues with the first segment that arrived.
    let (mut rig, talk, sent) = send(saying!(GapFull, Pass));
    assert_eq!([1, 1, 1, 1], sent);
    assert_eq!(0, rig.host_sends(&talk.data(8007, b"il")).len());
    assert_eq!(1, rig.drops("signature"));
    ledger(&mut rig);
}

/// An event of the random history.
#[derive(Clone, Debug)]
enum Event {
    Datagram(u8, bool),
    Fragment(u8, usize, bool),
    Segment(u16, u8, u32, bool),
    Wrong(u16),
    Error,
    Milliseconds(u64),
    /// Filler frames that form a full burst.
    Crowd,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..3u8, any::<bool>()).prop_map(|(to, planted)| Event::Datagram(to, planted)),
        5 => (0..3u8, 0..5usize, any::<bool>()).prop_map(|(of, piece, other)| Event::Fragment(of, piece, other)),
        8 => (0..3u16, prop::sample::select(vec![flag::SYN, flag::ACK, flag::ACK, flag::ACK, flag::ACK | flag::FIN, flag::RST]), 0..40u32, any::<bool>())
            .prop_map(|(port, flags, place, planted)| Event::Segment(port, flags, place, planted)),
        1 => (0..3u16).prop_map(Event::Wrong),
        1 => Just(Event::Error),
        1 => (1..3000u64).prop_map(Event::Milliseconds),
        1 => Just(Event::Crowd),
    ];
    prop::collection::vec(event, 1..80)
}

/// The frame of an event, and the interface on which it arrives.
fn frame(event: &Event) -> Option<(u16, Vec<u8>)> {
    let inside = |frame: Frame| Some((INSIDE, frame.macs(HOST_MAC, INSIDE_MAC).build()));
    let text = |planted| {
        if planted {
            &b"evil planted here"[..]
        } else {
            b"as it should be."
        }
    };
    let to = |of: u8| ["198.51.100.7:99", "198.51.100.7:53", "198.51.100.99:99"][usize::from(of)];
    match *event {
        Event::Datagram(of, planted) => inside(datagram(to(of), text(planted))),
        Event::Fragment(of, place, other) => {
            let whole = datagram(to(of), &[text(other), &[b'.'; 80]].concat());
            inside(pieces(&whole, &[4, 6, 9, 11], of.into()).swap_remove(place))
        }
        Event::Segment(port, flags, place, planted) => {
            let place = if flags == flag::SYN { u32::MAX } else { place };
            let data = if flags == flag::SYN { b"" } else { text(planted) };
            inside(segment(4000 + port, flags, place, data))
        }
        Event::Wrong(port) => Some((INSIDE, wrong(&segment(4000 + port, flag::ACK, 0, b"fine")))),
        Event::Error => {
            let quoted = packet::udp4("198.51.100.7:99", "192.168.1.10:5000")
                .payload(b"what")
                .build();
            inside(packet::icmp4_error("192.168.1.10", "198.51.100.7", 3, 3, &quoted, 28))
        }
        Event::Milliseconds(_) | Event::Crowd => None,
    }
}

fn snapshots() -> Vec<fn(&mut Snapshot)> {
    vec![
        overloaded,
        |snapshot| {
            overloaded(snapshot);
            Exception::ALL
                .iter()
                .for_each(|&all| say(snapshot, all, Exceptional::Pass));
        },
        |snapshot| {
            overloaded(snapshot);
            Exception::ALL
                .iter()
                .for_each(|&all| say(snapshot, all, Exceptional::Bypass));
        },
        |snapshot| {
            overloaded(snapshot);
            Exception::ALL
                .iter()
                .for_each(|&all| say(snapshot, all, Exceptional::DropFlow));
        },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn packets_inspected_bypassed_and_dropped_are_those_received(
        events in events(),
        snapshot in prop::sample::select(snapshots()),
        workers in prop::sample::select(vec![1usize, 3]),
        translate in any::<bool>(),
        at_once in any::<bool>(),
    ) {
        let mut rig = Rig::new(Plan { snapshot, workers, translate, ..plan() });
        let mut came = 0;
        for event in &events {
            match event {
                Event::Milliseconds(milliseconds) => rig.pass(*milliseconds),
                Event::Crowd => {
                    in_overload(&mut rig, &[]);
                    came += 64;
                    for _ in 0..64 {
                        rig.wires[0].inject(INSIDE, &[0; 60], Checksums::Unverified);
                    }
                    came += 64;
                }
                other => {
                    let (interface, bytes) = frame(other).unwrap();
                    rig.wires[0].inject(interface, &bytes, Checksums::Unverified);
                    came += 1;
                    if !at_once {
                        ledger(&mut rig);
                    }
                }
            }
        }
        ledger(&mut rig);
        // All waiting packets are released eventually.
        rig.pass(10_000);
        let all = ledger(&mut rig);
        prop_assert_eq!(0, all.waiting);
        prop_assert_eq!(all.received, all.inspected + all.bypassed + all.dropped);
        // Every packet that did not reach inspection was dropped for another reason.
        let dropped: u64 = rig.all_drops().iter().map(|(_, count)| count).sum();
        // An ICMP error without a session belongs to no flow.
        let errors = events.iter().filter(|event| matches!(event, Event::Error)).count() as u64;
        let counted = all.received + dropped - all.dropped;
        prop_assert!(counted <= came && came <= counted + errors, "{} {} {:?}", came, counted, rig.all_drops());
        let sent = rig.sent().iter().filter(|sent| sent.port == OUTSIDE).count();
        prop_assert!(sent as u64 <= all.inspected + all.bypassed + errors);
        rig.check();
    }
}
