//! Which places of the arena have a value.
#![allow(unsafe_code)]

use core::fmt;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

use super::sync::{AtomicUsize, Cell, Mutex, Ordering, fence};

type Places<T> = [Cell<MaybeUninit<T>>];

/// Values by number.
pub struct Arena<T> {
    pub(super) places: Box<Places<T>>,
    /// Places behind those, of which there are none before they are needed, and so many then.
    more: (OnceLock<Box<Places<T>>>, usize),
    /// Places below have a value, which nobody changes any more. It only grows.
    len: AtomicUsize,
    /// Who holds it may write the place at `len`.
    appending: Mutex<()>,
}

// SAFETY: a place is written by one thread at a time, who holds `appending`, and only before `len` says that it may be read;
// the store and load of `len` order the two. So threads share values (`T: Sync`), and one may drop what another made (`Send`).
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

fn empty<T>(places: usize) -> impl Iterator<Item = Cell<MaybeUninit<T>>> {
    core::iter::repeat_with(|| Cell::new(MaybeUninit::uninit())).take(places)
}

impl<T> Arena<T> {
    /// Of values, with room for so many more beside them, and for so `many` that takes memory and time only when it is used.
    pub fn new(values: Vec<T>, room: usize, many: usize) -> Self {
        let len = values.len();
        let values = values.into_iter().map(|value| Cell::new(MaybeUninit::new(value)));
        Self {
            places: values.chain(empty(room)).collect(),
            more: (OnceLock::new(), many),
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
        let place = self.place(number)?;
        // SAFETY: places below `len` have a value, which is written no more before `self` is dropped.
        Some(unsafe { place.with(|value| (*value).assume_init_ref()) })
    }

    #[inline(always)]
    fn place(&self, number: usize) -> Option<&Cell<MaybeUninit<T>>> {
        match number.checked_sub(self.places.len()) {
            None => self.places.get(number),
            Some(behind) => self.more.0.get()?.get(behind),
        }
    }

    /// To look at many.
    #[inline(always)]
    pub fn view(&self) -> View<'_, T> {
        View {
            places: &self.places,
            known: self.len().min(self.places.len()),
            arena: self,
        }
    }

    /// Add one, and say its number; it comes back where there is no room.
    pub fn append(&self, value: T) -> Result<usize, T> {
        self.append_all(vec![value]).map_err(|mut values| values.remove(0))
    }

    /// Add values side by side, and say the number of the first; they come back where there is no room for all.
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
                // SAFETY: nobody reads a place that is not below `len`, and who else would write it waits for `appending`.
                place.with_mut(|place| unsafe { (*place).write(value) });
            }
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

    fn max_len(&self) -> usize {
        self.places.len() + self.more.1
    }

    /// How many more there may be.
    pub fn capacity_left(&self) -> usize {
        self.max_len() - self.len()
    }

    /// Bytes that it takes, room beside the values included.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + self.more.0.get().map_or(0, |more| size_of_val(&**more))
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

/// An arena, and how many values it had when it was first looked at.
pub struct View<'a, T> {
    pub(super) places: &'a Places<T>,
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
        // SAFETY: as in `Arena::get`. `known` was no more than `len` once, and is no more than there are places here.
        Some(unsafe {
            self.places
                .get_unchecked(number)
                .with(|value| (*value).assume_init_ref())
        })
    }

    /// The same of a value that is newer than the view, or does not lie beside the first ones.
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
        for place in (0..len).filter_map(|number| self.place(number)) {
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
