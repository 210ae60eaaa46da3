//! `inspect`: a bridge that inspects all packets, by assignment of roles to cores (P3).
//!
//! Every core that receives has a source, and every core that sends has a sink; their cycles are counted separately.
//! 4,096 frames wait in front of the devices, so that the headers of a frame are written long before they are read. The
//! *matcher's share* is the time to repeat only the pattern scans of a run, in their order, divided by the time to
//! process the same packets on one core.

mod attack;
mod even;
mod lane;
mod load;
mod moving;
mod peer;
mod plane;
mod rig;
mod share;
#[cfg(test)]
mod tests;
mod traffic;

use std::path::PathBuf;
use std::sync::Arc;

use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_engine::packet::counters::CycleStage;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::signatures::Dialect;

use crate::rig::lanes::{Done, cores};
use crate::rig::policy::memory;
use crate::rig::queues;
use crate::rows::{Failure, Named, Row, Run, Runs, pairs};
use even::Shared;
use plane::{Case, Help, Model};
use rig::{Means, Rig};
use traffic::{Kind, Pages, Transport};

/// Maximum number of cores.
const CORES: usize = 2;
/// Assist thresholds to measure, in packets of a ring with capacity 512.
const THRESHOLDS: [u32; 5] = [8, 32, 128, 256, 384];
/// Time slices of assist to measure, in microseconds.
const SLICES: [u64; 5] = [5, 20, 50, 100, 200];

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArguments {
    /// Inspection rules.
    #[arg(long, value_name = "FILE")]
    pub signatures: PathBuf,
    /// Dialect of the rules.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    pub dialect: Written,
    /// Cores to use; by default those that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Measures only frames of these sizes, including the frame check sequence.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Measures only this traffic.
    #[arg(long, value_name = "TRAFFIC", value_delimiter = ',')]
    traffic: Vec<Kind>,
    /// Transport protocol of the flows.
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Measures only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Duration of each run in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 60)]
    milliseconds: u64,
    /// Only searches at random for the packets with the highest inspection cost.
    #[arg(long, conflicts_with = "peer")]
    attack: bool,
    /// Only compare `sluice inspect` with the offline mode of this inspector: suricata=PATH.
    #[arg(long, value_name = "NAME=PATH")]
    peer: Option<peer::Peer>,
    /// With --peer: also compare with this pcap capture.
    #[arg(long = "capture", value_name = "FILE", requires = "peer")]
    captures: Vec<PathBuf>,
    /// With --peer: the program `sluice`; by default the one in the same folder as `sluice-bench`.
    #[arg(long, value_name = "PATH", requires = "peer")]
    sluice: Option<PathBuf>,
}

/// Dialect of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Written {
    /// Suricata 7.
    Suricata,
    /// Snort 2.9.
    Snort2,
    /// Snort 3.
    Snort3,
}

impl Written {
    fn dialect(self) -> Dialect {
        match self {
            Self::Suricata => Dialect::Suricata,
            Self::Snort2 => Dialect::Snort2,
            Self::Snort3 => Dialect::Snort3,
        }
    }
}

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Maximum throughput of each model.
    Throughput,
    /// The matcher's share of the cost, on one core.
    Share,
    /// Latency and loss by load.
    Load,
    /// Throughput with assist, by threshold and time slice.
    Assist,
}

struct Bench<'a> {
    means: Means<'a>,
    on: &'a [usize],
    cycles: u64,
    rigs: u32,
    transport: Transport,
}

struct Outcome {
    mpps: f64,
    done: Vec<Done>,
    reordered: u64,
}

impl Bench<'_> {
    /// Creates a rig for a case, runs a function on it, and drops the rig.
    fn with<T>(
        &mut self,
        case: &Case,
        work: impl FnOnce(&mut Rig<'_, '_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.rigs += 1;
        let plane = plane::plane(case, self.means.rules)?;
        let mut memory = memory(&plane)?;
        let mut streams = Region::new(even::lines(case.model.shares()).next_multiple_of(2) * 64)?;
        let shared = Shared::new(self.means.rules, streams.lines(), case.model.shares())?;
        let mut rig = Rig::new(&self.means, self.rigs, case, plane, &mut memory, &shared)?;
        let result = work(&mut rig)?;
        rig.lanes.close();
        Ok(result)
    }

    fn run(&mut self, case: &Case) -> Result<Outcome, Failure> {
        let (on, cycles) = (self.on, self.cycles);
        self.with(case, |rig| {
            // Warm up until tables and caches are filled and shards no longer move between cores.
            rig.run(on, cycles / 2, None)?;
            let (mpps, done) = rig.run(on, cycles, None)?;
            Ok(Outcome {
                mpps,
                done,
                reordered: rig.reordered(),
            })
        })
    }

    fn case(&self, model: Model, bytes: usize, kind: Kind) -> Case {
        Case {
            model,
            cores: self.on.len(),
            bytes,
            kind,
            transport: self.transport,
            inspects: true,
            help: model.splits().then_some(Help::USUAL),
        }
    }
}

fn add(runs: &mut Runs, case: &Case, outcome: &Outcome) {
    let all = Done::sum(outcome.done.iter().copied());
    let each = |count: u64| count as f64 / all.came.max(1) as f64;
    runs.extend([
        ("mbps", outcome.mpps * case.mean() * 8.0),
        ("mpps", outcome.mpps),
        ("work_cycles", each(all.work)),
        ("source_cycles", each(all.source + all.sink)),
        ("busy_share", all.busy()),
    ]);
    runs.extend(BUSY.into_iter().zip(outcome.done.iter().map(Done::busy)));
    runs.add("handovers_per_packet", each(all.handed));
    runs.add("reordered", outcome.reordered as f64);
    if case.model.splits() {
        let handing = [CycleStage::HandOver, CycleStage::TakeOver].map(|stage| all.stages[stage as usize]);
        let handing = handing.iter().sum::<u64>() as f64;
        runs.add("handover_cycles", handing / all.handed.max(1) as f64);
        runs.add("assisted_per_packet", each(all.assisted));
    }
    if case.model.shares() {
        runs.add("lock_cycles", each(all.waited));
    }
}

const BUSY: [&str; CORES] = ["busy_share_first", "busy_share_second"];

fn keys(case: &Case) -> Row {
    let row = Row::default()
        .key("bytes", if case.kind == Kind::Mix { 0 } else { case.bytes })
        .key("model", case.model.name())
        .key("cores", case.cores)
        .key("inspection", if case.inspects { "on" } else { "off" })
        .key("traffic", case.kind.name())
        .key("transport", case.transport.name())
        .key("queues", case.queues());
    if !case.model.splits() {
        return row;
    }
    let row = row.key("senders", case.model.senders());
    match case.help {
        None => row.key("assist_threshold", "off"),
        Some(help) => row
            .key("assist_threshold", help.threshold)
            .key("time_slice_us", help.slice),
    }
}

/// Cases of every model: on one core if the model supports it, and on all cores.
fn cases(bench: &Bench<'_>, bytes: usize, kind: Kind) -> Vec<Case> {
    let mut all = Vec::new();
    for inspects in [true, false] {
        let case = |model| Case {
            inspects,
            ..bench.case(model, bytes, kind)
        };
        for model in [Model::Rss, Model::Even] {
            all.push(Case {
                cores: 1,
                ..case(model)
            });
        }
        if bench.on.len() < 2 {
            continue;
        }
        all.extend([Model::Even, Model::EvenMoving, Model::Rss].map(case));
        // Without inspection, packets are neither handed over nor taken over by assist.
        let helps = if inspects {
            vec![Some(Help::USUAL), None]
        } else {
            vec![None]
        };
        for help in helps {
            let models = [Model::RoleSplit, Model::RoleSplitSending];
            all.extend(models.map(|model| Case { help, ..case(model) }));
        }
    }
    all
}

/// Measures the cases in turn, so that all of them are measured under the same conditions.
fn measure(bench: &mut Bench<'_>, cases: &[Case], run: &mut Run<'_>) -> Result<(), Failure> {
    let mut all = vec![Runs::default(); cases.len()];
    for _ in 0..if run.quick { 3 } else { 7 } {
        for (case, runs) in cases.iter().zip(&mut all) {
            add(runs, case, &bench.run(case)?);
        }
    }
    for (case, runs) in cases.iter().zip(&all) {
        let of = |model, cores: usize| {
            let like = |other: &Case| other.inspects == case.inspects && other.kind == case.kind;
            let is_it = |other: &Case| like(other) && (other.model, other.cores) == (model, cores);
            cases
                .iter()
                .zip(&all)
                .find(|(other, _)| is_it(other))
                .map(|(_, runs)| runs)
        };
        let rates = |model, cores| of(model, cores).map_or(&[][..], |runs| runs.of("mpps"));
        let [even, moving] = [Model::Even, Model::EvenMoving].map(|model| rates(model, case.cores));
        let better = pairs(even, moving, f64::max);
        // The median of the ratios of each round is reported, because only values of the same round were measured under
        // the same conditions.
        let mut row = keys(case).runs(runs);
        for (name, base) in [
            ("over_rss", rates(Model::Rss, case.cores)),
            ("over_rss_on_one_core", rates(Model::Rss, 1)),
            ("over_even", even),
            ("over_better_even", &better),
        ] {
            if !base.is_empty() {
                row = row.figure(name, &pairs(runs.of("mpps"), base, |rate, base| rate / base));
            }
        }
        // Additional cost per packet: of the hand-overs with split roles, and of shared locks and cache lines in the
        // baseline.
        let (work, handed) = (runs.of("work_cycles"), runs.of("handovers_per_packet"));
        let base = |model, cores| of(model, cores).map(|runs| runs.median("work_cycles"));
        if let Some(rss) = base(Model::Rss, case.cores).filter(|_| case.model.splits())
            && handed.iter().any(|&handed| handed > 0.0)
        {
            let each = pairs(work, handed, |work, handed| (work - rss) / handed.max(1e-9));
            row = row.figure("added_cycles_per_handover", &each);
        }
        if let Some(alone) = base(Model::Even, 1).filter(|_| case.model.shares() && case.cores > 1) {
            row = row.figure(
                "shared_cycles",
                &work.iter().map(|work| work - alone).collect::<Vec<_>>(),
            );
        }
        (run.row)(row);
    }
    Ok(())
}

pub fn run(run: &mut Run<'_>, arguments: &InspectArguments) -> Result<(), Failure> {
    if let Some(peer) = &arguments.peer {
        return peer::run(run, arguments, peer);
    }
    if arguments.attack {
        return attack::run(run, arguments);
    }
    let on = cores(&arguments.on, CORES);
    let rules: Arc<Ruleset> = plane::rules(&arguments.signatures, arguments.dialect.dialect())?;
    let pages = Arc::new(Pages::new());
    let mut bench = Bench {
        means: Means {
            eal: queues::start(on.len())?,
            rules: &rules,
            pages: &pages,
        },
        on: &on,
        cycles: tsc::frequency() / 1000 * arguments.milliseconds,
        rigs: 0,
        transport: arguments.transport,
    };
    let sizes = match (arguments.bytes.as_slice(), run.quick) {
        ([], true) => vec![64, 512, 1518],
        ([], false) => vec![64, 128, 256, 512, 1024, 1280, 1518],
        (some, _) => some.to_vec(),
    };
    let does = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let comes = |kind| arguments.traffic.is_empty() || arguments.traffic.contains(&kind);
    let mut all = Vec::new();
    if comes(Kind::Rfc2544) {
        all.extend(sizes.iter().map(|&bytes| (bytes, Kind::Rfc2544)));
    }
    if comes(Kind::Mix) {
        all.push((0, Kind::Mix));
    }
    if comes(Kind::Elephant) {
        let large = sizes.iter().filter(|&&bytes| bytes >= 512);
        all.extend(large.map(|&bytes| (bytes, Kind::Elephant)));
    }
    for &(bytes, kind) in &all {
        if does(Part::Throughput) {
            let cases = cases(&bench, bytes, kind);
            measure(&mut bench, &cases, run)?;
        }
        if does(Part::Share) && kind != Kind::Elephant {
            share::measure(&mut bench, bytes, kind, run)?;
        }
    }
    if on.len() < 2 {
        return Ok(());
    }
    if does(Part::Load) {
        let some: &[usize] = if run.quick { &[512] } else { &[64, 512, 1518] };
        for &bytes in some.iter().filter(|bytes| sizes.contains(bytes)) {
            load::measure(&mut bench, bytes, run)?;
        }
    }
    if does(Part::Assist) {
        for kind in [Kind::Rfc2544, Kind::Elephant] {
            let case = bench.case(Model::RoleSplit, 512, kind);
            let with = |threshold, slice| Case {
                help: Some(Help { threshold, slice }),
                ..case
            };
            let thresholds = THRESHOLDS.map(|threshold| with(threshold, Help::USUAL.slice));
            let slices = SLICES.map(|slice| with(Help::USUAL.threshold, slice));
            let cases: Vec<_> = thresholds.into_iter().chain(slices).collect();
            if comes(kind) {
                measure(&mut bench, &cases, run)?;
            }
        }
    }
    Ok(())
}
