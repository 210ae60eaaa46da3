//! `inspect`: a bridge that inspects everything, by models of who does what (P3).
//!
//! Every core has a source where it receives and a sink where it sends; their cycles are told apart. The *matcher's share* is
//! what the scans of a run cost alone, done again in their order, over what one core needs for the same packets.

mod even;
mod lane;
mod moving;
mod rig;
mod traffic;

use std::path::PathBuf;
use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_inspect::bindings::vectorscan::Calls;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::signatures::Dialect;

use crate::rows::{Row, Run};
use even::Shared;
use lane::Done;
use rig::{Assisting, Case, Model, Rig};
use traffic::{Kind, Pages};

type Failure = Box<dyn std::error::Error>;

/// Cores at most.
const CORES: usize = 2;

/// What to measure: everything where nothing is said.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArguments {
    /// Rules to compare with.
    #[arg(long, value_name = "FILE")]
    pub signatures: PathBuf,
    /// Their language.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    pub dialect: Written,
    /// On these cores; those that this process may use where none is named.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Only frames of these sizes, check sequence included.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Milliseconds of each run.
    #[arg(long, value_name = "MS", default_value_t = 60)]
    milliseconds: u64,
}

/// The language of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Written {
    /// Suricata 7.
    Suricata,
    /// Snort 2.9.
    Snort2,
    /// Snort 3.
    Snort3,
}

/// What measures.
struct Bench<'a> {
    eal: &'static Eal,
    on: &'a [usize],
    cycles: u64,
    rigs: u32,
    rules: &'a Arc<Ruleset>,
    pages: Arc<Pages>,
}

/// What a run told.
struct Outcome {
    mpps: f64,
    done: Vec<Done>,
    reordered: u64,
    /// The share of the packets that a core that assists looked at.
    assisted: f64,
    calls: Option<Box<Calls>>,
}

impl Outcome {
    fn came(&self) -> f64 {
        self.done.iter().map(|done| done.came).sum::<u64>() as f64
    }

    /// Cycles of all cores for a packet, sources and sinks left out.
    fn work(&self) -> f64 {
        self.done.iter().map(|done| done.work).sum::<u64>() as f64 / self.came()
    }

    fn handed(&self) -> f64 {
        self.done.iter().map(|done| done.handed).sum::<u64>() as f64 / self.came()
    }

    /// The share of each core's time in which it did something.
    fn busy(&self) -> f64 {
        let busy: u64 = self.done.iter().map(|done| done.work + done.ends).sum();
        let all: u64 = self.done.iter().map(|done| done.cycles).sum();
        busy as f64 / all as f64
    }
}

/// What else a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Nothing,
    Order,
    Scans,
}

impl Bench<'_> {
    fn run(&mut self, case: &Case, watch: Watch) -> Result<Outcome, Failure> {
        self.rigs += 1;
        let plane = rig::plane(case, self.rules)?;
        let mut memory = rig::memory(&plane)?;
        let mut streams = Region::new(even::lines().next_multiple_of(2) * 64)?;
        let shared = Shared::new(self.rules, streams.lines())?;
        let mut rig = Rig::new(
            self.eal,
            self.rigs,
            case,
            self.rules,
            &self.pages,
            plane,
            &mut memory,
            &shared,
        )?;
        // Every flow is seen before anything is measured.
        rig.run(self.on, self.cycles / 2)?;
        let mut cycles = self.cycles;
        match watch {
            Watch::Nothing => {}
            Watch::Order => rig.watch(),
            Watch::Scans => {
                cycles /= 4;
                for even in rig.evens() {
                    if let Some(tools) = &mut even.tools {
                        shared.record(tools);
                    }
                }
            }
        }
        let before = rig.assisted();
        let (mpps, done) = rig.run(self.on, cycles)?;
        let came: u64 = done.iter().map(|done| done.came).sum();
        let assisted = (rig.assisted() - before) as f64 / came.max(1) as f64;
        let calls = rig.evens().find_map(|even| even.tools.as_mut()?.take_calls());
        let reordered = rig.reordered();
        rig.close();
        Ok(Outcome {
            mpps,
            done,
            reordered,
            assisted,
            calls,
        })
    }

    /// Cycles of the scans alone, for each packet of a run on one core.
    fn scans(&mut self, case: &Case) -> Result<Scans, Failure> {
        let alone = Case {
            model: Model::Even,
            cores: 1,
            ..*case
        };
        let outcome = self.run(&alone, Watch::Scans)?;
        let calls = outcome.calls.ok_or("nothing was searched")?;
        Ok(Scans { calls })
    }
}

/// What a run searched.
struct Scans {
    calls: Box<Calls>,
}

impl Scans {
    /// Cycles for each of its packets: of a datagram each is one scan.
    fn cycles(&self, rules: &Ruleset) -> Result<f64, Failure> {
        let mut replay = rules.prefilter().replay(1)?;
        let start = tsc::now();
        std::hint::black_box(replay.run(&self.calls));
        Ok((tsc::now() - start) as f64 / self.calls.count() as f64)
    }
}

/// What came out of the runs of a case.
#[derive(Default)]
struct Figures {
    mpps: Vec<f64>,
    work: Vec<f64>,
    busy: Vec<f64>,
    handed: Vec<f64>,
    assisted: Vec<f64>,
    reordered: Vec<f64>,
    share: Vec<f64>,
}

fn cases(bytes: usize, kind: Kind, cores: usize) -> Vec<Case> {
    let case = |model, cores, inspects| Case {
        model,
        cores,
        bytes,
        kind,
        inspects,
        assist: None,
    };
    let mut all = Vec::new();
    for inspects in [true, false] {
        all.push(case(Model::Rss, 1, inspects));
        all.push(case(Model::Even, 1, inspects));
        if cores > 1 {
            let models = [
                Model::Even,
                Model::EvenMoving,
                Model::Rss,
                Model::RoleSplit,
                Model::RoleSplitSending,
            ];
            all.extend(models.map(|model| case(model, cores, inspects)));
            all.push(Case {
                assist: Some(ASSISTING),
                ..case(Model::RoleSplit, cores, inspects)
            });
        }
    }
    all
}

/// When a core assists where nothing else is asked about.
const ASSISTING: Assisting = Assisting {
    threshold: 128,
    slice: 20,
};

/// The ways to assist that are compared.
fn sweep(bytes: usize) -> Vec<Case> {
    let case = |threshold, slice| Case {
        model: Model::RoleSplit,
        cores: 2,
        bytes,
        kind: Kind::Rfc2544,
        inspects: true,
        assist: Some(Assisting { threshold, slice }),
    };
    let thresholds = [16, 64, 256].map(|threshold| case(threshold, ASSISTING.slice));
    let slices = [5, 80, 320].map(|slice| case(ASSISTING.threshold, slice));
    thresholds.into_iter().chain(slices).collect()
}

fn measure(
    bench: &mut Bench<'_>,
    (bytes, kind): (usize, Kind),
    cases: &[Case],
    run: &mut Run<'_>,
) -> Result<(), Failure> {
    let mut figures: Vec<Figures> = cases.iter().map(|_| Figures::default()).collect();
    let scans = bench.scans(&cases[0])?;
    for round in 0..if run.quick { 3 } else { 7 } {
        let search = scans.cycles(bench.rules)?;
        // Each has its neighbours of the same moment.
        for (case, figures) in cases.iter().zip(&mut figures) {
            let outcome = bench.run(case, Watch::Nothing)?;
            figures.mpps.push(outcome.mpps);
            figures.work.push(outcome.work());
            figures.busy.push(outcome.busy());
            figures.handed.push(outcome.handed());
            figures.assisted.push(outcome.assisted);
            if case.inspects && case.cores == 1 {
                figures.share.push(search / outcome.work());
            }
            // Where interfaces move, two sources number the same flows.
            if round == 0 && case.model != Model::EvenMoving {
                figures.reordered.push(bench.run(case, Watch::Order)?.reordered as f64);
            }
        }
    }
    // What a packet costs more where it is handed over than where it is not.
    let alone = |inspects| {
        let rss =
            |(case, _): &(&Case, &Figures)| case.model == Model::Rss && case.inspects == inspects && case.cores > 1;
        let found = cases.iter().zip(&figures).find(rss);
        found.map_or(0.0, |(_, figures)| crate::rows::Figure::of(&figures.work).median)
    };
    for (case, figures) in cases.iter().zip(&figures) {
        let mbps: Vec<_> = figures.mpps.iter().map(|mpps| mpps * case.mean() * 8.0).collect();
        let mut row = Row::default()
            .key("bytes", if kind == Kind::Mix { 0 } else { bytes })
            .key("model", case.model.name())
            .key("cores", case.cores)
            .key("inspection", if case.inspects { "on" } else { "off" })
            .key("traffic", kind.name())
            .key(
                "assist_threshold",
                case.assist.map_or(0, |assisting| assisting.threshold),
            )
            .key("time_slice_us", case.assist.map_or(0, |assisting| assisting.slice))
            .key("queues", if case.model == Model::Rss { case.cores } else { 1 })
            .figure("mbps", &mbps)
            .figure("mpps", &figures.mpps)
            .figure("work_cycles", &figures.work)
            .figure("busy_share", &figures.busy)
            .figure("handovers_per_packet", &figures.handed)
            .figure("assisted_share", &figures.assisted)
            .figure("reordered", &figures.reordered);
        if !figures.share.is_empty() {
            row = row.figure("share_of_matcher", &figures.share);
        }
        if matches!(case.model, Model::RoleSplit | Model::RoleSplitSending) {
            let base = alone(case.inspects);
            let each: Vec<_> = figures
                .work
                .iter()
                .zip(&figures.handed)
                .map(|(work, handed)| (work - base) / handed.max(1e-9))
                .collect();
            row = row.figure("handover_cycles", &each);
        }
        (run.row)(row);
    }
    Ok(())
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &InspectArguments) -> Result<(), Failure> {
    let mut on = match arguments.on.is_empty() {
        true => sluice_dpdk::eal::allowed_cores(),
        false => arguments.on.clone(),
    };
    on.truncate(CORES);
    let dialect = match arguments.dialect {
        Written::Suricata => Dialect::Suricata,
        Written::Snort2 => Dialect::Snort2,
        Written::Snort3 => Dialect::Snort3,
    };
    let rules = rig::rules(&arguments.signatures, dialect)?;
    let mut bench = Bench {
        eal: crate::placement::rig::start(on.len())?,
        on: &on,
        cycles: tsc::frequency() / 1000 * arguments.milliseconds,
        rigs: 0,
        rules: &rules,
        pages: Arc::new(Pages::new()),
    };
    let sizes = match (arguments.bytes.as_slice(), run.quick) {
        ([], true) => vec![64, 512, 1518],
        ([], false) => vec![64, 128, 256, 512, 1024, 1280, 1518],
        (some, _) => some.to_vec(),
    };
    let cores = on.len().min(CORES);
    for &bytes in &sizes {
        measure(
            &mut bench,
            (bytes, Kind::Rfc2544),
            &cases(bytes, Kind::Rfc2544, cores),
            run,
        )?;
    }
    measure(&mut bench, (0, Kind::Mix), &cases(0, Kind::Mix, cores), run)?;
    if cores > 1 && !run.quick {
        let bytes = 512;
        let base = cases(bytes, Kind::Rfc2544, cores);
        let all: Vec<_> = base[..1].iter().copied().chain(sweep(bytes)).collect();
        measure(&mut bench, (bytes, Kind::Rfc2544), &all, run)?;
    }
    for &bytes in sizes.iter().filter(|&&bytes| bytes >= 512) {
        measure(
            &mut bench,
            (bytes, Kind::Elephant),
            &cases(bytes, Kind::Elephant, cores),
            run,
        )?;
    }
    Ok(())
}
