//! Receives packets from devices and other workers.

use super::{Source, Worker};
use crate::packet::io::BURST_SIZE;
use crate::packet::time::Now;

impl Worker<'_> {
    /// Receives a burst from each port, and the same number of bursts from other workers. Returns the number of
    /// packets, and whether a port may have more packets.
    #[inline(always)]
    pub(super) fn receive(&mut self, now: Now) -> (usize, bool) {
        let (mut packets, mut full) = (0, 0);
        self.io.prefetch_handed_over();
        if self.schedule.follow(self.snapshot.load(), &self.receives) {
            (packets, full) = self.receive_scheduled(now);
        } else {
            for place in 0..self.receives.len() {
                let count = self.port_burst(place, now);
                packets += count;
                full += usize::from(count == BURST_SIZE);
            }
        }
        let waiting = self.io.waiting() as u64;
        self.parts.counters.waiting.set(waiting);
        self.update_load(full, waiting);
        // The worker takes as many bursts from other workers as from devices. A worker that hands over every burst that
        // it receives therefore can't overload this worker.
        for _ in 0..self.receives.len().max(1) {
            if !self.next_stage_has_capacity() {
                break;
            }
            let count = self.burst(Source::Workers, now);
            packets += count;
            if self.is_moving() {
                self.came(None, count);
            }
            if count < BURST_SIZE {
                break;
            }
            self.io.prefetch_handed_over();
        }
        (packets, full > 0)
    }
}
