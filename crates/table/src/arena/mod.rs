//! Append-only storage. One thread appends values while other threads read existing values. An arena never moves,
//! modifies or removes a value.

mod memory;

/// Synchronisation primitives of the module. The model test compiles this module with the primitives of the model
/// checker.
mod sync {
    pub use std::sync::Mutex;
    pub use std::sync::atomic::{AtomicUsize, Ordering, fence};

    /// Memory cell for one value.
    #[derive(Debug)]
    pub struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

pub use memory::{Arena, View};

impl<T> View<'_, T> {
    /// Prefetches all cache lines of a value into the second-level cache. An invalid index is harmless.
    #[inline(always)]
    pub fn prefetch_all_far(&self, number: usize) {
        crate::prefetch::prefetch_all_far_at(self.places, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn arena_keeps_values_where_they_are_until_it_is_full() {
        let arena = Arena::new(vec!["a".to_owned(), "b".to_owned()], 1, 1);
        let bytes = arena.bytes();
        let first: *const String = arena.get(0).unwrap();
        assert_eq!((2, 2), (arena.len(), arena.capacity_left()));
        let three = ["c", "d", "e"].map(str::to_owned).to_vec();
        assert_eq!(Err(three.clone()), arena.append_all(three), "all or none");
        assert_eq!(Ok(2), arena.append_all(["c", "d"].map(str::to_owned).to_vec()));
        assert_eq!(Err("e".to_owned()), arena.append("e".to_owned()));
        assert_eq!(Ok(4), arena.append_all(vec![]));
        assert_eq!((4, 0), (arena.len(), arena.capacity_left()));
        assert_eq!(
            4,
            arena.bytes() / (bytes / 3),
            "what lies behind takes memory when it is used"
        );
        assert_eq!(None, arena.get(4));
        assert!(std::ptr::eq(first, arena.get(0).unwrap()));
        let all: Vec<_> = (0..4).filter_map(|at| arena.get(at)).collect();
        assert_eq!(vec!["a", "b", "c", "d"], all);
        let view = arena.view();
        assert_eq!(all, (0..5).filter_map(|at| view.get(at)).collect::<Vec<_>>());
    }

    #[test]
    fn arena_drops_what_it_has_and_nothing_else() {
        let value = Arc::new(());
        let arena = Arena::new(vec![value.clone()], 1, 2);
        assert!(arena.append(value.clone()).is_ok() && arena.append(value.clone()).is_ok());
        assert_eq!(4, Arc::strong_count(&value));
        drop(arena);
        assert_eq!(1, Arc::strong_count(&value));
    }
}
