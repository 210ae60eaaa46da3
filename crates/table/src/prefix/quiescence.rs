//! Grace periods. A retired block may be reused after every reader has passed a quiescent point.

use super::sync::{AtomicU64, Ordering, fence};

/// Epoch of a reader that is offline and holds no reference into any table.
const OFFLINE: u64 = u64::MAX;

/// Epoch of one reader, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Mark(AtomicU64);

/// Epochs of a fixed set of readers (workers) and one writer (the control thread). Any number of tables may share the
/// epochs.
///
/// A reader calls [`Quiescence::online`] before its first lookup, [`Quiescence::pass`] between bursts while it holds no
/// reference, and [`Quiescence::offline`] before it sleeps. These functions are wait-free.
#[derive(Debug)]
pub struct Quiescence {
    epoch: AtomicU64,
    marks: Box<[Mark]>,
}

impl Quiescence {
    /// Creates epochs for `readers` readers, numbered from 0. All readers are offline.
    pub fn new(readers: usize) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            marks: (0..readers).map(|_| Mark(AtomicU64::new(OFFLINE))).collect(),
        }
    }

    /// Marks `reader` as online.
    pub fn online(&self, reader: usize) {
        let Some(mark) = self.marks.get(reader) else { return };
        mark.0.store(self.epoch.load(Ordering::Acquire), Ordering::Relaxed);
        // Pairs with the fence in `settled`: either the writer sees that this reader is online, or this reader no
        // longer finds the block that the writer has unpublished.
        fence(Ordering::SeqCst);
    }

    /// Records that `reader` holds no reference from earlier lookups.
    #[inline(always)]
    pub fn pass(&self, reader: usize) {
        let Some(mark) = self.marks.get(reader) else { return };
        let epoch = self.epoch.load(Ordering::Acquire);
        // As long as no block is retired, the epoch does not change. The store is then skipped, so that the cache line
        // stays in the writer's cache.
        if mark.0.load(Ordering::Relaxed) != epoch {
            mark.0.store(epoch, Ordering::Release);
        }
    }

    /// Records that `reader` holds no reference, and makes no lookup until its next [`Quiescence::online`].
    pub fn offline(&self, reader: usize) {
        if let Some(mark) = self.marks.get(reader) {
            mark.0.store(OFFLINE, Ordering::Release);
        }
    }

    /// Called by the writer: starts a new epoch after the writer has unpublished blocks. The writer may free these
    /// blocks when [`Quiescence::settled`] reaches the returned number.
    pub fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Called by the writer: the newest epoch that every online reader has reached.
    pub fn settled(&self) -> u64 {
        fence(Ordering::SeqCst);
        let mut settled = self.epoch.load(Ordering::Relaxed);
        for mark in &self.marks {
            settled = settled.min(mark.0.load(Ordering::Acquire));
        }
        settled
    }
}
