//! When a shard is lent and when it goes back, and which.
//!
//! A worker with sessions is busy while more than the threshold waits for it. Then a shard of it is taken, and another as soon
//! as that has come, as long as the I/O worker keeps up with what it has. It goes back when next to nothing has waited anywhere
//! for a while, or when the I/O worker has too much to do itself while the other has not. Between the threshold and the low mark
//! nothing changes.

use crate::packet::io::WorkerIndex;

/// The low mark: the threshold by this.
const LOW: usize = 4;

/// Nanoseconds for which all rings stay below the low mark before a shard goes back.
const CALM: u64 = 1_000_000;

/// Nanoseconds for which no shard is taken after one was given back because the I/O worker had too much to do.
const REST: u64 = 10_000_000;

/// Nanoseconds before a worker is asked again that refused, or has no shard that would help.
const PATIENCE: u64 = 100_000;

/// Nanoseconds after which what was seen of a shard counts half.
const MEMORY: u64 = 1_000_000;

/// A shard taken is at most this part of what its worker has: the rest, an elephant among it, stays.
const PART: u64 = 4;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a shard over from a worker.
    Take(u16, WorkerIndex),
    /// Give a shard back to the worker that it came from.
    GiveBack(u16, WorkerIndex),
}

/// What an I/O worker sees at the end of a round.
#[derive(Clone, Copy, Debug)]
pub struct Load<'s> {
    /// The moment, in nanoseconds.
    pub now: u64,
    /// Workers with sessions, and packets that wait for each in the ring from here.
    pub rings: &'s [(WorkerIndex, usize)],
    /// Packets that wait here, of the shards that were taken over.
    pub queued: usize,
}

/// The judgement of one I/O worker.
#[derive(Debug)]
pub struct Controller {
    threshold: usize,
    /// Packets by shard that came lately.
    pub seen: Box<[u32]>,
    faded: u64,
    /// Shards that others have lent, and who.
    lent: Vec<(u16, WorkerIndex)>,
    calm_since: Option<u64>,
    /// Nobody is asked before.
    not_before: u64,
    /// Nothing is taken before.
    rests_until: u64,
}

impl Controller {
    /// For so many shards.
    pub fn new(threshold: u32, shards: usize) -> Self {
        Self {
            threshold: threshold as usize,
            seen: vec![0; shards].into(),
            faded: 0,
            lent: Vec::with_capacity(shards),
            calm_since: None,
            not_before: 0,
            rests_until: 0,
        }
    }

    /// Shards that others have lent.
    pub fn borrowed(&self) -> &[(u16, WorkerIndex)] {
        &self.lent
    }

    /// A shard has come from a worker.
    pub fn shard_came(&mut self, shard: u16, from: WorkerIndex) {
        if self.lent.len() < self.lent.capacity() {
            self.lent.push((shard, from));
        }
        self.calm_since = None;
    }

    /// A shard has gone.
    pub fn shard_went(&mut self, shard: u16) {
        self.lent.retain(|&(lent, _)| lent != shard);
        self.calm_since = None;
    }

    /// A worker refused, or nothing may go.
    pub fn is_refused(&mut self, now: u64) {
        self.not_before = now + PATIENCE;
    }

    /// What to do. `owner` says who has a shard.
    pub fn decide(&mut self, sight: &Load<'_>, owner: impl Fn(u16) -> Option<WorkerIndex>) -> Option<Action> {
        let &Load { now, rings, queued } = sight;
        if now.saturating_sub(self.faded) >= MEMORY {
            self.faded = now;
            self.seen.iter_mut().for_each(|seen| *seen /= 2);
        }
        let &(busiest, waiting) = rings.iter().max_by_key(|(_, waiting)| *waiting)?;
        let low = self.threshold / LOW;
        let is_calm = waiting <= low && queued <= low;
        let calm_since = self.calm_since.filter(|_| is_calm);
        self.calm_since = is_calm.then(|| calm_since.unwrap_or(now));
        if now < self.not_before {
            return None;
        }
        if waiting > self.threshold && queued <= low && now >= self.rests_until {
            return self.take(busiest, now, owner);
        }
        if queued > self.threshold
            && let Some((shard, home)) = self.surplus(rings, low)
        {
            self.rests_until = now + REST;
            return Some(Action::GiveBack(shard, home));
        }
        if calm_since.is_some_and(|since| now.saturating_sub(since) >= CALM) {
            let &(shard, home) = self.lent.last()?;
            return Some(Action::GiveBack(shard, home));
        }
        None
    }

    /// The busiest of the shards that are a small part of what a worker has: one that takes an elephant over only changes who
    /// is too busy. None where there is no other.
    fn take(&mut self, from: WorkerIndex, now: u64, owner: impl Fn(u16) -> Option<WorkerIndex>) -> Option<Action> {
        let seen = (0u16..).zip(&self.seen);
        let mut all = 0;
        let mut count = 0;
        let mut least = None;
        for (shard, &seen) in seen.clone() {
            if seen > 0 && owner(shard) == Some(from) {
                all += u64::from(seen);
                count += 1;
                if least.is_none_or(|(_, least)| seen < least) {
                    least = Some((shard, seen));
                }
            }
        }
        let small =
            seen.filter(|&(shard, &seen)| seen > 0 && u64::from(seen) * PART <= all && owner(shard) == Some(from));
        let chosen = small.max_by_key(|(_, seen)| **seen).map(|(shard, _)| shard);
        let chosen = chosen.or(least.map(|(shard, _)| shard)).filter(|_| count > 1);
        if chosen.is_none() {
            self.is_refused(now);
        }
        chosen.map(|shard| Action::Take(shard, from))
    }

    /// The busiest shard here whose worker has little to do.
    fn surplus(&self, rings: &[(WorkerIndex, usize)], low: usize) -> Option<(u16, WorkerIndex)> {
        let is_idle = |home: WorkerIndex| rings.iter().any(|&(worker, waiting)| worker == home && waiting <= low);
        let idle = self.lent.iter().filter(|&&(_, home)| is_idle(home));
        idle.max_by_key(|(shard, _)| self.seen.get(usize::from(*shard)).copied())
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: usize = 100;

    struct World {
        judge: Controller,
        owners: Vec<WorkerIndex>,
        now: u64,
    }

    impl World {
        /// Worker 0 receives, 1 and 2 have the shards in turn.
        fn new(seen: &[u32]) -> Self {
            let mut judge = Controller::new(THRESHOLD as u32, seen.len());
            judge.seen.copy_from_slice(seen);
            Self {
                judge,
                owners: [1, 2].into_iter().cycle().take(seen.len()).collect(),
                now: 0,
            }
        }

        /// So many wait for each worker and here; some nanoseconds later.
        fn after(&mut self, nanoseconds: u64, rings: [usize; 2], queued: usize) -> Option<Action> {
            self.now += nanoseconds;
            let rings = [(1, rings[0]), (2, rings[1])];
            let sight = Load {
                now: self.now,
                rings: &rings,
                queued,
            };
            let owners = &self.owners;
            let verdict = self
                .judge
                .decide(&sight, |shard| owners.get(usize::from(shard)).copied());
            match verdict {
                Some(Action::Take(shard, from)) => {
                    self.owners[usize::from(shard)] = 0;
                    self.judge.shard_came(shard, from);
                }
                Some(Action::GiveBack(shard, to)) => {
                    self.owners[usize::from(shard)] = to;
                    self.judge.shard_went(shard);
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
        assert!(matches!(world.after(1, [101, 102], 0), Some(Action::Take(_, 2))));
    }

    #[test]
    fn nothing_changes_between_the_marks_however_long() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        for _ in 0..100 {
            assert_eq!(None, world.after(CALM, [26, 0], 0));
            assert_eq!(None, world.after(CALM, [100, 0], 0));
            // Calm there, but not here.
            assert_eq!(None, world.after(CALM, [0, 0], 26));
        }
        assert_eq!(1, world.judge.borrowed().len());
    }

    #[test]
    fn shards_go_back_one_by_one_after_a_calm_each() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        world.after(1, [0, 101], 0).unwrap();
        assert_eq!(None, world.after(1, [25, 25], 25));
        assert_eq!(None, world.after(CALM - 1, [0, 0], 0));
        // A single moment above the low mark begins the calm anew.
        assert_eq!(None, world.after(1, [26, 0], 0));
        assert_eq!(None, world.after(1, [0, 0], 0));
        assert_eq!(None, world.after(CALM - 1, [0, 0], 0));
        assert!(matches!(world.after(1, [0, 0], 0), Some(Action::GiveBack(_, 2))));
        assert_eq!(None, world.after(1, [0, 0], 0));
        assert!(matches!(world.after(CALM, [0, 0], 0), Some(Action::GiveBack(_, 1))));
        assert_eq!(None, world.after(CALM, [0, 0], 0));
        assert_eq!(None, world.after(CALM, [0, 0], 0));
        assert!(world.judge.borrowed().is_empty());
    }

    #[test]
    fn elephant_stays_and_the_busiest_of_the_others_goes() {
        let mut world = World::new(&[50, 1, 7, 1, 12, 1, 3, 1]);
        assert_eq!(Some(Action::Take(4, 1)), world.after(1, [101, 0], 0));
        assert_eq!(Some(Action::Take(2, 1)), world.after(1, [101, 0], 0));
        assert_eq!(Some(Action::Take(6, 1)), world.after(1, [101, 0], 0));
        // Alone, it would only be too much for another.
        assert_eq!(None, world.after(1, [101, 0], 0));
    }

    #[test]
    fn of_shards_that_are_all_large_the_least_goes() {
        let mut world = World::new(&[40, 0, 30, 0, 35, 0]);
        assert_eq!(Some(Action::Take(2, 1)), world.after(1, [101, 0], 0));
    }

    #[test]
    fn who_has_too_much_to_do_itself_takes_nothing_and_gives_back_to_who_has_not() {
        let mut world = World::new(&[9; 16]);
        world.after(1, [101, 0], 0).unwrap();
        assert_eq!(None, world.after(1, [101, 0], 26), "something waits here");
        assert_eq!(None, world.after(1, [26, 0], 101), "nobody has time");
        assert!(matches!(world.after(1, [25, 0], 101), Some(Action::GiveBack(_, 1))));
        assert_eq!(None, world.after(REST - 1, [101, 0], 0), "not at once again");
        assert!(matches!(world.after(1, [101, 0], 0), Some(Action::Take(..))));
    }

    #[test]
    fn what_came_long_ago_is_forgotten() {
        let mut world = World::new(&[1; 16]);
        assert_eq!(None, world.after(MEMORY, [101, 0], 0));
        assert!(world.judge.seen.iter().all(|&seen| seen == 0));
    }
}
