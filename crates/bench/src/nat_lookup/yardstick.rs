//! How fast the machine is at the moment: the probe of `nat-path` at 8,000 sessions, beside what it takes on a quiet core.

use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;

use crate::nat_path::probe::{Probe, words};

/// Sessions of the probe.
pub const SESSIONS: usize = 8_000;
/// Buffers, in turn.
const BUFFERS: usize = 8_160;
/// Batches of one figure.
const BATCHES: usize = 4_096;
/// Cycles that the probe takes on a quiet core.
const QUIET: f64 = 63.0;

/// Memory for it.
pub fn memory() -> Result<Region, super::Failure> {
    Ok(Region::new(words(SESSIONS, BUFFERS) * 8)?)
}

/// The probe.
pub struct Yardstick<'m>(Probe<'m>);

impl<'m> Yardstick<'m> {
    /// On some memory.
    pub fn new(memory: &'m mut Region) -> Self {
        let words = bytemuck::cast_slice_mut(memory.lines());
        Self(Probe::new(words, SESSIONS, BUFFERS))
    }

    /// Cycles per packet: the least of a few loops, less the least of its source alone.
    pub fn cycles(&mut self) -> f64 {
        let mut loops = |path| {
            let figures = (0..4).map(|_| {
                let start = tsc::now();
                let translated = self.0.run(BATCHES, path);
                (tsc::now() - start) as f64 / if path { translated as f64 } else { BATCHES as f64 * 32.0 }
            });
            figures.fold(f64::INFINITY, f64::min)
        };
        let alone = loops(false);
        loops(true) - alone
    }
}

/// What a figure is on a quiet core, by the probe's beside it; never more than it was.
pub fn scaled(figure: f64, cycles: f64) -> f64 {
    figure * (QUIET / cycles).min(1.0)
}
