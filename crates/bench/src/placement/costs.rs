//! Cycles per packet of the parts and of hand-overs, as the planner wants them.

use sluice_dpdk::tsc;
use sluice_engine::counters::Stage;
use sluice_engine::placement::{HandOver, Placement};

use super::lane::Done;
use super::scenario::HAND_OVER;
use super::{Bench, Failure};

/// Cycles per packet of each part, on a core that does all of them, and of source and sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    /// In the order of [`Part::ALL`](sluice_engine::placement::Part::ALL): the source is part of receive, the sink of transmit.
    pub parts: [f64; 4],
    /// Of receive.
    pub source: f64,
    /// Of transmit.
    pub sink: f64,
}

impl Alone {
    /// What the one core of a run did. What is between the stages is of the part that begins the round.
    pub fn of(done: &Done) -> Self {
        let stage = |stage: Stage| done.stages[stage as usize];
        let parse = stage(Stage::Parse);
        let session = stage(Stage::Session) + stage(Stage::Forward) + stage(Stage::Housekeeping);
        let transmit = stage(Stage::Transmit) + done.sink;
        let receive = done.cycles.saturating_sub(parse + session + transmit);
        let per = |cycles: u64| cycles as f64 / done.counted.max(1) as f64;
        Self {
            parts: [receive, parse, session, transmit].map(per),
            source: per(done.source),
            sink: per(done.sink),
        }
    }
}

/// What a core's cycles went into, for each of so many packets.
pub fn text(done: &Done, packets: f64) -> String {
    let per = |cycles: u64| cycles as f64 / packets;
    let stages = Stage::ALL
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

/// What hand-overs cost between two cores: what a core that gives, and one that takes, needs for a packet beside its parts.
pub fn hand_over(bench: &mut Bench<'_>) -> Result<HandOver, Failure> {
    if bench.on.len() < 2 {
        return Ok(HandOver::default());
    }
    let of = |workers: [u16; 4]| Placement::new(workers.map(|worker| vec![worker])).ok_or("no placement");
    let (_, alone) = bench.run(&HAND_OVER, &of([0; 4])?)?;
    let [receive, parse, session, transmit] = Alone::of(&alone[0]).parts;
    let hertz = tsc::frequency() as f64 / 1e6;
    let (giving, _) = bench.run(&HAND_OVER, &of([0, 0, 0, 1])?)?;
    let (taking, _) = bench.run(&HAND_OVER, &of([0, 1, 1, 1])?)?;
    Ok(HandOver {
        out: (hertz / giving - receive - parse - session).max(0.0),
        take: (hertz / taking - parse - session - transmit).max(0.0),
    })
}
