//! Grace periods: a retired block may be reused after every reader has passed a quiescent point.

use super::sync::{AtomicU64, Ordering, fence};

/// Mark of a reader that holds no reference into any table.
const OFFLINE: u64 = u64::MAX;

/// Mark of one reader, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Mark(AtomicU64);

/// Epochs of a fixed set of readers (workers) and one writer (the control thread), shared by any number of tables.
///
/// A reader calls [`Quiescence::online`] before its first lookup, [`Quiescence::pass`] between bursts, when it holds no
/// reference, and [`Quiescence::offline`] before it sleeps. All are wait-free.
#[derive(Debug)]
pub struct Quiescence {
    epoch: AtomicU64,
    marks: Box<[Mark]>,
}

impl Quiescence {
    /// Create epochs for `readers` readers, numbered from 0, all offline.
    pub fn new(readers: usize) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            marks: (0..readers).map(|_| Mark(AtomicU64::new(OFFLINE))).collect(),
        }
    }

    /// Mark `reader` as online.
    pub fn online(&self, reader: usize) {
        let Some(mark) = self.marks.get(reader) else { return };
        mark.0.store(self.epoch.load(Ordering::Acquire), Ordering::Relaxed);
        // Pairs with the fence in `settled`: the writer sees this mark, or the reader sees that the block was
        // unpublished.
        fence(Ordering::SeqCst);
    }

    /// Record that `reader` holds no reference from earlier lookups.
    #[inline(always)]
    pub fn pass(&self, reader: usize) {
        let Some(mark) = self.marks.get(reader) else { return };
        let epoch = self.epoch.load(Ordering::Acquire);
        // The line is not written, and stays in the writer's cache, while nothing is retired.
        if mark.0.load(Ordering::Relaxed) != epoch {
            mark.0.store(epoch, Ordering::Release);
        }
    }

    /// Record that `reader` holds no reference and does not read until it is online again.
    pub fn offline(&self, reader: usize) {
        if let Some(mark) = self.marks.get(reader) {
            mark.0.store(OFFLINE, Ordering::Release);
        }
    }

    /// For the writer: begin a new epoch after something was unpublished. Blocks retired before are free when
    /// [`Quiescence::settled`] reaches the returned number.
    pub fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// For the writer: the newest epoch that every online reader has reached.
    pub fn settled(&self) -> u64 {
        fence(Ordering::SeqCst);
        let mut settled = self.epoch.load(Ordering::Relaxed);
        for mark in &self.marks {
            settled = settled.min(mark.0.load(Ordering::Acquire));
        }
        settled
    }
}
