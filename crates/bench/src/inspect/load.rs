//! What frames wait, how many are lost and how busy cores are, by load: frames are due at equal distances, whatever becomes of
//! them, and each one's time counts from then. All models get the same load, in shares of what `rss` takes.

use sluice_dpdk::tsc;

use super::lane::Done;
use super::plane::{Case, Model};
use super::traffic::Kind;
use super::{BUSY, Bench, CORES, Failure, keys};
use crate::rows::{Figure, Run};

/// Models that are compared.
const MODELS: [Model; 4] = [Model::Even, Model::EvenMoving, Model::Rss, Model::RoleSplit];

/// What came of the runs of a case at one load.
#[derive(Clone, Default)]
struct Runs {
    mbps: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    lost: Vec<f64>,
    handed: Vec<f64>,
    busy: [Vec<f64>; CORES],
    all: Vec<f64>,
}

/// Measure one size.
pub fn measure(bench: &mut Bench<'_>, bytes: usize, run: &mut Run<'_>) -> Result<(), Failure> {
    let runs = if run.quick { 3 } else { 5 };
    let shares: Vec<f64> = match run.quick {
        true => vec![0.1, 0.5, 0.9, 1.0],
        false => (1..=10).map(|tenths| f64::from(tenths) / 10.0).collect(),
    };
    let reference = bench.case(Model::Rss, bytes, Kind::Rfc2544);
    let most = (0..runs).map(|_| Ok(bench.run(&reference)?.mpps));
    let most = Figure::of(&most.collect::<Result<Vec<_>, Failure>>()?).median;
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
                    let latency = rig.latency();
                    runs.add(
                        case,
                        mpps,
                        &done,
                        [0.5, 0.99].map(|of| latency.percentile(of) as f64 / megahertz),
                    );
                }
                Ok(())
            })?;
        }
    }
    for (case, all) in cases.iter().zip(&all) {
        for (share, runs) in shares.iter().zip(all) {
            let mut row = keys(case)
                .key("load_share", (share * 10.0).round() / 10.0)
                .figure("mbps", &runs.mbps)
                .figure("p50_us", &runs.p50)
                .figure("p99_us", &runs.p99)
                .figure("loss_share", &runs.lost)
                .figure("handovers_per_packet", &runs.handed)
                .figure("busy_share", &runs.all);
            for (name, busy) in BUSY.into_iter().zip(&runs.busy) {
                row = row.figure(name, busy);
            }
            (run.row)(row);
        }
    }
    Ok(())
}

impl Runs {
    fn add(&mut self, case: &Case, mpps: f64, done: &[Done], [p50, p99]: [f64; 2]) {
        let all = done.iter().copied().fold(Done::default(), Done::and);
        self.mbps.push(mpps * case.mean() * 8.0);
        self.p50.push(p50);
        self.p99.push(p99);
        self.lost.push(all.lost as f64 / all.due.max(1) as f64);
        self.handed.push(all.handed as f64 / all.came.max(1) as f64);
        self.all.push(all.busy());
        for (runs, done) in self.busy.iter_mut().zip(done) {
            runs.push(done.busy());
        }
    }
}
