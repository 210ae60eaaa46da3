//! How far compiling is, for whoever asks meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Patterns that are done, and all of them: both 0 while nothing is compiled.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// So many patterns of so many are done.
    pub fn see(&self, done: usize, total: usize) {
        self.0.store((done as u64) << 32 | total as u64 & 0xffff_ffff, Relaxed);
    }

    /// Patterns that are done, and all of them; none while nothing is compiled.
    pub fn get(&self) -> Option<(u64, u64)> {
        let both = self.0.load(Relaxed);
        (both > 0).then_some((both >> 32, both & 0xffff_ffff))
    }
}

/// Nothing is compiled any more when it goes.
pub(super) struct Over<'p>(pub &'p Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.see(0, 0);
    }
}
