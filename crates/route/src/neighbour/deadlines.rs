//! One deadline for each slot, sorted by time. An indexed binary heap changes a deadline without a search, and
//! allocates no memory after its creation.

use crate::Time;

const ABSENT: u32 = u32::MAX;

/// Deadlines of a fixed number of slots.
#[derive(Debug)]
pub struct Deadlines {
    heap: Vec<(Time, u32)>,
    /// Position of each slot in the heap.
    places: Box<[u32]>,
}

impl Deadlines {
    /// Creates an empty heap for slots below `capacity`.
    pub fn new(capacity: usize) -> Self {
        Self {
            heap: Vec::with_capacity(capacity),
            places: vec![ABSENT; capacity].into(),
        }
    }

    /// Sets or changes the deadline of a slot.
    pub fn set(&mut self, slot: u32, time: Time) {
        let place = match self.places[slot as usize] {
            ABSENT => {
                self.heap.push((time, slot));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = time;
                place as usize
            }
        };
        self.sift_down(place);
    }

    /// Removes the deadline of a slot.
    pub fn clear(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.places[slot as usize], ABSENT);
        if place != ABSENT {
            self.heap.swap_remove(place as usize);
            if (place as usize) < self.heap.len() {
                self.sift_down(place as usize);
            }
        }
    }

    /// Earliest deadline.
    pub fn next(&self) -> Option<Time> {
        self.heap.first().map(|(time, _)| *time)
    }

    /// Removes and returns the slot with the earliest deadline, if that deadline is not later than `now`.
    pub fn due(&mut self, now: Time) -> Option<u32> {
        let &(time, slot) = self.heap.first()?;
        if time > now {
            return None;
        }
        self.clear(slot);
        Some(slot)
    }

    /// Restores the order of the heap for the element at `place`.
    fn sift_down(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.places[self.heap[place].1 as usize] = place as u32;
            place = (place - 1) / 2;
        }
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(min) = children.min_by_key(|&child| self.heap[child]) else {
                break;
            };
            if self.heap[place] <= self.heap[min] {
                break;
            }
            self.heap.swap(place, min);
            self.places[self.heap[place].1 as usize] = place as u32;
            place = min;
        }
        self.places[self.heap[place].1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn deadlines_random_changes_agree_with_a_sorted_map(
            changes in proptest::collection::vec((0u32..12, 0u64..30, 0u8..4), 1..200)
        ) {
            let mut deadlines = Deadlines::new(12);
            let mut expected = BTreeMap::new();
            for (slot, time, kind) in changes {
                match kind {
                    0 => {
                        expected.remove(&slot);
                        deadlines.clear(slot);
                    }
                    1 => {
                        let first = expected.iter().map(|(s, t)| (*t, *s)).min().filter(|(t, _)| *t <= time);
                        prop_assert_eq!(first.map(|(_, s)| s), deadlines.due(time));
                        first.map(|(_, s)| expected.remove(&s));
                    }
                    _ => {
                        expected.insert(slot, time);
                        deadlines.set(slot, time);
                    }
                }
                prop_assert_eq!(expected.values().min().copied(), deadlines.next());
            }
        }
    }
}
