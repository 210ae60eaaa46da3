//! Address conflicts: two MACs claim one address, because a host has moved or spoofs the other.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use super::table::Mac;
use crate::{Address, InterfaceIndex};

/// Maximum number of conflicts that wait to be reported; the newest are kept.
const WAITING: usize = 64;

/// A claim to an address that another host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Interface on whose link the address is.
    pub interface: InterfaceIndex,
    /// Claimed address.
    pub address: Address,
    /// MAC of the claimant.
    pub mac: Mac,
    /// MAC of the current owner; `None` if the address is the gateway's own.
    pub of: Option<Mac>,
}

/// Queue of conflicts from the writer of the neighbour table to the control thread that reports them.
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
    /// Add a conflict.
    pub fn add(&self, conflict: Conflict) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting.force_push(conflict);
    }

    /// Take the oldest waiting conflict.
    pub fn take(&self) -> Option<Conflict> {
        self.waiting.pop()
    }

    /// Total number of conflicts.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
