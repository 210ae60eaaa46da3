//! `cores`: throughput on several cores compared with the scaling of the limit, and the cost of packets that arrive at
//! the wrong core (P4, Fig. 5).
//!
//! 1,000 rules, 8,000 flows, 64-byte frames, half of them from each side. Every core runs a source, a worker and a
//! sink, and its throughput includes the cost of all three. The limit is measured on the same cores in the same run
//! with the same share of the flows. Linux with iptables is measured on the same cores too, but over veth instead of
//! memory.

mod limit;
pub mod line;

use clap::ValueEnum;
use sluice_dpdk::tsc;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::placement::Placement;

use crate::kernel::established::iptables;
use crate::rig::lanes::{self, Done};
use crate::rig::policy::{SHARDS, Style, memory};
use crate::rig::queues;
use crate::rig::scenario::{FLOWS, Scenario};
use crate::rig::steering::Steering;
use crate::rig::workers::{Rig, plane};
use crate::rows::{Failure, Named, Row, Run, Runs, pairs};

/// Maximum number of cores: the source of each core uses two ports in addition to the gateway's two ports, and packaged
/// DPDK supports 32 ports.
const MAX_CORES: usize = 15;

/// Total number of rules.
const RULES: u32 = 1_000;

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Linux with iptables, over the links of `kernel`.
    Iptables,
    /// Sluice, and the limit for comparison.
    Sluice,
}

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct CoresArguments {
    /// Cores to use, in this order; by default all that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Numbers of cores to measure with; by default 1, 2, 4 and so on.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Measures only this part.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Measures only this steering, and for comparison the ideal steering.
    #[arg(long, value_name = "STEERING")]
    steering: Option<Steering>,
    /// Duration of each run in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    milliseconds: u64,
}

/// A measurement on a given number of cores, with its steering and its results.
struct Case {
    cores: usize,
    steering: Steering,
    style: Style,
    runs: Runs,
    /// Share of mis-steered flows, and its expected value; set only if the engine selects ports for RSS.
    mismatches: Option<(f64, f64)>,
}

pub fn run(run: &mut Run<'_>, arguments: &CoresArguments) -> Result<(), Failure> {
    let on = lanes::cores(&arguments.on, usize::MAX);
    let powers = (0..)
        .map(|power| 1 << power)
        .take_while(|&count| count <= on.len().min(MAX_CORES));
    let counts = match arguments.cores.is_empty() {
        true => powers.collect(),
        false => arguments.cores.clone(),
    };
    if let Some(count) = counts.iter().find(|&&count| count > MAX_CORES) {
        return Err(format!("{count} cores are too many: at most {MAX_CORES} have sources of their own").into());
    }
    if counts.iter().any(|&count| count == 0 || count > on.len()) {
        return Err(format!("this process may use {} cores: {on:?}", on.len()).into());
    }
    // Linux must be measured before DPDK pins this process.
    if arguments.only != Some(Part::Sluice)
        && let Err(error) = linux(run, &counts, &on)
    {
        eprintln!("sluice-bench: no rows of iptables: {error}");
    }
    match arguments.only {
        Some(Part::Iptables) => Ok(()),
        _ => sluice(run, arguments, &on, &counts),
    }
}

/// Measures Linux with iptables on the same number of cores, over the links of `kernel`. Each core forwards the packets
/// that its own source sends, without steering, and no flow uses two cores. One further row has the source on a
/// separate core beside one forwarding core. Each row also contains the backlog counters of the cores, which show where
/// the packets were processed.
fn linux(run: &mut Run<'_>, counts: &[usize], on: &[usize]) -> Result<(), Failure> {
    let text = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let beside = (on.len() > 1).then_some(0);
    let together: Vec<usize> = beside.into_iter().chain(counts.iter().copied()).collect();
    let mut words = format!("--direction up --together {} --on {}", text(&together), text(on));
    if run.quick {
        words += " --window 400";
    }
    let mut take = |of_kernel: Row| {
        let (cores, source) = match of_kernel.text_of("together").parse::<usize>() {
            Ok(cores) => (cores, "included"),
            Err(_) => (1, "beside"),
        };
        let row = Row::new(of_kernel.text_of("case"))
            .key("cores", cores)
            .key("source", source);
        let row = row.key("limited_by", of_kernel.text_of("limited_by"));
        let row = row.scaled(&of_kernel, "packets_per_s", "mpps", 1e-6);
        let names = [
            "cpu_ns_per_packet",
            "busy_share",
            "least_core_share",
            "other_cores_share",
        ];
        (run.row)(
            names
                .into_iter()
                .fold(row, |row, name| row.scaled(&of_kernel, name, name, 1.0)),
        );
    };
    iptables(RULES, &words, run.quick, &mut take)
}

/// Sluice, and the limit for comparison.
fn sluice(run: &mut Run<'_>, arguments: &CoresArguments, on: &[usize], counts: &[usize]) -> Result<(), Failure> {
    let styles = [Style::MAPPINGS, Style::SESSIONS].map(|style| Style { rules: RULES, ..style });
    let eal = queues::start(counts.iter().copied().max().unwrap_or(1))?;
    let cycles = tsc::frequency() / 1000 * arguments.milliseconds;
    let (mut cases, mut rigs) = (Vec::new(), 0);
    for &cores in counts {
        let on = &on[..cores];
        let (mut limits, mut lines) = (Vec::new(), Vec::new());
        // The engine's settings differ for cards that hash only ports.
        let engines = [Steering::Ideal, Steering::FiveTuple];
        for (style, engine) in styles
            .into_iter()
            .flat_map(|style| engines.map(|engine| (style, engine)))
        {
            let is_wanted = |steering: &Steering| {
                let asked = arguments.steering.is_none_or(|wanted| wanted == *steering);
                let of_engine = (*steering == Steering::FiveTuple) == (engine == Steering::FiveTuple);
                of_engine && (*steering == Steering::Ideal || cores > 1 && asked)
            };
            let wanted = Steering::value_variants().iter().copied().filter(is_wanted);
            let case = |steering| Case {
                cores,
                steering,
                style,
                runs: Runs::default(),
                mismatches: None,
            };
            let mut group: Vec<Case> = wanted.map(case).collect();
            if group.is_empty() {
                continue;
            }
            // Only one rig exists at a time: DPDK supports a limited number of ports, and each worker's source uses two
            // ports.
            let scenario = Scenario::steered(engine, style);
            let placement = Placement::run_to_completion(&(0..cores as u16).collect::<Vec<_>>());
            let placement = placement.ok_or("no core is named")?;
            let plane = plane(&scenario, &placement)?;
            let mut memory = memory(&plane)?;
            let mut rig = Rig::new(eal, rigs, &scenario, &placement, plane, &mut memory)?;
            rigs += 1;
            for _ in 0..if run.quick { 3 } else { 7 } {
                limits.push(limit::run(on, FLOWS, cycles)?);
                if cores > 1 {
                    lines.push(line::cycles(on)?);
                }
                group.iter_mut().try_for_each(|case| one(&mut rig, case, on, cycles))?;
            }
            let all = rig.plane.counters().iter();
            let sum = |value: fn(&WorkerCounters) -> u64| all.clone().map(|worker| value(worker)).sum::<u64>();
            let steered = sum(|worker| worker.ports_steered.get());
            let share = sum(|worker| worker.missteered_ports.get()) as f64 / steered as f64;
            let by_ports = group
                .iter_mut()
                .filter(|case| steered > 0 && case.steering == Steering::FiveTuple);
            by_ports.for_each(|case| case.mismatches = Some((share, expected_mismatches(&rig))));
            cases.append(&mut group);
            rig.lanes.close();
        }
        (run.row)(Row::new("probe").key("cores", cores).figure("mpps", &limits));
        if cores > 1 {
            // Printed for comparison with the cost of hand-overs.
            (run.row)(Row::new("line").key("cores", cores).figure("line_cycles", &lines));
        }
    }
    cases.iter().for_each(|case| (run.row)(row(case, &cases)));
    Ok(())
}

fn row(case: &Case, cases: &[Case]) -> Row {
    // Cycles of all cores together per packet.
    let cost = |rate: f64| case.cores as f64 * tsc::frequency() as f64 / rate / 1e6;
    let rates = |steering| {
        let same = |other: &&Case| other.cores == case.cores && other.style.mapping() == case.style.mapping();
        let found = cases.iter().filter(same).find(|other| other.steering == steering)?;
        Some(found.runs.of("mpps"))
    };
    let row = Row::new("sluice")
        .key("cores", case.cores)
        .key("steering", case.steering.name());
    let over = case.runs.of("handed_over_share");
    let mut row = row.key("mapping", case.style.mapping()).runs(&case.runs);
    row = row.figure("handed_over_established", over);
    if let (Some(ideal), Some(wrong)) = (rates(Steering::Ideal), rates(Steering::Wrong))
        && matches!(case.steering, Steering::Wrong | Steering::FiveTuple)
    {
        // Additional cost compared with ideal steering: per packet, and per handed-over packet.
        let beyond = |rates: &[f64]| pairs(rates, ideal, |rate, ideal| cost(rate) - cost(ideal));
        let expected = pairs(&beyond(wrong), over, |whole, share| whole * share);
        row = row
            .figure("cycles_over_ideal", &beyond(case.runs.of("mpps")))
            .figure("cycles_expected", &expected);
    }
    match case.mismatches {
        Some((share, expected)) => row
            .figure("misfit_share", &[share])
            .figure("misfit_expected", &[expected]),
        None => row,
    }
}

/// (1 - 1/S)^f, with S shards and f free ports of an address: the probability that RSS steers the replies of none of
/// these ports to the flow's shard.
fn expected_mismatches(rig: &Rig<'_>) -> f64 {
    let pools = &rig.plane.snapshot().nat4.pools;
    let (addresses, ports) = pools.iter().fold((0.0, 0.0), |(addresses, ports), (_, pool)| {
        let (count, (first, last)) = (f64::from(pool.addresses()), pool.ports());
        (addresses + count, ports + count * f64::from(last - first + 1))
    });
    let free = (ports - f64::from(FLOWS)) / addresses;
    (1.0 - 1.0 / f64::from(SHARDS)).powf(free)
}

fn one(rig: &mut Rig<'_>, case: &mut Case, on: &[usize], cycles: u64) -> Result<(), Failure> {
    rig.steer(case.steering)?;
    let counted = |rig: &Rig<'_>| Done::sum(rig.lanes.all.iter().map(|lane| lane.all()));
    let (before, (sent, came)) = (counted(rig), rig.lanes.progress.all());
    rig.run_once(on, cycles)?;
    let (after, all) = (counted(rig).less(before), rig.lanes.progress.all());
    let (sent, came) = ((all.0 - sent) as f64, (all.1 - came) as f64);
    let slices = rig.lanes.all.iter().filter_map(|lane| lane.slices.last());
    case.runs.extend([
        ("mpps", slices.map(|done| done.mpps()).sum()),
        ("handed_over_share", after.handed as f64 / came),
        ("lost_share", (sent - came) / sent),
    ]);
    if after.handed > 0 {
        let cycles = |stage: CycleStage| after.stages[stage as usize] as f64;
        case.runs.extend([
            (
                "handover_cycles_out",
                cycles(CycleStage::HandOver) / after.handed as f64,
            ),
            ("handover_cycles_in", cycles(CycleStage::TakeOver) / after.taken as f64),
        ]);
    }
    Ok(())
}
