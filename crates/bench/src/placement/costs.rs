//! Cycles per packet of parts and of hand-overs, as input for the placement planner.

use sluice_dpdk::tsc;
use sluice_engine::packet::counters::CycleStage;
use sluice_engine::placement::{Costs, HandOver, Part, Placement};

use super::scenarios::HAND_OVER;
use super::{Bench, Failure};
use crate::rig::lanes::Done;
use crate::rig::scenario::Scenario;

/// Cycles per packet of each part on a core that runs all parts, and of source and sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    /// In the order of [`Part::ALL`](sluice_engine::placement::Part::ALL). The source's cycles count as receive, the
    /// sink's as transmit.
    pub parts: [f64; 4],
    /// The same with the express lane.
    pub undivided: [f64; 4],
    pub source: f64,
    pub sink: f64,
}

impl Alone {
    /// Computes the costs from the results of single-core runs without and with the express lane.
    pub fn of(graph: &Done, express: &Done) -> Self {
        let graph = Self::of_run(graph);
        Self {
            undivided: Self::of_run(express).parts,
            ..graph
        }
    }

    /// Computes the costs from the results of a single-core run. Work between two stages is attributed to the part that
    /// starts the round.
    fn of_run(done: &Done) -> Self {
        let stage = |stage: CycleStage| done.stages[stage as usize];
        let parse = stage(CycleStage::Parse);
        let session = stage(CycleStage::Session)
            + stage(CycleStage::Inspect)
            + stage(CycleStage::Forward)
            + stage(CycleStage::Housekeeping);
        let transmit = stage(CycleStage::Transmit) + done.sink;
        let receive = done.cycles.saturating_sub(parse + session + transmit);
        let per = |cycles: u64| cycles as f64 / done.came.max(1) as f64;
        Self {
            parts: [receive, parse, session, transmit].map(per),
            source: per(done.source),
            sink: per(done.sink),
            ..Self::default()
        }
    }
}

/// Formats the cycles per packet of a core by purpose.
pub fn text(done: &Done, packets: f64) -> String {
    let per = |cycles: u64| cycles as f64 / packets;
    let stages = CycleStage::ALL
        .iter()
        .zip(done.stages)
        .filter(|&(_, cycles)| per(cycles) >= 0.05);
    let stages: Vec<_> = stages
        .map(|(stage, cycles)| format!("{} {:.0}", stage.name(), per(cycles)))
        .collect();
    let busy = done.stages.iter().sum::<u64>() + done.source + done.sink;
    format!(
        "source {:.0}, {}, sink {:.0}: {:.0} of {:.0}",
        per(done.source),
        stages.join(", "),
        per(done.sink),
        per(busy),
        per(done.cycles)
    )
}

/// Additional cycles per packet of a device, which make the device's core the bottleneck.
const SLOW: u64 = 300;

/// Cost of passing packets between two cores, in cycles per packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Between {
    /// By the part that comes after the hand-over, in the order of [`Part::ALL`]: additional cycles of the core that
    /// hands over, and of the core that takes over.
    pub over: [HandOver; 4],
    /// Additional cycles of a receiving core if a different core used the buffer last.
    pub back: f64,
}

/// Measures with the frames of a scenario. Each core in turn is the bottleneck, so that its bursts are full.
pub fn between(bench: &mut Bench<'_>, scenario: &Scenario) -> Result<Between, Failure> {
    let mut by_part = [HandOver::default(); 4];
    if bench.on.len() < 2 {
        return Ok(Between::default());
    }
    let frames = HAND_OVER.with_frames_of(scenario).without_express();
    let of = |workers: [u16; 4]| Placement::new(workers.map(|worker| vec![worker])).ok_or("no placement");
    let (_, alone) = bench.run(&frames, &of([0; 4])?)?;
    let alone = Alone::of_run(&alone[0]).parts;
    let cycles = tsc::frequency() as f64 / 1e6;
    let mut beside = |scenario: Scenario, placement: &Placement, parts: &[f64]| {
        let (rate, _) = bench.run(&scenario, placement)?;
        let own = parts.iter().sum::<f64>() + SLOW as f64;
        Ok::<_, Failure>((cycles / rate - own).max(0.0))
    };
    for (part, over) in by_part.iter_mut().enumerate().skip(1) {
        let placement = of([0, 1, 2, 3].map(|other| u16::from(other >= part)))?;
        over.out = beside(frames.paced(SLOW, 0), &placement, &alone[..part])?;
        over.take = beside(frames.paced(0, SLOW), &placement, &alone[part..])?;
    }
    // In the earlier runs, the core that hands over also received into buffers that the other core had sent. A core
    // that sends its packets itself does not receive into the other core's buffers.
    let returns = of([0, 1, 1, 0])?;
    let [_, first, _, last] = by_part;
    let there_and_back = beside(frames.paced(SLOW, 0), &returns, &[alone[0], alone[3]])?;
    let back = (first.out - (there_and_back - last.take).max(0.0)).clamp(0.0, first.out);
    for over in &mut by_part[1..] {
        over.out = (over.out - back).max(0.0);
    }
    Ok(Between { over: by_part, back })
}

/// Costs of parts and hand-overs for the planner. All cores are assumed to be equally distant from one another.
pub fn costs([parts, undivided]: [[f64; 4]; 2], between: Between) -> Costs {
    // For a finished packet, a hand-over costs only the access to the ring.
    let ring = between.over[Part::Transmit as usize];
    Costs {
        parts,
        undivided: Some(undivided),
        back: [between.back; 4],
        hand_overs: [ring; 4],
        next: between.over.map(|over| HandOver {
            out: over.out - ring.out,
            take: over.take - ring.take,
        }),
    }
}
