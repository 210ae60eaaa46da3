//! An inspecting bridge in one of the models, between ring ports; a source feeds every receive queue, and a sink reads
//! every transmit queue.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::{DpdkIo, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::io::Handover;
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::bridge_context;
use sluice_engine::snapshot::shard_owners::ShardExchange;
use sluice_engine::worker::MAX_HELD;
use sluice_inspect::bindings::vectorscan::ScanLog;
use sluice_inspect::inspector::DetectionContext;
use sluice_inspect::ruleset::Ruleset;
use sluice_wire::{Checksums, FlowKey4, Tuple4};

use super::even::{Even, Shared};
use super::lane::{Ends, Middle, Side, locked, slices};
use super::moving::Moving;
use super::plane::{Case, Model, queues};
use super::traffic::{Acknowledged, Draw, FLOWS, Frame, Kind, Pages, Seen, Segment, ends, opening, write};
use crate::frames::histogram::Histogram;
use crate::rig::frames::{Random, SEED};
use crate::rig::gateway::{Clock, Rounds, dropped, drops, shards};
use crate::rig::lanes::{Done, Lane, Lanes, quiet, sustained};
use crate::rig::progress::Window;
use crate::rig::slow::{Pace, Slow};
use crate::rows::Failure;

/// Milliseconds between two checks of kirqd; a run contains many checks.
const PERIOD: u64 = 5;
/// Number of the flow that has half of all packets in elephant traffic.
const ELEPHANT: u32 = 7;
/// Frame size in bytes of the first packet of a TCP connection, and of a UDP flow.
const OPENING: [usize; 2] = [54, 60];

pub struct Rig<'s, 'm> {
    pub lanes: Lanes<Ends, Middle<'s, 'm>>,
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
        let (placement, _, mut queues) = queues(case)?;
        queues.parked = if case.help.is_some() { 4 * MAX_HELD } else { 0 };
        // Packets are counted from the first one on.
        let counts = Arc::new(AtomicBool::new(true));
        let moves = case.model == Model::EvenMoving;
        let moving = moves.then(|| Arc::new(Moving::new(tsc::frequency() / 1000 * PERIOD)));
        let owners = plane.start_parameters().owners.len();
        let exchange = Arc::new(ShardExchange::new(owners, case.cores - 1, queues.handover as usize));
        let window = match placement.is_pipeline() {
            true => Window::All,
            false => Window::Lane,
        };
        // If each lane has its own flows, its acknowledgments stay in the lane; otherwise all lanes share them.
        let of_all = Arc::<Acknowledged>::default();
        let (_, seen_by_all) = seen_of(of_all.clone());
        let (mut acknowledged, mut shards, clock) = (Vec::new(), shards(&plane, memory), Clock::start());
        let lanes = Lanes::new(means.eal, number, &queues, (window, &slices()), |own, io, progress| {
            let middle = if case.model.shares() {
                let even = even(means, case, shared, (own, io), moving.as_ref())?;
                Middle::Even(Box::new(even), clock)
            } else {
                let ports = if queues.receives(own) { vec![0, 1] } else { Vec::new() };
                // Packets that do not fit into the rings wait in front of the device, as they would if the offered
                // load did not exceed the capacity.
                let io: Box<dyn Handover> = match window {
                    Window::All => {
                        let (progress, counts) = (progress.clone(), counts.clone());
                        Box::new(Slow::new(io, Pace::default(), own, progress, counts))
                    }
                    _ => Box::new(io),
                };
                let mut rounds = Rounds::new(&mut plane, own, io, ports, &mut shards)?;
                rounds.clock = clock;
                if case.help.is_some() {
                    rounds.worker.join(exchange.clone());
                }
                Middle::Engine(Box::new(rounds))
            };
            let (of_lane, seen) = match case.model {
                Model::Rss => seen_of(Arc::default()),
                Model::Even | Model::EvenMoving => seen_of(of_all.clone()),
                _ => (of_all.clone(), seen_by_all.clone()),
            };
            acknowledged.push(of_lane);
            let ends = Ends {
                own,
                sides: Vec::new(),
                pages: means.pages.clone(),
                distance: None,
                latency: Histogram::default(),
                current: Histogram::default(),
                left: None,
                moving: moving.clone(),
                seen,
            };
            Ok((ends, middle))
        })?;
        let mut rig = Self {
            lanes,
            plane,
            case: *case,
            entrances: queues.entrances(),
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
        let key = FlowKey4::new(
            Tuple4 {
                source,
                destination,
                source_port,
                destination_port,
                context: bridge_context(0),
            },
            if self.case.transport.connects(flow) { 6 } else { 17 },
        );
        let setup = self.plane.start_parameters();
        let shard = setup.steering.of_bridged::<V4>(&key);
        setup.owners.of(shard).unwrap_or_default().into()
    }

    /// Opens all flows by sending the packets that their endpoints would send.
    fn open(&mut self) -> Result<(), Failure> {
        for step in 0..3 {
            for side in [0, 1] {
                let mut dealt = vec![Vec::new(); self.lanes.all.len()];
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

    fn say(&mut self, lane: usize, side: u16, frames: &[(u32, u32, Option<Segment>)]) {
        let Lane { far, traffic, .. } = &mut self.lanes.all[lane];
        let (Some(far), mut rest) = (far, frames.iter()) else {
            return;
        };
        let (count, _) = far.send(&[(side, frames.len())], |_, packet| {
            let Some(&(flow, number, segment)) = rest.next() else {
                return false;
            };
            let due = tsc::now();
            packet.set_len(OPENING[usize::from(segment.is_none())]);
            packet.set_checksums(Checksums::Vouched);
            let frame = Frame {
                flow,
                side,
                number,
                due,
            };
            write(packet.bytes_mut(), &frame, segment, &traffic.pages);
            true
        });
        if let Some(moving) = &traffic.moving {
            moving.sent(side, lane, count);
        }
        self.lanes.progress.send(lane, count);
    }

    /// Assign flows to each source.
    fn deal(&mut self, acknowledged: &[Arc<Acknowledged>]) {
        let elephant = (self.case.kind == Kind::Elephant).then_some(ELEPHANT);
        let count = self.lanes.all.len();
        let (mut dealt, mut hot) = (vec![[Vec::new(), Vec::new()]; count], vec![false; count]);
        for (side, flow) in [0, 1]
            .into_iter()
            .flat_map(|side| (0..FLOWS).map(move |flow| (side, flow)))
        {
            let lane = self.entrance(flow, side);
            match elephant == Some(flow) {
                true => hot[lane] = true,
                false => dealt[lane][usize::from(side)].push(flow),
            }
        }
        let all: usize = dealt.iter().flatten().map(Vec::len).sum();
        for (own, sides) in dealt.into_iter().enumerate() {
            let base = sides.iter().map(Vec::len).sum::<usize>() as f64 / all as f64;
            // If each lane serves one side, each lane sends half of the elephant flow's packets.
            let of_hot = match (elephant, self.case.model) {
                (None, _) => 0.0,
                (_, Model::Even) => 0.5 * base,
                _ if hot[own] => 0.5,
                _ => 0.0,
            };
            let share = if elephant.is_some() { base / 2.0 } else { base } + of_hot;
            self.shares.push(share);
            for (side, flows) in (0..).zip(sides).filter(|(_, flows)| !flows.is_empty()) {
                let draw = Draw {
                    side,
                    at: own,
                    hot: elephant.filter(|_| hot[own]),
                    flows,
                    share: (of_hot / share * 2f64.powi(32)) as u64,
                    transport: self.case.transport,
                    lengths: self.case.lengths(),
                    random: Random(SEED ^ (2 * own as u64 + u64::from(side)) << 40),
                    numbers: Draw::opened(),
                    acknowledged: acknowledged[own].clone(),
                };
                let side: Side = Arc::new(Mutex::new((draw, None)));
                // An interface that is moved between cores belongs to the lanes of all cores.
                let moves = self.case.model == Model::EvenMoving;
                let lanes = self.lanes.all.iter_mut().filter(|lane| moves || lane.own == own);
                lanes.for_each(|lane| lane.traffic.sides.push(side.clone()));
            }
        }
    }

    /// Runs all lanes for a number of cycles, at a total rate in packets per cycle or at maximum rate. Returns the
    /// throughput in Mpps and the results of each lane (one core with its source and sink), measured only while every
    /// lane had its core exclusively.
    pub fn run(&mut self, cores: &[usize], cycles: u64, rate: Option<f64>) -> Result<(f64, Vec<Done>), Failure> {
        for lane in &mut self.lanes.all {
            let (share, sides) = (self.shares[lane.own], lane.traffic.sides.len() as f64);
            let distance = |rate: f64| match lane.traffic.moving {
                Some(_) => 2.0 / rate,
                None => sides / (rate * share),
            };
            lane.traffic.distance = rate.map(distance);
        }
        let done = quiet(self.case.model.name(), self.lanes.all.len(), || {
            self.lanes.run(cores, cycles)?;
            self.check()?;
            Ok(self.lanes.slices())
        })?;
        let independent = rate.is_none() && matches!(self.case.model, Model::Even | Model::Rss);
        let rate = match independent {
            true => sustained(&done, &self.shares),
            false => done.iter().map(Done::mpps).sum(),
        };
        Ok((rate, done))
    }

    /// Sends a number of packets on this thread, one lane after another; returns the results.
    pub fn pass(&mut self, packets: usize) -> Result<Done, Failure> {
        let (before, mut left, mut idle) = (self.done(), packets, 0);
        while idle < 8 {
            let mut moved = 0;
            for lane in &mut self.lanes.all {
                lane.traffic.left = Some(left);
                moved += lane.step();
                left = lane.traffic.left.take().unwrap_or_default();
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
        Done::sum(self.lanes.all.iter().map(|lane| lane.done))
    }

    /// Drains the packets in flight, and checks their number.
    fn settle(&mut self) -> Result<(), Failure> {
        self.lanes.settle();
        self.check()
    }

    /// Checks that every packet was either output or dropped.
    fn check(&self) -> Result<(), Failure> {
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
        self.lanes.progress.all()
    }

    pub fn matched(&self) -> u64 {
        let signature = [
            sluice_inspect::Reason::Signature.into(),
            sluice_inspect::Reason::FlowDropped.into(),
        ];
        let engine: u64 = signature.into_iter().map(|reason| dropped(&self.plane, reason)).sum();
        let even = |lane: &Lane<Ends, Middle<'_, '_>>| match &lane.middle {
            Middle::Even(even, _) => even.dropped,
            Middle::Engine(_) => 0,
        };
        engine + self.lanes.all.iter().map(even).sum::<u64>()
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
        let lanes = &self.lanes.all;
        // With split roles, all lanes share one set of statistics.
        let some = if self.case.model.splits() { &lanes[..1] } else { lanes };
        some.iter().map(|lane| locked(&lane.traffic.seen).reordered).sum()
    }

    /// Latency of frames in the last run.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.lanes.all.iter().for_each(|lane| all.add(&lane.traffic.latency));
        all
    }

    /// Starts recording the pattern scans of the first core.
    pub fn record(&mut self) {
        if let Middle::Engine(rounds) = &mut self.lanes.all[0].middle {
            rounds.worker.record_scans();
        }
    }

    /// Take the recorded scans.
    pub fn take_scans(&mut self) -> Option<Box<ScanLog>> {
        match &mut self.lanes.all[0].middle {
            Middle::Engine(rounds) => rounds.worker.take_scans(),
            Middle::Even(..) => None,
        }
    }
}
