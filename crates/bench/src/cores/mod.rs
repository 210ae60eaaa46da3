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
use sluice_engine::counters::{Cause, Stage, WorkerCounters};

use crate::nat_path::flows::Hosts;
use crate::nat_path::flows::Written;
use crate::nat_path::opening::verify;
use crate::nat_path::rig::SHARDS;
use crate::nat_path::rules::Style;
use crate::rows::{Row, Run};
use rig::{FLOWS, Rig};
use steering::Steering;

type Failure = Box<dyn std::error::Error>;

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

/// A rig and how packets find its workers.
struct Case {
    rig: usize,
    cores: usize,
    steering: Steering,
    style: Style,
    figures: Figures,
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
            sessions_over: sum(&|worker| worker.handed_over[Cause::Session as usize].get()),
            taken: sum(&|worker| worker.taken_over.get()),
            cycles_out: sum(&|worker| worker.cycles[Stage::HandOver as usize].get()),
            cycles_in: sum(&|worker| worker.cycles[Stage::TakeOver as usize].get()),
            steered: sum(&|worker| worker.ports_steered.get()),
            misfits: sum(&|worker| worker.misfits.get()),
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
            .take_while(|&count| count <= on.len())
            .collect(),
        false => arguments.cores.clone(),
    };
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
    let eal = rig::start(4, counts)?;
    let (mut rigs, mut cases) = (Vec::new(), Vec::new());
    for &cores in counts {
        for style in styles {
            for steering in Steering::ALL {
                if cores == 1 && steering != Steering::Ideal {
                    continue;
                }
                let wanted = arguments.steering.is_none_or(|wanted| wanted == steering);
                if !wanted && steering != Steering::Ideal {
                    continue;
                }
                // What the engine is told differs for cards that hash ports alone.
                if matches!(steering, Steering::Ideal | Steering::FiveTuple) {
                    rigs.push(Rig::new(eal, rigs.len() as u32, steering, style, cores)?);
                }
                cases.push(Case {
                    rig: rigs.len() - 1,
                    cores,
                    steering,
                    style,
                    figures: Figures::default(),
                });
            }
        }
    }
    let cycles = tsc::frequency() / 1000 * arguments.milliseconds;
    let mut limits: Vec<Vec<f64>> = vec![Vec::new(); counts.len()];
    let mut lines: Vec<Vec<f64>> = vec![Vec::new(); counts.len()];
    for _ in 0..runs {
        for (&count, lines) in counts.iter().zip(&mut lines).filter(|(count, _)| **count > 1) {
            lines.push(line::cycles(eal, &on[..count])?);
        }
        for (&count, limits) in counts.iter().zip(&mut limits) {
            limits.push(limit::run(eal, &on[..count], FLOWS, cycles)?);
        }
        for case in &mut cases {
            one(eal, &mut rigs[case.rig], case, on, cycles)?;
        }
    }
    for ((&count, limits), lines) in counts.iter().zip(&limits).zip(&lines) {
        let row = Row::new("probe").key("cores", count as u64);
        (run.row)(row.figure("mpps", limits));
        if count > 1 {
            // Beside it, what hand-overs cost is to be understood.
            let row = Row::new("line").key("cores", count as u64);
            (run.row)(row.figure("line_cycles", lines));
        }
    }
    // Cycles of all cores together for each packet.
    let cost = |case: &Case, rate: f64| case.cores as f64 * tsc::frequency() as f64 / rate / 1e6;
    let same = |one: &Case, other: &Case| one.cores == other.cores && one.style.mapping() == other.style.mapping();
    for case in &cases {
        let counted = Counted::of(&rigs[case.rig]);
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
        if counted.steered > 0 && case.steering == Steering::FiveTuple {
            let share = counted.misfits as f64 / counted.steered as f64;
            row = row
                .figure("misfit_share", &[share])
                .figure("misfit_expected", &[expected_misfits(&rigs[case.rig])]);
        }
        (run.row)(row);
    }
    rigs.into_iter().for_each(Rig::close);
    Ok(())
}

/// (1 - 1/S)^f: no port of the f that are free on an address leads answers to the flow's shard of S.
fn expected_misfits(rig: &Rig) -> f64 {
    let pools = &rig.plane.policy().nat4.pools;
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
    rig.run(eal, &on[..case.cores], cycles)?;
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
