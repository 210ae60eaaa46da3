//! `nat-path`: one core's cost per packet, in memory, beside the limit.
//!
//! Buffers are DPDK mbufs passed first in, first out, headers written [`rig::LAG`] packets before they are read.
//! Cost = loop(source, receive, path, transmit, free) - loop(source, free).

mod created;
mod edits;
pub mod flows;
mod listing;
pub mod opening;
pub mod probe;
pub mod rig;
pub mod rules;
mod shapes;
mod six;
pub mod wire;

use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_dpdk::{Devices, DpdkIo};
use sluice_engine::packet::counters::CycleStage;
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Packets};
use sluice_wire::Checksums;

use crate::rows::{Row, Run};
use created::created;
use edits::{Inside, edits};
use flows::{Hosts, Random, Written, data};
use listing::listing;
use opening::{complete, open, verify};
use rig::{BUFFERS, Gateway, Job, LAG, Source};
use rules::Style;
use six::Written6;
use wire::{Sample, Wire};

type Failure = Box<dyn std::error::Error>;

/// Packets of one timed loop.
const PACKETS: usize = 1 << 20;
/// Every so many outputs one is held against the reference.
pub const SAMPLE: usize = 1000;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// From inside.
    Up,
    /// From outside.
    Down,
    /// Both, as many of each.
    Both,
}

impl Direction {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }

    /// Ports of the source, and frames for each, in one iteration.
    pub fn ports(self) -> &'static [(u16, usize)] {
        match self {
            Self::Up => &[(0, 64)],
            Self::Down => &[(1, 64)],
            Self::Both => &[(0, 64), (1, 64)],
        }
    }

    fn looped(self) -> &'static [(u16, usize)] {
        match self {
            Self::Up => &[(2, 64)],
            Self::Down => &[(3, 64)],
            Self::Both => &[(2, 64), (3, 64)],
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Receive, new MAC addresses, transmit.
    L2fwd,
    /// Forwarding by the routes, without sessions.
    Forward,
    /// Packets of known sessions, beside the limit.
    Established,
    /// The same while sessions are listed.
    Listing,
    /// The same while rules change.
    Edits,
    /// Packets that each open a session.
    New,
    /// CSIT's shapes: so many hosts with 63 flows each.
    Shapes,
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct NatPathArguments {
    /// Only this case.
    #[arg(long, value_name = "CASE")]
    only: Option<Case>,
    /// Only this many sessions; the established case alone unless another is named.
    #[arg(long, value_name = "N")]
    sessions: Option<u32>,
    /// Only this family of the established case.
    #[arg(long, value_name = "FAMILY")]
    family: Option<Family>,
    /// Ask a packet filter of so many rules about the first packets of flows, in the established and the new case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    filter_rules: u32,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// IPv4.
    #[value(name = "4")]
    Four,
    /// IPv6.
    #[value(name = "6")]
    Six,
}

/// Sessions up to which IPv6 is measured too where no family is named.
const SIX: u32 = 64_000;

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &NatPathArguments) -> Result<(), Failure> {
    let eal = rig::start(1)?;
    let runs = if run.quick { 3 } else { 7 };
    let only = arguments.only.or(arguments.sessions.and(Some(Case::Established)));
    let wanted = |case| only.is_none_or(|only| only == case);
    let mut number = 1;
    let mut next = || {
        number += 1;
        number
    };
    if wanted(Case::L2fwd) {
        l2fwd(run, eal, next(), runs)?;
    }
    if wanted(Case::Forward) {
        forward(run, eal, next(), runs)?;
    }
    if wanted(Case::Established) {
        let sizes: &[u32] = match &arguments.sessions {
            Some(one) => std::slice::from_ref(one),
            None if run.quick => &[8_000, 64_000],
            None => &[8_000, 64_000, 1_000_000, 16_000_000],
        };
        for &sessions in sizes {
            if arguments.family != Some(Family::Six) {
                established::<Written>(run, eal, next(), (sessions, arguments.filter_rules), runs)?;
            }
            if arguments.family.map_or(sessions <= SIX, |family| family == Family::Six) {
                established::<Written6>(run, eal, next(), (sessions, arguments.filter_rules), runs)?;
            }
        }
    }
    let usual = if run.quick { 64_000 } else { 1_000_000 };
    let sessions = arguments.sessions.unwrap_or(usual);
    if wanted(Case::Listing) {
        listing(run, eal, next(), sessions, runs)?;
    }
    if wanted(Case::Edits) {
        for inside in Inside::ALL {
            edits(run, eal, next(), sessions, inside, runs)?;
        }
    }
    if wanted(Case::Shapes) {
        let most = if run.quick { 1 } else { shapes::HOSTS.len() };
        for &hosts in &shapes::HOSTS[..most] {
            shapes::shape(run, eal, next(), hosts, Style::MAPPINGS, runs)?;
            shapes::shape(run, eal, next(), hosts, Style::OVERLAP, runs)?;
        }
        shapes::crowded(run, eal, next(), shapes::HOSTS[0])?;
    }
    if wanted(Case::New) {
        let filtered = |style: Style| Style {
            filter_rules: arguments.filter_rules,
            ..style
        };
        for rules in [1, 1_000, 10_000] {
            created(run, eal, next(), sessions, (filtered(Style::SESSIONS), rules), runs)?;
        }
        created(run, eal, next(), sessions, (filtered(Style::MAPPINGS), 1), runs)?;
    }
    Ok(())
}

/// Figures of the worker's stages, in the order of [`CycleStage::ALL`].
pub const STAGES: [&str; CycleStage::ALL.len()] = [
    "receive_cycles",
    "parse_cycles",
    "session_cycles",
    "inspect_cycles",
    "forward_cycles",
    "transmit_cycles",
    "housekeeping_cycles",
    "hand_over_cycles",
    "take_over_cycles",
];

/// What the worker has spent on each of its stages so far.
pub fn stages_of(gateway: &Gateway<'_>) -> [u64; CycleStage::ALL.len()] {
    CycleStage::ALL.map(|stage| gateway.plane.counters()[0].cycles[stage as usize].get())
}

/// Public addresses and ports of the flows.
pub type Publics = Vec<(u32, u16)>;

/// Draw a flow and what is sent of it by a port (2 and 3 stand for 0 and 1).
#[inline(always)]
pub fn draw<W: From<Written>>(hosts: Hosts, random: &mut Random, sessions: u32, publics: &Publics, port: u16) -> W {
    let number = random.below(sessions.into());
    let public = (port & 1 == 1).then(|| publics[number as usize]);
    data(hosts, number, public).into()
}

/// Cycles per packet of loop(source, free).
pub fn empty<W: Wire>(
    source: &mut Source,
    direction: Direction,
    checksums: Checksums,
    mut draw: impl FnMut(u16) -> W,
) -> f64 {
    let ports = direction.looped();
    let each: usize = ports.iter().map(|(_, count)| count).sum();
    let rounds = PACKETS / each;
    let start = tsc::now();
    for _ in 0..rounds {
        source.feed(ports, checksums, |port| Some(draw(port)));
        for &(port, _) in ports {
            source.discard(port);
        }
    }
    (tsc::now() - start) as f64 / (rounds * each) as f64
}

/// What a full loop came to.
pub struct Loop {
    /// Cycles per packet.
    pub cycles: f64,
    /// Frames that went in.
    pub sent: u64,
    /// Frames that came out.
    pub came: u64,
    /// Some of these.
    pub samples: Vec<Sample>,
}

/// Cycles per packet of loop(source, receive, path, transmit, free).
pub fn full<W: Wire>(
    source: &mut Source,
    direction: Direction,
    checksums: Checksums,
    mut draw: impl FnMut(u16) -> W,
    mut path: impl FnMut(),
) -> Loop {
    let ports = direction.ports();
    let each: usize = ports.iter().map(|(_, count)| count).sum();
    let mut looped = Loop {
        cycles: 0.0,
        sent: 0,
        came: 0,
        samples: Vec::with_capacity(2 * PACKETS / SAMPLE),
    };
    for _ in 0..LAG / each {
        looped.sent += source.feed(ports, checksums, |port| Some(draw(port))) as u64;
    }
    let rounds = PACKETS / each;
    let start = tsc::now();
    for round in 0..rounds {
        looped.sent += source.feed(ports, checksums, |port| Some(draw(port))) as u64;
        path();
        for port in [0, 1] {
            if direction == Direction::Both || ports[0].0 != port {
                looped.came += source.discard_sampling(port, round, &mut looped.samples) as u64;
            }
        }
    }
    looped.cycles = (tsc::now() - start) as f64 / (rounds * each) as f64;
    for _ in 0..2 * LAG / each {
        path();
        for port in [0, 1] {
            looped.came += source.drain(port, |_| {}) as u64;
        }
    }
    looped
}

impl Source {
    /// Free what came out of a port; now and then keep a copy of a frame.
    #[inline(always)]
    fn discard_sampling(&mut self, port: u16, round: usize, samples: &mut Vec<Sample>) -> usize {
        // A round has 64 packets of each port: one copy every 16 rounds is one packet in 1,024.
        if !round.is_multiple_of(SAMPLE / 64 + 1) {
            return self.discard(port);
        }
        let mut first = true;
        self.drain(port, |frame| {
            if std::mem::take(&mut first) {
                samples.push(Sample::of(frame));
            }
        })
    }
}

/// Receive from a port, rewrite MAC addresses, transmit on the other; how many there were.
#[inline(always)]
pub fn cross(hand: &mut DpdkIo, from: u16) -> usize {
    let (to, by) = match from {
        0 => (flows::ROUTER_MAC, flows::OUTSIDE_MAC),
        _ => (flows::HOST_MAC, flows::INSIDE_MAC),
    };
    let count = hand.receive(from);
    {
        let mut lent = Packets::new();
        hand.packets(&mut lent);
        for packet in &mut lent {
            if let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() {
                head[..6].copy_from_slice(&to);
                head[6..].copy_from_slice(&by);
            }
        }
    }
    let slots: arrayvec::ArrayVec<BufferIndex, BURST_BUFFERS> = (0..count).map(|slot| slot as BufferIndex).collect();
    hand.transmit(1 - from, &slots);
    hand.end();
    count
}

fn l2fwd(run: &mut Run<'_>, eal: &'static sluice_dpdk::eal::Eal, number: u32, runs: usize) -> Result<(), Failure> {
    let (mut source, devices, mut hand) = rig::join(eal, number)?;
    let mut random = Random(88_172_645_463_325_252);
    let publics = Publics::new();
    let (mut costs, mut empties, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let mut draw = |port| draw::<Written>(Hosts::Sixteen, &mut random, 8_000, &publics, port);
        let base = empty(&mut source, Direction::Up, Checksums::Vouched, &mut draw);
        let looped = full(&mut source, Direction::Up, Checksums::Vouched, &mut draw, || {
            cross(&mut hand, 0);
        });
        assert_eq!(looped.sent, looped.came, "every frame comes back");
        costs.push(looped.cycles - base);
        empties.push(base);
        loops.push(looped.cycles);
    }
    (run.row)(rates(
        Row::new("l2fwd").key("direction", "up").key("checksums", "vouched"),
        &costs,
        &loops,
        &empties,
    ));
    drop(hand);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}

/// The figures of a cost in cycles per packet.
pub fn rates(row: Row, costs: &[f64], loops: &[f64], empties: &[f64]) -> Row {
    let hertz = tsc::frequency() as f64;
    let mpps: Vec<f64> = costs.iter().map(|cost| hertz / cost.max(1.0) / 1e6).collect();
    row.figure("cycles_per_packet", costs)
        .figure("mpps", &mpps)
        .figure("loop_cycles", loops)
        .figure("empty_loop_cycles", empties)
}

fn forward(run: &mut Run<'_>, eal: &'static sluice_dpdk::eal::Eal, number: u32, runs: usize) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let plane = rig::plane(Job::Forward, Style::SESSIONS, 16, false)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Forward, plane, hand, &mut memory)?;
    for checksums in [Checksums::Vouched, Checksums::Unverified] {
        let mut random = Random(88_172_645_463_325_252);
        let publics = Publics::new();
        let (mut costs, mut empties, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs {
            let mut draw = |port| draw::<Written>(Hosts::Sixteen, &mut random, 8_000, &publics, port);
            let base = empty(&mut source, Direction::Up, checksums, &mut draw);
            let looped = full(&mut source, Direction::Up, checksums, &mut draw, || {
                let now = gateway.now();
                gateway.worker.round(now);
            });
            assert_eq!(looped.sent, looped.came, "every packet is forwarded");
            costs.push(looped.cycles - base);
            empties.push(base);
            loops.push(looped.cycles);
        }
        let row = Row::new("forward")
            .key("direction", "up")
            .key("family", 4)
            .key("checksums", name(checksums));
        (run.row)(rates(row, &costs, &loops, &empties));
    }
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}

/// The name in rows of who computes checksums.
pub fn name(checksums: Checksums) -> &'static str {
    if checksums == Checksums::Vouched {
        "vouched"
    } else {
        "computed"
    }
}

fn established<W: Wire + From<Written>>(
    run: &mut Run<'_>,
    eal: &'static sluice_dpdk::eal::Eal,
    number: u32,
    (sessions, filter_rules): (u32, u32),
    runs: usize,
) -> Result<(), Failure> {
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let capacity = sessions + sessions / 16 + 16 * 1024;
    let six = W::FAMILY == 6;
    let job = if six { Job::Translate6 } else { Job::Translate };
    let style = Style {
        filter_rules,
        ..Style::SESSIONS
    };
    let plane = rig::plane(job, style, capacity, false)?;
    let lines = plane.lines();
    let lines = if six { lines.sessions6 } else { lines.sessions4 };
    let bytes = lines as f64 * 64.0 * f64::from(rig::SHARDS) / f64::from(capacity);
    let mut memory = rig::memory(&plane)?;
    let backing = memory.backing().to_string();
    let mut gateway = Gateway::new(job, plane, hand, &mut memory)?;
    let publics = complete(open::<W>(&mut source, &mut gateway, Hosts::Sixteen, sessions))?;
    let mut limit_memory = Region::new(probe::words(sessions as usize, BUFFERS as usize / 32 * 32) * 8)?;
    let mut limit = probe::Probe::new(
        bytemuck::cast_slice_mut(limit_memory.lines()),
        sessions as usize,
        BUFFERS as usize / 32 * 32,
    );
    let directions: &[Direction] = &[Direction::Up, Direction::Down, Direction::Both];
    let mut random = Random(88_172_645_463_325_252);
    let mut figures: Vec<[Vec<f64>; 3]> = directions.iter().map(|_| Default::default()).collect();
    let mut stages: Vec<[Vec<f64>; CycleStage::ALL.len()]> = directions.iter().map(|_| Default::default()).collect();
    let (mut limits, mut limit_sources) = (Vec::new(), Vec::new());
    let before = gateway.session_packets()?;
    let mut sent = 0;
    for _ in 0..runs {
        let batches = PACKETS / 32;
        let start = tsc::now();
        limit.run(batches, false);
        let alone = (tsc::now() - start) as f64;
        let start = tsc::now();
        let translated = limit.run(batches, true);
        let both = (tsc::now() - start) as f64;
        limits.push((both - alone) / translated as f64);
        limit_sources.push(alone / PACKETS as f64);
        for (place, &direction) in directions.iter().enumerate() {
            let mut draw = |port| draw::<W>(Hosts::Sixteen, &mut random, sessions, &publics, port);
            let base = empty(&mut source, direction, Checksums::Vouched, &mut draw);
            let before = stages_of(&gateway);
            let looped = full(&mut source, direction, Checksums::Vouched, &mut draw, || {
                let now = gateway.now();
                gateway.worker.round(now);
            });
            if looped.sent != looped.came {
                return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
            }
            for ((runs, after), before) in stages[place].iter_mut().zip(stages_of(&gateway)).zip(before) {
                runs.push((after - before) as f64 / looped.sent as f64);
            }
            verify::<W>(Hosts::Sixteen, &looped.samples, &publics)?;
            sent += looped.sent;
            let [costs, loops, empties] = &mut figures[place];
            costs.push(looped.cycles - base);
            loops.push(looped.cycles);
            empties.push(base);
        }
    }
    let counted = gateway.session_packets()? - before;
    if counted != sent {
        return Err(format!("{sent} packets went through, the sessions counted {counted}").into());
    }
    let common = |case| {
        let row = Row::new(case).key("sessions", sessions).key("family", W::FAMILY);
        row.key("filter_rules", filter_rules)
    };
    let hertz = tsc::frequency() as f64;
    let mpps: Vec<f64> = limits.iter().map(|cost| hertz / cost / 1e6).collect();
    // The limit is that of IPv4 records.
    if !six {
        (run.row)(
            common("probe")
                .key("direction", "up")
                .figure("cycles_per_packet", &limits)
                .figure("mpps", &mpps)
                .figure("empty_loop_cycles", &limit_sources),
        );
    }
    let row = |case, direction: Direction| {
        common(case)
            .key("direction", direction.name())
            .key("mapping", "address-and-port-dependent")
            .key("checksums", "vouched")
            .key("memory", backing.clone())
            .key("bytes", W::LENGTH as u32 + 4)
    };
    for ((direction, [costs, loops, empties]), stages) in directions.iter().zip(&figures).zip(&stages) {
        let mut row =
            rates(row("established", *direction), costs, loops, empties).figure("bytes_per_session", &[bytes]);
        // By the worker's own clock, which ticks between its steps: the sum is a little above the cost.
        for (name, runs) in STAGES.iter().zip(stages) {
            row = row.figure(name, runs);
        }
        (run.row)(row);
    }
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}
