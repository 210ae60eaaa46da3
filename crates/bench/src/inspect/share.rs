//! The matcher's share: a run on one core records its pattern scans; then the run is repeated without recording, and
//! the scans are repeated without the rest of the work.

use sluice_dpdk::tsc;
use sluice_dpdk::workers::pin;
use sluice_inspect::bindings::vectorscan::ScanLog;
use sluice_inspect::ruleset::Ruleset;

use super::plane::{Case, Model, SHARDS, inspector_plan};
use super::traffic::Kind;
use super::{Bench, keys};
use crate::rows::{Failure, Run, Runs};

/// Number of packets in a run.
const PACKETS: usize = 48 << 10;

/// Cycles to repeat only the recorded scans.
fn search(rules: &Ruleset, calls: &ScanLog) -> Result<u64, Failure> {
    let streams = SHARDS as usize * inspector_plan().streams.windows;
    let mut replay = rules.prefilter().replay(streams as u32)?;
    let start = tsc::now();
    std::hint::black_box(replay.run(calls));
    Ok(tsc::now() - start)
}

pub fn measure(bench: &mut Bench<'_>, bytes: usize, kind: Kind, run: &mut Run<'_>) -> Result<(), Failure> {
    let case = Case {
        cores: 1,
        ..bench.case(Model::Rss, bytes, kind)
    };
    pin(*bench.on.first().ok_or("this process may use no core")?)?;
    let calls = bench.with(&case, |rig| {
        rig.record();
        rig.pass(PACKETS)?;
        rig.take_scans().ok_or_else(|| "nothing was searched".into())
    })?;
    let mut runs = Runs::default();
    for _ in 0..if run.quick { 5 } else { 11 } {
        let searched = search(bench.means.rules, &calls)? as f64 / PACKETS as f64;
        // This run sends the same packets, because the sources use the same seeds.
        let done = bench.with(&case, |rig| rig.pass(PACKETS))?;
        let worked = done.work as f64 / PACKETS as f64;
        runs.extend([
            ("share_of_matcher", searched / worked),
            ("work_cycles", worked),
            ("scan_cycles", searched),
        ]);
    }
    let each = |count: usize| [count as f64 / PACKETS as f64];
    let row = keys(&case)
        .runs(&runs)
        .figure("scans_per_packet", &each(calls.count()))
        .figure("scanned_bytes_per_packet", &each(calls.bytes()));
    (run.row)(row);
    Ok(())
}
