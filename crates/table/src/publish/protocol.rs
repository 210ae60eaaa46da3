//! Ownership of snapshots by the publisher and its readers.

use super::sync::{Arc, AtomicU64, Ordering, Root};

#[derive(Debug)]
struct Shared<T> {
    /// Number of the newest snapshot, counted from 1. The number is incremented after `root` contains the snapshot.
    generation: AtomicU64,
    root: Root<T>,
}

/// The control thread's interface for publication.
#[derive(Debug)]
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    current: Arc<T>,
    retired: Vec<Arc<T>>,
}

impl<T> Publisher<T> {
    /// Creates a publisher with its first snapshot.
    pub fn new(snapshot: T) -> Self {
        let current = Arc::new(snapshot);
        let shared = Shared {
            generation: AtomicU64::new(1),
            root: Root::new(current.clone()),
        };
        Publisher {
            shared: Arc::new(shared),
            generation: 1,
            current,
            retired: Vec::new(),
        }
    }

    /// Creates a reader for one worker. The reader is offline until its first load.
    pub fn reader(&self) -> Reader<T> {
        Reader {
            shared: self.shared.clone(),
            generation: 0,
            cached: None,
        }
    }

    /// The newest snapshot.
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Number of the newest snapshot, counted from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Publishes a snapshot and returns its number. Readers get the snapshot at their next load.
    /// [`collect`](Self::collect) later frees the previous snapshot.
    pub fn publish(&mut self, snapshot: T) -> u64 {
        let snapshot = Arc::new(snapshot);
        drop(self.shared.root.swap(snapshot.clone()));
        self.retired.push(std::mem::replace(&mut self.current, snapshot));
        self.generation += 1;
        self.shared.generation.store(self.generation, Ordering::Release);
        self.generation
    }

    /// Frees retired snapshots that no reader holds. Returns the number of remaining retired snapshots.
    pub fn collect(&mut self) -> usize {
        // After the last reader has released a retired snapshot, no reader can obtain the snapshot again, because the
        // root no longer contains it.
        self.retired.retain_mut(|snapshot| Arc::get_mut(snapshot).is_none());
        self.retired.len()
    }
}

/// A worker's access to snapshots. A reader that outlives its publisher keeps the last snapshot alive.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    cached: Option<Arc<T>>,
}

impl<T> Reader<T> {
    /// The newest snapshot. The reader holds it until its next load. Called once per burst.
    #[inline]
    pub fn load(&mut self) -> &T {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.cached = None;
            self.generation = generation;
        }
        self.cached.get_or_insert_with(|| self.shared.root.load())
    }

    /// Number of the last loaded snapshot, or of a snapshot that was published during the load.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Releases the snapshot. Called before the worker sleeps.
    pub fn offline(&mut self) {
        self.cached = None;
    }
}
