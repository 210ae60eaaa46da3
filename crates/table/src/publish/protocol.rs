//! Who has which snapshot.

use super::sync::{Arc, AtomicU64, Ordering, Root};

#[derive(Debug)]
struct Shared<T> {
    /// Of the newest snapshot, from 1; raised after `root` holds it.
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

    /// A reader for one worker, offline until its first load.
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

    /// The number of the newest snapshot, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Publish a snapshot: readers see it from their next load on. Returns its number. The one before is retired,
    /// and freed by [`collect`](Self::collect).
    pub fn publish(&mut self, snapshot: T) -> u64 {
        let snapshot = Arc::new(snapshot);
        drop(self.shared.root.swap(snapshot.clone()));
        self.retired.push(std::mem::replace(&mut self.current, snapshot));
        self.generation += 1;
        self.shared.generation.store(self.generation, Ordering::Release);
        self.generation
    }

    /// Free the retired snapshots that no reader has. Returns how many remain.
    pub fn collect(&mut self) -> usize {
        // Not in the root any more: who alone has a retired snapshot keeps it alone.
        self.retired.retain_mut(|snapshot| Arc::get_mut(snapshot).is_none());
        self.retired.len()
    }
}

/// One worker's end. Readers that outlive their publisher keep its last snapshot alive.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    cached: Option<Arc<T>>,
}

impl<T> Reader<T> {
    /// The newest snapshot; the reader holds it until the next load. Once per burst.
    #[inline]
    pub fn load(&mut self) -> &T {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.cached = None;
            self.generation = generation;
        }
        self.cached.get_or_insert_with(|| self.shared.root.load())
    }

    /// The number of the snapshot that was loaded last: it, or one published while it was loaded.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Let go of the snapshot, before a sleep.
    pub fn offline(&mut self) {
        self.cached = None;
    }
}
