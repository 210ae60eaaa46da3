//! The theoretical limit on several cores: the probe runs on each core with its share of the flows.

use sluice_dpdk::tsc;

use crate::nat_path::probe::{self, Probe};
use crate::rig::lanes::on_cores;
use crate::rows::Failure;

/// Number of batches between two clock readings.
const BATCHES: usize = 1 << 13;

/// Throughput of all cores together in Mpps, including the cost of the source.
pub fn run(cores: &[usize], flows: u32, cycles: u64) -> Result<f64, Failure> {
    let (count, share) = (cores.len(), flows as usize / cores.len());
    let lane = |_| Ok((probe::memory(share)?, 0.0));
    let mut lanes = cores.iter().map(lane).collect::<Result<Vec<_>, Failure>>()?;
    on_cores(&mut lanes, cores, |(memory, rate), together| {
        let mut probe = Probe::new(memory, share);
        probe.run(BATCHES, true);
        let begin = together.meet(count);
        while tsc::now() < begin {
            probe.run(BATCHES, true);
        }
        let (start, mut translated) = (tsc::now(), 0);
        while tsc::now() < begin + cycles {
            translated += probe.run(BATCHES, true);
        }
        *rate = translated as f64 / (tsc::now() - start) as f64;
    })?;
    Ok(lanes.iter().map(|(_, rate)| rate).sum::<f64>() * tsc::frequency() as f64 / 1e6)
}
