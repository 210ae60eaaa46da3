//! The owner of each shard, and the protocol by which a shard moves to another worker.
//!
//! Only the owner can release a shard. The owner publishes the number of the new owner here. From then on, the old
//! owner hands received packets of the shard to the new owner, which holds these packets. Every worker sees the change
//! within one round of its main loop, and the devices are steered to the new owner. The old owner then empties its
//! device queues and rings. It processes the packets of its rings itself, and waits until other workers have taken the
//! packets that it handed to them. Without this wait, a worker, which reads one ring after another, could take later
//! packets of a flow first. After all of these packets are processed, the shard moves. The new owner first processes
//! the packets from rings, and then the packets that it received from devices. With this protocol no packet is lost,
//! and flows keep their order.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use sluice_nat::shard::Shards;

use crate::packet::io::{BURST_SIZE, WorkerIndex};
use crate::session::shard::Shard;

/// The owner of each shard.
#[derive(Debug)]
pub struct ShardOwners(Box<[AtomicU16]>);

impl ShardOwners {
    /// Distributes shards to workers round-robin.
    pub fn distribute(shards: Shards, workers: &[WorkerIndex]) -> Self {
        let assignment = workers.iter().cycle().map(|&worker| AtomicU16::new(worker));
        Self(assignment.take(shards.count() as usize).collect())
    }

    /// The owner of a shard.
    #[inline]
    pub fn of(&self, shard: u16) -> Option<WorkerIndex> {
        Some(self.0.get(usize::from(shard))?.load(Ordering::Acquire))
    }

    /// All owners, in the order of the shards.
    pub fn iter(&self) -> impl Iterator<Item = WorkerIndex> {
        self.0.iter().map(|owner| owner.load(Ordering::Acquire))
    }

    /// Number of shards that a worker owns.
    pub fn count(&self, worker: WorkerIndex) -> usize {
        self.iter().filter(|&owner| owner == worker).count()
    }

    /// Number of shards.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no shards. The number of shards is never 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the owner of a shard. Only the present owner may call this.
    pub(crate) fn set(&self, shard: u16, worker: WorkerIndex) {
        if let Some(owner) = self.0.get(usize::from(shard)) {
            owner.store(worker, Ordering::Release);
        }
    }
}

/// A stored shard with the number of its new worker. While a move is being cancelled, a worker may still expect the
/// shard.
type Place<'m> = Option<(WorkerIndex, Box<Shard<'m>>)>;

/// One entry for each moving shard. A lock is held only while a shard is stored or taken, never while a packet is
/// processed.
pub struct ShardExchange<'m> {
    places: Box<[Mutex<Place<'m>>]>,
    /// Number of rings to one worker.
    rings: usize,
    pub(crate) ring: usize,
}

impl<'m> ShardExchange<'m> {
    /// Creates the entries for a number of shards. `rings` is the number of rings to one worker, and `packets` is the
    /// capacity of each ring.
    pub fn new(shards: usize, rings: usize, packets: usize) -> Self {
        Self {
            places: (0..shards).map(|_| Mutex::new(None)).collect(),
            rings,
            ring: packets,
        }
    }

    /// Number of packets that a worker must take from its rings until it has taken all packets that were in them, if
    /// all rings were full.
    pub(crate) fn in_rings(&self) -> usize {
        self.of_waiting(self.ring)
    }

    /// Number of packets that a worker must take from its rings until it has taken all packets that were in them, if no
    /// ring contained more than `packets` packets.
    pub(crate) fn of_waiting(&self, packets: usize) -> usize {
        // The worker reads the rings round-robin, one burst from each ring, and an incomplete burst counts as a full burst.
        self.rings * packets.min(self.ring).next_multiple_of(BURST_SIZE)
    }

    /// Stores a shard for a worker.
    pub(crate) fn put(&self, shard: Box<Shard<'m>>, to: WorkerIndex) {
        if let Some(place) = self.places.get(usize::from(shard.number)) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((to, shard));
        }
    }

    /// Takes a shard, if it is stored for this worker.
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
        // Seven rings with 100 packets each need 14 bursts. After 700 packets, or 11 bursts, only four rings have been read twice.
        assert_eq!(7 * 2 * BURST_SIZE, ShardExchange::new(1, 7, 100).in_rings());
        assert_eq!(3 * 1024, ShardExchange::new(1, 3, 1024).in_rings());
        assert_eq!(3 * BURST_SIZE, ShardExchange::new(1, 3, 1024).of_waiting(1));
        assert_eq!(0, ShardExchange::new(1, 3, 1024).of_waiting(0));
    }
}
