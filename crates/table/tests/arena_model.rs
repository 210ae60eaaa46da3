//! Model test of the arena: compiles its source with the types of a model checker, which explores interleavings of
//! appending and reading threads.

#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::Mutex;
    pub use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

    /// A memory cell that the model checker examines for data races.
    pub struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            self.0.with(look)
        }

        pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(change)
        }
    }
}
#[path = "../src/arena/memory.rs"]
mod memory;

use std::sync::Arc;

use loom::thread;
use memory::Arena;
use sync::{AtomicU32, Ordering};

#[test]
fn reader_sees_whole_values_as_far_as_there_are_any() {
    loom::model(|| {
        let arena = Arc::new(Arena::new(vec![[1u64; 4]], 1, 1));
        let reader = arena.clone();
        let looking = thread::spawn(move || {
            assert_eq!(Some(&[1; 4]), reader.get(0));
            let second = reader.get(1);
            assert!(second.is_none_or(|value| *value == [2; 4]), "{second:?}");
        });
        assert_eq!(Ok(1), arena.append([2; 4]));
        looking.join().unwrap();
    });
}

#[test]
fn what_a_published_number_leads_to_is_there() {
    for room in [0, 1] {
        published(room);
    }
}

fn published(room: usize) {
    loom::model(move || {
        let arena = Arc::new(Arena::new(vec![[1u64; 4]], room, 1 - room));
        let child = Arc::new(AtomicU32::new(0));
        let (reader, way) = (arena.clone(), child.clone());
        let looking = thread::spawn(move || {
            let view = reader.view();
            let number = way.load(Ordering::Relaxed);
            assert_eq!(Some(&[u64::from(number) + 1; 4]), view.get(number as usize));
        });
        let number = arena.append([2; 4]).unwrap();
        child.store(number as u32, Ordering::Release);
        looking.join().unwrap();
    });
}

#[test]
fn two_that_append_get_different_numbers() {
    loom::model(|| {
        let arena = Arc::new(Arena::new(vec![], 1, 1));
        let other = arena.clone();
        let appending = thread::spawn(move || other.append(7u64).unwrap());
        let (mine, theirs) = (arena.append(8).unwrap(), appending.join().unwrap());
        assert_eq!((Some(&8), Some(&7)), (arena.get(mine), arena.get(theirs)));
    });
}
