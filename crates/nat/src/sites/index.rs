//! Hash index with two candidate buckets for each hash. One thread writes it, and all threads read it.

use super::sync::{AtomicU32, Ordering};

/// Number of slots in a bucket. An entry is in one of two buckets.
const BUCKET: usize = 8;

/// Index of numbers by hash. The caller's predicate determines whether a number matches.
#[derive(Debug)]
pub struct Index {
    /// Slots: a number plus 1, or 0 if the slot is empty.
    places: Box<[AtomicU32]>,
}

impl Index {
    /// Creates an index for `capacity` entries. The index is at most half full, which makes two full buckets rare.
    pub fn new(capacity: usize) -> Self {
        let places = (2 * capacity).next_power_of_two().max(2 * BUCKET);
        Self {
            places: (0..places).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    fn buckets(&self, hash: u64) -> [&[AtomicU32]; 2] {
        let buckets = self.places.len() / BUCKET;
        let bucket = |half: u64| {
            let first = half as usize % buckets * BUCKET;
            &self.places[first..first + BUCKET]
        };
        [bucket(hash), bucket(hash >> 32)]
    }

    /// The number that has this hash and satisfies the predicate.
    #[inline]
    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let places = self.buckets(hash).into_iter().flatten();
        let mut numbers = places.filter_map(|place| place.load(Ordering::Acquire).checked_sub(1));
        numbers.find(|&number| is(number))
    }

    /// Inserts a number. Returns false, without effect, if both buckets are full. Only one thread may call this.
    #[must_use]
    pub fn insert(&self, hash: u64, number: u32) -> bool {
        let free = |bucket: &[AtomicU32]| bucket.iter().filter(|place| place.load(Ordering::Relaxed) == 0).count();
        let [one, other] = self.buckets(hash);
        let bucket = if free(one) >= free(other) { one } else { other };
        let place = bucket.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        if let Some(place) = place {
            place.store(number + 1, Ordering::Release);
        }
        place.is_some()
    }

    /// Removes a number. Only the inserting thread may call this.
    pub fn remove(&self, hash: u64, number: u32) {
        let places = self.buckets(hash).into_iter().flatten();
        let mut own = places.filter(|place| place.load(Ordering::Relaxed) == number + 1);
        if let Some(place) = own.next() {
            place.store(0, Ordering::Release);
        }
    }
}
