//! An inspecting bridge in one of the models, between ring ports; a source feeds every receive queue, and a sink reads
//! every transmit queue.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::{Devices, DpdkIo, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::bridge_context;
use sluice_engine::snapshot::shard_owners::ShardExchange;
use sluice_engine::worker::MAX_HELD;
use sluice_inspect::bindings::vectorscan::ScanLog;
use sluice_inspect::inspector::DetectionContext;
use sluice_inspect::ruleset::Ruleset;
use sluice_wire::{Checksums, FlowKey4, Tuple4};

use super::even::{Even, Shared};
use super::lane::{Done, Lane, Middle, Side, locked, slices};
use super::moving::Moving;
use super::plane::{Case, Model, queues};
use super::traffic::{Acknowledged, Draw, FLOWS, Frame, Kind, Pages, Seen, ends, opening, write};
use crate::frames::histogram::Histogram;
use crate::placement::slow::{Pace, Slow};
use crate::rig::Source;
use crate::rig::frames::{Random, SEED};
use crate::rig::gateway::{Clock, dropped, drops};
use crate::rig::lanes::{self, Done as _, Progress, on_cores, quiet};
use crate::rows::Failure;

/// Milliseconds between two checks of kirqd; a run contains many checks.
const PERIOD: u64 = 5;
/// Number of the flow that has half of all packets in elephant traffic.
const ELEPHANT: u32 = 7;
/// Frame size in bytes of the first packet of a TCP connection, and of a UDP flow.
const OPENING: [usize; 2] = [54, 60];

pub struct Rig<'s, 'm> {
    lanes: Vec<Lane<'s, 'm>>,
    devices: Devices,
    plane: ControlPlane,
    case: Case,
    entrances: Vec<usize>,
    /// Share of all packets that arrives at each lane.
    shares: Vec<f64>,
}

pub struct Means<'a> {
    pub eal: &'static Eal,
    pub rules: &'a Arc<Ruleset>,
    pub pages: &'a Arc<Pages>,
}

/// Creates the baseline's state for a core and its interfaces.
fn even<'s, 'm>(
    means: &Means<'_>,
    case: &Case,
    shared: &'s Shared<'m>,
    (own, io): (usize, DpdkIo),
    moving: Option<&Arc<Moving>>,
) -> Result<Even<'s, 'm>, Failure> {
    let mine = (0..2u16).filter(|&port| moving.is_some() || usize::from(port) % case.cores == own);
    let tools = match case.inspects {
        true => Some(DetectionContext::new(means.rules.prefilter().scratch()?, means.rules)),
        false => None,
    };
    let mut even = Even::new(shared, io, tools, mine.collect());
    if let Some(moving) = moving {
        even.move_by(moving.clone(), own);
    }
    Ok(even)
}

/// Creates the sink's statistics, which also publish acknowledgments to the sources.
fn seen_of(acknowledged: Arc<Acknowledged>) -> (Arc<Acknowledged>, Arc<Mutex<Seen>>) {
    (acknowledged.clone(), Arc::new(Mutex::new(Seen::new(acknowledged))))
}

impl<'s, 'm> Rig<'s, 'm> {
    /// Creates a rig whose flows are open. `shared` is the state that the cores of the baseline share.
    pub fn new(
        means: &Means<'_>,
        number: u32,
        case: &Case,
        mut plane: ControlPlane,
        memory: &'m mut Region,
        shared: &'s Shared<'m>,
    ) -> Result<Self, Failure> {
        let (placement, _, queues) = queues(case)?;
        let mut plan = queues.plan(number, true)?;
        if case.help.is_some() {
            plan.parked += 4 * MAX_HELD;
        }
        let (devices, ios) = Devices::open(means.eal, &plan)?;
        let lines = plane.lines().total().next_multiple_of(2);
        let mut rest = memory.lines().chunks_exact_mut(lines);
        let (clock, entrances) = (Clock::start(), queues.entrances());
        let progress = Arc::new(Progress::new(case.cores, entrances.len() as u64));
        // Packets are counted from the first one on.
        let counts = Arc::new(AtomicBool::new(true));
        let moves = case.model == Model::EvenMoving;
        let moving = moves.then(|| Arc::new(Moving::new(tsc::frequency() / 1000 * PERIOD)));
        let ring = plan.handover as usize;
        let exchange = Arc::new(ShardExchange::new(
            plane.start_parameters().owners.len(),
            case.cores - 1,
            ring,
        ));
        let local = !placement.is_pipeline();
        // If each lane has its own flows, its acknowledgments stay in the lane; otherwise all lanes share them.
        let of_all = Arc::<Acknowledged>::default();
        let (_, seen_by_all) = seen_of(of_all.clone());
        let mut lanes = Vec::new();
        for (own, io) in ios.into_iter().enumerate() {
            let (receives, drains) = (queues.receives(own), queues.sends(own));
            let middle = match case.model {
                Model::Even | Model::EvenMoving => {
                    Middle::Even(Box::new(even(means, case, shared, (own, io), moving.as_ref())?))
                }
                _ => {
                    let ports = if receives { vec![0, 1] } else { Vec::new() };
                    let give = |_| rest.next().unwrap_or_default();
                    let counters = plane.counters()[own].clone();
                    // Packets that do not fit into the rings wait in front of the device, as they would if the offered
                    // load did not exceed the capacity.
                    let (worker, _) = match local {
                        true => plane.worker(own as u16, Box::new(io), ports, give, tsc::now)?,
                        false => {
                            let io = Slow::new(io, Pace::default(), own, progress.clone(), counts.clone());
                            plane.worker(own as u16, Box::new(io), ports, give, tsc::now)?
                        }
                    };
                    let mut worker = Box::new(worker);
                    if case.help.is_some() {
                        worker.join(exchange.clone());
                    }
                    Middle::Engine(worker, counters)
                }
            };
            let (acknowledged, seen) = match case.model {
                Model::Rss => seen_of(Arc::default()),
                Model::Even | Model::EvenMoving => seen_of(of_all.clone()),
                _ => (of_all.clone(), seen_by_all.clone()),
            };
            lanes.push((
                acknowledged,
                Lane {
                    own,
                    middle,
                    far: queues.far(means.eal, number, own)?,
                    sides: Vec::new(),
                    pages: means.pages.clone(),
                    drains,
                    local: local.then_some(own),
                    progress: progress.clone(),
                    clock,
                    slices: slices(),
                    done: Done::default(),
                    latency: Histogram::default(),
                    current: Histogram::default(),
                    left: None,
                    moving: moving.clone(),
                    seen,
                },
            ));
        }
        let (acknowledged, lanes): (Vec<_>, Vec<_>) = lanes.into_iter().unzip();
        let mut rig = Self {
            lanes,
            devices,
            plane,
            case: *case,
            entrances,
            shares: Vec::new(),
        };
        rig.open()?;
        rig.deal(&acknowledged);
        Ok(rig)
    }

    /// Index of the lane at which packets of a flow arrive from a side.
    fn entrance(&self, flow: u32, side: u16) -> usize {
        match (self.case.model, self.entrances.as_slice()) {
            (_, [only]) => return *only,
            (Model::Even, all) => return all[usize::from(side) % all.len()],
            // At first, Linux assigns all interfaces to the first core.
            (Model::EvenMoving, _) => return 0,
            _ => {}
        }
        let [(source, source_port), (destination, destination_port)] = ends(flow);
        let key = FlowKey4 {
            tuple: Tuple4 {
                source,
                destination,
                source_port,
                destination_port,
                context: bridge_context(0),
            },
            protocol: if self.case.transport.connects(flow) { 6 } else { 17 },
        };
        let setup = self.plane.start_parameters();
        let shard = setup.steering.of_bridged::<V4>(&key);
        setup.owners.of(shard).unwrap_or_default().into()
    }

    /// Opens all flows by sending the packets that their endpoints would send.
    fn open(&mut self) -> Result<(), Failure> {
        for step in 0..3 {
            for side in [0, 1] {
                let mut dealt = vec![Vec::new(); self.lanes.len()];
                for flow in 0..FLOWS {
                    let frame = opening(self.case.transport.connects(flow)).into_iter().nth(step);
                    if let Some((_, number, segment)) = frame.filter(|frame| frame.0 == side) {
                        dealt[self.entrance(flow, side)].push((flow, number, segment));
                    }
                }
                for (lane, frames) in dealt.iter().enumerate() {
                    for chunk in frames.chunks(64) {
                        self.say(lane, side, chunk);
                        self.settle()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn say(&mut self, lane: usize, side: u16, frames: &[(u32, u32, Option<super::traffic::Segment>)]) {
        let lane = &mut self.lanes[lane];
        let (Some(far), mut rest) = (&mut lane.far, frames.iter()) else {
            return;
        };
        let pages = &lane.pages;
        let (count, _) = far.send(&[(side, frames.len())], |_, packet| {
            let Some(&(flow, number, segment)) = rest.next() else {
                return false;
            };
            let due = tsc::now();
            packet.set_len(OPENING[usize::from(segment.is_none())]);
            packet.set_checksums(Checksums::Vouched);
            write(
                packet.bytes_mut(),
                &Frame {
                    flow,
                    side,
                    number,
                    due,
                },
                segment,
                pages,
            );
            true
        });
        if let Some(moving) = &lane.moving {
            moving.sent(side, lane.own, count);
        }
        lane.progress.send(lane.own, count);
    }

    /// Assign flows to each source.
    fn deal(&mut self, acknowledged: &[Arc<Acknowledged>]) {
        let elephant = (self.case.kind == Kind::Elephant).then_some(ELEPHANT);
        let mut dealt = vec![[0; 2]; self.lanes.len()];
        let mut hot = vec![false; self.lanes.len()];
        let mut sides: Vec<(usize, Draw)> = Vec::new();
        for side in [0, 1u16] {
            let mut flows = vec![Vec::new(); self.lanes.len()];
            for flow in 0..FLOWS {
                let lane = self.entrance(flow, side);
                match elephant == Some(flow) {
                    true => hot[lane] = true,
                    false => flows[lane].push(flow),
                }
            }
            for (lane, flows) in flows.into_iter().enumerate().filter(|(_, flows)| !flows.is_empty()) {
                dealt[lane][usize::from(side)] = flows.len();
                let draw = Draw {
                    side,
                    at: lane,
                    hot: elephant.filter(|_| hot[lane]),
                    flows,
                    share: 0,
                    transport: self.case.transport,
                    lengths: self.case.lengths(),
                    random: Random(SEED ^ (2 * lane as u64 + u64::from(side)) << 40),
                    numbers: Draw::opened(),
                    acknowledged: acknowledged[lane].clone(),
                };
                sides.push((lane, draw));
            }
        }
        let all: usize = dealt.iter().flatten().sum();
        for (own, dealt) in dealt.iter().enumerate() {
            let base = dealt.iter().sum::<usize>() as f64 / all as f64;
            // If each lane serves one side, each lane sends half of the elephant flow's packets.
            let of_hot = match (elephant, self.case.model) {
                (None, _) => 0.0,
                (_, Model::Even) => 0.5 * base,
                _ if hot[own] => 0.5,
                _ => 0.0,
            };
            let rest = if elephant.is_some() { base / 2.0 } else { base };
            self.shares.push(rest + of_hot);
            for (lane, draw) in sides.iter_mut().filter(|(lane, _)| *lane == own) {
                draw.share = (of_hot / self.shares[*lane] * 2f64.powi(32)) as u64;
            }
        }
        for (lane, draw) in sides {
            let side: Side = Arc::new(Mutex::new((draw, None)));
            match self.case.model {
                Model::EvenMoving => self.lanes.iter_mut().for_each(|lane| lane.sides.push(side.clone())),
                _ => self.lanes[lane].sides.push(side),
            }
        }
    }

    /// Runs all lanes for a number of cycles, at a total rate in packets per cycle or at maximum rate. Returns the
    /// throughput in Mpps and the results of each lane (one core with its source and sink), measured only while every
    /// lane had its core exclusively.
    pub fn run(&mut self, cores: &[usize], cycles: u64, rate: Option<f64>) -> Result<(f64, Vec<Done>), Failure> {
        let done = quiet(self.case.model.name(), self.lanes.len(), || {
            self.run_once(cores, cycles, rate)?;
            Ok(self.lanes.iter().map(|lane| lane.slices.clone()).collect())
        })?;
        let hertz = tsc::frequency() as f64 / 1e6;
        let rates = done.iter().map(|done| done.came as f64 * hertz / done.cycles as f64);
        let independent = rate.is_none() && matches!(self.case.model, Model::Even | Model::Rss);
        let rate = match independent {
            // Sources are independent of one another, so the source with the lowest rate relative to its share limits
            // the rate that all can sustain.
            true => rates
                .zip(&self.shares)
                .filter(|(_, share)| **share > 0.0)
                .map(|(rate, share)| rate / share)
                .fold(f64::INFINITY, f64::min),
            false => rates.sum(),
        };
        Ok((rate, done))
    }

    fn run_once(&mut self, cores: &[usize], cycles: u64, rate: Option<f64>) -> Result<(), Failure> {
        let (count, shares) = (self.lanes.len(), &self.shares);
        on_cores(&mut self.lanes, cores, |lane, together| {
            let (share, sides) = (shares[lane.own], lane.sides.len() as f64);
            let distance = |rate: f64| {
                if lane.moving.is_some() {
                    2.0 / rate
                } else {
                    sides / (rate * share)
                }
            };
            lane.run(together, count, cycles, rate.map(distance));
        })?;
        self.settle()
    }

    /// Sends a number of packets on this thread, one lane after another; returns the results.
    pub fn pass(&mut self, packets: usize) -> Result<Done, Failure> {
        let (before, mut left, mut idle) = (self.done(), packets, 0);
        while idle < 8 {
            let mut moved = 0;
            for lane in &mut self.lanes {
                lane.left = Some(left);
                moved += lane.step();
                left = lane.left.take().unwrap_or_default();
            }
            idle = if moved == 0 { idle + 1 } else { 0 };
        }
        self.settle()?;
        match left {
            0 => Ok(self.done().less(before)),
            _ => Err(format!("{left} of {packets} packets found no way").into()),
        }
    }

    fn done(&self) -> Done {
        let all = self.lanes.iter().map(|lane| lane.done);
        all.fold(Done::default(), Done::and)
    }

    /// Drains the packets in flight, and checks that every packet was either output or dropped.
    fn settle(&mut self) -> Result<(), Failure> {
        lanes::settle(&mut self.lanes, Lane::round);
        let (sent, came) = self.packets();
        let matched = self.matched();
        if sent == came + matched {
            return Ok(());
        }
        let name = self.case.model.name();
        Err(format!(
            "{name}: {sent} packets went in and {came} came out; {:?}",
            drops(&self.plane)
        )
        .into())
    }

    /// Number of packets sent, and number of packets received at the output.
    pub fn packets(&self) -> (u64, u64) {
        self.lanes[0].progress.all()
    }

    pub fn matched(&self) -> u64 {
        let signature = [
            sluice_inspect::Reason::Signature.into(),
            sluice_inspect::Reason::FlowDropped.into(),
        ];
        let engine: u64 = signature.into_iter().map(|reason| dropped(&self.plane, reason)).sum();
        let even = |lane: &Lane<'_, '_>| match &lane.middle {
            Middle::Even(even) => even.dropped,
            Middle::Engine(..) => 0,
        };
        engine + self.lanes.iter().map(even).sum::<u64>()
    }

    /// Number of inspected packets, according to the engine.
    #[cfg(test)]
    pub fn inspected(&self) -> u64 {
        self.plane
            .counters()
            .iter()
            .map(|worker| worker.inspection.inspected.get())
            .sum()
    }

    /// Number of frames that the sink received after a later frame of the same flow, since the rig was created.
    pub fn reordered(&self) -> u64 {
        let of = |lane: &Lane<'_, '_>| locked(&lane.seen).reordered;
        match self.case.model.splits() {
            // All lanes share one set of statistics.
            true => of(&self.lanes[0]),
            false => self.lanes.iter().map(of).sum(),
        }
    }

    /// Latency of frames in the last run.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.lanes.iter().for_each(|lane| all.add(&lane.latency));
        all
    }

    /// Starts recording the pattern scans of the first core.
    pub fn record(&mut self) {
        if let Some(Middle::Engine(worker, _)) = self.lanes.first_mut().map(|lane| &mut lane.middle) {
            worker.record_scans();
        }
    }

    /// Take the recorded scans.
    pub fn take_scans(&mut self) -> Option<Box<ScanLog>> {
        match &mut self.lanes.first_mut()?.middle {
            Middle::Engine(worker, _) => worker.take_scans(),
            Middle::Even(_) => None,
        }
    }

    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.middle);
            lane.far.into_iter().for_each(Source::close);
        }
        drop(self.devices.close());
    }
}
