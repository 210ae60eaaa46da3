//! Address conflicts: two MACs claim one address, because a host has moved or impersonates another host.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use super::table::Mac;
use crate::{Address, InterfaceIndex};

/// Maximum number of queued conflicts. If the queue is full, the oldest conflict is discarded.
const WAITING: usize = 64;

/// A host's claim to an address that belongs to another MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Interface at which the claim was received.
    pub interface: InterfaceIndex,
    /// Claimed address.
    pub address: Address,
    /// MAC that claims the address.
    pub mac: Mac,
    /// MAC of the current owner; `None` if the address belongs to the gateway itself.
    pub of: Option<Mac>,
}

/// Queue of conflicts from the writer of the neighbour table to the control thread. The control thread reports the
/// conflicts.
#[derive(Debug)]
pub struct Conflicts {
    waiting: ArrayQueue<Conflict>,
    count: AtomicU64,
}

impl Default for Conflicts {
    fn default() -> Self {
        Self {
            waiting: ArrayQueue::new(WAITING),
            count: AtomicU64::new(0),
        }
    }
}

impl Conflicts {
    /// Adds a conflict.
    pub fn add(&self, conflict: Conflict) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting.force_push(conflict);
    }

    /// Removes and returns the oldest conflict in the queue.
    pub fn take(&self) -> Option<Conflict> {
        self.waiting.pop()
    }

    /// Total number of conflicts, including discarded ones.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
