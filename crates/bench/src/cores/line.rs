//! Distance between two cores: a cache line that is passed back and forth between them.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_dpdk::tsc;

use crate::rig::lanes::on_cores;
use crate::rows::Failure;

/// Number of round trips.
const TURNS: u64 = 1 << 16;

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Cycles of a one-way transfer between the first core and the last.
pub fn cycles(cores: &[usize]) -> Result<f64, Failure> {
    let (Some(&first), Some(&last)) = (cores.first(), cores.last()) else {
        return Err("no core is named".into());
    };
    let line = Line::default();
    let pass = |from: u64, to: u64| {
        while line.0.load(Ordering::Acquire) != from {
            std::hint::spin_loop();
        }
        line.0.store(to, Ordering::Release);
    };
    // For each of the two cores: its number in the transfer, and the measured cycles per transfer.
    let mut sides = [(0, 0.0), (1, 0.0)];
    on_cores(&mut sides, &[first, last], |(side, cycles), together| {
        let begin = together.meet(2);
        while tsc::now() < begin {}
        let start = tsc::now();
        (0..TURNS).for_each(|turn| pass(2 * turn + *side, 2 * turn + *side + 1));
        *cycles = (tsc::now() - start) as f64 / (2 * TURNS) as f64;
    })?;
    Ok(sides[0].1)
}
