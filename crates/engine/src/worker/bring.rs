//! What comes in a round: from devices, and from other workers.

use super::{Source, Worker};
use crate::io::BATCH;
use crate::time::Now;

impl Worker<'_> {
    /// A burst from each port, and as many from other workers. Returns how many packets came, and whether a port may have more.
    #[inline(always)]
    pub(super) fn bring(&mut self, now: Now) -> (usize, bool) {
        let (mut packets, mut full) = (0, 0);
        self.io.approach();
        if self.turns.follow(self.policy.load(), &self.receives) {
            (packets, full) = self.bring_in_turn(now);
        } else {
            for place in 0..self.receives.len() {
                let count = self.port_burst(place, now);
                packets += count;
                full += usize::from(count == BATCH);
            }
        }
        let waiting = self.io.waiting() as u64;
        self.parts.counters.waiting.set(waiting);
        self.see_load(full, waiting);
        // As much from the others as from devices: who hands over a whole burst of each must not outrun this worker.
        for _ in 0..self.receives.len().max(1) {
            if !self.has_room_ahead() {
                break;
            }
            let count = self.burst(Source::Workers, now);
            packets += count;
            if self.is_moving() {
                self.came(None, count);
            }
            if count < BATCH {
                break;
            }
            self.io.approach();
        }
        (packets, full > 0)
    }
}
