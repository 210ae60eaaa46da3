//! Decides when an I/O worker borrows a shard, which shard it borrows, and when it returns the shard.
//!
//! A session worker is overloaded while its ring from the I/O worker contains more packets than the threshold. An I/O
//! worker then borrows shards of the session worker, one after another, as long as the I/O worker can process the
//! packets of these shards without delay. The I/O worker returns a shard when all rings have been nearly empty for some
//! time, or when the I/O worker is overloaded and the session worker is not. Between the low mark and the threshold, no
//! shard moves.

use crate::packet::io::WorkerIndex;

/// The low mark is the threshold divided by this constant.
const LOW: usize = 4;

/// Nanoseconds for which all rings must stay below the low mark before a shard is returned.
const LOW_LOAD_TIME: u64 = 1_000_000;

/// After a shard was returned because the I/O worker was overloaded, the I/O worker borrows no shard for this time in
/// nanoseconds.
const BORROW_HOLDDOWN: u64 = 10_000_000;

/// Nanoseconds until the next request, after a request was refused or no suitable shard was found.
const PATIENCE: u64 = 100_000;

/// Half-life of the shards' packet counts, in nanoseconds.
const MEMORY: u64 = 1_000_000;

/// A shard is preferred for borrowing if its packet count is at most the worker's packet count divided by this
/// constant, so that elephant flows are not moved.
const PART: u64 = 4;

/// A decision of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssistAction {
    /// Borrow a shard from a worker.
    Take(u16, WorkerIndex),
    /// Return a shard to its worker.
    Return(u16, WorkerIndex),
}

/// Load that an I/O worker observes at the end of a round.
#[derive(Clone, Copy, Debug)]
pub struct AssistLoad<'s> {
    /// Time in nanoseconds.
    pub now: u64,
    /// Session workers, each with the number of packets in the ring from this worker to it.
    pub rings: &'s [(WorkerIndex, usize)],
    /// Number of packets in the queue of borrowed shards.
    pub queued: usize,
}

/// The controller of one I/O worker.
#[derive(Debug)]
pub struct Controller {
    threshold: usize,
    /// Number of recent packets of each shard.
    pub seen: Box<[u32]>,
    faded: u64,
    /// Borrowed shards, each with the session worker that owns it.
    allocated: Vec<(u16, WorkerIndex)>,
    low_load_since: Option<u64>,
    /// Earliest time of the next request.
    not_before: u64,
    /// Time until which no further shard is borrowed.
    holddown_until: u64,
}

impl Controller {
    /// Creates a controller for a number of shards.
    pub fn new(threshold: u32, shards: usize) -> Self {
        Self {
            threshold: threshold as usize,
            seen: vec![0; shards].into(),
            faded: 0,
            allocated: Vec::with_capacity(shards),
            low_load_since: None,
            not_before: 0,
            holddown_until: 0,
        }
    }

    /// Borrowed shards.
    pub fn borrowed(&self) -> &[(u16, WorkerIndex)] {
        &self.allocated
    }

    /// Records that a borrowed shard has arrived from a worker.
    pub fn shard_arrived(&mut self, shard: u16, from: WorkerIndex) {
        if self.allocated.len() < self.allocated.capacity() {
            self.allocated.push((shard, from));
        }
        self.low_load_since = None;
    }

    /// Records that a shard was returned.
    pub fn shard_went(&mut self, shard: u16) {
        self.allocated.retain(|&(allocated, _)| allocated != shard);
        self.low_load_since = None;
    }

    /// Records that a request was refused, or that no move is possible.
    pub fn is_refused(&mut self, now: u64) {
        self.not_before = now + PATIENCE;
    }

    /// The next decision. `owner` returns the owner of a shard.
    pub fn decide(
        &mut self,
        facts: &AssistLoad<'_>,
        owner: impl Fn(u16) -> Option<WorkerIndex>,
    ) -> Option<AssistAction> {
        let &AssistLoad { now, rings, queued } = facts;
        if now.saturating_sub(self.faded) >= MEMORY {
            self.faded = now;
            self.seen.iter_mut().for_each(|seen| *seen /= 2);
        }
        let &(busiest, waiting) = rings.iter().max_by_key(|(_, waiting)| *waiting)?;
        let low = self.threshold / LOW;
        let is_low_load = waiting <= low && queued <= low;
        let low_load_since = self.low_load_since.filter(|_| is_low_load);
        self.low_load_since = is_low_load.then(|| low_load_since.unwrap_or(now));
        if now < self.not_before {
            return None;
        }
        if waiting > self.threshold && queued <= low && now >= self.holddown_until {
            return self.take(busiest, now, owner);
        }
        if queued > self.threshold
            && let Some((shard, home)) = self.surplus(rings, low)
        {
            self.holddown_until = now + BORROW_HOLDDOWN;
            return Some(AssistAction::Return(shard, home));
        }
        if low_load_since.is_some_and(|since| now.saturating_sub(since) >= LOW_LOAD_TIME) {
            let &(shard, home) = self.allocated.last()?;
            return Some(AssistAction::Return(shard, home));
        }
        None
    }

    /// Selects the shard that is borrowed from a worker: among the shards that have only a small part of the worker's
    /// packets, the busiest one; if there is no such shard, the least busy shard of the worker. Borrowing an elephant
    /// flow would only move the overload to another worker. `None` if the worker has no second active shard.
    fn take(
        &mut self,
        from: WorkerIndex,
        now: u64,
        owner: impl Fn(u16) -> Option<WorkerIndex>,
    ) -> Option<AssistAction> {
        let seen = (0u16..).zip(&self.seen);
        let mut all = 0;
        let mut count = 0;
        let mut min = None;
        for (shard, &seen) in seen.clone() {
            if seen > 0 && owner(shard) == Some(from) {
                all += u64::from(seen);
                count += 1;
                if min.is_none_or(|(_, min)| seen < min) {
                    min = Some((shard, seen));
                }
            }
        }
        let small =
            seen.filter(|&(shard, &seen)| seen > 0 && u64::from(seen) * PART <= all && owner(shard) == Some(from));
        let chosen = small.max_by_key(|(_, seen)| **seen).map(|(shard, _)| shard);
        let chosen = chosen.or(min.map(|(shard, _)| shard)).filter(|_| count > 1);
        if chosen.is_none() {
            self.is_refused(now);
        }
        chosen.map(|shard| AssistAction::Take(shard, from))
    }

    /// The busiest borrowed shard that belongs to a session worker with little load.
    fn surplus(&self, rings: &[(WorkerIndex, usize)], low: usize) -> Option<(u16, WorkerIndex)> {
        let is_idle = |home: WorkerIndex| rings.iter().any(|&(worker, waiting)| worker == home && waiting <= low);
        let idle = self.allocated.iter().filter(|&&(_, home)| is_idle(home));
        idle.max_by_key(|(shard, _)| self.seen.get(usize::from(*shard)).copied())
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: usize = 100;

    struct World {
        controller: Controller,
        owners: Vec<WorkerIndex>,
        now: u64,
    }

    impl World {
        /// Creates a controller. Worker 0 receives, and workers 1 and 2 own the shards alternately.
        fn new(seen: &[u32]) -> Self {
            let mut controller = Controller::new(THRESHOLD as u32, seen.len());
            controller.seen.copy_from_slice(seen);
            Self {
                controller,
                owners: [1, 2].into_iter().cycle().take(seen.len()).collect(),
                now: 0,
            }
        }

        /// The decision after some nanoseconds, with these numbers of packets in each ring and in the queue.
        fn after(&mut self, nanoseconds: u64, rings: [usize; 2], queued: usize) -> Option<AssistAction> {
            self.now += nanoseconds;
            let rings = [(1, rings[0]), (2, rings[1])];
            let facts = AssistLoad {
                now: self.now,
                rings: &rings,
                queued,
            };
            let owners = &self.owners;
            let verdict = self
                .controller
                .decide(&facts, |shard| owners.get(usize::from(shard)).copied());
            match verdict {
                Some(AssistAction::Take(shard, from)) => {
                    self.owners[usize::from(shard)] = 0;
                    self.controller.shard_arrived(shard, from);
                }
                Some(AssistAction::Return(shard, to)) => {
                    self.owners[usize::from(shard)] = to;
                    self.controller.shard_went(shard);
                }
                None => {}
            }
            verdict
        }
    }

    #[test]
    fn shard_is_taken_above_the_threshold_and_not_at_it() {
        let mut world = World::new(&[9; 16]);
        assert_eq!(None, world.after(1, [THRESHOLD, THRESHOLD], 0));
        assert!(matches!(world.after(1, [101, 102], 0), Some(AssistAction::Take(_, 2))));
    }

    #[test]
    fn nothing_changes_between_the_marks_however_long() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        for _ in 0..100 {
            assert_eq!(None, world.after(LOW_LOAD_TIME, [26, 0], 0));
            assert_eq!(None, world.after(LOW_LOAD_TIME, [100, 0], 0));
            // The rings are below the low mark, but the queue of borrowed shards is not.
            assert_eq!(None, world.after(LOW_LOAD_TIME, [0, 0], 26));
        }
        assert_eq!(1, world.controller.borrowed().len());
    }

    #[test]
    fn shards_go_back_one_by_one_after_a_calm_each() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        world.after(1, [0, 101], 0).unwrap();
        assert_eq!(None, world.after(1, [25, 25], 25));
        assert_eq!(None, world.after(LOW_LOAD_TIME - 1, [0, 0], 0));
        // A single observation above the low mark restarts the waiting time.
        assert_eq!(None, world.after(1, [26, 0], 0));
        assert_eq!(None, world.after(1, [0, 0], 0));
        assert_eq!(None, world.after(LOW_LOAD_TIME - 1, [0, 0], 0));
        assert!(matches!(world.after(1, [0, 0], 0), Some(AssistAction::Return(_, 2))));
        assert_eq!(None, world.after(1, [0, 0], 0));
        assert!(matches!(
            world.after(LOW_LOAD_TIME, [0, 0], 0),
            Some(AssistAction::Return(_, 1))
        ));
        assert_eq!(None, world.after(LOW_LOAD_TIME, [0, 0], 0));
        assert_eq!(None, world.after(LOW_LOAD_TIME, [0, 0], 0));
        assert!(world.controller.borrowed().is_empty());
    }

    #[test]
    fn elephant_stays_and_the_busiest_of_the_others_goes() {
        let mut world = World::new(&[50, 1, 7, 1, 12, 1, 3, 1]);
        assert_eq!(Some(AssistAction::Take(4, 1)), world.after(1, [101, 0], 0));
        assert_eq!(Some(AssistAction::Take(2, 1)), world.after(1, [101, 0], 0));
        assert_eq!(Some(AssistAction::Take(6, 1)), world.after(1, [101, 0], 0));
        // The only active shard is not borrowed, because the move would only shift the overload to another worker.
        assert_eq!(None, world.after(1, [101, 0], 0));
    }

    #[test]
    fn of_shards_that_are_all_large_the_least_goes() {
        let mut world = World::new(&[40, 0, 30, 0, 35, 0]);
        assert_eq!(Some(AssistAction::Take(2, 1)), world.after(1, [101, 0], 0));
    }

    #[test]
    fn who_has_too_much_to_do_itself_takes_nothing_and_gives_back_to_who_has_not() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        assert_eq!(None, world.after(1, [101, 0], 26), "something waits here");
        assert_eq!(None, world.after(1, [26, 0], 101), "nobody has time");
        assert!(matches!(world.after(1, [25, 0], 101), Some(AssistAction::Return(_, 1))));
        assert_eq!(None, world.after(BORROW_HOLDDOWN - 1, [101, 0], 0), "not at once again");
        assert!(matches!(world.after(1, [101, 0], 0), Some(AssistAction::Take(..))));
    }

    #[test]
    fn what_came_long_ago_is_forgotten() {
        let mut world = World::new(&[1; 16]);
        assert_eq!(None, world.after(MEMORY, [101, 0], 0));
        assert!(world.controller.seen.iter().all(|&seen| seen == 0));
    }
}
