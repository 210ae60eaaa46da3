//! `cores`: several cores beside the limit's own scaling, and what packets cost that come to the wrong core (P4, Fig. 5).
//!
//! 1,000 rules, 8,000 flows, frames of 64 bytes, half of them from each side; every core has a source, a worker and a sink,
//! and its throughput counts all three. The limit runs on the same cores in the same run, with the same share of the flows;
//! Linux with iptables does, too, but on veth in place of memory.

pub mod lane;
mod limit;
pub mod line;
mod linux;
mod rig;
mod steering;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_engine::packet::counters::{CycleStage, HandOffCause, WorkerCounters};

use crate::nat_path::flows::Hosts;
use crate::nat_path::flows::Written;
use crate::nat_path::opening::verify;
use crate::nat_path::rig::SHARDS;
use crate::nat_path::rules::Style;
use crate::rows::{Row, Run};
use rig::{FLOWS, Rig};
use steering::Steering;

type Failure = Box<dyn std::error::Error>;

/// Cores at most: each core's source takes two ports beside the gateway's two, and DPDK has 32 as it is packaged.
const MOST: usize = 15;

/// Rules of all.
const RULES: u32 = 1_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Linux with iptables, on the wires of `kernel`.
    Iptables,
    /// Sluice, and the limit beside it.
    Sluice,
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Debug, clap::Args)]
pub struct CoresArguments {
    /// On these cores, one after the other; all that this process may use where none is named.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// With these numbers of cores: 1, 2, 4 and so on where none is named.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Only this part.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Only with this steering, beside the ideal one.
    #[arg(long, value_name = "STEERING")]
    steering: Option<Steering>,
    /// Milliseconds of each run.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    milliseconds: u64,
}

/// What is measured with a number of cores: how packets find their workers, and what came of it.
struct Case {
    cores: usize,
    steering: Steering,
    style: Style,
    figures: Figures,
    /// Where ports are chosen to fit: the share of those that do not, and what is expected.
    misfits: Option<(f64, f64)>,
}

#[derive(Default)]
struct Figures {
    mpps: Vec<f64>,
    over: Vec<f64>,
    out: Vec<f64>,
    taken: Vec<f64>,
    lost: Vec<f64>,
}

/// Counters of all workers, of which a run's share is asked for.
#[derive(Clone, Copy, Default)]
struct Counted {
    over: u64,
    sessions_over: u64,
    taken: u64,
    cycles_out: u64,
    cycles_in: u64,
    steered: u64,
    misfits: u64,
}

impl Counted {
    fn of(rig: &Rig) -> Self {
        let all = rig.plane.counters();
        let sum = |value: &dyn Fn(&WorkerCounters) -> u64| all.iter().map(|worker| value(worker)).sum::<u64>();
        Self {
            over: sum(&|worker| worker.all_handed_over()),
            sessions_over: sum(&|worker| worker.handed_over[HandOffCause::Session as usize].get()),
            taken: sum(&|worker| worker.taken_over.get()),
            cycles_out: sum(&|worker| worker.cycles[CycleStage::HandOver as usize].get()),
            cycles_in: sum(&|worker| worker.cycles[CycleStage::TakeOver as usize].get()),
            steered: sum(&|worker| worker.ports_steered.get()),
            misfits: sum(&|worker| worker.misfits.get()),
        }
    }
}

impl Case {
    fn new(cores: usize, steering: Steering, style: Style) -> Self {
        Self {
            cores,
            steering,
            style,
            figures: Figures::default(),
            misfits: None,
        }
    }

    fn count_misfits(&mut self, rig: &Rig) {
        let counted = Counted::of(rig);
        if counted.steered > 0 && self.steering == Steering::FiveTuple {
            let share = counted.misfits as f64 / counted.steered as f64;
            self.misfits = Some((share, expected_misfits(rig)));
        }
    }
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &CoresArguments) -> Result<(), Failure> {
    let on = match arguments.on.is_empty() {
        true => sluice_dpdk::eal::allowed_cores(),
        false => arguments.on.clone(),
    };
    let counts = match arguments.cores.is_empty() {
        true => (0..)
            .map(|power| 1 << power)
            .take_while(|&count| count <= on.len().min(MOST))
            .collect(),
        false => arguments.cores.clone(),
    };
    if let Some(count) = counts.iter().find(|&&count| count > MOST) {
        return Err(format!("{count} cores are too many: at most {MOST} have sources of their own").into());
    }
    if counts.iter().any(|&count| count == 0 || count > on.len()) {
        return Err(format!("this process may use {} cores: {on:?}", on.len()).into());
    }
    // Before DPDK pins this process.
    if arguments.only != Some(Part::Sluice)
        && let Err(error) = linux::iptables(run, &counts, &on)
    {
        eprintln!("sluice-bench: no rows of iptables: {error}");
    }
    if arguments.only == Some(Part::Iptables) {
        return Ok(());
    }
    sluice(run, arguments, &on, &counts)
}

/// Sluice, and the limit beside it.
fn sluice(run: &mut Run<'_>, arguments: &CoresArguments, on: &[usize], counts: &[usize]) -> Result<(), Failure> {
    let runs = if run.quick { 3 } else { 7 };
    let styles = [Style::MAPPINGS, Style::SESSIONS].map(|style| Style { rules: RULES, ..style });
    let eal = rig::start(counts)?;
    let cycles = tsc::frequency() / 1000 * arguments.milliseconds;
    let (mut cases, mut rigs) = (Vec::new(), 0);
    for &cores in counts {
        let on = &on[..cores];
        let (mut limits, mut lines) = (Vec::new(), Vec::new());
        for style in styles {
            // What the engine is told differs for cards that hash ports alone.
            for told in [Steering::Ideal, Steering::FiveTuple] {
                let mut group: Vec<Case> = Steering::ALL
                    .into_iter()
                    .filter(|&steering| (steering == Steering::FiveTuple) == (told == Steering::FiveTuple))
                    .filter(|&steering| is_wanted(arguments, cores, steering))
                    .map(|steering| Case::new(cores, steering, style))
                    .collect();
                if group.is_empty() {
                    continue;
                }
                // One at a time: DPDK has a number of ports, and each worker's source takes two.
                let mut rig = Rig::new(eal, rigs, told, style, cores)?;
                rigs += 1;
                for _ in 0..runs {
                    limits.push(limit::run(eal, on, FLOWS, cycles)?);
                    if cores > 1 {
                        lines.push(line::cycles(eal, on)?);
                    }
                    for case in &mut group {
                        one(eal, &mut rig, case, on, cycles)?;
                    }
                }
                for case in &mut group {
                    case.count_misfits(&rig);
                }
                cases.append(&mut group);
                rig.close();
            }
        }
        (run.row)(Row::new("probe").key("cores", cores as u64).figure("mpps", &limits));
        if cores > 1 {
            // Beside it, what hand-overs cost is to be understood.
            (run.row)(
                Row::new("line")
                    .key("cores", cores as u64)
                    .figure("line_cycles", &lines),
            );
        }
    }
    report(run, &cases);
    Ok(())
}

/// Whether a case was asked for.
fn is_wanted(arguments: &CoresArguments, cores: usize, steering: Steering) -> bool {
    steering == Steering::Ideal || cores > 1 && arguments.steering.is_none_or(|wanted| wanted == steering)
}

/// The rows of all cases.
fn report(run: &mut Run<'_>, cases: &[Case]) {
    // Cycles of all cores together for each packet.
    let cost = |case: &Case, rate: f64| case.cores as f64 * tsc::frequency() as f64 / rate / 1e6;
    let same = |one: &Case, other: &Case| one.cores == other.cores && one.style.mapping() == other.style.mapping();
    for case in cases {
        let row = Row::new("sluice")
            .key("cores", case.cores as u64)
            .key("steering", case.steering.name())
            .key("mapping", case.style.mapping());
        let figures = &case.figures;
        let mut row = row
            .figure("mpps", &figures.mpps)
            .figure("handed_over_share", &figures.over)
            .figure("handed_over_established", &figures.over)
            .figure("lost_share", &figures.lost);
        if figures.over.iter().any(|&share| share > 0.0) {
            row = row
                .figure("handover_cycles_out", &figures.out)
                .figure("handover_cycles_in", &figures.taken);
        }
        let of = |steering| {
            cases
                .iter()
                .find(|other| same(case, other) && other.steering == steering)
        };
        if let (Some(ideal), Some(wrong)) = (of(Steering::Ideal), of(Steering::Wrong))
            && matches!(case.steering, Steering::Wrong | Steering::FiveTuple)
        {
            // What a hand-over costs in all, and beside it what the packets of this case that are handed over cost.
            let runs = ideal.figures.mpps.iter().zip(&wrong.figures.mpps);
            let whole: Vec<f64> = runs
                .map(|(&ideal_rate, &rate)| cost(wrong, rate) - cost(ideal, ideal_rate))
                .collect();
            let runs = ideal.figures.mpps.iter().zip(&figures.mpps);
            let lost: Vec<f64> = runs
                .map(|(&ideal_rate, &rate)| cost(case, rate) - cost(ideal, ideal_rate))
                .collect();
            let expected: Vec<f64> = whole
                .iter()
                .zip(&figures.over)
                .map(|(whole, share)| whole * share)
                .collect();
            row = row
                .figure("cycles_over_ideal", &lost)
                .figure("cycles_expected", &expected);
        }
        if let Some((share, expected)) = case.misfits {
            row = row
                .figure("misfit_share", &[share])
                .figure("misfit_expected", &[expected]);
        }
        (run.row)(row);
    }
}

/// (1 - 1/S)^f: no port of the f that are free on an address leads answers to the flow's shard of S.
fn expected_misfits(rig: &Rig) -> f64 {
    let pools = &rig.plane.snapshot().nat4.pools;
    let (addresses, ports) = pools.iter().fold((0.0, 0.0), |(addresses, ports), (_, pool)| {
        let (count, (first, last)) = (f64::from(pool.addresses()), pool.ports());
        (addresses + count, ports + count * f64::from(last - first + 1))
    });
    let free = (ports - f64::from(FLOWS)) / addresses;
    (1.0 - 1.0 / f64::from(SHARDS)).powf(free)
}

/// One run of a case.
fn one(eal: &'static Eal, rig: &mut Rig, case: &mut Case, on: &[usize], cycles: u64) -> Result<(), Failure> {
    rig.steer(case.steering);
    let (before, packets) = (Counted::of(rig), rig.session_packets()?);
    rig.run(eal, on, cycles)?;
    let after = Counted::of(rig);
    let counted = rig.session_packets()? - packets;
    let (sent, came) = rig.lanes.iter().fold((0, 0), |(sent, came), lane| {
        (sent + lane.done.sent, came + lane.done.came)
    });
    if came > sent || counted != came {
        let place = (case.cores, case.steering, case.style.mapping());
        return Err(
            format!("{place:?}: {sent} packets went in, {came} came out, the sessions counted {counted}").into(),
        );
    }
    let hertz = tsc::frequency() as f64;
    let rate = |lane: &lane::Lane| lane.done.counted as f64 * hertz / lane.done.cycles as f64 / 1e6;
    let figures = &mut case.figures;
    figures.mpps.push(rig.lanes.iter().map(rate).sum());
    figures.lost.push((sent - came) as f64 / sent as f64);
    let over = after.over - before.over;
    figures.over.push(over as f64 / came as f64);
    debug_assert_eq!(over, after.sessions_over - before.sessions_over);
    if over > 0 {
        figures
            .out
            .push((after.cycles_out - before.cycles_out) as f64 / over as f64);
        let taken = (after.taken - before.taken) as f64;
        figures.taken.push((after.cycles_in - before.cycles_in) as f64 / taken);
    }
    for lane in &mut rig.lanes {
        verify::<Written>(Hosts::Sixteen, &lane.samples, &lane.publics)?;
        lane.samples.clear();
    }
    Ok(())
}
