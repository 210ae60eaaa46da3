//! Records of pattern searches. Benchmarks repeat these searches in isolation.

use sluice_inspect::bindings::vectorscan::ScanLog;

use super::Worker;

impl Worker<'_> {
    /// Starts to record the searches for measurements. Recording allocates memory. [`Self::take_scans`] returns the
    /// records.
    pub fn record_scans(&mut self) {
        let streams = self.parts.start.inspection.as_ref().map(|plan| plan.streams.windows);
        let (Some(work), Some(streams)) = (&mut self.parts.inspecting, streams) else {
            return;
        };
        for (number, shard) in (0..).zip(&mut self.parts.shards) {
            if let Some(inspector) = shard.as_deref_mut().and_then(|shard| shard.inspector.as_deref_mut()) {
                inspector.record_scans(&mut work.tools, number * streams as u32);
            }
        }
    }

    /// Stops recording, and returns the recorded searches.
    pub fn take_scans(&mut self) -> Option<Box<ScanLog>> {
        self.parts.inspecting.as_mut()?.tools.take_scan_log()
    }
}
