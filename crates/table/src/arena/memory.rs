//! Which places of the arena have a value.
#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;

use super::sync::{AtomicUsize, Cell, Mutex, Ordering, fence};

/// Values by number.
pub struct Arena<T> {
    pub(super) places: Box<[Cell<MaybeUninit<T>>]>,
    /// Places below have a value, which nobody changes any more. It only grows.
    len: AtomicUsize,
    /// Who holds it may write the place at `len`.
    appending: Mutex<()>,
}

// SAFETY: a place is written by one thread at a time, who holds `appending`, and only before `len` says that it may be read;
// the store and load of `len` order the two. So threads share values (`T: Sync`), and one may drop what another made (`Send`).
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

impl<T> Arena<T> {
    /// Of values, with room for so many more.
    pub fn new(values: Vec<T>, room: usize) -> Self {
        let len = values.len();
        let values = values.into_iter().map(MaybeUninit::new);
        let empty = core::iter::repeat_with(MaybeUninit::uninit).take(room);
        Self {
            places: values.chain(empty).map(Cell::new).collect(),
            len: AtomicUsize::new(len),
            appending: Mutex::new(()),
        }
    }

    /// The value of a number.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&T> {
        if number >= self.len.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `len` is never more than there are places. Those below it have a value, which is written no more before
        // `self` is dropped.
        Some(unsafe { self.places.get_unchecked(number).with(|value| (*value).assume_init_ref()) })
    }

    /// To look at many.
    #[inline(always)]
    pub fn view(&self) -> View<'_, T> {
        View {
            places: &self.places,
            known: self.len(),
            arena: self,
        }
    }

    /// Add one, and say its number; it comes back where there is no room.
    pub fn append(&self, value: T) -> Result<usize, T> {
        self.append_all(vec![value])
            .map_err(|mut values| values.remove(0))
    }

    /// Add values side by side, and say the number of the first; they come back where there is no room for all.
    pub fn append_all(&self, values: Vec<T>) -> Result<usize, Vec<T>> {
        let Ok(_alone) = self.appending.lock() else {
            return Err(values);
        };
        let first = self.len.load(Ordering::Relaxed);
        if values.len() > self.places.len() - first {
            return Err(values);
        }
        let added = values.len();
        for (place, value) in self.places[first..].iter().zip(values) {
            // SAFETY: nobody reads a place that is not below `len`, and who else would write it waits for `appending`.
            place.with_mut(|place| unsafe { (*place).write(value) });
        }
        self.len.store(first + added, Ordering::Release);
        Ok(first)
    }

    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more there may be.
    pub fn room(&self) -> usize {
        self.places.len() - self.len()
    }

    /// Bytes that it takes, room included.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

/// An arena, and how many values it had when it was first looked at.
pub struct View<'a, T> {
    pub(super) places: &'a [Cell<MaybeUninit<T>>],
    known: usize,
    arena: &'a Arena<T>,
}

impl<'a, T> View<'a, T> {
    /// The value of a number. One that was read, in whatever order, where another thread left it after [`Arena::append`] has
    /// its value.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&'a T> {
        if number >= self.known {
            return self.added(number);
        }
        // SAFETY: as in `Arena::get`; `known` was `len` once.
        Some(unsafe { self.places.get_unchecked(number).with(|value| (*value).assume_init_ref()) })
    }

    /// The same of a value that is newer than the view.
    #[cold]
    #[inline(never)]
    fn added(&self, number: usize) -> Option<&'a T> {
        // What was done before the number was left is seen after this.
        fence(Ordering::Acquire);
        self.arena.get(number)
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let len = self.len.load(Ordering::Relaxed);
        for place in &self.places[..len] {
            // SAFETY: it has a value, and nobody can look at it any more.
            place.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
