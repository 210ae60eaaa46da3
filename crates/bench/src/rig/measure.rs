//! Cost of packets on one core: cost = loop(source, receive, path, transmit, free) - loop(source, free).

use sluice_dpdk::tsc;
use sluice_engine::packet::counters::CycleStage;
use sluice_wire::Checksums;

use super::frames::Frame;
use super::gateway::Gateway;
use super::reference::ports;
use super::{LAG, SAMPLE, Sample, Samples, Source};
use crate::rows::{Failure, Runs};

/// Number of packets per timed loop.
pub const PACKETS: usize = 1 << 20;

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// Packets from inside.
    Up,
    /// Packets from outside.
    Down,
    /// Equally many packets in both directions.
    Both,
}

/// Names of the figures for the worker's stages, in the order of [`CycleStage::ALL`].
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

/// Name used in rows for the component that verifies checksums.
pub fn checksums_name(checksums: Checksums) -> &'static str {
    match checksums {
        Checksums::Vouched => "vouched",
        _ => "computed",
    }
}

/// Cycles per packet of loop(source, free).
pub fn empty<F: Frame>(
    source: &mut Source,
    direction: Direction,
    checksums: Checksums,
    mut draw: impl FnMut(u16) -> F,
) -> f64 {
    let looped = |&(port, count): &(u16, usize)| (port + 2, count);
    let ports: arrayvec::ArrayVec<_, 2> = ports(direction).iter().map(looped).collect();
    let each: usize = ports.iter().map(|(_, count)| count).sum();
    let rounds = PACKETS / each;
    let start = tsc::now();
    for _ in 0..rounds {
        source.feed(&ports, checksums, |port| Some(draw(port)));
        for &(port, _) in &ports {
            source.discard(port);
        }
    }
    (tsc::now() - start) as f64 / (rounds * each) as f64
}

/// Results of a full loop: cycles per packet, numbers of frames sent and returned, and sampled output frames.
pub struct Loop {
    pub cycles: f64,
    pub sent: u64,
    pub samples: Vec<Sample>,
}

/// A component that receives frames from the first two ports of a source and sends them back.
pub trait Path {
    fn source(&mut self) -> &mut Source;

    fn round(&mut self);
}

impl Path for Gateway<'_> {
    #[inline(always)]
    fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    #[inline(always)]
    fn round(&mut self) {
        Gateway::round(self);
    }
}

/// A source together with another component.
pub struct With<'s, R>(pub &'s mut Source, pub R);

impl<R: FnMut()> Path for With<'_, R> {
    #[inline(always)]
    fn source(&mut self) -> &mut Source {
        self.0
    }

    #[inline(always)]
    fn round(&mut self) {
        self.1();
    }
}

/// Cycles per packet of loop(source, receive, path, transmit, free); every packet must be output.
pub fn full<F: Frame>(
    path: &mut impl Path,
    direction: Direction,
    checksums: Checksums,
    mut draw: impl FnMut(u16) -> F,
) -> Result<Loop, Failure> {
    let ports = ports(direction);
    let each: usize = ports.iter().map(|(_, count)| count).sum();
    let (mut sent, mut came) = (0, 0);
    let mut samples = Samples::default();
    samples.kept.reserve(2 * PACKETS / SAMPLE);
    for _ in 0..LAG / each {
        sent += path.source().feed(ports, checksums, |port| Some(draw(port)));
    }
    let rounds = PACKETS / each;
    let start = tsc::now();
    for _ in 0..rounds {
        sent += path.source().feed(ports, checksums, |port| Some(draw(port)));
        path.round();
        for port in [0, 1] {
            if direction == Direction::Both || ports[0].0 != port {
                came += samples.drain(path.source(), port);
            }
        }
    }
    let cycles = (tsc::now() - start) as f64 / (rounds * each) as f64;
    for _ in 0..2 * LAG / each {
        path.round();
        for port in [0, 1] {
            came += path.source().drain(port, |_| {});
        }
    }
    if sent != came {
        return Err(format!("{sent} packets went in and {came} came out").into());
    }
    Ok(Loop {
        cycles,
        sent: sent as u64,
        samples: samples.kept,
    })
}

/// Adds the cost of a run in cycles per packet: the difference between the loops with and without the component.
pub fn add_cost(runs: &mut Runs, looped: f64, empty: f64) {
    let cost = looped - empty;
    runs.extend([
        ("cycles_per_packet", cost),
        ("mpps", tsc::frequency() as f64 / cost.max(1.0) / 1e6),
        ("loop_cycles", looped),
        ("empty_loop_cycles", empty),
    ]);
}

/// Measures the cost of packets on a path in one run.
pub fn run<F: Frame>(
    path: &mut impl Path,
    direction: Direction,
    checksums: Checksums,
    mut draw: impl FnMut(u16) -> F,
    runs: &mut Runs,
) -> Result<Loop, Failure> {
    let base = empty(path.source(), direction, checksums, &mut draw);
    let looped = full(path, direction, checksums, &mut draw)?;
    add_cost(runs, looped.cycles, base);
    Ok(looped)
}

/// Measures a gateway in one run, including the cycles of its worker's stages according to its own counters. The worker
/// reads the cycle counter between the stages, so the sum of the stages is slightly above the cost.
pub fn run_gateway<F: Frame>(
    gateway: &mut Gateway<'_>,
    direction: Direction,
    checksums: Checksums,
    draw: impl FnMut(u16) -> F,
    runs: &mut Runs,
) -> Result<Loop, Failure> {
    let before = gateway.stages();
    let looped = run(gateway, direction, checksums, draw, runs)?;
    add_stages(runs, gateway, before, looped.sent);
    Ok(looped)
}

/// Adds the cycles per packet of the worker's stages since an earlier reading.
pub fn add_stages(runs: &mut Runs, gateway: &Gateway<'_>, before: [u64; CycleStage::ALL.len()], packets: u64) {
    for ((name, after), before) in STAGES.into_iter().zip(gateway.stages()).zip(before) {
        runs.add(name, (after - before) as f64 / packets as f64);
    }
}
