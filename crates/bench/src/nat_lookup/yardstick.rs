//! Current speed of the machine: the time of the `nat-path` probe with 8,000 sessions, compared with its time on a
//! quiet core.

use sluice_dpdk::memory::Region;

use crate::nat_path::probe::{self, Probe};
use crate::rows::Failure;

/// Number of sessions of the probe.
pub const SESSIONS: usize = 8_000;
/// Number of batches per measurement.
const BATCHES: usize = 4_096;
/// Cycles per packet of the probe on a quiet core.
const QUIET: f64 = 63.0;

pub fn memory() -> Result<Region, Failure> {
    probe::memory(SESSIONS)
}

pub struct Yardstick<'m>(Probe<'m>);

impl<'m> Yardstick<'m> {
    pub fn new(memory: &'m mut Region) -> Self {
        Self(Probe::new(memory, SESSIONS))
    }

    /// Cycles per packet of the probe: the minimum of several loops, minus the minimum of the source alone.
    pub fn cycles(&mut self) -> f64 {
        let least = |one: [f64; 2], other: [f64; 2]| [one[0].min(other[0]), one[1].min(other[1])];
        let loops = (0..4)
            .map(|_| self.0.cost(BATCHES))
            .map(|[source, rest]| [source, source + rest]);
        let [source, whole] = loops.fold([f64::INFINITY; 2], least);
        whole - source
    }
}

/// Scales a measured time to a quiet core, based on the probe's cycles; the result never exceeds the measured time.
pub fn scaled(figure: f64, cycles: f64) -> f64 {
    figure * (QUIET / cycles).min(1.0)
}
