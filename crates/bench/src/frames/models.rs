//! Sluice by execution model, and `l2fwd`, on the same number of cores (P0, Fig. 7 and 8), including each core's source
//! and sink.
//!
//! P0's uNAT is run-to-completion on one core, and its uNATp is a pipeline with one core per stage. Here, pipelines use
//! all available cores: every partition of the four parts into one stage per core is measured, and compared with
//! run-to-completion on the same number of cores. Each is measured with flows of hosts, and with flows of subscriber
//! sites, whose frames have VLAN tags on the inside.

use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_engine::placement::{Core, Load, Placement, Topology, candidates};

use super::{FLOWS, FramesArguments, Model, STYLE, on_wires, row};
use crate::rig::frames::CHECK_SEQUENCE;
use crate::rig::lanes::{Done, Lanes, quiet};
use crate::rig::measure::Direction;
use crate::rig::policy::{SHARDS, memory};
use crate::rig::scenario::{Draw, Scenario, Sender};
use crate::rig::sites::Homes;
use crate::rig::workers::{Rig, plane, slices};
use crate::rig::{L2fwd, Source, join};
use crate::rows::{Failure, Named, Row, Run, Runs, pairs};

/// Maximum number of cores, which equals the number of stages.
pub const MAX_CORES: usize = 4;

/// Duration of a run in milliseconds.
const MILLISECONDS: u64 = 60;

/// First ring number that `l2fwd` uses, so that its rings do not conflict with those of gateways.
const FIRST_RING: u32 = 100;

/// A forwarder of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Sluice(Placement),
    /// `l2fwd` on this number of cores.
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

/// All forwarders to measure on a number of cores; reference forwarders come before those that are compared with them.
fn all(completes: bool, pipelines: bool, cores: usize) -> Vec<By> {
    let counts = if cores > 1 { vec![1, cores] } else { vec![1] };
    let numbered = |count: usize| (0..count as Core).collect::<Vec<_>>();
    let mut all: Vec<By> = counts.iter().map(|&count| By::L2fwd(count)).collect();
    if completes {
        let complete = counts
            .iter()
            .filter_map(|&count| Placement::run_to_completion(&numbered(count)));
        all.extend(complete.map(By::Sluice));
    }
    if pipelines {
        let topology = Topology::flat(cores as u16);
        let found = candidates(&numbered(cores), &topology, &Load::even(SHARDS as u16));
        let has_one_core_each = |placement: &Placement| {
            let is_single = placement.stages().iter().all(|stage| stage.workers.len() == 1);
            placement.is_pipeline() && placement.workers().len() == cores && is_single
        };
        all.extend(found.into_iter().filter(has_one_core_each).map(By::Sluice));
    }
    all
}

/// A row and its runs.
#[derive(Clone, Debug)]
struct Case {
    by: By,
    homes: Option<Homes>,
    bytes: usize,
    direction: Direction,
    runs: Runs,
}

impl Case {
    fn scenario(&self) -> Scenario {
        // Scenario names and sizes are leaked, so they live as long as the process.
        let sizes = Box::leak(Box::new([(self.bytes - CHECK_SEQUENCE, 1)]));
        Scenario::of_frames(sizes, self.direction, STYLE, self.homes)
    }

    fn add(&mut self, mpps: f64, done: &[Done]) {
        let all = Done::sum(done.iter().copied());
        let each = |cycles: u64| cycles as f64 / all.came.max(1) as f64;
        self.runs.extend([
            ("mpps", mpps),
            ("source_cycles", each(all.source)),
            ("sink_cycles", each(all.sink)),
            ("core_cycles", each(all.cycles)),
        ]);
    }

    /// Creates the row, with ratios to the same forwarder on one core and to `l2fwd` on the same number of cores in the
    /// same rounds.
    fn row(&self, cases: &[Self]) -> Row {
        let model = if self.by.is_pipeline() {
            Model::Pipeline
        } else {
            Model::RunToCompletion
        };
        let case = if matches!(self.by, By::Sluice(_)) {
            "sluice"
        } else {
            "l2fwd"
        };
        let mut row = row(case, self.bytes, self.direction)
            .key("model", model.name())
            .key("cores", self.by.cores());
        row = row
            .key("checksums", "vouched")
            .key("source", "included")
            .runs(&self.runs);
        row = on_wires(row, self.bytes, self.direction, &[(10, "share_of_10g")]);
        if let Some(homes) = self.homes {
            row = row
                .key("site", "tags-and-mac")
                .key("sites", homes.sites)
                .key("terminals", homes.terminals);
        }
        let By::Sluice(placement) = &self.by else { return row };
        let is_sluice = |other: &Self| matches!(other.by, By::Sluice(_));
        let is_one = |other: &Self| !other.by.is_pipeline() && other.by.cores() == 1;
        let over = |row: Row, name, is_base: &dyn Fn(&Self) -> bool| match cases.iter().find(|other| is_base(other)) {
            Some(base) => row.figure(
                name,
                &pairs(self.runs.of("mpps"), base.runs.of("mpps"), |own, base| own / base),
            ),
            None => row,
        };
        row = row.key("placement", placement.to_string());
        row = over(row, "over_one_core", &|other| {
            is_sluice(other) && other.homes == self.homes && is_one(other)
        });
        row = over(row, "over_l2fwd", &|other| other.by == By::L2fwd(self.by.cores()));
        match self.homes {
            Some(_) => over(row, "over_no_sites", &|other| {
                other.homes.is_none() && other.by == self.by
            }),
            None => row,
        }
    }
}

/// All cases for a size and direction. A gateway with sites is measured directly after the same gateway without sites.
fn cases(all: &[By], bytes: usize, direction: Direction) -> Vec<Case> {
    let with = |by: &By| {
        let homes = matches!(by, By::Sluice(_)).then_some(Some(Homes::USUAL));
        let by = by.clone();
        [None].into_iter().chain(homes).map(move |homes| Case {
            by: by.clone(),
            homes,
            bytes,
            direction,
            runs: Runs::default(),
        })
    };
    all.iter().flat_map(with).collect()
}

/// `l2fwd` on several cores, each with a source and a sink: the maximum that receive and transmit allow. The packets
/// belong to all flows, because `l2fwd` does not read their addresses.
struct Plain(Lanes<Sender, L2fwd>);

impl Plain {
    /// Creates `l2fwd` on `cores` cores; its ring numbers start at `number`.
    fn new(eal: &'static Eal, number: u32, cores: usize) -> Result<Self, Failure> {
        let lane = |own| {
            let [source, Source { io, devices }] = join(eal, number + own as u32, 2, 8192)?;
            let direction = Direction::Both;
            Ok((source, devices, Sender::default(), L2fwd { io, direction }))
        };
        Ok(Self(Lanes::apart(cores, &slices(), lane)?))
    }

    /// Forwards packets for a number of cycles; returns the throughput in Mpps and the results of each core.
    fn run(&mut self, on: &[usize], scenario: &Scenario, cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        let done = quiet("l2fwd", self.0.all.len(), || {
            self.run_once(on, scenario, cycles)?;
            Ok(self.0.slices())
        })?;
        Ok((done.iter().map(Done::mpps).sum(), done))
    }

    /// Runs once, without excluding disturbed slices; returns the total number of output frames.
    fn run_once(&mut self, on: &[usize], scenario: &Scenario, cycles: u64) -> Result<usize, Failure> {
        for lane in &mut self.0.all {
            lane.middle.direction = scenario.direction;
            lane.traffic.samples.kept.clear();
            lane.traffic.draw(Some(draw(lane.own, scenario)));
        }
        self.0.run(on, cycles)?;
        match self.0.progress.all() {
            (sent, came) if sent == came => Ok(came as usize),
            (sent, came) => Err(format!("l2fwd: {sent} packets went in and {came} came out").into()),
        }
    }
}

/// Random generator of the packets that one core of `l2fwd` sends.
fn draw(own: usize, scenario: &Scenario) -> Draw {
    let public = |flow: u32| (0xc612_0000 | flow >> 8, 1024 + flow as u16);
    let mut draw = Draw::new(scenario, own, Arc::new((0..FLOWS).map(public).collect()));
    draw.flows = [(); 2].map(|()| (0..FLOWS).collect());
    draw
}

/// Measure all cases, each once per round.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    let on = arguments.cores();
    let all = all(
        arguments.lays(Model::RunToCompletion),
        arguments.lays(Model::Pipeline),
        on.len(),
    );
    let (mut plains, mut rigs, cycles) = (Vec::new(), 0, tsc::frequency() / 1_000 * MILLISECONDS);
    for direction in arguments.directions() {
        for bytes in arguments.all_sizes(run.quick) {
            let mut cases = cases(&all, bytes, direction);
            let count = cases.len();
            for case in (0..if run.quick { 3 } else { 7 }).flat_map(|_| 0..count) {
                let case = &mut cases[case];
                let scenario = case.scenario();
                let (mpps, done) = match &case.by {
                    By::Sluice(placement) => {
                        rigs += 1;
                        let plane = plane(&scenario, placement)?;
                        let mut memory = memory(&plane)?;
                        let mut rig = Rig::new(eal, rigs, &scenario, placement, plane, &mut memory)?;
                        let result = rig.run(&on, cycles)?;
                        rig.lanes.close();
                        result
                    }
                    By::L2fwd(cores) => {
                        if !plains.iter().any(|(of, _)| of == cores) {
                            let number = FIRST_RING + (plains.len() * MAX_CORES) as u32;
                            plains.push((*cores, Plain::new(eal, number, *cores)?));
                        }
                        let plain = plains.iter_mut().find(|(of, _)| of == cores);
                        plain
                            .ok_or("l2fwd has no such number of cores")?
                            .1
                            .run(&on, &scenario, cycles)?
                    }
                };
                case.add(mpps, &done);
            }
            cases.iter().for_each(|case| (run.row)(case.row(&cases)));
        }
    }
    plains.into_iter().for_each(|(_, plain)| plain.0.close());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of output frames, or of output frames compared with a reference if the case has one.
    fn passed(eal: &'static Eal, number: u32, case: &Case) -> Result<usize, Failure> {
        let (scenario, cycles) = (case.scenario(), tsc::frequency() / 100);
        match &case.by {
            By::Sluice(placement) => {
                let plane = plane(&scenario, placement)?;
                let mut memory = memory(&plane)?;
                let mut rig = Rig::new(eal, number, &scenario, placement, plane, &mut memory)?;
                let mut held = 0;
                while held == 0 {
                    held += rig.run_once(&[0, 1], cycles)?;
                }
                rig.lanes.close();
                Ok(held)
            }
            By::L2fwd(cores) => {
                let mut plain = Plain::new(eal, FIRST_RING + 10 * number, *cores)?;
                let came = plain.run_once(&[0, 1], &scenario, cycles)?;
                plain.0.close();
                Ok(came)
            }
        }
    }

    #[test]
    fn frames_of_either_model_and_of_l2fwd_all_come_out_right() {
        let (eal, mut turn) = crate::turn::turn();
        let all = all(true, true, 2);
        // Two runs of `l2fwd` (one and two cores), two of Sluice, and one for each partition of its parts into two
        // stages.
        assert_eq!(9, all.len());
        for case in cases(&all, 128, Direction::Both) {
            *turn += 1;
            match passed(eal, *turn, &case) {
                Ok(count) => assert_ne!(0, count, "{case:?}"),
                Err(error) => panic!("{case:?}: {error}"),
            }
        }
    }
}
