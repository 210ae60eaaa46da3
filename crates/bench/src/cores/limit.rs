//! The limit on several cores: a probe on each, with its share of the flows.

use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::Worker;

use super::lane::Together;
use crate::nat_path::probe::{self, Probe};
use crate::nat_path::rig::BUFFERS;

type Failure = Box<dyn std::error::Error>;

/// Batches between two looks at the clock.
const BATCHES: usize = 1 << 13;

/// Packets per second of all cores together, in millions, source included.
pub fn run(eal: &'static Eal, cores: &[usize], flows: u32, cycles: u64) -> Result<f64, Failure> {
    let together = Arc::new(Together::default());
    let (count, buffers) = (cores.len(), BUFFERS as usize / 32 * 32);
    let share = flows as usize / count;
    let mut threads = Vec::new();
    for &core in cores {
        let together = together.clone();
        let mut memory = Region::new(probe::words(share, buffers) * 8)?;
        threads.push(Worker::start(eal, "limit", core, move |_| {
            let mut probe = Probe::new(bytemuck::cast_slice_mut(memory.lines()), share, buffers);
            probe.run(BATCHES, true);
            let begin = together.meet(count);
            while tsc::now() < begin {
                probe.run(BATCHES, true);
            }
            let (start, end) = (tsc::now(), begin + cycles);
            let mut translated = 0;
            while tsc::now() < end {
                translated += probe.run(BATCHES, true);
            }
            translated as f64 / (tsc::now() - start) as f64
        })?);
    }
    let mut rate = 0.0;
    for thread in threads {
        rate += thread.stop().map_err(|_| "a probe failed")?;
    }
    Ok(rate * tsc::frequency() as f64 / 1e6)
}
