//! Distance between two cores: a cache line that is passed back and forth between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::Worker;

use crate::rows::Failure;
/// Number of round trips.
const TURNS: u64 = 1 << 16;

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Cycles of a one-way transfer between the first core and the last.
pub fn cycles(eal: &'static Eal, cores: &[usize]) -> Result<f64, Failure> {
    let (Some(&first), Some(&last)) = (cores.first(), cores.last()) else {
        return Err("no core is named".into());
    };
    let line = Arc::new(Line::default());
    let answers = line.clone();
    let answerer = Worker::start(eal, "line", last, move |stop| {
        while !stop.is_asked() {
            let turn = answers.0.load(Ordering::Acquire);
            if turn % 2 == 1 {
                answers.0.store(turn + 1, Ordering::Release);
            }
        }
    })?;
    let asker = Worker::start(eal, "line", first, move |_| {
        let start = tsc::now();
        for turn in 0..TURNS {
            line.0.store(2 * turn + 1, Ordering::Release);
            while line.0.load(Ordering::Acquire) != 2 * turn + 2 {
                std::hint::spin_loop();
            }
        }
        (tsc::now() - start) as f64 / (2 * TURNS) as f64
    })?;
    let cycles = asker.stop().map_err(|_| "a core failed")?;
    answerer.stop().map_err(|_| "a core failed")?;
    Ok(cycles)
}
