//! Ends application identification for a shard that leaves its worker.

use super::Worker;
use crate::features::application_filter::{ApplicationCheck, apply_application};
use crate::features::session_end::SessionTools;
use crate::nodes::identify::set;
use crate::packet::counters::IdentificationOutcome;
use crate::packet::time::Now;
use crate::session::application::Application;
use crate::session::family::{V4, V6};

impl Worker<'_> {
    /// Before a shard leaves, stores the application identified so far for each session whose identification is in
    /// progress. The state of identification is in this worker's pool and can't move.
    pub(super) fn give_up_applications(&mut self, number: u16, now: Now) {
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let (recognition, counters) = (&state.recognition, &*state.counters);
        let tools = SessionTools {
            now,
            hasher: &state.hasher,
            forwarding: &state.forwarding,
            counters,
            meters: &state.start.meters,
            events: &state.events,
            records: &state.records,
            recognition,
        };
        let Some(Some(shard)) = state.shards.get_mut(usize::from(number)) else {
            return;
        };
        let mut from = 0;
        while let Some((identified, place, next)) = recognition.next_of(number, from) {
            let known = Application::Known(recognition.give_up(place, counters));
            if identified.v6 {
                set::<V6>(shard, identified.index, known);
                apply_application::<V6>(shard, identified.index, snapshot, ApplicationCheck::First, &tools);
            } else {
                set::<V4>(shard, identified.index, known);
                apply_application::<V4>(shard, identified.index, snapshot, ApplicationCheck::First, &tools);
            }
            counters
                .identification
                .results
                .add(IdentificationOutcome::Moved as usize, 1);
            from = next;
        }
    }
}
