//! Two that say that one address is theirs: somebody has moved, or feigns to have.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use super::table::Mac;
use crate::{Address, InterfaceIndex};

/// Conflicts that wait for whoever tells of them; of more the newest.
const WAITING: usize = 64;

/// A claim to an address that is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Interface whose link it is on.
    pub interface: InterfaceIndex,
    /// The address.
    pub address: Address,
    /// Who claims it.
    pub mac: Mac,
    /// Who has had it until now; none where it is the gateway's own.
    pub of: Option<Mac>,
}

/// Conflicts, from the one who writes the neighbour table to whoever tells of them.
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
    /// There is one more.
    pub fn add(&self, conflict: Conflict) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waiting.force_push(conflict);
    }

    /// The oldest that waits.
    pub fn take(&self) -> Option<Conflict> {
        self.waiting.pop()
    }

    /// How many there have been.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
