//! Which worker is in charge of each shard, and how a shard goes from one to another.
//!
//! Only the worker that has a shard gives it away. It says so here, and from then on hands what it receives for the shard to the
//! other worker, which holds it. Once every worker has seen that (a full round of each) and devices have been told, it takes what
//! still lies in its queues and rings; what is in its rings it processes itself, and others take what it hands on of that: they
//! look at one ring after another, and might take later packets of a flow before. Then the shard goes over, and the other worker
//! processes first what came through rings, then what it received itself. So nothing is lost, and flows keep their order.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use sluice_nat::shard::Shards;

use crate::packet::io::{BURST_SIZE, WorkerIndex};
use crate::session::shard::Shard;

/// The worker in charge of each shard.
#[derive(Debug)]
pub struct ShardOwners(Box<[AtomicU16]>);

impl ShardOwners {
    /// Shards dealt to workers in turn.
    pub fn dealt(shards: Shards, workers: &[WorkerIndex]) -> Self {
        let turns = workers.iter().cycle().map(|&worker| AtomicU16::new(worker));
        Self(turns.take(shards.count() as usize).collect())
    }

    /// The worker in charge of a shard.
    #[inline]
    pub fn of(&self, shard: u16) -> Option<WorkerIndex> {
        Some(self.0.get(usize::from(shard))?.load(Ordering::Acquire))
    }

    /// All of them, in the order of the shards.
    pub fn iter(&self) -> impl Iterator<Item = WorkerIndex> {
        self.0.iter().map(|owner| owner.load(Ordering::Acquire))
    }

    /// How many shards a worker is in charge of.
    pub fn count(&self, worker: WorkerIndex) -> usize {
        self.iter().filter(|&owner| owner == worker).count()
    }

    /// Shards.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no shards, which can't be.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Another worker is in charge, as the one says that was.
    pub(crate) fn set(&self, shard: u16, worker: WorkerIndex) {
        if let Some(owner) = self.0.get(usize::from(shard)) {
            owner.store(worker, Ordering::Release);
        }
    }
}

/// A shard, and for whom it is: another may still expect it that will be told that it does not come.
type Place<'m> = Option<(WorkerIndex, Box<Shard<'m>>)>;

/// A place for each shard on its way from one worker to another. Locked only for the moment in which a shard is put or taken,
/// which is no packet's.
pub struct ShardExchange<'m> {
    places: Box<[Mutex<Place<'m>>]>,
    /// Rings to one worker, and packets that each holds.
    rings: usize,
    pub(crate) ring: usize,
}

impl<'m> ShardExchange<'m> {
    /// For so many shards, where so many rings lead to one worker, each of which holds so many packets.
    pub fn new(shards: usize, rings: usize, packets: usize) -> Self {
        Self {
            places: (0..shards).map(|_| Mutex::new(None)).collect(),
            rings,
            ring: packets,
        }
    }

    /// Packets after which nothing is left of what all rings to one worker held before, at most.
    pub(crate) fn in_rings(&self) -> usize {
        self.of_waiting(self.ring)
    }

    /// The same where no ring holds more than so many.
    pub(crate) fn of_waiting(&self, packets: usize) -> usize {
        // Each ring has its turn for a batch: the last of what is no whole batch takes a turn too.
        self.rings * packets.min(self.ring).next_multiple_of(BURST_SIZE)
    }

    /// Leave a shard for a worker.
    pub(crate) fn put(&self, shard: Box<Shard<'m>>, to: WorkerIndex) {
        if let Some(place) = self.places.get(usize::from(shard.number)) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((to, shard));
        }
    }

    /// Fetch a shard, if it is there for this worker.
    pub(crate) fn take(&self, shard: u16, own: WorkerIndex) -> Option<Box<Shard<'m>>> {
        let mut place = self.places.get(usize::from(shard))?.try_lock().ok()?;
        let (_, shard) = place.take_if(|(to, _)| *to == own)?;
        Some(shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_no_whole_batches_are_through_after_as_many_turns_as_begun_batches() {
        // By 700 packets, 11 turns, only four of seven rings would have had the two that each takes.
        assert_eq!(7 * 2 * BURST_SIZE, ShardExchange::new(1, 7, 100).in_rings());
        assert_eq!(3 * 1024, ShardExchange::new(1, 3, 1024).in_rings());
        assert_eq!(3 * BURST_SIZE, ShardExchange::new(1, 3, 1024).of_waiting(1));
        assert_eq!(0, ShardExchange::new(1, 3, 1024).of_waiting(0));
    }
}
