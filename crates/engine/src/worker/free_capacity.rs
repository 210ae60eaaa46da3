//! Free capacity of the rings to the next pipeline stage. If the rings are full, received packets are dropped, and
//! packets from other workers wait.

use super::Worker;
use crate::packet::io::BURST_SIZE;

impl Worker<'_> {
    /// Whether the next stage has capacity for packets from other workers.
    pub(super) fn next_stage_has_capacity(&self) -> bool {
        let ahead = &self.parts.role.ahead;
        ahead.iter().all(|&next| self.io.free_entries(next) >= BURST_SIZE)
    }

    /// Determines the capacity for received packets. Returns how many of `count` packets must be dropped for lack of
    /// capacity.
    #[inline(always)]
    pub(super) fn observe_next_stage(&mut self, count: usize) -> usize {
        if self.parts.role.beyond.is_empty() {
            return 0;
        }
        self.free_entries.clear();
        let beyond = self.parts.role.beyond.iter();
        self.free_entries.extend(beyond.map(|&next| self.io.free_entries(next)));
        let capacity = self.free_entries.iter().sum::<usize>() + self.own_capacity();
        count.saturating_sub(capacity)
    }

    /// Number of packets of borrowed shards for which this worker still has space.
    fn own_capacity(&self) -> usize {
        let work = self.assisting.as_ref();
        work.map_or(0, |work| work.capacity(self.moving.held_from_devices()))
    }

    /// Whether the next stage and this worker's own queue have capacity for another burst from a device.
    pub(super) fn has_capacity_for_burst(&self) -> bool {
        let beyond = self.parts.role.beyond.iter();
        beyond.map(|&next| self.io.free_entries(next)).sum::<usize>() + self.own_capacity() >= BURST_SIZE
    }
}
