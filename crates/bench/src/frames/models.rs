//! Sluice by execution model, and `l2fwd`, on as many cores (P0, Fig. 7 and 8): as they run, each core's source and sink
//! included.
//!
//! P0's uNAT is run-to-completion on one core, its uNATp a pipeline with a core for each stage. Here a pipeline has as many
//! cores as there are, every cut of the four parts that gives each stage one of them; beside it run-to-completion has as many.
//! All of that with flows of hosts, and with flows of subscribers' sites, whose frames have tags inside.

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_engine::placement::{Core, Load, Placement, Topology, candidates};
use sluice_wire::Checksums;

use super::filled::CHECK_SEQUENCE;
use super::plain::Plain;
use super::{Failure, FramesArguments, Model, STYLE, line, row};
use crate::homes::Homes;
use crate::nat_path::rig::SHARDS;
use crate::nat_path::{Direction, name};
use crate::placement::lane::Done;
use crate::placement::rig::{self as engine, Rig};
use crate::placement::scenario::Scenario;
use crate::rows::{Figure, Row, Run};

/// Cores at most: there are no more stages.
pub const CORES: usize = 4;

/// Milliseconds of a run.
const MILLISECONDS: u64 = 60;

/// Rings of `l2fwd` have numbers of their own.
const FIRST_RING: u32 = 100;

/// Who passes packets on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Sluice(Placement),
    /// On so many cores.
    L2fwd(usize),
}

impl By {
    fn cores(&self) -> usize {
        match self {
            Self::Sluice(placement) => placement.workers().len(),
            Self::L2fwd(cores) => *cores,
        }
    }

    fn is_pipeline(&self) -> bool {
        matches!(self, Self::Sluice(placement) if placement.is_pipeline())
    }
}

/// All that are measured, on so many cores: those that others are compared with first.
fn all(models: &[Model], cores: usize) -> Vec<By> {
    let counts = if cores > 1 { vec![1, cores] } else { vec![1] };
    let numbered = |count: usize| (0..count as Core).collect::<Vec<_>>();
    let mut all: Vec<By> = counts.iter().map(|&count| By::L2fwd(count)).collect();
    if models.contains(&Model::RunToCompletion) {
        let complete = counts
            .iter()
            .filter_map(|&count| Placement::run_to_completion(&numbered(count)));
        all.extend(complete.map(By::Sluice));
    }
    if models.contains(&Model::Pipeline) {
        let topology = Topology::flat(cores as u16);
        let found = candidates(&numbered(cores), &topology, &Load::even(SHARDS as u16));
        let is_one_core_each = |placement: &Placement| {
            let stages = placement.stages();
            placement.is_pipeline()
                && placement.workers().len() == cores
                && stages.iter().all(|stage| stage.workers.len() == 1)
        };
        all.extend(found.into_iter().filter(is_one_core_each).map(By::Sluice));
    }
    all
}

/// The traffic of a size.
fn scenario(bytes: usize, direction: Direction, homes: Option<Homes>) -> Scenario {
    Scenario::of_frames(bytes - CHECK_SEQUENCE, direction, STYLE, homes)
}

/// A row and the runs for it.
#[derive(Clone, Debug)]
struct Case {
    by: By,
    homes: Option<Homes>,
    bytes: usize,
    direction: Direction,
    mpps: Vec<f64>,
    /// Cycles per packet of sources, sinks, and all cores.
    cycles: [Vec<f64>; 3],
}

impl Case {
    fn new(by: &By, homes: Option<Homes>, bytes: usize, direction: Direction) -> Self {
        Self {
            by: by.clone(),
            homes,
            bytes,
            direction,
            mpps: Vec::new(),
            cycles: Default::default(),
        }
    }

    fn add(&mut self, mpps: f64, done: &[Done]) {
        self.mpps.push(mpps);
        let packets = done.iter().map(|done| done.counted).sum::<u64>().max(1) as f64;
        let of = |cycles: fn(&Done) -> u64| done.iter().map(cycles).sum::<u64>() as f64 / packets;
        let each = [of(|done| done.source), of(|done| done.sink), of(|done| done.cycles)];
        self.cycles
            .iter_mut()
            .zip(each)
            .for_each(|(runs, cycles)| runs.push(cycles));
    }

    fn row(&self) -> Row {
        let ways = if self.direction == Direction::Both { 2 } else { 1 };
        let (case, model, placement) = match &self.by {
            By::Sluice(placement) if placement.is_pipeline() => ("sluice", Model::Pipeline, placement.to_string()),
            By::Sluice(placement) => ("sluice", Model::RunToCompletion, placement.to_string()),
            By::L2fwd(_) => ("l2fwd", Model::RunToCompletion, String::new()),
        };
        let median = Figure::of(&self.mpps).median;
        let gbps: Vec<f64> = self.mpps.iter().map(|&mpps| line::gbps(mpps, self.bytes)).collect();
        let share = median / (line::rate(10, self.bytes) * f64::from(ways));
        let mut row = row(case, self.bytes, self.direction)
            .key("model", model.name())
            .key("cores", self.by.cores())
            .key("checksums", name(Checksums::Vouched))
            .key("source", "included")
            .key("fills_line_gbps", line::filled(median, self.bytes, ways));
        if !placement.is_empty() {
            row = row.key("placement", placement);
        }
        if let Some(homes) = self.homes {
            row = row.key("site", "tags-and-mac").key("sites", homes.sites);
            row = row.key("terminals", homes.terminals);
        }
        let [source, sink, all] = &self.cycles;
        row.figure("mpps", &self.mpps)
            .figure("gbps", &gbps)
            .figure("share_of_10g", &[share])
            .figure("source_cycles", source)
            .figure("sink_cycles", sink)
            .figure("core_cycles", all)
    }
}

/// The rows of one size and direction, beside one core of the same and `l2fwd` on as many in the same rounds.
fn rows(cases: &[Case]) -> Vec<Row> {
    let over = |case: &Case, other: &dyn Fn(&Case) -> bool| {
        let other = cases.iter().find(|case| other(case))?;
        let pairs = case.mpps.iter().zip(&other.mpps);
        Some(pairs.map(|(ours, other)| ours / other).collect::<Vec<_>>())
    };
    let with = |case: &Case| {
        let is_sluice = |other: &Case| matches!(other.by, By::Sluice(_));
        let one = |other: &Case| {
            let same = is_sluice(other) && other.homes == case.homes;
            same && !other.by.is_pipeline() && other.by.cores() == 1
        };
        let hosts = |other: &Case| other.homes.is_none() && other.by == case.by;
        let plain = |other: &Case| other.by == By::L2fwd(case.by.cores());
        let mut row = case.row();
        if !is_sluice(case) {
            return row;
        }
        if let Some(over) = over(case, &one) {
            row = row.figure("over_one_core", &over);
        }
        if let Some(over) = over(case, &plain) {
            row = row.figure("over_l2fwd", &over);
        }
        if let Some(over) = over(case, &hosts).filter(|_| case.homes.is_some()) {
            row = row.figure("over_no_sites", &over);
        }
        row
    };
    cases.iter().map(with).collect()
}

/// A size and way: who translates does so with and without sites, one right after the other.
fn cases(all: &[By], bytes: usize, direction: Direction) -> Vec<Case> {
    let with = |by: &By| {
        let homes = matches!(by, By::Sluice(_)).then_some(Some(Homes::USUAL));
        [Some(None), homes].map(|homes| homes.map(|homes| Case::new(by, homes, bytes, direction)))
    };
    all.iter().flat_map(with).flatten().collect()
}

/// What measures.
struct Bench {
    eal: &'static Eal,
    on: Vec<usize>,
    rigs: u32,
    plain: Vec<Plain>,
}

impl Bench {
    fn one(&mut self, case: &mut Case) -> Result<(), Failure> {
        let scenario = scenario(case.bytes, case.direction, case.homes);
        let cycles = tsc::frequency() / 1_000 * MILLISECONDS;
        let (mpps, done) = match &case.by {
            By::Sluice(placement) => {
                self.rigs += 1;
                let plane = engine::plane(&scenario, placement)?;
                let mut memory = engine::memory(&plane)?;
                let mut rig = Rig::new(self.eal, self.rigs, &scenario, placement, plane, &mut memory)?;
                let result = rig.run(&self.on, cycles)?;
                rig.close();
                result
            }
            By::L2fwd(cores) => {
                let plain = self.plain.iter_mut().find(|plain| plain.cores() == *cores);
                let plain = plain.ok_or("l2fwd has no such number of cores")?;
                plain.run(&self.on, scenario.traffic, cycles)?
            }
        };
        case.add(mpps, &done);
        Ok(())
    }
}

/// Measure all, each case once in every round.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    let on = arguments.cores();
    let all = all(&arguments.models(), on.len());
    let (mut number, mut plain) = (FIRST_RING, Vec::new());
    for by in &all {
        if let By::L2fwd(cores) = *by {
            plain.push(Plain::new(
                eal,
                number,
                cores,
                scenario(64, Direction::Up, None).traffic,
            )?);
            number += cores as u32;
        }
    }
    let mut bench = Bench {
        eal,
        on,
        rigs: 0,
        plain,
    };
    for direction in arguments.directions() {
        for bytes in arguments.sizes(run.quick) {
            let mut cases = cases(&all, bytes, direction);
            for _ in 0..if run.quick { 3 } else { 7 } {
                cases.iter_mut().try_for_each(|case| bench.one(case))?;
            }
            rows(&cases).into_iter().for_each(|row| (run.row)(row));
        }
    }
    bench.plain.into_iter().for_each(Plain::close);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: [Model; 2] = [Model::RunToCompletion, Model::Pipeline];

    /// How many frames of these came out, or were held against a reference where there is one.
    fn passed(eal: &'static Eal, number: u32, by: &By, homes: Option<Homes>) -> Result<usize, Failure> {
        let (scenario, cycles) = (scenario(128, Direction::Both, homes), tsc::frequency() / 100);
        match by {
            By::Sluice(placement) => {
                let plane = engine::plane(&scenario, placement)?;
                let mut memory = engine::memory(&plane)?;
                let mut rig = Rig::new(eal, number, &scenario, placement, plane, &mut memory)?;
                let mut held = 0;
                while held == 0 {
                    held += rig.run_once(&[0, 1], cycles)?;
                }
                rig.close();
                Ok(held)
            }
            By::L2fwd(cores) => {
                let mut plain = Plain::new(eal, FIRST_RING + 10 * number, *cores, scenario.traffic)?;
                let came = plain.run_once(&[0, 1], cycles)?;
                plain.close();
                Ok(came)
            }
        }
    }

    #[test]
    fn frames_of_either_model_and_of_l2fwd_all_come_out_right() {
        let (eal, mut turn) = crate::turn::turn();
        for case in cases(&all(&MODELS, 2), 128, Direction::Both) {
            *turn += 1;
            match passed(eal, *turn, &case.by, case.homes) {
                Ok(count) => assert_ne!(0, count, "{case:?}"),
                Err(error) => panic!("{case:?}: {error}"),
            }
        }
    }
}
