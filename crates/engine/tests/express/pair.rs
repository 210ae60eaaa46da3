//! Two gateways that receive the same frames, one with the express lane and one without it, and histories of such frames.

use std::collections::BTreeMap;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_engine::packet::io::memory::Sent;
use sluice_engine::packet::lists::NodeIndex;
use sluice_engine::snapshot::Interface;
use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText, PolicerRate, Tally};
use sluice_engine::worker::request::{Filter, Reply, Request, SessionInfo};
use sluice_filter::{CompiledRule, Counters, Field, Filters, MatcherKind, Rule, Settings, Verdict};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::tcp::flag::{ACK, SYN};
use sluice_wire::vlan::Tag;
use sluice_wire::{Checksums, layers};

/// Tags of an interface: TPID and VLAN.
type Tags = &'static [(u16, u16)];

const NONE: Tags = &[];
const ONE: Tags = &[(0x8100, 100)];
const OTHER: Tags = &[(0x88a8, 200)];
const TWO: Tags = &[(0x88a8, 300), (0x8100, 30)];

/// Tags of the inside interface and of the outside interface, for each kind of link.
pub const LINKS: [[Tags; 2]; 7] = [
    [NONE, NONE],
    [ONE, OTHER],
    [ONE, NONE],
    [NONE, TWO],
    [TWO, ONE],
    [TWO, TWO],
    [ONE, OTHER],
];

/// The kind of link in which both interfaces are VLANs of one port.
pub const ONE_PORT: usize = 6;

#[expect(clippy::ptr_arg, reason = "what a plan has a pointer to")]
fn give<const LINK: usize>(interfaces: &mut Vec<Interface>) {
    for (interface, tags) in interfaces.iter_mut().zip(LINKS[LINK]) {
        let tags = tags.iter().map(|&(protocol, control)| Tag { protocol, control });
        interface.tags = tags.collect();
        if LINK == ONE_PORT {
            interface.port = 0;
        }
    }
}

/// A way to divide the work among workers: their number, and the workers of each part.
type Division = (usize, [&'static [u16]; 4]);

/// The divisions: one worker, two workers that hand over packets of each other's shards, and workers with different parts.
pub const DIVISIONS: [Division; 5] = [
    (1, [&[], &[], &[], &[]]),
    (2, [&[], &[], &[], &[]]),
    (2, [&[0], &[0], &[1], &[1]]),
    (2, [&[0], &[0], &[1], &[0]]),
    (3, [&[0], &[1], &[1, 2], &[0]]),
];

/// The division in which two workers hand over packets of each other's shards.
pub const HAND_OVER: usize = 1;

/// The division in which two workers look up sessions of packets that two workers have parsed.
pub const TWO_STAGES: usize = 4;

/// Number of shards.
const SHARDS: u16 = 16;

/// A plan with a kind of link of [`LINKS`], and a division of [`DIVISIONS`].
fn linked(plan: fn() -> Plan, [link, division]: [usize; 2]) -> Plan {
    let (workers, stages) = DIVISIONS[division];
    let transmit = stages[3];
    Plan {
        workers,
        shards: SHARDS.into(),
        senders: match transmit {
            [] => (0..workers as u16).collect(),
            some => some.to_vec(),
        },
        stages: stages.map(<[u16]>::to_vec),
        interfaces: [
            give::<0>, give::<1>, give::<2>, give::<3>, give::<4>, give::<5>, give::<6>,
        ][link],
        ..plan()
    }
}

/// A frame with the tags of the interface on which it arrives.
fn tagged(frame: Frame, link: usize, is_reply: bool) -> Frame {
    let tags = LINKS[link][usize::from(is_reply)];
    tags.iter()
        .fold(frame, |frame, &(protocol, vlan)| frame.tag(protocol, vlan | 0xa000))
}

/// Number of flows. Even flows are TCP connections, and odd flows are UDP.
pub const FLOWS: u8 = 6;

/// A received packet: a packet of a flow, and what is unusual about it.
#[derive(Clone, Debug)]
pub struct Draw {
    pub flow: u8,
    pub is_reply: bool,
    pub oddity: Oddity,
    pub payload: u8,
    pub checksums: Checksums,
}

/// What is unusual about a packet.
#[derive(Clone, Debug)]
pub enum Oddity {
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
    Edited(u16, u8),
    /// The frame ends early.
    Truncated(u16),
    /// The packet belongs to a new flow.
    Stranger(u16),
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Event {
    /// A burst is received on each interface.
    Burst(Vec<Draw>),
    /// The clock advances by milliseconds.
    Pass(u16),
    /// The configuration is committed again without changes. Every session then has an older generation.
    Commit,
    /// A shard moves to another worker, if two workers look up sessions.
    Move(u16),
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
fn bytes(draw: &Draw, ends: Ends, link: usize, position: u8) -> Vec<u8> {
    let is_tcp = draw.flow.is_multiple_of(2);
    let payload = vec![position; usize::from(draw.payload)];
    let frame = ends.frame(is_tcp, draw.is_reply).payload(&payload);
    let mut frame = tagged(frame, link, draw.is_reply);
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
            let at = 12 + usize::from(at) % (bytes.len() - 13);
            bytes[at] = value;
        }
        Oddity::Truncated(at) => bytes.truncate((usize::from(at) % (bytes.len() + 1)).max(1)),
        _ => {}
    }
    bytes
}

/// A gateway with the lane, and one without it.
pub struct Pair {
    rigs: [Rig; 2],
    ends: Vec<Ends>,
    plan: fn() -> Plan,
    /// The kind of link, of [`LINKS`].
    link: usize,
    /// The division, of [`DIVISIONS`].
    division: usize,
}

impl Pair {
    /// Opens the flows in both gateways.
    pub fn new(plan: fn() -> Plan, v6: bool) -> Self {
        Self::on(0, plan, v6)
    }

    /// Opens the flows in both gateways, which have a kind of link of [`LINKS`].
    pub fn on(link: usize, plan: fn() -> Plan, v6: bool) -> Self {
        Self::divided([link, 0], plan, v6)
    }

    /// Opens the flows in both gateways, which have a kind of link of [`LINKS`] and a division of [`DIVISIONS`].
    pub fn divided([link, division]: [usize; 2], plan: fn() -> Plan, v6: bool) -> Self {
        let mut rigs = [0; 2].map(|_| Rig::new(linked(plan, [link, division])));
        rigs[1].workers.iter_mut().for_each(|worker| worker.set_lane(false));
        let mut pair = Self {
            rigs,
            ends: Vec::new(),
            plan,
            link,
            division,
        };
        pair.open_flows(FLOWS, v6);
        pair
    }

    /// Opens flows until there are `count`.
    pub fn open_flows(&mut self, count: u8, v6: bool) {
        for number in self.ends.len() as u8..count {
            let ends = self.open(number, v6);
            self.ends.push(ends);
        }
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
        let sent = self.send(INSIDE, &tagged(first, self.link, false).build(), Checksums::Vouched);
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
        assert_eq!(
            1,
            self.send(OUTSIDE, &tagged(reply, self.link, true).build(), Checksums::Vouched)
                .len()
        );
        assert_eq!(
            1,
            self.send(
                INSIDE,
                &tagged(ends.frame(is_tcp, false), self.link, false).build(),
                Checksums::Vouched
            )
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
                let port = if self.link == ONE_PORT { 0 } else { *interface };
                rig.wires[0].inject(port, bytes, *checksums);
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
            let counters = rig.plane.counters();
            let of = |number: usize| {
                counters.iter().fold([0; 4], |sums, worker| {
                    let of = &worker.interfaces[number];
                    let counts = [&of.received, &of.received_bytes, &of.sent, &of.sent_bytes];
                    std::array::from_fn(|k| sums[k] + counts[k].get())
                })
            };
            let packets: u64 = counters.iter().map(|worker| worker.session_packets.get()).sum();
            let snapshot = rig.plane.snapshot();
            let steps = snapshot.chains.first().and_then(|chains| chains.as_deref()).into_iter();
            let steps = steps.flat_map(|chains| {
                chains
                    .listed()
                    .iter()
                    .map(move |step| chains.tally(step.tally?).map(Tally::total))
            });
            let steps: Vec<_> = steps.collect();
            (
                sessions,
                [INSIDE, OUTSIDE].map(|number| of(number.into())),
                packets,
                drops,
                steps,
            )
        });
        assert_eq!(without, with);
    }

    pub fn step(&mut self, event: &Event) {
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
                        (interface, bytes(draw, ends, self.link, position), draw.checksums)
                    })
                    .collect();
                self.receive(&frames);
            }
            Event::Pass(milliseconds) => {
                self.rigs.iter_mut().for_each(|rig| rig.pass(u64::from(*milliseconds)));
                let [with, without] = self.rigs.each_mut().map(Rig::sent);
                compare_sent(&with, &without);
            }
            Event::Move(shard) => {
                let workers = match self.division {
                    HAND_OVER => [0, 1],
                    TWO_STAGES => [1, 2],
                    _ => return,
                };
                for rig in &mut self.rigs {
                    move_shard(rig, shard % SHARDS, workers);
                }
            }
            Event::Commit => {
                let plan = linked(self.plan, [self.link, self.division]);
                for rig in &mut self.rigs {
                    let (snapshot, routes) = rig::snapshot(&plan);
                    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
                    rig.plane.collect();
                }
            }
        }
    }

    /// Number of packets that the lane has taken.
    pub fn express(&self) -> u64 {
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

/// Moves a shard from one of two workers to the other.
fn move_shard(rig: &mut Rig, shard: u16, workers: [u16; 2]) {
    let from = rig.plane.start_parameters().owners.of(shard).unwrap();
    let to = if from == workers[0] { workers[1] } else { workers[0] };
    let requests = [
        (to, Request::Expect { shard }),
        (from, Request::StartRelease { shard, to }),
        (from, Request::Release),
    ];
    let taken = |rig: &Rig| rig.plane.counters()[usize::from(to)].shards_taken.get();
    let before = taken(rig);
    for (worker, request) in requests {
        let text = format!("{request:?}");
        assert!(matches!(rig.ask(worker.into(), request), Reply::Done), "{text}");
        // Each worker must have run since the request.
        (0..3).for_each(|_| rig.round());
    }
    for _ in 0..1_000 {
        if taken(rig) != before {
            return;
        }
        rig.round();
    }
    panic!("the shard was not taken");
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
pub fn plan() -> Plan {
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

/// The same gateway, whose shards have space for few more sessions than those that are opened first.
pub fn tight() -> Plan {
    Plan {
        sessions: 8 * u32::from(SHARDS),
        shares: false,
        ..plan()
    }
}

/// The same gateway, whose router has chains.
pub fn chained() -> Plan {
    Plan {
        snapshot: |snapshot| {
            (plan().snapshot)(snapshot);
            snapshot.chains = vec![Some(chains().into())];
        },
        ..plan()
    }
}

/// Chains that count, police and drop packets, and that pass all others to session lookup.
fn chains() -> Chains {
    let step = |action| ClassText {
        text: format!("{action:?}"),
        action,
    };
    let chain = |name: &str, actions: Vec<Action>| ChainText {
        name: name.into(),
        steps: actions.into_iter().map(step).collect(),
    };
    let count = |name: &str| Action::Count(name.into());
    fn rule<A: sluice_filter::Address>(field: Field, first: u32, last: u32) -> Vec<Rule<A>> {
        vec![Rule::any().with(field, first, last).unwrap()]
    }
    let class = |field, first, last, to: &str| Action::Classify {
        v4: rule(field, first, last),
        v6: rule(field, first, last),
        to: to.into(),
    };
    let input = vec![
        count("all"),
        class(Field::Protocol, 17, 17, "udp"),
        class(Field::Length, 200, 65_535, "long"),
        Action::Police(PolicerRate::Packets(1, 1 << 30), None),
        Action::Sessions,
    ];
    let udp = vec![
        count("udp"),
        class(Field::SourcePort, 4_003, 4_003, "refused"),
        Action::Police(PolicerRate::Bits(1, 1 << 30), None),
        Action::Sessions,
    ];
    let refused = vec![class(Field::Length, 0, 80, "long"), Action::Drop];
    let long = vec![count("long"), Action::Sessions];
    let written = [
        chain("input", input),
        chain("udp", udp),
        chain("refused", refused),
        chain("long", long),
    ];
    Chains::new(&written, 4).unwrap()
}

/// A packet that needs nothing unusual.
pub fn data(flow: u8, is_reply: bool) -> Draw {
    Draw {
        flow,
        is_reply,
        oddity: Oddity::Nothing,
        payload: 20,
        checksums: Checksums::Vouched,
    }
}

/// Length in bytes of an event in the input of a fuzzer.
const EVENT: usize = 5;

/// Maximum number of packets in a burst.
const BURST: usize = 64;

/// Both gateways process a history that a fuzzer has chosen. Any bytes are a valid history.
pub fn run(bytes: &[u8]) {
    let Some((&settings, events)) = bytes.split_first() else {
        return;
    };
    let link = usize::from(settings >> 1) % ONE_PORT;
    let division = usize::from(settings >> 5) % DIVISIONS.len();
    let mut pair = Pair::divided([link, division], plan, settings & 1 != 0);
    let mut burst: Vec<Draw> = Vec::new();
    for event in events.as_chunks::<EVENT>().0 {
        let [kind, ..] = *event;
        let other = match kind {
            0xff => Some(Event::Commit),
            0xfd => Some(Event::Move(event[1].into())),
            0xfe => Some(Event::Pass(u16::from_be_bytes([event[1] & 7, event[2]]))),
            _ => None,
        };
        if let Some(other) = other {
            pair.step(&Event::Burst(std::mem::take(&mut burst)));
            pair.step(&other);
            continue;
        }
        let draw = packet_of(*event);
        // Workers may exchange the directions of a flow.
        if division != 0 && burst.last().is_some_and(|last| last.is_reply != draw.is_reply) {
            pair.step(&Event::Burst(std::mem::take(&mut burst)));
        }
        burst.push(draw);
        if kind & 0x80 != 0 || burst.len() == BURST {
            pair.step(&Event::Burst(std::mem::take(&mut burst)));
        }
    }
    pair.step(&Event::Burst(burst));
}

/// The packet that an event of a fuzzer describes.
fn packet_of([kind, oddity, a, b, c]: [u8; EVENT]) -> Draw {
    let checksums = match oddity >> 4 {
        0..=7 => Checksums::Vouched,
        8..=12 => Checksums::Unverified,
        13 => Checksums::BadL4,
        14 => Checksums::BadL3,
        _ => Checksums::PartialChecksum,
    };
    let word = u16::from_be_bytes([a, b]);
    let near = |value: u8| u32::from(value).wrapping_sub(128).wrapping_mul(256);
    let oddity = match oddity & 15 {
        0 => Oddity::Flags(a),
        1 => Oddity::Numbers(near(a), near(b)),
        2 => Oddity::Numbers(u32::from_be_bytes([a, b, c, a]), u32::from_be_bytes([c, b, a, c])),
        3 => Oddity::Ttl(a),
        4 => Oddity::Padded(a % 40),
        5 => Oddity::MayBeCut,
        6 => Oddity::TcpOptions,
        7 => Oddity::IpOptions,
        8 => Oddity::Fragment,
        9 => Oddity::Tagged,
        10 => Oddity::OtherMac,
        11 => Oddity::Edited(word, c),
        12 => Oddity::Truncated(word),
        13 => Oddity::Stranger(u16::from(a % 8)),
        _ => Oddity::Nothing,
    };
    Draw {
        flow: kind % FLOWS,
        is_reply: kind & 0x40 != 0,
        oddity,
        payload: 26 + c % 230,
        checksums,
    }
}
