//! What a worker looks at for the sake of applications, when a shard goes.

use super::Worker;
use crate::applications::Application;
use crate::family::{V4, V6};
use crate::nodes::recognise::set;
use crate::nodes::revise::{Asked, follow_application};
use crate::shard::Tools;
use crate::time::Now;

impl Worker<'_> {
    /// What is looked at of a shard's sessions is in this worker's pool: before the shard goes, they are what they are by what
    /// was seen until now.
    pub(super) fn give_up_applications(&mut self, number: u16, now: Now) {
        let policy = self.policy.load();
        let state = &mut self.parts;
        let (recognition, counters) = (&state.recognition, &*state.counters);
        let tools = Tools {
            now,
            hasher: &state.hasher,
            paths: &state.paths,
            counters,
            meters: &state.setup.meters,
            events: &state.events,
            records: &state.records,
            recognition,
        };
        let Some(Some(shard)) = state.shards.get_mut(usize::from(number)) else {
            return;
        };
        let mut from = 0;
        while let Some((whose, place, next)) = recognition.next_of(number, from) {
            let known = Application::Known(recognition.give_up(place, counters));
            if whose.six {
                set::<V6>(shard, whose.index, known);
                follow_application::<V6>(shard, whose.index, policy, Asked::First, &tools);
            } else {
                set::<V4>(shard, whose.index, known);
                follow_application::<V4>(shard, whose.index, policy, Asked::First, &tools);
            }
            counters.applications_moved.add(1);
            from = next;
        }
    }
}
