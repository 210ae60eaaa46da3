//! Measures the cycles per packet of each part of packet processing. A worker processes the traffic with this
//! configuration and counts the cycles.

use sluice_config::Config;
use sluice_dpdk::tsc;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::worker::request::Filter;
use sluice_wire::Checksums;

use super::PlanError;
use super::live::Live;
use super::mix::{self, Frame, Traffic};
use super::profile::Profile;
use super::returns::Returns;
use crate::replay::captures::{Captured, Input};
use crate::replay::world::World;
use crate::replay::{ReplayError, earliest};

/// Maximum capacity of the session table. More sessions would take memory and time without changing the result.
const MAX_SESSIONS: u32 = 1 << 18;

/// Maximum number of frames used from captures or live traffic.
pub const MAX_FRAMES: usize = 1 << 16;

/// Number of frames that are queued at the ports when a batch starts. The first queued frames have then left the
/// innermost caches, like frames from a card.
const WAITING: usize = 2048;

/// Number of passes. The result is the median over the batches of all passes.
const PASSES: usize = 7;

/// Traffic for a measurement.
pub enum Source<'s> {
    /// Generated from a profile.
    Mix(Profile),
    /// Read from captures, each with its port.
    Captures(Vec<(u16, Input)>),
    /// Live traffic.
    Live(&'s Live),
}

/// Result of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Cycles per packet for each part, without devices, if the graph processes every packet. The cost of session
    /// creation is included, divided by the number of packets per session.
    pub parts: [f64; 4],
    /// The same with the express lane, through which a worker that has all parts passes its packets.
    pub undivided: [f64; 4],
    /// Cycles of a session creation, in addition to the cycles of the packet.
    pub opening: f64,
    /// Packets per session.
    pub packets_per_session: Option<f64>,
    /// Number of sessions.
    pub sessions: u64,
    /// Packets per pass.
    pub packets: u64,
    /// Mean frame size in bytes.
    pub bytes: f64,
    /// Fraction of the packets that are forwarded.
    pub forwarded: f64,
    /// Fraction of the packets that the busiest shard gets. `None` if the traffic is evenly distributed.
    pub busiest: Option<f64>,
    /// The most frequent drop reason.
    pub dropped_for: Option<&'static str>,
}

/// Cycles of each part since the start.
fn spent(plane: &ControlPlane) -> [u64; 4] {
    let stage = |stage: CycleStage| -> u64 {
        plane
            .counters()
            .iter()
            .map(|worker| worker.cycles[stage as usize].get())
            .sum()
    };
    [
        stage(CycleStage::Receive),
        stage(CycleStage::Parse),
        stage(CycleStage::Session)
            + stage(CycleStage::Inspect)
            + stage(CycleStage::Forward)
            + stage(CycleStage::Housekeeping),
        stage(CycleStage::Transmit),
    ]
}

fn total(plane: &ControlPlane, value: impl Fn(&WorkerCounters) -> u64) -> u64 {
    plane.counters().iter().map(|worker| value(worker)).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Pass some frames through the engine. Returns the cycles of each part and the number of forwarded frames.
fn batch(world: &mut World<'_>, frames: &[Frame], checksums: Checksums) -> ([f64; 4], usize) {
    let before = spent(world.plane());
    for (port, frame) in frames {
        world.feed(*port, frame, checksums);
    }
    let sent = world.drain().len();
    let after = spent(world.plane());
    let cycles = |part: usize| after[part].wrapping_sub(before[part]) as f64;
    ([0, 1, 2, 3].map(cycles), sent)
}

/// Pass all frames through the engine. Returns the cycles of the session part.
fn pass(world: &mut World<'_>, frames: &[Frame], checksums: Checksums) -> f64 {
    let batches = frames.chunks(WAITING);
    batches.map(|frames| batch(world, frames, checksums).0[2]).sum()
}

/// Measure on the core on which this thread runs.
///
/// # Errors
/// The configuration can't be converted to engine parameters, or the traffic can't be read.
pub fn measure(config: &Config, source: Source<'_>, checksums: Checksums) -> Result<Measured, PlanError> {
    let mut config = config.clone();
    let sessions = &mut config.document.sessions;
    sessions.ipv4 = sessions.ipv4.min(MAX_SESSIONS);
    sessions.ipv6 = sessions.ipv6.min(MAX_SESSIONS);
    let mut memory = World::memory(&config, 1)?.allocate();
    let mut world = World::new(&config, 1, &mut memory, tsc::now)?;
    let (traffic, packets_per_session) = match source {
        Source::Mix(profile) => {
            let traffic = mix::establish(&config, &mut world, &profile, checksums)?;
            (traffic, profile.packets_per_session)
        }
        Source::Captures(inputs) => replayed(&mut world, captured(inputs))?,
        Source::Live(live) => replayed(&mut world, live.frames().iter().cloned().map(Ok))?,
    };
    let sessions =
        total(world.plane(), |w| w.sessions_created.get()) - total(world.plane(), |w| w.sessions_ended.get());
    let mut measured = established(&mut world, &traffic, checksums);
    measured.sessions = sessions;
    measured.opening = opening(&mut world, &traffic, checksums);
    measured.packets_per_session = packets_per_session;
    for parts in [&mut measured.parts, &mut measured.undivided] {
        parts[2] += packets_per_session.map_or(0.0, |packets| measured.opening / packets.max(1.0));
    }
    drop(world);
    drop(memory);
    if traffic.opening.is_empty() {
        measured.busiest = busiest(&config, &traffic.data)?;
    }
    Ok(measured)
}

/// Cost of packets in existing sessions.
fn established(world: &mut World<'_>, traffic: &Traffic, checksums: Checksums) -> Measured {
    let count = traffic.data.len().max(1) as f64;
    let mut costs: [[Vec<f64>; 4]; 2] = Default::default();
    let mut sent = 0;
    pass(world, &traffic.data, checksums);
    // The passes without and with the lane alternate, so that changes of the machine's load affect both equally.
    for has_lane in (0..PASSES).flat_map(|_| [false, true]) {
        let parts = &mut costs[usize::from(has_lane)];
        world.set_lane(has_lane);
        // A batch is shorter than the time slice of a competing process, so most batches run without interruption. The
        // median is the cost of such a batch.
        for frames in traffic.data.chunks(WAITING) {
            let (cycles, frames_sent) = batch(world, frames, checksums);
            for (part, cycles) in parts.iter_mut().zip(cycles) {
                part.push(cycles / frames.len() as f64);
            }
            sent += frames_sent;
        }
    }
    let bytes: usize = traffic.data.iter().map(|(_, frame)| frame.len()).sum();
    let reasons = sluice_engine::packet::reason::Reason::all();
    let dropped = reasons.map(|reason| {
        let drops = |worker: &WorkerCounters| worker.interfaces.iter().map(|i| i.drops(reason)).sum();
        (total(world.plane(), drops), reason.name())
    });
    let [parts, undivided] = costs.map(|parts| parts.map(median));
    Measured {
        parts,
        undivided,
        packets: traffic.data.len() as u64,
        bytes: bytes as f64 / count,
        forwarded: (sent as f64 / count / (2 * PASSES) as f64).min(1.0),
        dropped_for: dropped
            .max_by_key(|&(drops, _)| drops)
            .filter(|&(drops, _)| drops > 0)
            .map(|(_, name)| name),
        ..Measured::default()
    }
}

/// Cycles of a session creation, in addition to the cycles of the packet. The result is the difference between two
/// passes of the same frames, one without and one with existing sessions. A scan of all sessions precedes each pass, so
/// that both passes start with the same cache state.
fn opening(world: &mut World<'_>, traffic: &Traffic, checksums: Checksums) -> f64 {
    let frames = match traffic.opening.is_empty() {
        true => &traffic.data,
        false => &traffic.opening,
    };
    let none = Filter {
        source_port: Some(0),
        destination_port: Some(0),
        ..Filter::default()
    };
    let costs = (0..5).map(|_| {
        world.end_sessions(&none);
        let there = pass(world, frames, checksums);
        world.end_sessions(&Filter::default());
        let before = total(world.plane(), |worker| worker.sessions_created.get());
        let opened = pass(world, frames, checksums);
        let made = total(world.plane(), |worker| worker.sessions_created.get()) - before;
        (opened - there).max(0.0) / made.max(1) as f64
    });
    median(costs.collect())
}

/// Frames of all captures, ordered by timestamp.
fn captured(mut inputs: Vec<(u16, Input)>) -> impl Iterator<Item = Result<(u16, Captured), ReplayError>> {
    std::iter::from_fn(move || {
        loop {
            let (port, input) = earliest(&inputs).and_then(|place| inputs.get_mut(place))?;
            match input.take() {
                Ok(Some(frame)) => return Some(Ok((*port, frame))),
                Ok(None) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    })
}

/// Send frames one at a time to create their sessions. Returns the traffic and the mean number of packets per session.
fn replayed(
    world: &mut World<'_>,
    frames: impl Iterator<Item = Result<(u16, Captured), ReplayError>>,
) -> Result<(Traffic, Option<f64>), PlanError> {
    let mut data = Vec::new();
    let mut returns = Returns::default();
    let mut dropped = Vec::new();
    for next in frames.take(MAX_FRAMES) {
        let (port, frame) = next?;
        let mut bytes = world.addressed(port, &frame.bytes);
        if !returns.send(world, port, &mut bytes)? {
            dropped.push(data.len());
        }
        data.push((port, bytes));
    }
    // Replies that preceded the first packet from inside were dropped. Send these replies again.
    for place in dropped {
        if let Some((port, bytes)) = data.get_mut(place).filter(|(_, bytes)| returns.answers(bytes)) {
            returns.send(world, *port, bytes)?;
        }
    }
    if data.is_empty() {
        return Err(PlanError::NoFrames);
    }
    let made = total(world.plane(), |worker| worker.sessions_created.get());
    let mean = data.len() as f64 / made.max(1) as f64;
    let traffic = Traffic {
        opening: Vec::new(),
        data,
    };
    Ok((traffic, (made > 0).then_some(mean)))
}

/// Fraction of the packets that the busiest shard gets, measured with one worker per shard.
fn busiest(config: &Config, frames: &[Frame]) -> Result<Option<f64>, PlanError> {
    let shards = config.document.system.shards_of_many();
    let mut config = config.clone();
    config.document.system.shards = Some(shards);
    let config = &config;
    let mut memory = World::memory(config, shards)?.allocate();
    let mut world = World::new(config, shards, &mut memory, crate::replay::world::NO_CYCLES)?;
    pass(&mut world, frames, Checksums::Unverified);
    let by_shard = world
        .plane()
        .counters()
        .iter()
        .map(|worker| worker.session_packets.get());
    let by_shard: Vec<u64> = by_shard.collect();
    let all: u64 = by_shard.iter().sum();
    let max = by_shard.into_iter().max().unwrap_or(0);
    // Packets without a session belong to no shard, so they are not counted.
    Ok((all > 0).then(|| max as f64 / all as f64))
}
