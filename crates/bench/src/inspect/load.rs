//! Latency, loss and core utilisation by load: frames are due at equal intervals, regardless of earlier results, and
//! each latency is measured from the due time. All models get the same loads, which are shares of the throughput of
//! `rss`.

use sluice_dpdk::tsc;

use super::plane::Model;
use super::traffic::Kind;
use super::{BUSY, Bench, keys};
use crate::rig::lanes::Done;
use crate::rows::{Failure, Figure, Run, Runs};

const MODELS: [Model; 4] = [Model::Even, Model::EvenMoving, Model::Rss, Model::RoleSplit];

pub fn measure(bench: &mut Bench<'_>, bytes: usize, run: &mut Run<'_>) -> Result<(), Failure> {
    let runs = if run.quick { 3 } else { 5 };
    let shares: Vec<f64> = match run.quick {
        true => vec![0.1, 0.5, 0.9, 1.0],
        false => (1..=10).map(|tenths| f64::from(tenths) / 10.0).collect(),
    };
    let reference = bench.case(Model::Rss, bytes, Kind::Rfc2544);
    let most = (0..runs)
        .map(|_| Ok(bench.run(&reference)?.mpps))
        .collect::<Result<Vec<_>, Failure>>()?;
    let most = Figure::of(&most).median;
    let megahertz = tsc::frequency() as f64 / 1e6;
    let (on, cycles) = (bench.on, bench.cycles);
    let cases = MODELS.map(|model| bench.case(model, bytes, Kind::Rfc2544));
    let mut all = vec![vec![Runs::default(); shares.len()]; cases.len()];
    for _ in 0..runs {
        for (case, all) in cases.iter().zip(&mut all) {
            bench.with(case, |rig| {
                rig.run(on, cycles / 2, None)?;
                for (share, runs) in shares.iter().zip(all) {
                    let (mpps, done) = rig.run(on, cycles, Some(share * most / megahertz))?;
                    let (latency, all) = (rig.latency(), Done::sum(done.iter().copied()));
                    let us = |share| latency.percentile(share) as f64 / megahertz;
                    runs.extend([
                        ("mbps", mpps * case.mean() * 8.0),
                        ("p50_us", us(0.5)),
                        ("p99_us", us(0.99)),
                        ("loss_share", all.lost as f64 / all.due.max(1) as f64),
                        ("handovers_per_packet", all.handed as f64 / all.came.max(1) as f64),
                        ("busy_share", all.busy()),
                    ]);
                    runs.extend(BUSY.into_iter().zip(done.iter().map(Done::busy)));
                }
                Ok(())
            })?;
        }
    }
    for (case, all) in cases.iter().zip(&all) {
        for (share, runs) in shares.iter().zip(all) {
            let row = keys(case).key("load_share", (share * 10.0).round() / 10.0);
            (run.row)(row.runs(runs));
        }
    }
    Ok(())
}
