//! Tests of subscribers' sites in the express lane: a gateway with the lane and a gateway without it receive the same frames.

use std::collections::BTreeMap;

use crate::rig::{INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, ROUTER_MAC, Rig, v4};
use crate::sites::{ONE, OTHER, PUBLIC, TWO, VIRTUAL, at, of_site, plan, served, terminal, told};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::packet::lists::NodeIndex;
use sluice_engine::worker::request::Filter;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;
use sluice_wire::tcp::flag::{ACK, FIN, SYN};

/// The flows of the terminals: site, MAC, address, port, and whether they are TCP connections.
const FLOWS: [(u16, [u8; 6], &str, u16, bool); 4] = [
    (0, ONE, "10.0.0.5", 5_000, false),
    (0, TWO, "10.0.0.6", 5_001, true),
    (1, OTHER, "10.0.0.5", 5_000, true),
    (1, OTHER, "10.0.0.5", 5_002, false),
];

const REMOTE: &str = "198.51.100.7:80";

/// What is unusual about a packet.
#[derive(Clone, Debug)]
enum Oddity {
    Nothing,
    /// The tags of another site, or a single tag.
    Tags(u8),
    /// The priority of the tags.
    Priority(u8),
    /// The destination MAC: that of the interface, of a site, or of another host.
    Mac(u8),
    /// The source MAC.
    Forged,
    Ports(u16),
    Flags(u8),
    Padded(u8),
    MayBeCut,
    Long,
    Edited(u16, u8),
}

#[derive(Clone, Debug)]
struct Draw {
    flow: usize,
    is_reply: bool,
    oddity: Oddity,
}

#[derive(Clone, Debug)]
enum Event {
    Burst(Vec<Draw>),
    Pass(u16),
    /// The lease of the terminal of a flow ends, or begins.
    Lease(usize, bool),
    /// A site loses its public address, or gets it.
    Public(u32, bool),
    /// The virtual MAC of a site changes, or is removed.
    VirtualMac(u32, bool),
}

/// A packet of a flow, without its link header.
fn datagram(flow: usize, is_reply: bool) -> Frame {
    let (site, _, address, port, is_tcp) = FLOWS[flow];
    let (own, public) = (at(address, port), at(PUBLIC[usize::from(site)], port));
    let frame = match (is_tcp, is_reply) {
        (true, false) => packet::tcp4(own, REMOTE).numbers(1_001, 5_001),
        (true, true) => packet::tcp4(REMOTE, public).numbers(5_001, 1_001),
        (false, false) => packet::udp4(own, REMOTE),
        (false, true) => packet::udp4(REMOTE, public),
    };
    frame.dont_fragment().payload(&[7; 30])
}

/// Adds the link header of a packet of a flow.
fn on_link(frame: &Frame, flow: usize, is_reply: bool) -> Frame {
    let (site, mac, ..) = FLOWS[flow];
    match is_reply {
        true => frame.clone().macs(ROUTER_MAC, VIRTUAL[usize::from(site)]),
        false => of_site(frame, site).macs(mac, INSIDE_MAC),
    }
}

/// The bytes of a drawn packet.
fn bytes(Draw { flow, is_reply, oddity }: &Draw) -> Vec<u8> {
    let mut frame = datagram(*flow, *is_reply);
    match oddity {
        Oddity::Flags(flags) if FLOWS[*flow].4 => frame = frame.flags(*flags),
        Oddity::MayBeCut => {
            if let packet::Network::V4(header) = &mut frame.network {
                header.dont_fragment = false;
            }
        }
        Oddity::Long => frame = frame.payload(&[3; 1_500]),
        _ => {}
    }
    let frame = on_link(&frame, *flow, *is_reply);
    let mut bytes = frame.build();
    match oddity {
        Oddity::Tags(kind) if !is_reply => match kind % 4 {
            0 => bytes[19] ^= 1,
            1 => bytes[15] ^= 1,
            // The single tag of a site that has no terminals.
            2 => drop(bytes.splice(12..20, [0x81, 0, 0, 7])),
            _ => drop(bytes.splice(12..20, [])),
        },
        Oddity::Priority(priority) if !is_reply => {
            bytes[14] |= priority << 5;
            bytes[18] |= priority & 0xe0;
        }
        Oddity::Mac(kind) => {
            let macs = [INSIDE_MAC, OUTSIDE_MAC, VIRTUAL[0], VIRTUAL[1], ONE, [0, 0, 0, 9, 9, 9]];
            bytes[..6].copy_from_slice(&macs[usize::from(*kind) % macs.len()]);
        }
        Oddity::Forged => bytes[11] ^= 1,
        Oddity::Ports(port) => {
            // The checksum is wrong then, but the device vouches for it.
            let at = if *is_reply { 34 } else { 42 };
            bytes[at + 2..at + 4].copy_from_slice(&port.to_be_bytes());
        }
        Oddity::Padded(more) => bytes.resize(bytes.len() + usize::from(*more), 0xee),
        Oddity::Edited(at, value) => {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        _ => {}
    }
    bytes
}

/// A gateway with the lane, and one without it.
struct Pair([Rig; 2]);

impl Pair {
    /// Opens the flows.
    fn new() -> Self {
        let mut rigs = [0; 2].map(|_| served(plan()));
        rigs[1].workers.iter_mut().for_each(|worker| worker.set_lane(false));
        let mut pair = Self(rigs);
        for (flow, (.., is_tcp)) in FLOWS.iter().enumerate() {
            let [first, answer] = [false, true].map(|is_reply| datagram(flow, is_reply));
            let (first, answer) = match is_tcp {
                true => (
                    first.flags(SYN).numbers(1_000, 0).payload(&[]),
                    answer.flags(SYN | ACK).numbers(5_000, 1_001).payload(&[]),
                ),
                false => (first, answer),
            };
            for (frame, is_reply) in [(first, false), (answer, true), (datagram(flow, false), false)] {
                let sent = pair.receive(&[(is_reply, on_link(&frame, flow, is_reply).build())]);
                assert_eq!(1, sent, "{:?}", pair.0[1].all_drops());
            }
        }
        pair
    }

    /// Both gateways receive frames. Returns the number of frames that each of them sends.
    fn receive(&mut self, frames: &[(bool, Vec<u8>)]) -> usize {
        let [with, without] = self.0.each_mut().map(|rig| {
            for (is_reply, bytes) in frames {
                let port = if *is_reply { OUTSIDE } else { INSIDE };
                rig.wires[0].inject(port, bytes, Checksums::Vouched);
            }
            rig.round();
            let mut all = BTreeMap::<_, Vec<_>>::new();
            for sent in rig.sent() {
                all.entry(sent.port).or_default().push(sent.frame);
            }
            all.values_mut().for_each(|frames| frames.sort());
            all
        });
        assert_eq!(without, with);
        self.compare();
        with.values().map(Vec::len).sum()
    }

    /// Compares the sessions, the counters, and what the gateways have passed to the control plane.
    fn compare(&mut self) {
        let [with, without] = self.0.each_mut().map(|rig| {
            let sessions = rig.sessions(Filter::default());
            let mut sessions: Vec<_> = sessions.iter().map(|session| format!("{session:?}")).collect();
            sessions.sort();
            let interfaces = [INSIDE, OUTSIDE].map(|number| {
                let of = &rig.plane.counters()[0].interfaces[usize::from(number)];
                [&of.received, &of.received_bytes, &of.sent, &of.sent_bytes].map(|counter| counter.get())
            });
            (sessions, interfaces, rig.all_drops(), told(rig))
        });
        assert_eq!(without, with);
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Burst(draws) => {
                let frames: Vec<_> = draws.iter().map(|draw| (draw.is_reply, bytes(draw))).collect();
                self.receive(&frames);
            }
            Event::Pass(milliseconds) => self.0.iter_mut().for_each(|rig| rig.pass(u64::from(*milliseconds))),
            Event::Lease(flow, begins) => {
                let (site, mac, address, ..) = FLOWS[*flow];
                for rig in &mut self.0 {
                    let writer = rig.writer.as_mut().unwrap();
                    let terminal = terminal(site.into(), address, mac, false);
                    match begins {
                        true => drop(writer.add_terminal(&terminal)),
                        false => drop(writer.remove_terminal(terminal.context, terminal.address)),
                    }
                }
            }
            Event::Public(site, begins) => {
                let public = begins.then(|| v4(PUBLIC[*site as usize]));
                for rig in &mut self.0 {
                    rig.writer.as_mut().unwrap().set_public(*site, 0, public).unwrap();
                }
            }
            Event::VirtualMac(site, begins) => {
                let mac = begins.then(|| VIRTUAL[*site as usize]);
                for rig in &mut self.0 {
                    rig.writer.as_mut().unwrap().set_site(*site, mac, None).unwrap();
                }
            }
        }
    }

    /// Number of packets that the lane has taken.
    fn express(&self) -> u64 {
        let [with, without] = [0, 1].map(|number: usize| {
            let counters = &self.0[number].plane.counters()[0];
            counters.nodes[NodeIndex::express as usize].packets.get()
        });
        assert_eq!(0, without);
        with
    }
}

fn data(flow: usize, is_reply: bool) -> Draw {
    Draw {
        flow,
        is_reply,
        oddity: Oddity::Nothing,
    }
}

#[test]
fn data_of_terminals_and_answers_to_their_sites_take_the_lane() {
    let mut pair = Pair::new();
    let before = pair.express();
    let burst = (0..FLOWS.len()).flat_map(|flow| [data(flow, false), data(flow, true)]);
    pair.step(&Event::Burst(burst.collect()));
    assert_eq!(2 * FLOWS.len() as u64, pair.express() - before);
}

#[test]
fn lane_leaves_terminals_without_a_lease_and_frames_to_the_mac_of_another_site() {
    let mut pair = Pair::new();
    let before = pair.express();
    pair.step(&Event::Lease(1, false));
    let other = Draw {
        oddity: Oddity::Mac(3),
        ..data(0, true)
    };
    pair.step(&Event::Burst(vec![data(1, false), data(2, false), other]));
    assert_eq!(1, pair.express() - before);
}

fn draw() -> impl Strategy<Value = Draw> {
    let oddity = prop_oneof![
        16 => Just(Oddity::Nothing),
        1 => any::<u8>().prop_map(Oddity::Tags),
        1 => (0..8u8).prop_map(Oddity::Priority),
        2 => any::<u8>().prop_map(Oddity::Mac),
        1 => Just(Oddity::Forged),
        1 => prop::sample::select(vec![67, 68, 80, 9]).prop_map(Oddity::Ports),
        1 => prop::sample::select(vec![FIN | ACK, SYN, 0, ACK]).prop_map(Oddity::Flags),
        1 => (1..30u8).prop_map(Oddity::Padded),
        1 => Just(Oddity::MayBeCut),
        1 => Just(Oddity::Long),
        2 => any::<(u16, u8)>().prop_map(|(at, value)| Oddity::Edited(at, value)),
    ];
    (0..FLOWS.len(), any::<bool>(), oddity).prop_map(|(flow, is_reply, oddity)| Draw { flow, is_reply, oddity })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn gateways_with_and_without_the_lane_serve_sites_alike(events in vec(
        prop_oneof![
            10 => vec(draw(), 1..40).prop_map(Event::Burst),
            1 => (1..2_000u16).prop_map(Event::Pass),
            1 => (0..FLOWS.len(), any::<bool>()).prop_map(|(flow, begins)| Event::Lease(flow, begins)),
            1 => (0..2u32, any::<bool>()).prop_map(|(site, begins)| Event::Public(site, begins)),
            1 => (0..2u32, any::<bool>()).prop_map(|(site, begins)| Event::VirtualMac(site, begins)),
        ],
        1..14,
    )) {
        let mut pair = Pair::new();
        for event in &events {
            pair.step(event);
        }
    }
}
