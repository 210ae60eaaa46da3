//! Detection of overload: whether a worker gets more packets than it can process.

use crate::packet::counters::WorkerCounters;
use crate::snapshot::overload::Overload;

/// Whether a worker is overloaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverloadState(bool);

impl OverloadState {
    /// Updates the state from the number of waiting packets.
    pub fn observe(&mut self, waiting: u64, overload: &Overload, counters: &WorkerCounters) {
        let is_on = overload.begins > 0
            && match self.0 {
                true => waiting > overload.ends,
                false => waiting >= overload.begins,
            };
        if is_on != self.0 {
            self.0 = is_on;
            counters.inspection.overloads.add(u64::from(is_on));
            counters.inspection.overloaded.set(u64::from(is_on));
        }
    }

    /// Whether the worker is overloaded.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_begins_at_one_mark_and_ends_at_another() {
        let overload = Overload {
            begins: 10,
            ends: 4,
            classes: Vec::new(),
        };
        let (mut load, counters) = (OverloadState::default(), WorkerCounters::default());
        let seen = [9, 10, 5, 11, 4, 9, 10].map(|waiting| {
            load.observe(waiting, &overload, &counters);
            load.is_on()
        });
        assert_eq!([false, true, true, true, false, false, true], seen);
        assert_eq!(
            (2, 1),
            (
                counters.inspection.overloads.get(),
                counters.inspection.overloaded.get()
            )
        );
    }
}
