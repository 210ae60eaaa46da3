//! Segments that wait for what comes before them: those that wait no longer, or too long, and those of sessions that ended.

use sluice_inspect::Reason;
use sluice_inspect::inspector::Overdue;

use super::{Resume, Worker};
use crate::records::About;
use crate::time::Now;

/// Streams of one shard whose segments waited too long that one round looks at.
const BUDGET: usize = 16;

impl Worker<'_> {
    /// Whether packets wait to go on.
    pub(super) fn has_resumed(&mut self) -> bool {
        if let Some(work) = self.parts.inspecting.as_deref_mut() {
            while !self.resumed.is_full()
                && let Some(waiting) = work.holding.next_released()
            {
                self.resumed.push((waiting, Resume::Ready));
            }
        }
        !self.resumed.is_empty()
    }

    /// Look after a shard's held segments.
    pub(super) fn look_after_held(&mut self, place: usize, now: Now) {
        let settings = self
            .policy
            .load()
            .inspection
            .as_ref()
            .map(|inspection| inspection.settings);
        let (Some(settings), Some(work)) = (settings, self.parts.inspecting.as_deref_mut()) else {
            return;
        };
        let Some(shard) = self.parts.shards.get_mut(place).and_then(Option::as_deref_mut) else {
            return;
        };
        let (number, records, counters) = (shard.number, &self.parts.records, &*self.parts.counters);
        let mut gone = std::mem::take(&mut self.gone);
        gone.extend(
            shard
                .returned
                .drain(..)
                .filter_map(|ticket| Some((work.holding.take(ticket)?, Reason::Closed))),
        );
        if let Some(inspector) = shard.inspector.as_deref_mut() {
            for _ in 0..BUDGET {
                let more = inspector.overdue(now.nanoseconds, &settings, |ticket, dropped| match dropped {
                    Some(Overdue {
                        reason,
                        story,
                        direction,
                    }) => {
                        let about = || About::flow(now.nanoseconds, number, &story?, direction);
                        records.tell_drop(about, reason, None, 0, counters);
                        gone.extend(work.holding.take(ticket).map(|waiting| (waiting, reason)));
                    }
                    None => {
                        work.holding.release(ticket);
                    }
                });
                if !more {
                    break;
                }
            }
        }
        for (waiting, reason) in gone.drain(..) {
            self.give_up(waiting, reason.into());
        }
        self.gone = gone;
    }

    /// A shard goes to another worker: what is held of its streams goes on, and after it.
    pub(super) fn free_held(&mut self, place: usize) {
        let Some(work) = self.parts.inspecting.as_deref_mut() else {
            return;
        };
        let Some(shard) = self.parts.shards.get_mut(place).and_then(Option::as_deref_mut) else {
            return;
        };
        let mut gone = std::mem::take(&mut self.gone);
        gone.extend(
            shard
                .returned
                .drain(..)
                .filter_map(|ticket| Some((work.holding.take(ticket)?, Reason::Closed))),
        );
        if let Some(inspector) = shard.inspector.as_deref_mut() {
            inspector.give_held(|ticket| {
                work.holding.release(ticket);
            });
        }
        for (waiting, reason) in gone.drain(..) {
            self.give_up(waiting, reason.into());
        }
        self.gone = gone;
    }
}
