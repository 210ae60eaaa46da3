//! Tests of bridges: frames received on one interface leave through the peer interface unchanged, even if they are
//! inspected.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, OUTSIDE, Plan, ROUTER_MAC, Rig};
use proptest::prelude::*;
use sluice_engine::features::inspection::{InspectionPolicy, Overload, ReassemblyLimits};
use sluice_engine::packet::reason::Reason;
use sluice_engine::snapshot::{Bridge, Interface, Snapshot, bridge_context};
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{self, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::OrderedRules;
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;
use sluice_testkit::packet::{self, Frame, flag};
use sluice_testkit::strategy;
use sluice_wire::Checksums;

const RULES: &str = r#"
drop tcp any any -> any 80 (msg:"evil"; flow:to_server,established; content:"evil"; sid:1;)
reject tcp any any -> any 81 (msg:"told"; content:"evil"; sid:2;)
reject udp any any -> any 53 (msg:"name"; content:"evil"; sid:3;)
"#;

fn inspected(snapshot: &mut Snapshot) {
    let (variables, classes) = (Variables::default(), Classes::default());
    let file = read(RULES.as_bytes(), Dialect::Suricata, &variables, &classes);
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    snapshot.inspect_by(Arc::new(InspectionPolicy {
        settings: Settings::default(),
        rates: Arc::new(HostTable::new(64, [1, 2])),
        rules: Arc::new(ordered.with_prefilter(prefilter)),
        alerts: 16,
        records: Default::default(),
        interfaces: vec![true, false],
        fragments: ReassemblyLimits {
            datagrams: 4,
            ..ReassemblyLimits::default()
        },
        overload: Overload::default(),
        bypass: Vec::new(),
    }));
}

fn bridged(interfaces: &mut [Interface], change: fn(&mut Bridge)) {
    for (interface, peer) in interfaces.iter_mut().zip([OUTSIDE, INSIDE]) {
        let mut bridge = Bridge {
            peer,
            drops_invalid: false,
            fails_open: false,
        };
        change(&mut bridge);
        interface.bridge = Some(bridge);
        interface.context = bridge_context(0);
        interface.mtu = 9000;
    }
}

/// A bridge without inspection.
fn plain() -> Plan {
    Plan {
        translate: false,
        known_neighbours: false,
        interfaces: |interfaces| bridged(interfaces, |_| {}),
        ..Plan::default()
    }
}

/// A bridge with inspection.
fn plan() -> Plan {
    let streams = stream::StreamCapacity::of(8);
    let protocols = ParserCapacity {
        messages: 8,
        names: 8,
        inflaters: 1,
        ..ParserCapacity::default()
    };
    Plan {
        inspection: Some(inspector::InspectorCapacity {
            flows: 8,
            streams,
            protocols,
        }),
        snapshot: inspected,
        ..plain()
    }
}

/// The frames that leave through the peer interface. Asserts that no frame leaves through the interface of arrival.
#[track_caller]
fn over(rig: &mut Rig, interface: u16, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut sent = rig.send(interface, frame);
    rig.round();
    sent.extend(rig.sent());
    assert!(sent.iter().all(|sent| sent.port == 1 - interface), "{sent:?}");
    sent.into_iter().map(|sent| sent.frame).collect()
}

fn spared(rig: &Rig, name: &str) -> u64 {
    let reason = Reason::all().find(|reason| reason.name() == name).expect("a reason");
    let counters = rig.plane.counters().iter().flat_map(|worker| worker.interfaces.iter());
    counters.map(|interface| interface.exempted(reason)).sum()
}

fn uninspected(rig: &Rig) -> u64 {
    rig.plane.counters().iter().map(|worker| worker.all_bypassed()).sum()
}

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:80";

fn v4(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn frame(from: &str, to: &str) -> Frame {
    packet::tcp4(v4(from), v4(to)).macs(HOST_MAC, ROUTER_MAC)
}

/// Opens a connection over the bridge. `dress` adds tags or options to its frames.
fn open(rig: &mut Rig, client: &str, server: &str, dress: fn(Frame) -> Frame) {
    let syn = dress(frame(client, server).flags(flag::SYN).numbers(99, 0)).build();
    assert_eq!(vec![syn.clone()], over(rig, INSIDE, &syn), "{:?}", rig.all_drops());
    let answer = frame(server, client).macs(ROUTER_MAC, HOST_MAC);
    let answer = dress(answer.flags(flag::SYN | flag::ACK).numbers(499, 100)).build();
    assert_eq!(
        vec![answer.clone()],
        over(rig, OUTSIDE, &answer),
        "{:?}",
        rig.all_drops()
    );
    let ack = dress(frame(client, server).flags(flag::ACK).numbers(100, 500)).build();
    assert_eq!(vec![ack.clone()], over(rig, INSIDE, &ack), "{:?}", rig.all_drops());
}

fn data(client: &str, server: &str, place: u32, data: &[u8]) -> Frame {
    let frame = frame(client, server).flags(flag::ACK | flag::PSH);
    frame.numbers(100 + place, 500).payload(data)
}

/// Frames of every kind that a link may carry, both valid and invalid.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let ethernet = |kind: u16, length: usize| {
        let mut frame = [ROUTER_MAC, HOST_MAC].concat();
        frame.extend(kind.to_be_bytes());
        frame.resize(length, 0x5a);
        frame
    };
    let udp = || packet::udp4(v4("10.0.0.1:5000"), v4("10.0.0.2:5001")).macs(HOST_MAC, ROUTER_MAC);
    let v6 = |port| format!("[2001:db8::{port}]:{port}").parse::<SocketAddrV6>().unwrap();
    let mut broken = udp().payload(b"broken").build();
    *broken.last_mut().unwrap() ^= 1;
    let mut group = udp().payload(b"to all").build();
    group[..6].fill(0xff);
    let lan = "192.168.1.1".parse::<std::net::Ipv4Addr>().unwrap();
    vec![
        ("a request of ARP", packet::arp_request(HOST_MAC, lan, lan)),
        ("a spanning tree's", ethernet(38, 60)),
        ("MPLS", ethernet(0x8847, 90)),
        ("PPPoE", ethernet(0x8864, 700)),
        ("of one tag", udp().tag(0x8100, 7).build()),
        ("of two tags", udp().tag(0x88a8, 7).tag(0x8100, 8).build()),
        (
            "of three tags",
            udp().tag(0x88a8, 7).tag(0x8100, 8).tag(0x8100, 9).build(),
        ),
        ("about to expire", udp().ttl(1).build()),
        ("with a wrong checksum", broken),
        ("to everybody", group),
        (
            "IPv6",
            packet::udp6(v6(1), v6(2))
                .payload(b"six")
                .macs(HOST_MAC, ROUTER_MAC)
                .build(),
        ),
        ("jumbo", udp().payload(&[7; 8900]).build()),
        ("padded", udp().padded(60).build()),
        ("a fragment", udp().payload(&[1; 64]).fragment(0, true, 77).build()),
        ("a broken header", ethernet(0x0800, 60)),
        ("shorter than a header", vec![1, 2, 3, 4, 5]),
    ]
}

/// Two hosts are behind one interface of the bridge, and their router is behind the other, so each packet crosses the
/// bridge twice. A forged packet that has the client's address but arrives on the router's interface does not become
/// part of the client's stream.
#[test]
fn frames_of_a_flow_from_the_other_side_are_another_flow() {
    let mut rig = Rig::new(plan());
    open(&mut rig, CLIENT, SERVER, |frame| frame);
    assert_eq!(1, rig.live());
    let cross = |rig: &mut Rig, interface, frame: Frame| {
        let frame = frame.build();
        assert_eq!(
            vec![frame.clone()],
            over(rig, interface, &frame),
            "{:?}",
            rig.all_drops()
        );
    };
    cross(&mut rig, OUTSIDE, frame(CLIENT, SERVER).flags(flag::SYN).numbers(99, 0));
    cross(
        &mut rig,
        INSIDE,
        frame(SERVER, CLIENT).flags(flag::SYN | flag::ACK).numbers(499, 100),
    );
    cross(
        &mut rig,
        OUTSIDE,
        frame(CLIENT, SERVER).flags(flag::ACK).numbers(100, 500),
    );
    assert_eq!(2, rig.live());
    // The streams of both interfaces are searched separately.
    cross(&mut rig, INSIDE, data(CLIENT, SERVER, 0, b"ev"));
    cross(&mut rig, OUTSIDE, data(CLIENT, SERVER, 0, b"il"));
    for interface in [INSIDE, OUTSIDE] {
        let rest = if interface == INSIDE { b"il".as_slice() } else { b"evil" };
        let rest = data(CLIENT, SERVER, 2, rest).build();
        assert!(over(&mut rig, interface, &rest).is_empty(), "{interface}");
    }
    assert_eq!(2, rig.live());
}

#[test]
fn frames_of_every_kind_pass_unchanged_in_both_directions() {
    for workers in [1, 3] {
        let mut rig = Rig::new(Plan { workers, ..plain() });
        for (name, frame) in kinds() {
            for interface in [INSIDE, OUTSIDE] {
                assert_eq!(vec![frame.clone()], over(&mut rig, interface, &frame), "{name}");
            }
        }
        assert_eq!(0, rig.live());
        assert_eq!(0, uninspected(&rig));
        assert_eq!(2, spared(&rig, "too-many-tags"));
        rig.check();
    }
}

#[test]
fn frames_of_every_kind_pass_unchanged_where_flows_are_inspected() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            inspected(snapshot);
            let mut inspection = snapshot.inspection.as_deref().unwrap().clone();
            let policies = &mut inspection.settings.policies;
            *policies = policies.with(stream::Exception::Unparsable, stream::Policy::Pass);
            snapshot.inspection = Some(Arc::new(inspection));
        },
        ..plan()
    });
    let waits = ["a fragment", "with a wrong checksum"];
    for (name, frame) in kinds().into_iter().filter(|(name, _)| !waits.contains(name)) {
        for interface in [INSIDE, OUTSIDE] {
            assert_eq!(
                vec![frame.clone()],
                over(&mut rig, interface, &frame),
                "{name}: {:?}",
                rig.all_drops()
            );
        }
    }
    // The frames are, in this order: ARP and spanning tree; MPLS and PPPoE; too many tags, a broken header and a short frame.
    assert_eq!((4, 4), (spared(&rig, "not-ip"), spared(&rig, "encapsulated-ip")));
    assert_eq!(14, uninspected(&rig));
    assert!(rig.live() > 0);
    rig.check();
}

#[test]
fn frame_longer_than_the_mtu_is_dropped_by_name_in_both_directions() {
    const MTU: usize = 1280;
    let interfaces: fn(&mut Vec<Interface>) = |interfaces| {
        bridged(interfaces, |_| {});
        interfaces.iter_mut().for_each(|interface| interface.mtu = MTU as u16);
    };
    for plan in [plain(), plan()] {
        let mut rig = Rig::new(Plan { interfaces, ..plan });
        let udp = |data: usize| {
            let frame = packet::udp4(v4("10.0.0.1:5000"), v4("10.0.0.2:5001"));
            frame.macs(HOST_MAC, ROUTER_MAC).payload(&vec![7; data])
        };
        for interface in [INSIDE, OUTSIDE] {
            for fits in [
                udp(MTU - 28).build(),
                udp(MTU - 28).tag(0x8100, 7).build(),
                udp(MTU - 28).tag(0x88a8, 7).tag(0x8100, 7).build(),
            ] {
                assert_eq!(1, over(&mut rig, interface, &fits).len(), "{:?}", rig.all_drops());
            }
            let mut other = udp(MTU).build();
            other[12..14].copy_from_slice(&[0x88, 0xb5]);
            for too_long in [udp(MTU - 27).build(), udp(MTU - 27).tag(0x8100, 7).build(), other] {
                assert_eq!(0, over(&mut rig, interface, &too_long).len());
            }
        }
        assert_eq!(6, rig.drops("longer-than-mtu"));
        rig.check();
    }
}

#[test]
fn invalid_frames_are_dropped_where_that_is_configured() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| bridged(interfaces, |bridge| bridge.drops_invalid = true),
        ..plain()
    });
    let kinds = kinds();
    let passed = kinds
        .iter()
        .filter(|(_, frame)| !over(&mut rig, INSIDE, frame).is_empty());
    assert_eq!(kinds.len() - 4, passed.count());
    assert_eq!(0, spared(&rig, "too-many-tags"));
    assert_eq!(1, rig.drops("too-many-tags"));
    rig.check();
}

#[test]
fn match_on_a_bridge_is_never_delivered_complete() {
    let dresses: [fn(Frame) -> Frame; 2] = [|frame| frame, |frame| frame.tag(0x88a8, 7).tag(0x8100, 8)];
    for workers in [1, 4] {
        for dress in dresses {
            let mut rig = Rig::new(Plan { workers, ..plan() });
            open(&mut rig, CLIENT, SERVER, dress);
            let good = dress(data(CLIENT, SERVER, 0, b"some ev")).build();
            assert_eq!(vec![good.clone()], over(&mut rig, INSIDE, &good));
            let bad = dress(data(CLIENT, SERVER, 7, b"il")).build();
            assert_eq!(0, over(&mut rig, INSIDE, &bad).len());
            assert_eq!(1, rig.drops("signature"));
            let more = dress(data(CLIENT, SERVER, 9, b"more")).build();
            assert_eq!(0, over(&mut rig, INSIDE, &more).len());
            rig.check();
        }
    }
}

#[test]
fn flows_of_two_vlans_are_not_each_others() {
    let mut rig = Rig::new(plan());
    let dresses: [fn(Frame) -> Frame; 2] = [|frame| frame.tag(0x8100, 7), |frame| frame.tag(0x8100, 8)];
    for dress in dresses {
        open(&mut rig, CLIENT, SERVER, dress);
    }
    assert_eq!(2, rig.live());
    for (dress, payload) in dresses.into_iter().zip([b"ev", b"il"]) {
        let half = dress(data(CLIENT, SERVER, 0, payload)).build();
        assert_eq!(vec![half.clone()], over(&mut rig, INSIDE, &half));
    }
    let rest = dresses[0](data(CLIENT, SERVER, 2, b"il")).build();
    assert_eq!(0, over(&mut rig, INSIDE, &rest).len());
    assert_eq!(1, rig.drops("signature"));
}

#[test]
fn segments_ahead_of_a_gap_cross_at_once() {
    for workers in [1, 3] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        open(&mut rig, CLIENT, SERVER, |frame| frame);
        let part = |place, payload: &[u8]| data(CLIENT, SERVER, place, payload).build();
        for frame in [part(3, b"def"), part(0, b"abc"), part(8, b"il")] {
            assert_eq!(vec![frame.clone()], over(&mut rig, INSIDE, &frame));
        }
        assert_eq!(0, over(&mut rig, INSIDE, &part(6, b"ev")).len());
        assert_eq!(1, rig.drops("signature"));
        rig.check();
    }
}

#[test]
fn acknowledgment_from_the_senders_side_does_not_count() {
    let mut rig = Rig::new(plan());
    open(&mut rig, CLIENT, SERVER, |frame| frame);
    let acknowledge = |number: u32| {
        let frame = frame(SERVER, CLIENT).macs(ROUTER_MAC, HOST_MAC).flags(flag::ACK);
        frame.numbers(500, number).build()
    };
    for place in 0..16 {
        let chaff = data(CLIENT, SERVER, 1000 * place, &[b'a'; 1000]).ttl(2).build();
        assert_eq!(1, over(&mut rig, INSIDE, &chaff).len());
        over(&mut rig, INSIDE, &acknowledge(1100 + 1000 * place));
    }
    let sent = over(&mut rig, INSIDE, &data(CLIENT, SERVER, 0, b"evil").build());
    assert_eq!(data(CLIENT, SERVER, 0, b"aaaa").build(), sent[0]);
    // An acknowledgment from the interface of the receiver has an effect.
    over(&mut rig, OUTSIDE, &acknowledge(100 + 16_000));
    let old = data(CLIENT, SERVER, 0, b"evil").build();
    assert_eq!(vec![old.clone()], over(&mut rig, INSIDE, &old));
}

#[test]
fn reject_answers_for_the_other_end_behind_the_same_tags() {
    let mut rig = Rig::new(plan());
    let server = "10.0.0.2:81";
    open(&mut rig, CLIENT, server, |frame| frame.tag(0x8100, 7));
    let bad = data(CLIENT, server, 0, b"evil").tag(0x8100, 7).build();
    // The receiver gets a reset immediately. The sender gets a reset when it retransmits.
    let sent = rig.send(INSIDE, &bad);
    assert_eq!(
        (1, 1 - INSIDE, &bad[..18]),
        (sent.len(), sent[0].port, &sent[0].frame[..18])
    );
    assert_eq!(
        (v4(CLIENT), v4(server)),
        rig::flow(&[&sent[0].frame[..12], &sent[0].frame[16..]].concat())
    );
    assert_ne!(0, sent[0].frame[18 + 20 + 13] & flag::RST);
    assert_eq!(18 + 40, sent[0].frame.len());
    let sent = rig.send(INSIDE, &bad);
    let back = sent.iter().find(|sent| sent.port == INSIDE).expect("a reset");
    assert_eq!([HOST_MAC, ROUTER_MAC].concat(), back.frame[..12]);
    assert_eq!([0x81, 0, 0, 7, 8, 0], back.frame[12..18]);
    assert_eq!(
        (v4(server), v4(CLIENT)),
        rig::flow(&[&back.frame[..12], &back.frame[16..]].concat())
    );
    assert_ne!(0, back.frame[18 + 20 + 13] & flag::RST);
    let query = packet::udp4(v4("10.0.0.1:5000"), v4("10.0.0.9:53"))
        .payload(b"evil")
        .macs(HOST_MAC, ROUTER_MAC);
    let sent = rig.send(INSIDE, &query.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    // The source of the error is the packet's destination, because a bridge has no address.
    assert_eq!(
        (INSIDE, [10, 0, 0, 9], [3, 13]),
        (
            sent[0].port,
            sent[0].frame[26..30].try_into().unwrap(),
            sent[0].frame[34..36].try_into().unwrap()
        )
    );
    rig.check();
}

/// A bridge with a changed policy for one exception.
macro_rules! saying {
    ($exception:ident, $said:ident) => {
        Plan {
            snapshot: |snapshot| {
                inspected(snapshot);
                let inspection = Arc::get_mut(snapshot.inspection.as_mut().unwrap()).unwrap();
                let policies = inspection.settings.policies;
                inspection.settings.policies = policies.with(stream::Exception::$exception, stream::Policy::$said);
            },
            ..plan()
        }
    };
}

#[test]
fn connection_in_its_midst_is_inspected_from_there_or_not_as_its_policy_says() {
    let midst = data(CLIENT, SERVER, 0, b"fine").build();
    let bad = data(CLIENT, SERVER, 4, b"evil").build();
    let mut rig = Rig::new(plan());
    assert_eq!(vec![midst.clone()], over(&mut rig, INSIDE, &midst));
    assert_eq!(Vec::<Vec<u8>>::new(), over(&mut rig, INSIDE, &bad));
    assert_eq!((1, 0), (rig.drops("signature"), uninspected(&rig)));
    let mut rig = Rig::new(saying!(Midstream, Bypass));
    for frame in [&midst, &bad] {
        assert_eq!(vec![frame.clone()], over(&mut rig, INSIDE, frame));
    }
    assert_eq!(2, uninspected(&rig));
    // Even if inspection has not seen the SYN, it does not treat the sender of the SYN-ACK as the client.
    let answer = frame(SERVER, CLIENT).flags(flag::SYN | flag::ACK).build();
    let mut rig = Rig::new(plan());
    assert_eq!(1, over(&mut rig, OUTSIDE, &answer).len());
    assert_eq!(
        (0, 1, 1),
        (rig.live(), spared(&rig, "tcp-not-opening"), uninspected(&rig))
    );
    for mut rig in [
        Rig::new(saying!(Midstream, DropFlow)),
        Rig::new(saying!(Midstream, DropPacket)),
    ] {
        assert_eq!(Vec::<Vec<u8>>::new(), over(&mut rig, INSIDE, &midst));
        assert_eq!((0, 1), (rig.live(), rig.drops("tcp-not-opening")));
    }
}

#[test]
fn wrong_checksum_over_a_bridge_does_not_come_into_the_stream() {
    let mut bad = data(CLIENT, SERVER, 0, b"fine").build();
    *bad.last_mut().unwrap() ^= 1;
    let good = data(CLIENT, SERVER, 0, b"fine").build();
    let passes = |rig: &mut Rig| {
        open(rig, CLIENT, SERVER, |frame| frame);
        [&bad, &good].map(|frame| over(rig, INSIDE, frame).len())
    };
    let mut rig = Rig::new(plan());
    assert_eq!([0, 1], passes(&mut rig));
    assert_eq!(1, rig.drops("stream-bad-checksum"));
    let mut rig = Rig::new(saying!(BadChecksum, DropFlow));
    assert_eq!([0, 0], passes(&mut rig));
    assert_eq!((1, 1), (rig.drops("stream-bad-checksum"), rig.drops("flow-dropped")));
    let mut rig = Rig::new(saying!(BadChecksum, Pass));
    assert_eq!([1, 1], passes(&mut rig));
    assert_eq!((1, 1), (spared(&rig, "bad-transport-checksum"), uninspected(&rig)));
    let evil = data(CLIENT, SERVER, 4, b"evil").build();
    assert_eq!(0, over(&mut rig, INSIDE, &evil).len());
    let mut rig = Rig::new(saying!(BadChecksum, Bypass));
    assert_eq!([1, 1], passes(&mut rig));
    assert_eq!(2, uninspected(&rig));
}

#[test]
fn flow_without_room_for_a_session_passes_an_open_bridge_alone() {
    let opens: [fn(&mut Vec<Interface>); 2] = [
        |interfaces| bridged(interfaces, |_| {}),
        |interfaces| bridged(interfaces, |bridge| bridge.fails_open = true),
    ];
    for (interfaces, passes) in opens.into_iter().zip([false, true]) {
        let mut rig = Rig::new(Plan {
            sessions: 4,
            shards: 1,
            interfaces,
            ..plan()
        });
        let room = rig.plane.start_parameters().sessions_per_shard()[0];
        for port in 0..room as u16 + 3 {
            let client = format!("10.0.0.1:{}", 1000 + port);
            let packet = packet::udp4(v4(&client), v4("10.0.0.2:7"))
                .macs(HOST_MAC, ROUTER_MAC)
                .build();
            let expected = usize::from(passes || usize::from(port) < room);
            assert_eq!(expected, over(&mut rig, INSIDE, &packet).len(), "{port}");
        }
        let (dropped, open) = (rig.drops("sessions-full"), spared(&rig, "sessions-full"));
        assert_eq!(if passes { (0, 3) } else { (3, 0) }, (dropped, open));
        rig.check();
    }
}

#[test]
fn first_packets_of_both_directions_in_one_burst_both_cross() {
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    for port in 0..16 {
        let (client, server) = (format!("10.0.0.1:{}", 1000 + port), "10.0.0.2:7");
        let frame = |from: &str, to: &str| packet::udp4(v4(from), v4(to)).macs(HOST_MAC, ROUTER_MAC).build();
        // One worker hands both packets to the second worker, which processes them in one burst.
        rig.wires[0].inject(INSIDE, &frame(&client, server), Checksums::Unverified);
        rig.wires[0].inject(OUTSIDE, &frame(server, &client), Checksums::Unverified);
        rig.round();
        rig.round();
        assert_eq!(2, rig.sent().len(), "{:?}", rig.all_drops());
        rig.check();
    }
    assert_eq!(16, rig.live());
}

#[test]
fn sessions_of_a_bridge_outlive_a_change_of_policy() {
    let mut rig = Rig::new(plan());
    open(&mut rig, CLIENT, SERVER, |frame| frame);
    let good = data(CLIENT, SERVER, 0, b"some ev").build();
    assert_eq!(1, over(&mut rig, INSIDE, &good).len());
    let (snapshot, routes) = rig::snapshot(&plan());
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    let bad = data(CLIENT, SERVER, 7, b"il").build();
    assert_eq!(0, over(&mut rig, INSIDE, &bad).len());
    assert_eq!(1, rig.live());
}

#[test]
fn sessions_of_a_bridge_end_in_their_time() {
    let mut rig = Rig::new(plan());
    let packet = packet::udp4(v4("10.0.0.1:1000"), v4("10.0.0.2:7"))
        .macs(HOST_MAC, ROUTER_MAC)
        .build();
    assert_eq!(1, over(&mut rig, INSIDE, &packet).len());
    assert_eq!(1, rig.live());
    rig.seconds(400);
    assert_eq!(0, rig.live());
}

#[test]
fn bridge_is_cut_into_stages_like_everything_else() {
    let cuts: [[Vec<u16>; 4]; 3] = [
        [vec![0], vec![0], vec![1], vec![0]],
        [vec![0], vec![1], vec![2], vec![2]],
        [vec![0], vec![0], vec![1, 2], vec![0]],
    ];
    for stages in cuts {
        let senders = stages[3].clone();
        let mut rig = Rig::new(Plan {
            workers: 3,
            stages,
            senders,
            ..plan()
        });
        open(&mut rig, CLIENT, SERVER, |frame| frame);
        let arp = packet::arp_request(
            HOST_MAC,
            "10.0.0.1".parse::<std::net::Ipv4Addr>().unwrap(),
            "10.0.0.2".parse::<std::net::Ipv4Addr>().unwrap(),
        );
        assert_eq!(vec![arp.clone()], over(&mut rig, INSIDE, &arp));
        let bad = data(CLIENT, SERVER, 0, b"evil").build();
        assert_eq!(0, over(&mut rig, INSIDE, &bad).len());
        rig.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_lost_on_a_bridge_that_inspects_any_frames(
        frames in proptest::collection::vec((strategy::frame(), 0..2u16, any::<prop::sample::Index>(), any::<u8>(), 0..3usize), 1..40),
        workers in 1..4usize,
    ) {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        for (frame, interface, place, bits, worker) in frames {
            let mut bytes = frame.build();
            let at = place.index(bytes.len());
            // Half of the frames stay unchanged.
            bytes[at] ^= bits.saturating_sub(128);
            rig.wires[worker % workers].inject(interface, &bytes, Checksums::Unverified);
            rig.round();
            rig.check();
            for sent in rig.sent() {
                prop_assert!(sent.port != interface || sent.frame != bytes);
            }
        }
    }

    #[test]
    fn any_frame_passes_a_bridge_as_it_is(
        frames in proptest::collection::vec((strategy::frame(), 0..2u16, any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut rig = Rig::new(plain());
        for (frame, interface, place, bits) in frames {
            let mut bytes = frame.build();
            let at = place.index(bytes.len());
            bytes[at] ^= bits;
            rig.wires[0].inject(interface, &bytes, Checksums::Unverified);
            rig.round();
            let sent = rig.sent();
            prop_assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
            prop_assert_eq!((1 - interface, &bytes), (sent[0].port, &sent[0].frame));
        }
        rig.check();
    }
}
