//! Storage of an arena, and the number of its values.
#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

use super::sync::{AtomicUsize, Cell, Mutex, Ordering, fence};

type Places<T> = [Cell<MaybeUninit<T>>];

/// Append-only storage of values by index.
pub struct Arena<T> {
    pub(super) places: Box<Places<T>>,
    /// Further storage and its capacity in values. The memory is allocated when the first storage is full.
    more: (OnceLock<Box<Places<T>>>, usize),
    /// Number of values. The number never decreases, and existing values are never modified.
    len: AtomicUsize,
    /// The thread that holds this lock may write the value at index `len`.
    appending: Mutex<()>,
}

// SAFETY: a value is written only by the thread that holds `appending`, and only as long as `len` does not yet permit
// reads of the value. The store and the load of `len` order the write before the reads. So threads share values (`T:
// Sync`), and one thread may drop values of another thread (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

fn empty<T>(places: usize) -> impl Iterator<Item = Cell<MaybeUninit<T>>> {
    core::iter::repeat_with(|| Cell::new(MaybeUninit::uninit())).take(places)
}

impl<T> Arena<T> {
    /// Creates an arena that contains `values` and has space for `capacity` more values in the same memory. When this
    /// space is used up, further storage for `many` values is allocated.
    pub fn new(values: Vec<T>, capacity: usize, many: usize) -> Self {
        let len = values.len();
        let values = values.into_iter().map(|value| Cell::new(MaybeUninit::new(value)));
        Self {
            places: values.chain(empty(capacity)).collect(),
            more: (OnceLock::new(), many),
            len: AtomicUsize::new(len),
            appending: Mutex::new(()),
        }
    }

    /// Value with this index; `None` if the index is not in use.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&T> {
        if number >= self.len.load(Ordering::Acquire) {
            return None;
        }
        let place = self.place(number)?;
        // SAFETY: values below `len` are initialised, and are not written again before `self` is dropped.
        Some(unsafe { place.with(|value| (*value).assume_init_ref()) })
    }

    #[inline(always)]
    fn place(&self, number: usize) -> Option<&Cell<MaybeUninit<T>>> {
        match number.checked_sub(self.places.len()) {
            None => self.places.get(number),
            Some(behind) => self.more.0.get()?.get(behind),
        }
    }

    /// A view for repeated access.
    #[inline(always)]
    pub fn view(&self) -> View<'_, T> {
        View {
            places: &self.places,
            known: self.len().min(self.places.len()),
            arena: self,
        }
    }

    /// Appends a value and returns its index. If the arena is full, the value is returned as the error.
    pub fn append(&self, value: T) -> Result<usize, T> {
        self.append_all(vec![value]).map_err(|mut values| values.remove(0))
    }

    /// Appends values contiguously and returns the index of the first value. If the arena has no space for all values,
    /// the values are returned as the error.
    pub fn append_all(&self, values: Vec<T>) -> Result<usize, Vec<T>> {
        let Ok(_alone) = self.appending.lock() else {
            return Err(values);
        };
        let first = self.len.load(Ordering::Relaxed);
        if values.len() > self.max_len() - first {
            return Err(values);
        }
        let added = values.len();
        if first + added > self.places.len() {
            self.more.0.get_or_init(|| empty(self.more.1).collect());
        }
        for (number, value) in (first..).zip(values) {
            if let Some(place) = self.place(number) {
                // SAFETY: no thread reads a value at or above `len`, and other writers wait for `appending`.
                place.with_mut(|place| unsafe { (*place).write(value) });
            }
        }
        self.len.store(first + added, Ordering::Release);
        Ok(first)
    }

    /// Number of values in the arena.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether the arena is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn max_len(&self) -> usize {
        self.places.len() + self.more.1
    }

    /// Number of values that can still be appended.
    pub fn capacity_left(&self) -> usize {
        self.max_len() - self.len()
    }

    /// Size of the memory in bytes, including unused capacity.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + self.more.0.get().map_or(0, |more| size_of_val(&**more))
    }

    /// All values in the order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

/// Reference to an arena, with the number of values at the time of its creation.
pub struct View<'a, T> {
    pub(super) places: &'a Places<T>,
    known: usize,
    arena: &'a Arena<T>,
}

impl<'a, T> View<'a, T> {
    /// Value with this index. If another thread passes on an index that [`Arena::append`] has returned, the value is
    /// found here, whatever memory ordering the thread has used.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&'a T> {
        if number >= self.known {
            return self.added(number);
        }
        // SAFETY: as in `Arena::get`. `known` was at most `len` at some time, and is at most the number of values in
        // this storage.
        Some(unsafe {
            self.places
                .get_unchecked(number)
                .with(|value| (*value).assume_init_ref())
        })
    }

    /// Looks up a value that was appended after the creation of the view, or that is in the further storage.
    #[cold]
    #[inline(never)]
    fn added(&self, number: usize) -> Option<&'a T> {
        // Make all writes before the publication of the index visible.
        fence(Ordering::Acquire);
        self.arena.get(number)
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let len = self.len.load(Ordering::Relaxed);
        for place in (0..len).filter_map(|number| self.place(number)) {
            // SAFETY: the value is initialised, and no other reference to it exists.
            place.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
