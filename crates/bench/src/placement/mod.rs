//! `placement`: throughput of each placement of processing parts on cores, compared with the prediction, and the
//! planner's choice (P0, Fig. 9 and 10).
//!
//! Every core that receives has a source, and every core that sends has a sink; the source's cycles count as receive
//! and the sink's as transmit. The predicted throughput of a placement is computed from the cycles of each part on one
//! core, measured directly before it, and from the cost of hand-overs, measured in the same rounds.

mod costs;
mod pairings;
mod scenarios;
mod verdict;

use clap::ValueEnum;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_engine::placement::{Core, Costs, HandOver, Load, Placement, Topology, candidates, choose, predict, rank};

use crate::cores::line;
use crate::rig::lanes::{self, Done};
use crate::rig::policy::{SHARDS, memory};
use crate::rig::queues;
use crate::rig::scenario::Scenario;
use crate::rig::workers::{Rig, plane};
use crate::rows::{Failure, Named, Row, Run, Runs, median};
use costs::{Alone, Between, between, costs};
use verdict::Planner;

/// Maximum number of workers; with more workers, there would be too many placements to measure.
const WORKERS: usize = 4;

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct PlacementArguments {
    /// Cores to use; only the first four are used. By default, the cores that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Measures only scenarios whose name contains this text.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Duration of each run in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 60)]
    milliseconds: u64,
    /// Print the cycles of each core by purpose.
    #[arg(long)]
    cycles: bool,
}

struct Bench<'a> {
    eal: &'static Eal,
    on: &'a [usize],
    cycles: u64,
    rigs: u32,
    says: bool,
}

impl Bench<'_> {
    /// Runs a scenario once; returns the throughput in Mpps and the results of each core.
    fn run(&mut self, scenario: &Scenario, placement: &Placement) -> Result<(f64, Vec<Done>), Failure> {
        self.rigs += 1;
        let plane = plane(scenario, placement)?;
        let mut memory = memory(&plane)?;
        let mut rig = Rig::new(self.eal, self.rigs, scenario, placement, plane, &mut memory)?;
        let (rate, done) = rig.run(self.on, self.cycles)?;
        rig.lanes.close();
        if self.says {
            eprintln!("{}, {placement}: {rate:.2} Mpps", scenario.name);
            let packets = |done: &Done| rate * 1e6 * done.cycles as f64 / tsc::frequency() as f64;
            for (core, done) in done.iter().enumerate() {
                eprintln!("    {core}: {}", costs::text(done, packets(done)));
            }
        }
        Ok((rate, done))
    }

    /// Runs a scenario on a single core without and with the express lane. Returns the throughput with the lane in Mpps,
    /// and the costs.
    fn alone(&mut self, scenario: &Scenario, single: &Placement) -> Result<(f64, Alone), Failure> {
        let (_, graph) = self.run(&scenario.without_express(), single)?;
        let (rate, express) = self.run(scenario, single)?;
        Ok((rate, Alone::of(&graph[0], &express[0])))
    }
}

fn cores(workers: usize) -> Vec<Core> {
    (0..workers as Core).collect()
}

fn alone() -> Option<Placement> {
    Placement::run_to_completion(&[0])
}

/// The placements to measure besides the placement of all parts on one worker: run-to-completion and pipelines on this
/// number of workers, each distribution of the parts over two workers, and P0's pairings if there are enough workers.
fn placements(workers: usize) -> Vec<Placement> {
    let topology = Topology::flat(workers as u16);
    let mut all = candidates(&cores(workers), &topology, &Load::even(SHARDS as u16));
    let pairs = (1..8u16).filter_map(|bits| {
        let core = |part: u16| vec![(bits << 1) >> part & 1];
        Placement::new([0, 1, 2, 3].map(core))
    });
    let p0 = pairings::ALL.iter().filter_map(pairings::Pairing::spread);
    for more in pairs.chain(p0).filter(|more| more.workers().len() <= workers) {
        if !all.contains(&more) {
            all.push(more);
        }
    }
    all.retain(|placement| Some(placement) != alone().as_ref());
    all
}

/// Measured and predicted throughput of a placement, for each run.
struct Case {
    placement: Placement,
    runs: Runs,
    /// Costs of the parts on one core, measured directly before each run.
    alone: Vec<Alone>,
}

impl Case {
    fn new(placement: Placement) -> Self {
        let (runs, alone) = (Runs::default(), Vec::new());
        Self { placement, runs, alone }
    }

    fn median(&self) -> f64 {
        self.runs.median("mpps")
    }
}

struct Outcome {
    scenario: Scenario,
    /// All cases; the first case has all parts on one worker.
    cases: Vec<Case>,
    costs: Costs,
    between: Between,
    /// Distance between two cores in cycles, for each round.
    lines: Vec<f64>,
}

impl Outcome {
    /// The case of a placement, if it was measured.
    fn of(&self, placement: &Placement) -> Option<&Case> {
        self.cases.iter().find(|case| case.placement == *placement)
    }

    /// Median of the predicted throughput of a placement.
    fn expected(&self, placement: &Placement) -> f64 {
        expected(placement, &self.costs, &self.scenario)
    }

    /// The placement that a planner selects.
    fn planned(&self, planner: Planner, workers: usize) -> Option<Placement> {
        let cores = cores(workers);
        match planner {
            Planner::Sluice => {
                let (topology, load) = (Topology::flat(workers as u16), self.scenario.load());
                let all = candidates(&cores, &topology, &load);
                let ranked = rank(all, &self.costs, &topology, &load, tsc::frequency() as f64);
                choose(&ranked, &load).map(|planned| planned.placement.clone())
            }
            Planner::RunToCompletion => Placement::run_to_completion(&cores),
            Planner::Pipeline => {
                let (first, rest) = cores.split_at(workers / 2);
                let first = if first.is_empty() { rest } else { first };
                Placement::new([first, first, rest, rest].map(<[Core]>::to_vec))
            }
        }
    }
}

/// Predicted throughput in Mpps.
fn expected(placement: &Placement, costs: &Costs, scenario: &Scenario) -> f64 {
    let topology = Topology::flat(WORKERS as u16);
    predict(placement, costs, &topology, &scenario.load(), tsc::frequency() as f64).packets_per_second / 1e6
}

fn outcome(bench: &mut Bench<'_>, scenario: &Scenario, workers: usize, runs: usize) -> Result<Outcome, Failure> {
    let single = alone().ok_or("no worker")?;
    let mut cases = vec![Case::new(single.clone())];
    cases.extend(placements(workers).into_iter().map(Case::new));
    let (mut overs, mut lines) = (Vec::new(), Vec::new());
    // Warm up, because the caches are cold in the first run of a scenario.
    let mut before = bench.alone(scenario, &single)?.1;
    for _ in 0..runs {
        lines.push(line::cycles(bench.on)?);
        overs.push(between(bench, scenario)?);
        for place in 0..cases.len() {
            // Measure the reference again for each run, because the load by other processes varies.
            let (rate, alone) = bench.alone(scenario, &single)?;
            if place == 0 {
                cases[0].runs.add("mpps", rate);
                cases[0].alone.push(before);
            }
            before = alone;
            if place > 0 {
                let (rate, _) = bench.run(scenario, &cases[place].placement)?;
                cases[place].runs.add("mpps", rate);
                cases[place].alone.push(before);
            }
        }
    }
    for case in &mut cases {
        for (alone, &between) in case.alone.iter().zip(&overs) {
            let costs = costs([alone.parts, alone.undivided], between);
            case.runs
                .add("predicted_mpps", expected(&case.placement, &costs, scenario));
        }
    }
    let between = Between {
        over: [0, 1, 2, 3].map(|part: usize| HandOver {
            out: median(overs.iter().map(|between| between.over[part].out)),
            take: median(overs.iter().map(|between| between.over[part].take)),
        }),
        back: median(overs.iter().map(|between| between.back)),
    };
    let alone = |value: &dyn Fn(&Alone) -> f64| median(cases.iter().flat_map(|case| &case.alone).map(value));
    let each = [0, 1, 2, 3];
    let parts = each.map(|part: usize| alone(&|alone| alone.parts[part]));
    let undivided = each.map(|part: usize| alone(&|alone| alone.undivided[part]));
    Ok(Outcome {
        scenario: *scenario,
        costs: costs([parts, undivided], between),
        between,
        lines,
        cases,
    })
}

fn row(name: &str, scenario: &Scenario, placement: &Placement, kind: &str) -> Row {
    Row::default()
        .key("scenario", name)
        .key("placement", placement.to_string())
        .key("direction", scenario.direction.name())
        .key("flows", scenario.flows())
        .key("kind", kind)
}

fn rows(outcome: &Outcome, workers: usize, run: &mut Run<'_>) {
    for case in &outcome.cases {
        let picks = |planner: &Planner| outcome.planned(*planner, workers).as_ref() == Some(&case.placement);
        let picked = Planner::value_variants().iter().copied().filter(picks);
        let picked: Vec<_> = picked.collect();
        let names: Vec<_> = picked.iter().map(|planner| planner.name()).collect();
        let mut row = row(outcome.scenario.name, &outcome.scenario, &case.placement, "measured")
            .key("planner", names.join(", "))
            .key("chosen", picked.contains(&Planner::Sluice))
            .runs(&case.runs);
        if case.placement.workers().len() == 1 {
            let of = |value: fn(&Alone) -> f64| case.alone.iter().map(value).collect::<Vec<_>>();
            let [_, parse, session, transmit] = outcome.between.over;
            row = row
                .figure("receive_cycles", &of(|alone| alone.parts[0]))
                .figure("source_cycles", &of(|alone| alone.source))
                .figure("parse_cycles", &of(|alone| alone.parts[1]))
                .figure("session_cycles", &of(|alone| alone.parts[2]))
                .figure("transmit_cycles", &of(|alone| alone.parts[3]))
                .figure("sink_cycles", &of(|alone| alone.sink))
                .figure("undivided_cycles", &of(|alone| alone.undivided.iter().sum()))
                .figure("out_before_parse", &[parse.out])
                .figure("take_before_parse", &[parse.take])
                .figure("out_before_session", &[session.out])
                .figure("take_before_session", &[session.take])
                .figure("out_before_transmit", &[transmit.out])
                .figure("take_before_transmit", &[transmit.take])
                .figure("back_cycles", &[outcome.between.back])
                .figure("line_cycles", &outcome.lines);
        }
        (run.row)(row);
    }
}

/// Adds the rows of P0's pairings in a scenario: on as many cores as P0 uses, and on two cores.
fn pairing_rows(outcome: &Outcome, run: &mut Run<'_>) {
    for pairing in &pairings::ALL {
        let ways = [("", pairing.spread()), (", two cores", pairing.halves())];
        for (suffix, placement) in ways {
            let Some(placement) = placement else { continue };
            let name = format!("P0 {}{suffix}", pairing.name);
            let row = |kind| {
                row(&name, &outcome.scenario, &placement, kind)
                    .key("planner", "")
                    .key("chosen", false)
            };
            (run.row)(match outcome.of(&placement) {
                Some(case) => row("measured").runs(&case.runs),
                None => row("predicted").figure("predicted_mpps", &[outcome.expected(&placement)]),
            });
        }
    }
}

pub fn run(run: &mut Run<'_>, arguments: &PlacementArguments) -> Result<(), Failure> {
    let on = lanes::cores(&arguments.on, WORKERS);
    let workers = on.len();
    let mut bench = Bench {
        eal: queues::start(workers)?,
        on: &on,
        cycles: tsc::frequency() / 1000 * arguments.milliseconds,
        rigs: 0,
        says: arguments.cycles,
    };
    let runs = if run.quick { 3 } else { 7 };
    let is_wanted = |scenario: &&Scenario| {
        let name = arguments.scenario.as_deref();
        name.is_none_or(|name| scenario.name.contains(name))
    };
    let mut outcomes = Vec::new();
    for scenario in scenarios::ALL.iter().filter(is_wanted) {
        let outcome = outcome(&mut bench, scenario, workers, runs)?;
        rows(&outcome, workers, run);
        outcomes.push(outcome);
    }
    let plain = |outcome: &&Outcome| scenarios::PLAIN.contains(&outcome.scenario.name);
    outcomes
        .iter()
        .filter(plain)
        .for_each(|outcome| pairing_rows(outcome, run));
    verdict::conclude(&outcomes, workers, run);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_have_every_division_of_the_parts() {
        let all = placements(2);
        assert_eq!(8, all.len(), "{all:?}");
        assert_eq!(7, all.iter().filter(|placement| placement.is_pipeline()).count());
    }

    #[test]
    fn one_worker_has_nothing_but_itself() {
        assert!(placements(1).is_empty());
    }

    #[test]
    fn pairings_are_measured_where_cores_suffice() {
        let missing = |workers| {
            let all = placements(workers);
            let spread = pairings::ALL.iter().filter_map(pairings::Pairing::spread);
            spread.filter(|placement| !all.contains(placement)).count()
        };
        assert_eq!([8, 1, 0], [2, 3, 4].map(missing));
    }
}
