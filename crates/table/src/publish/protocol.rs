//! Ownership of snapshots by the publisher and its readers.

use super::sync::{Arc, AtomicU64, Ordering, Root};

#[derive(Debug)]
struct Shared<T> {
    /// Number of the newest snapshot, from 1; incremented after `root` holds it.
    generation: AtomicU64,
    root: Root<T>,
}

/// The control thread's end.
#[derive(Debug)]
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    current: Arc<T>,
    retired: Vec<Arc<T>>,
}

impl<T> Publisher<T> {
    /// Publish the first snapshot.
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

    /// Create a reader for one worker; it is offline until its first load.
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

    /// Number of the newest snapshot, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Publish a snapshot, which readers see from their next load on. Returns its number. The previous snapshot is
    /// retired; [`collect`](Self::collect) frees it.
    pub fn publish(&mut self, snapshot: T) -> u64 {
        let snapshot = Arc::new(snapshot);
        drop(self.shared.root.swap(snapshot.clone()));
        self.retired.push(std::mem::replace(&mut self.current, snapshot));
        self.generation += 1;
        self.shared.generation.store(self.generation, Ordering::Release);
        self.generation
    }

    /// Free retired snapshots that no reader holds. Returns the number that remain.
    pub fn collect(&mut self) -> usize {
        // A retired snapshot is no longer in the root, so its only holder remains the only one.
        self.retired.retain_mut(|snapshot| Arc::get_mut(snapshot).is_none());
        self.retired.len()
    }
}

/// One worker's end. Readers that outlive their publisher keep the last snapshot alive.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    cached: Option<Arc<T>>,
}

impl<T> Reader<T> {
    /// The newest snapshot; the reader holds it until the next load. Called once per burst.
    #[inline]
    pub fn load(&mut self) -> &T {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.cached = None;
            self.generation = generation;
        }
        self.cached.get_or_insert_with(|| self.shared.root.load())
    }

    /// Number of the snapshot loaded last, or of one published during that load.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Release the snapshot before a sleep.
    pub fn offline(&mut self) {
        self.cached = None;
    }
}
