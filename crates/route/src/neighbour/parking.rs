//! Packets that are parked during the resolution of a neighbour. The engine owns the packets, and this module stores
//! their handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table::NeighbourIndex;
use crate::{Reason, Time};

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Place<H> {
    /// Handle of the parked packet; `None` in a free entry.
    handle: Option<H>,
    neighbour: NeighbourIndex,
    since: Time,
    /// Next entry in the list of a neighbour, or in the list of free entries.
    next: u32,
    /// Previous entry in the list of all entries in order of arrival.
    older: u32,
    newer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    length: u32,
}

/// Handles of parked packets, in order of arrival for each neighbour. The number of handles per neighbour, the total
/// number of handles, and their waiting time are limited.
#[derive(Debug)]
pub struct Parking<H> {
    places: Box<[Place<H>]>,
    queues: Box<[Queue]>,
    free: u32,
    oldest: u32,
    newest: u32,
    parked: usize,
    per_neighbour: u32,
    timeout: Time,
    waiting: ParkedCounts,
}

/// Number of parked handles for each neighbour. Any thread may read the numbers.
#[derive(Clone, Debug)]
pub struct ParkedCounts(Arc<[AtomicU32]>);

impl ParkedCounts {
    /// Creates counters for `neighbours` neighbours.
    pub fn new(neighbours: usize) -> Self {
        Self((0..neighbours).map(|_| AtomicU32::new(0)).collect())
    }

    /// Number of handles parked for a neighbour.
    pub fn of(&self, neighbour: NeighbourIndex) -> u32 {
        let count = self.0.get(neighbour.0 as usize);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn set(&self, neighbour: NeighbourIndex, length: u32) {
        if let Some(count) = self.0.get(neighbour.0 as usize) {
            count.store(length, Ordering::Relaxed);
        }
    }
}

impl<H> Parking<H> {
    /// Creates space for `total` handles. At most `per_neighbour` handles (1 to 64; usually 4) are stored for each of
    /// `neighbours` neighbours. A handle expires after `timeout`.
    pub fn new(neighbours: usize, per_neighbour: usize, total: usize, timeout: Time) -> Self {
        let place = |next| Place {
            handle: None,
            neighbour: NeighbourIndex(0),
            since: 0,
            next,
            older: NONE,
            newer: NONE,
        };
        let queue = Queue {
            first: NONE,
            last: NONE,
            length: 0,
        };
        Self {
            places: (0..total as u32)
                .map(|at| place(if at + 1 < total as u32 { at + 1 } else { NONE }))
                .collect(),
            queues: vec![queue; neighbours].into(),
            free: if total > 0 { 0 } else { NONE },
            oldest: NONE,
            newest: NONE,
            parked: 0,
            per_neighbour: per_neighbour.clamp(1, 64) as u32,
            timeout,
            waiting: ParkedCounts::new(neighbours),
        }
    }

    /// Number of parked handles for each neighbour.
    pub fn waiting(&self) -> ParkedCounts {
        self.waiting.clone()
    }

    /// Number of parked handles.
    pub fn len(&self) -> usize {
        self.parked
    }

    /// Whether no handle is parked.
    pub fn is_empty(&self) -> bool {
        self.parked == 0
    }

    /// Parks a handle. At the limit of the neighbour, the neighbour's oldest handle is returned, and the caller must
    /// drop its packet as [`Reason::ParkedReplaced`]. At the total limit, the new handle is returned with a drop
    /// reason.
    pub fn park(&mut self, neighbour: NeighbourIndex, handle: H, now: Time) -> Result<Option<H>, (H, Reason)> {
        let Some(queue) = self.queues.get(neighbour.0 as usize) else {
            return Err((handle, Reason::ParkedTooMany));
        };
        let replaced = if queue.length >= self.per_neighbour {
            self.take_first(neighbour)
        } else {
            None
        };
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else {
            return Err((handle, Reason::ParkedTooMany));
        };
        self.free = place.next;
        *place = Place {
            handle: Some(handle),
            neighbour,
            since: now,
            next: NONE,
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = at,
            newest => self.places[newest as usize].newer = at,
        }
        self.newest = at;
        let queue = &mut self.queues[neighbour.0 as usize];
        match queue.last {
            NONE => queue.first = at,
            last => self.places[last as usize].next = at,
        }
        queue.last = at;
        queue.length += 1;
        self.waiting.set(neighbour, queue.length);
        self.parked += 1;
        Ok(replaced)
    }

    /// Removes and returns the oldest handle parked for a neighbour. The caller repeats the call until the result is
    /// `None`.
    pub fn take_first(&mut self, neighbour: NeighbourIndex) -> Option<H> {
        let queue = self.queues.get_mut(neighbour.0 as usize)?;
        let at = queue.first;
        let place = self.places.get_mut(at as usize)?;
        let handle = place.handle.take();
        queue.first = std::mem::replace(&mut place.next, self.free);
        if queue.first == NONE {
            queue.last = NONE;
        }
        queue.length -= 1;
        self.waiting.set(neighbour, queue.length);
        self.free = at;
        self.parked -= 1;
        let (older, newer) = (place.older, place.newer);
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
        handle
    }

    /// Removes and returns an expired handle. The caller must drop the packet of the handle as
    /// [`Reason::ParkedTooLong`].
    pub fn take_expired(&mut self, now: Time) -> Option<H> {
        let place = self.places.get(self.oldest as usize)?;
        if now.saturating_sub(place.since) < self.timeout {
            return None;
        }
        // The oldest of all handles is also the oldest handle of its neighbour.
        self.take_first(place.neighbour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn parking_random_operations_agree_with_a_list(
            operations in proptest::collection::vec((0u8..4, 0u32..4), 1..200)
        ) {
            let mut parking = Parking::new(4, 3, 7, 10);
            let mut list: VecDeque<(u32, u32, Time)> = VecDeque::new();
            for (step, (kind, neighbour)) in operations.into_iter().enumerate() {
                let (handle, now) = (step as u32, step as Time);
                let index = NeighbourIndex(neighbour);
                match kind {
                    0 | 1 => {
                        let own: Vec<_> = (0..list.len()).filter(|&at| list[at].0 == neighbour).collect();
                        let replaced = (own.len() == 3).then(|| list.remove(own[0]).unwrap().1);
                        let expected = if list.len() < 7 {
                            list.push_back((neighbour, handle, now));
                            Ok(replaced)
                        } else {
                            Err((handle, Reason::ParkedTooMany))
                        };
                        prop_assert_eq!(expected, parking.park(index, handle, now));
                    }
                    2 => {
                        let at = (0..list.len()).find(|&at| list[at].0 == neighbour);
                        let expected = at.and_then(|at| list.remove(at)).map(|(_, handle, _)| handle);
                        prop_assert_eq!(expected, parking.take_first(index));
                    }
                    _ => {
                        let expired = list.front().is_some_and(|(_, _, since)| now - since >= 10);
                        let expected = expired.then(|| list.pop_front().unwrap().1);
                        prop_assert_eq!(expected, parking.take_expired(now));
                    }
                }
                prop_assert_eq!(list.len(), parking.len());
                let waiting = list.iter().filter(|(other, ..)| *other == neighbour).count();
                prop_assert_eq!(waiting as u32, parking.waiting().of(index));
            }
        }
    }
}
