//! Slab of records of equal size, in memory that the caller provides. Records are allocated and freed individually.

use bytemuck::Pod;

use crate::memory::Line;
use crate::prefetch::prefetch_all_at;

/// A record type that can store the number of another record in a free record.
pub trait Linked: Pod {
    /// The record number that [`Linked::set_link`] has stored.
    fn link(&self) -> u32;
    /// Stores a record number in a free record.
    fn set_link(&mut self, link: u32);
}

/// Allocator of numbered records.
#[derive(Debug)]
pub struct Slab<'m, R> {
    records: &'m mut [R],
    /// Number of the first record in the list of freed records, plus one; 0 if the list is empty.
    free: u32,
    /// Number of the first record that was never used.
    fresh: u32,
    live: u32,
}

impl<'m, R: Linked> Slab<'m, R> {
    /// Number of memory lines that `records` records need.
    pub const fn lines_for(records: usize) -> usize {
        (records * size_of::<R>()).div_ceil(size_of::<Line>())
    }

    /// Creates a slab of free records. The number of records is `records`, or fewer if `memory` is too small.
    pub fn new(memory: &'m mut [Line], records: usize) -> Self {
        memory.fill(Line::ZERO);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(memory);
        let records = records.min(bytes.len() / size_of::<R>());
        Self {
            records: bytemuck::cast_slice_mut(&mut bytes[..records * size_of::<R>()]),
            free: 0,
            fresh: 0,
            live: 0,
        }
    }

    /// Frees all records.
    pub fn reset(&mut self) {
        debug_assert_eq!(0, self.live);
        (self.free, self.fresh) = (0, 0);
    }

    /// Whether all records are in use.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.live as usize == self.records.len()
    }

    /// Number of records in use.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Whether no record is in use.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Maximum number of records.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Exclusive upper bound of the numbers of records in use.
    pub fn high_water(&self) -> u32 {
        self.fresh
    }

    /// Stores a record and returns its number; `None` if the slab is full.
    #[inline]
    pub fn allocate(&mut self, record: R) -> Option<u32> {
        let number = self.free.checked_sub(1).unwrap_or(self.fresh);
        let place = self.records.get_mut(number as usize)?;
        if self.free == 0 {
            self.fresh += 1;
        } else {
            self.free = place.link();
        }
        *place = record;
        self.live += 1;
        Some(number)
    }

    /// Frees a record, which must be in use.
    #[inline]
    pub fn release(&mut self, number: u32) {
        if let Some(record) = self.records.get_mut(number as usize) {
            *record = R::zeroed();
            record.set_link(self.free);
            self.free = number + 1;
            self.live -= 1;
        }
    }

    /// The record with this number.
    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&R> {
        self.records.get(number as usize)
    }

    /// The record with this number, mutable.
    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut R> {
        self.records.get_mut(number as usize)
    }

    /// Prefetches the record that the next [`Slab::allocate`] writes.
    #[inline(always)]
    pub fn prefetch_allocate(&self) {
        self.prefetch(self.free.checked_sub(1).unwrap_or(self.fresh));
    }

    /// Prefetches a record.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        prefetch_all_at(self.records, number as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
    #[repr(C, packed)]
    struct Odd {
        number: u32,
        rest: [u8; 7],
    }

    impl Linked for Odd {
        fn link(&self) -> u32 {
            self.number
        }
        fn set_link(&mut self, link: u32) {
            self.number = link;
        }
    }

    fn odd(number: u32) -> Odd {
        Odd { number, rest: [1; 7] }
    }

    #[test]
    fn slab_full_refuses_and_gives_each_place_again() {
        let mut memory = vec![Line::ZERO; Slab::<Odd>::lines_for(10)];
        let mut slab = Slab::new(&mut memory, 10);
        let taken: Vec<_> = (0..10).map(|k| slab.allocate(odd(k)).unwrap()).collect();
        assert_eq!((0..10).collect::<Vec<_>>(), taken);
        assert_eq!((None, 10, 10), (slab.allocate(odd(11)), slab.len(), slab.capacity()));
        for k in [3, 7, 1] {
            slab.release(k);
        }
        assert_eq!(Some(&odd(4)), slab.get(4));
        assert_eq!(
            [Some(1), Some(7), Some(3), None],
            [(); 4].map(|()| slab.allocate(odd(20)))
        );
    }
}
