//! Room in the rings to the next stage of a pipeline: what it lacks is shed where packets enter, and waits elsewhere.

use super::Worker;
use crate::io::BATCH;

impl Worker<'_> {
    /// Whether what other workers handed over can go on.
    pub(super) fn has_room_ahead(&self) -> bool {
        let ahead = &self.parts.role.ahead;
        ahead.iter().all(|&next| self.io.room(next) >= BATCH)
    }

    /// Look how much room there is for what was received. Returns how many of so many packets are to be shed.
    #[inline(always)]
    pub(super) fn look_beyond(&mut self, count: usize) -> usize {
        if self.parts.role.beyond.is_empty() {
            return 0;
        }
        self.rooms.clear();
        let beyond = self.parts.role.beyond.iter();
        self.rooms.extend(beyond.map(|&next| self.io.room(next)));
        let room = self.rooms.iter().sum();
        count.saturating_sub(room)
    }
}
