//! Tests of the express lane against the graph: a gateway with the lane and a gateway without it receive the same frames.
//! The frames that they send, their sessions and their counters must be equal.

use std::collections::BTreeMap;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::packet::io::memory::Sent;
use sluice_engine::packet::lists::NodeIndex;
use sluice_engine::worker::request::{Filter, SessionInfo};
use sluice_filter::{CompiledRule, Counters, Filters, MatcherKind, Settings, Verdict};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::tcp::flag::{ACK, FIN, PSH, RST, SYN};
use sluice_wire::{Checksums, layers};

/// Number of flows. Even flows are TCP connections, and odd flows are UDP.
const FLOWS: u8 = 6;

/// A received packet: a packet of a flow, and what is unusual about it.
#[derive(Clone, Debug)]
struct Draw {
    flow: u8,
    is_reply: bool,
    oddity: Oddity,
    payload: u8,
    checksums: Checksums,
}

/// What is unusual about a packet.
#[derive(Clone, Debug)]
enum Oddity {
    Nothing,
    Flags(u8),
    Numbers(u32, u32),
    Ttl(u8),
    Padded(u8),
    MayBeCut,
    TcpOptions,
    IpOptions,
    Fragment,
    Tagged,
    OtherMac,
    /// A byte after the MAC addresses is changed.
    Edited(prop::sample::Index, u8),
    /// The frame ends early.
    Truncated(prop::sample::Index),
    /// The packet belongs to a new flow.
    Stranger(u16),
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Event {
    /// A burst is received on each interface.
    Burst(Vec<Draw>),
    /// The clock advances by milliseconds.
    Pass(u16),
    /// The configuration is committed again without changes. Every session then has an older generation.
    Commit,
}

fn oddity() -> impl Strategy<Value = Oddity> {
    let flags = prop::sample::select(vec![
        SYN,
        SYN | ACK,
        FIN | ACK,
        RST,
        RST | ACK,
        PSH | ACK,
        0,
        ACK | 0x20,
        SYN | FIN,
    ]);
    prop_oneof![
        24 => Just(Oddity::Nothing),
        2 => flags.prop_map(Oddity::Flags),
        2 => (any::<i16>(), any::<i16>()).prop_map(|(a, b)| Oddity::Numbers(a as u32, b as u32)),
        1 => any::<(u32, u32)>().prop_map(|(a, b)| Oddity::Numbers(a, b)),
        1 => (0..3u8).prop_map(Oddity::Ttl),
        2 => (0..40u8).prop_map(Oddity::Padded),
        2 => Just(Oddity::MayBeCut),
        1 => Just(Oddity::TcpOptions),
        1 => Just(Oddity::IpOptions),
        1 => Just(Oddity::Fragment),
        1 => Just(Oddity::Tagged),
        1 => Just(Oddity::OtherMac),
        3 => any::<(prop::sample::Index, u8)>().prop_map(|(at, value)| Oddity::Edited(at, value)),
        1 => any::<prop::sample::Index>().prop_map(Oddity::Truncated),
        1 => (0..8u16).prop_map(Oddity::Stranger),
    ]
}

fn draw() -> impl Strategy<Value = Draw> {
    let checksums = prop_oneof![
        8 => Just(Checksums::Vouched),
        4 => Just(Checksums::Unverified),
        1 => Just(Checksums::BadL4),
        1 => Just(Checksums::BadL3),
        1 => Just(Checksums::PartialChecksum),
    ];
    (0..FLOWS, any::<bool>(), oddity(), 26..=255u8, checksums).prop_map(
        |(flow, is_reply, oddity, payload, checksums)| Draw {
            flow,
            is_reply,
            oddity,
            payload,
            checksums,
        },
    )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => vec(draw(), 1..64).prop_map(Event::Burst),
        2 => (1..2_000u16).prop_map(Event::Pass),
        1 => Just(Event::Commit),
    ];
    vec(event, 1..12)
}

/// The endpoints of a flow as its client sees them, and the endpoint to which replies are sent.
#[derive(Clone, Copy, Debug)]
enum Ends {
    V4(SocketAddrV4, SocketAddrV4, SocketAddrV4),
    V6(SocketAddrV6, SocketAddrV6),
}

/// The sequence number of the first data byte of a client, and of a server.
const NUMBERS: [u32; 2] = [1001, 5001];

impl Ends {
    /// A packet of the flow, or of its opposite direction.
    fn frame(self, is_tcp: bool, is_reply: bool) -> Frame {
        let frame = match (self, is_tcp, is_reply) {
            (Self::V4(host, server, _), true, false) => packet::tcp4(host, server),
            (Self::V4(_, server, public), true, true) => packet::tcp4(server, public),
            (Self::V4(host, server, _), false, false) => packet::udp4(host, server),
            (Self::V4(_, server, public), false, true) => packet::udp4(server, public),
            (Self::V6(host, server), true, false) => packet::tcp6(host, server),
            (Self::V6(host, server), true, true) => packet::tcp6(server, host),
            (Self::V6(host, server), false, false) => packet::udp6(host, server),
            (Self::V6(host, server), false, true) => packet::udp6(server, host),
        };
        let numbers = if is_reply { [NUMBERS[1], NUMBERS[0]] } else { NUMBERS };
        let frame = match is_tcp {
            true => frame.numbers(numbers[0], numbers[1]),
            false => frame,
        };
        let frame = match self {
            Self::V4(..) => frame.dont_fragment(),
            Self::V6(..) => frame,
        };
        match is_reply {
            true => frame.macs(ROUTER_MAC, OUTSIDE_MAC),
            false => frame.macs(HOST_MAC, INSIDE_MAC),
        }
    }
}

/// The bytes of a drawn packet. The last byte is its position in the burst.
fn bytes(draw: &Draw, ends: Ends, position: u8) -> Vec<u8> {
    let is_tcp = draw.flow.is_multiple_of(2);
    let payload = vec![position; usize::from(draw.payload)];
    let mut frame = ends.frame(is_tcp, draw.is_reply).payload(&payload);
    let is_v4 = matches!(ends, Ends::V4(..));
    match draw.oddity {
        Oddity::Flags(flags) if is_tcp => frame = frame.flags(flags),
        Oddity::Numbers(sequence, acknowledgment) if is_tcp => {
            let [own, other] = if draw.is_reply {
                [NUMBERS[1], NUMBERS[0]]
            } else {
                NUMBERS
            };
            frame = frame.numbers(own.wrapping_add(sequence), other.wrapping_add(acknowledgment));
        }
        Oddity::Ttl(ttl) => frame = frame.ttl(ttl),
        Oddity::Padded(more) => {
            let length = frame.build().len();
            frame = frame.padded((length + usize::from(more)).max(60));
        }
        Oddity::MayBeCut => {
            if let packet::Network::V4(header) = &mut frame.network {
                header.dont_fragment = false;
            }
        }
        Oddity::TcpOptions if is_tcp => frame = frame.tcp_options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
        Oddity::IpOptions if is_v4 => frame = frame.options(&[1, 1, 1, 0]),
        Oddity::Fragment if is_v4 || !is_tcp => frame = frame.fragment(0, true, u32::from(draw.payload)),
        Oddity::Tagged => frame = frame.tag(0x8100, 5),
        Oddity::OtherMac => frame = frame.macs(HOST_MAC, ROUTER_MAC),
        _ => {}
    }
    let mut bytes = frame.build();
    match draw.oddity {
        Oddity::Edited(at, value) => {
            // The last byte is not changed: it contains the position in the burst.
            let at = 12 + at.index(bytes.len() - 13);
            bytes[at] = value;
        }
        Oddity::Truncated(at) => bytes.truncate(at.index(bytes.len() + 1).max(1)),
        _ => {}
    }
    bytes
}

/// A gateway with the lane, and one without it.
struct Pair {
    rigs: [Rig; 2],
    ends: Vec<Ends>,
    plan: fn() -> Plan,
}

impl Pair {
    /// Opens the flows in both gateways.
    fn new(plan: fn() -> Plan, v6: bool) -> Self {
        let mut rigs = [Rig::new(plan()), Rig::new(plan())];
        rigs[1].workers.iter_mut().for_each(|worker| worker.set_lane(false));
        let mut pair = Self {
            rigs,
            ends: Vec::new(),
            plan,
        };
        for number in 0..FLOWS {
            let ends = pair.open(number, v6);
            pair.ends.push(ends);
        }
        pair
    }

    /// Opens a flow, and returns its endpoints.
    fn open(&mut self, number: u8, v6: bool) -> Ends {
        let is_tcp = number.is_multiple_of(2);
        let port = 4000 + u16::from(number);
        let ends = match v6 {
            false => {
                let server = SocketAddrV4::new("198.51.100.7".parse().unwrap(), 80);
                let host = SocketAddrV4::new("192.168.1.10".parse().unwrap(), port);
                Ends::V4(host, server, host)
            }
            true => Ends::V6(
                SocketAddrV6::new("2001:db8:1::10".parse().unwrap(), port, 0, 0),
                SocketAddrV6::new("2001:db8:a::7".parse().unwrap(), 80, 0, 0),
            ),
        };
        let first = ends.frame(is_tcp, false);
        let first = if is_tcp {
            first.flags(SYN).numbers(NUMBERS[0] - 1, 0)
        } else {
            first
        };
        let sent = self.send(INSIDE, &first.build(), Checksums::Vouched);
        assert_eq!(1, sent.len(), "{:?}", self.rigs[1].all_drops());
        let ends = match ends {
            Ends::V4(host, server, _) => Ends::V4(host, server, flow(&sent[0].frame).0),
            ends => ends,
        };
        let reply = ends.frame(is_tcp, true);
        let reply = match is_tcp {
            true => reply.flags(SYN | ACK).numbers(NUMBERS[1] - 1, NUMBERS[0]),
            false => reply,
        };
        assert_eq!(1, self.send(OUTSIDE, &reply.build(), Checksums::Vouched).len());
        assert_eq!(
            1,
            self.send(INSIDE, &ends.frame(is_tcp, false).build(), Checksums::Vouched)
                .len()
        );
        ends
    }

    fn send(&mut self, interface: u16, frame: &[u8], checksums: Checksums) -> Vec<Sent> {
        self.receive(&[(interface, frame.to_vec(), checksums)])
    }

    /// Both gateways receive frames. Returns the frames that each of them sends.
    fn receive(&mut self, frames: &[(u16, Vec<u8>, Checksums)]) -> Vec<Sent> {
        let [with, without] = [0, 1].map(|number| {
            let rig = &mut self.rigs[number];
            for (interface, bytes, checksums) in frames {
                rig.wires[0].inject(*interface, bytes, *checksums);
            }
            rig.round();
            rig.sent()
        });
        compare_sent(&with, &without);
        self.compare();
        with
    }

    /// Compares the sessions and the counters of both gateways.
    fn compare(&mut self) {
        let [with, without] = self.rigs.each_mut().map(|rig| {
            let mut sessions: Vec<_> = rig.sessions(Filter::default()).iter().map(show).collect();
            sessions.sort();
            let drops = rig.all_drops();
            let counters = &rig.plane.counters()[0];
            let interfaces: Vec<_> = counters
                .interfaces
                .iter()
                .map(|of| [&of.received, &of.received_bytes, &of.sent, &of.sent_bytes].map(|counter| counter.get()))
                .collect();
            (sessions, interfaces, counters.session_packets.get(), drops)
        });
        assert_eq!(without, with);
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Burst(draws) => {
                let frames: Vec<_> = (0..)
                    .zip(draws)
                    .map(|(position, draw)| {
                        let ends = match (draw.oddity.clone(), self.ends[usize::from(draw.flow)]) {
                            (Oddity::Stranger(port), Ends::V4(mut host, server, mut public)) => {
                                host.set_port(6000 + port);
                                public.set_port(6000 + port);
                                Ends::V4(host, server, public)
                            }
                            (_, ends) => ends,
                        };
                        let interface = if draw.is_reply { OUTSIDE } else { INSIDE };
                        (interface, bytes(draw, ends, position), draw.checksums)
                    })
                    .collect();
                self.receive(&frames);
            }
            Event::Pass(milliseconds) => {
                self.rigs.iter_mut().for_each(|rig| rig.pass(u64::from(*milliseconds)));
                let [with, without] = self.rigs.each_mut().map(Rig::sent);
                compare_sent(&with, &without);
            }
            Event::Commit => {
                let plan = (self.plan)();
                for rig in &mut self.rigs {
                    let (snapshot, routes) = rig::snapshot(&plan);
                    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
                    rig.plane.collect();
                }
            }
        }
    }

    /// Number of packets that the lane has taken.
    fn express(&self) -> u64 {
        let of = |rig: &Rig| -> u64 {
            let counters = rig.plane.counters().iter();
            counters
                .map(|worker| worker.nodes[NodeIndex::express as usize].packets.get())
                .sum()
        };
        assert_eq!(0, of(&self.rigs[1]));
        of(&self.rigs[0])
    }
}

/// A session without what depends on the time of the list.
fn show(session: &SessionInfo) -> String {
    format!("{session:?}")
}

/// Compares the frames that a gateway with the lane sends, and those that a gateway without it sends. The frames of each
/// flow must be equal and have the same order, or the order in which they arrived: the graph exchanges some packets, for
/// example fragments and whole packets.
fn compare_sent(with: &[Sent], without: &[Sent]) {
    let [with, without] = [by_flow(with), by_flow(without)];
    assert_eq!(without.keys().collect::<Vec<_>>(), with.keys().collect::<Vec<_>>());
    for (flow, with) in &with {
        let without = &without[flow];
        let sorted = |frames: &[(Vec<u8>, Checksums)]| {
            let mut frames: Vec<_> = frames
                .iter()
                .map(|(frame, checksums)| (frame.clone(), *checksums as u8))
                .collect();
            frames.sort();
            frames
        };
        assert_eq!(sorted(without), sorted(with), "{flow:?}");
        let positions: Vec<_> = with.iter().map(|(frame, _)| frame[frame.len() - 1]).collect();
        assert!(with == without || positions.is_sorted(), "{flow:?}: {positions:?}");
    }
}

/// Sent frames, with what the device has to do for their checksums.
type Frames = Vec<(Vec<u8>, Checksums)>;

/// Sent frames by port and flow, each in the order in which they were sent.
fn by_flow(sent: &[Sent]) -> BTreeMap<(u16, String), Frames> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for sent in sent {
        let flow = layers::parse(&sent.frame).map_or(String::new(), |layers| match layers.class {
            layers::Class::Ipv4 => format!("{:?}", layers.key4(&sent.frame, 0)),
            layers::Class::Ipv6 => format!("{:?}", layers.key6(&sent.frame, 0)),
            class => format!("{class:?}"),
        });
        all.entry((sent.port, flow))
            .or_default()
            .push((sent.frame.clone(), sent.checksums));
    }
    all
}

/// A gateway that translates IPv4, and that has sessions of untranslated IPv6 flows because it filters.
fn plan() -> Plan {
    Plan {
        snapshot: |snapshot| {
            let settings = Settings {
                kind: MatcherKind::Best,
                default: Verdict::Accept,
                sessions: true,
                workers: 1,
            };
            let filters = Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0)).unwrap();
            snapshot.filter_by(Arc::new(filters));
        },
        ..Plan::default()
    }
}

/// A packet that needs nothing unusual.
fn data(flow: u8, is_reply: bool) -> Draw {
    Draw {
        flow,
        is_reply,
        oddity: Oddity::Nothing,
        payload: 20,
        checksums: Checksums::Vouched,
    }
}

#[test]
fn data_of_known_flows_takes_the_lane_in_both_directions() {
    for (plan, v6) in [(Plan::default as fn() -> Plan, false), (plan, false), (plan, true)] {
        let mut pair = Pair::new(plan, v6);
        let before = pair.express();
        let burst: Vec<_> = (0..FLOWS)
            .flat_map(|flow| [data(flow, false), data(flow, true)])
            .collect();
        pair.step(&Event::Burst(burst));
        assert_eq!(2 * u64::from(FLOWS), pair.express() - before, "v6: {v6}");
    }
}

#[test]
fn lane_is_not_tried_for_some_bursts_after_a_flood_of_strangers() {
    let mut pair = Pair::new(plan, false);
    let strangers = (0..16).map(|port| Draw {
        oddity: Oddity::Stranger(port),
        ..data(1, false)
    });
    pair.step(&Event::Burst(strangers.collect()));
    let before = pair.express();
    let taken: Vec<_> = (0..9)
        .map(|_| {
            pair.step(&Event::Burst(vec![data(0, false)]));
            pair.express() - before
        })
        .collect();
    assert_eq!(vec![0, 0, 0, 0, 0, 0, 0, 1, 2], taken);
}

#[test]
fn packets_that_follow_an_unusual_packet_of_their_flow_do_not_take_the_lane() {
    let mut pair = Pair::new(plan, false);
    let unusual = |flow, oddity| Draw {
        oddity,
        ..data(flow, false)
    };
    let before = pair.express();
    let burst = vec![
        data(0, false),
        unusual(0, Oddity::IpOptions),
        data(0, false),
        unusual(2, Oddity::Flags(FIN | ACK)),
        data(2, false),
        data(3, false),
        data(4, false),
        // Any flow between these hosts may be the one to which the later fragments belong.
        unusual(1, Oddity::Fragment),
        data(1, false),
        data(5, false),
    ];
    pair.step(&Event::Burst(burst));
    assert_eq!(3, pair.express() - before);
}

#[test]
fn sessions_return_to_the_lane_after_a_commit() {
    let mut pair = Pair::new(plan, false);
    pair.step(&Event::Commit);
    let burst = Event::Burst((0..FLOWS).map(|flow| data(flow, false)).collect());
    // The graph revalidates four sessions in each burst.
    let taken = [0; 3].map(|_| {
        let before = pair.express();
        pair.step(&burst);
        pair.express() - before
    });
    assert_eq!([0, 4, 6], taken);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn lane_and_graph_agree_about_any_history(events in events(), v6 in prop::bool::weighted(0.3)) {
        let mut pair = Pair::new(plan, v6);
        for event in &events {
            pair.step(event);
        }
    }
}
