//! Progress of the compilation, for the API.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of compiled patterns, and number of all patterns. Both numbers are 0 while no compilation is running.
#[derive(Debug, Default)]
pub struct CompileProgress(AtomicU64);

impl CompileProgress {
    /// Record the number of compiled patterns and the number of all patterns.
    pub fn see(&self, done: usize, total: usize) {
        self.0.store((done as u64) << 32 | total as u64 & 0xffff_ffff, Relaxed);
    }

    /// Number of compiled patterns, and number of all patterns. `None` while no compilation is running.
    pub fn get(&self) -> Option<(u64, u64)> {
        let both = self.0.load(Relaxed);
        (both > 0).then_some((both >> 32, both & 0xffff_ffff))
    }
}

/// Guard that resets the progress when the compilation ends.
pub(super) struct Over<'p>(pub &'p CompileProgress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.see(0, 0);
    }
}
