//! Publication of snapshots. The control thread replaces the whole snapshot, and workers read snapshots without locks.
//!
//! A [`Reader`] checks for a new snapshot once per burst. The check is one load. A reader takes a new snapshot with an
//! atomic exchange, and releases the old snapshot. The [`Publisher`] keeps every retired snapshot until no reader holds
//! it, so that only the control thread frees snapshots. A worker must release its snapshot before it sleeps
//! ([`Reader::offline`]), so that it does not hold a retired snapshot during its sleep.

mod protocol;

/// Synchronisation primitives of the protocol. The model test compiles this module with the primitives of the model
/// checker.
mod sync {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicU64, Ordering};

    /// Holder of the current snapshot.
    #[derive(Debug)]
    pub struct Root<T>(arc_swap::ArcSwap<T>);

    impl<T> Root<T> {
        pub fn new(snapshot: Arc<T>) -> Self {
            Root(arc_swap::ArcSwap::new(snapshot))
        }

        pub fn load(&self) -> Arc<T> {
            self.0.load_full()
        }

        pub fn swap(&self, snapshot: Arc<T>) -> Arc<T> {
            self.0.swap(snapshot)
        }
    }
}

pub use protocol::{Publisher, Reader};

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Weak};

    #[test]
    fn reader_sees_each_publication_at_its_next_load() {
        let mut publisher = Publisher::new(10);
        let mut reader = publisher.reader();
        assert_eq!((&10, 1), (reader.load(), 1));
        assert_eq!(2, publisher.publish(20));
        assert_eq!(3, publisher.publish(30));
        assert_eq!((&30, &30), (reader.load(), publisher.current()));
        assert_eq!((3, 3), (reader.generation(), publisher.generation()));
    }

    #[test]
    fn collect_frees_what_no_reader_has_and_keeps_what_one_has() {
        let watched = |publisher: &Publisher<Arc<u32>>| -> Weak<u32> { Arc::downgrade(publisher.current()) };
        let mut publisher = Publisher::new(Arc::new(1));
        let (mut awake, mut asleep) = (publisher.reader(), publisher.reader());
        awake.load();
        asleep.load();
        let first = watched(&publisher);
        publisher.publish(Arc::new(2));
        let second = watched(&publisher);
        publisher.publish(Arc::new(3));
        assert_eq!(1, publisher.collect());
        assert_eq!((1, 0), (first.strong_count(), second.strong_count()));
        awake.load();
        assert_eq!(1, publisher.collect());
        asleep.offline();
        assert_eq!(1, first.strong_count());
        assert_eq!(0, publisher.collect());
        assert_eq!(0, first.strong_count());
    }
}
