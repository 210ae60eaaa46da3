//! A part of a flow table: records, and their index by key.

use sluice_wire::key::Direction;

use super::index::{Bucket, Index};
use super::{CAPACITY_LIMIT, FlowTable, Found, InsertError, Links, Record, RecordIndex, TableSizeError, pack, unpack};
use crate::memory::{LINE, Line};

/// Records of a flow table, with their index.
#[derive(Debug)]
pub struct Part<'m, R> {
    pub(super) index: Index<'m>,
    pub(super) records: &'m mut [R],
    /// Index of the part's first record in the flow table.
    pub(super) base: u32,
    /// First record in the list of freed records.
    free: Option<RecordIndex>,
    /// Index of the first record that was never used.
    pub(super) fresh: u32,
    pub(super) live: u32,
}

impl<'m, R: Record> Part<'m, R> {
    /// Creates an empty part of `capacity` records. `memory` has the size of [`FlowTable::lines_for`] and is
    /// overwritten; memory beyond that size is not used.
    pub fn new(memory: &'m mut [Line], capacity: usize) -> Result<Self, TableSizeError> {
        if capacity == 0 || capacity > CAPACITY_LIMIT {
            return Err(TableSizeError::Capacity(capacity));
        }
        let (needed, provided) = (FlowTable::<R>::lines_for(capacity), memory.len());
        let Some(memory) = memory.get_mut(..needed) else {
            return Err(TableSizeError::Memory { needed, provided });
        };
        // The records come before the index. If the memory is aligned, the two cache lines of a record then form a pair
        // that processors fetch together.
        let (records, buckets) = memory.split_at_mut(capacity * (size_of::<R>() / LINE));
        records.fill(Line::ZERO);
        Ok(Part {
            index: Index::new(bytemuck::cast_slice_mut::<Line, Bucket>(buckets)),
            records: bytemuck::cast_slice_mut(records),
            base: 0,
            free: None,
            fresh: 0,
            live: 0,
        })
    }

    /// Resets an empty part to its initial state.
    pub(super) fn reset(self) -> Self {
        debug_assert_eq!(0, self.live);
        Part {
            base: 0,
            free: None,
            fresh: 0,
            ..self
        }
    }

    /// Index of the record that the next insertion writes.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.free.map_or(self.base + self.fresh, |index| index.0)
    }

    /// Whether all records are in use.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.free.is_none() && self.fresh as usize == self.records.len()
    }

    /// The record that has this key.
    pub(super) fn find(&self, hash: u64, key: &R::Key) -> Option<Found> {
        let is_match = |entry| {
            let (index, direction) = unpack(entry);
            let place = index.0.wrapping_sub(self.base) as usize;
            self.records
                .get(place)
                .is_some_and(|record| record.matches(key, direction))
        };
        self.index.find(hash, is_match).map(unpack)
    }

    /// Inserts a record. The keys of the record must not be in the part.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        forward_hash: u64,
        reverse_hash: u64,
        record: R,
    ) -> Result<RecordIndex, InsertError> {
        let index = RecordIndex(self.next());
        let Some(place) = self.records.get_mut((index.0 - self.base) as usize) else {
            return Err(InsertError::Full);
        };
        if !self.index.place(forward_hash, pack(index, Direction::Forward)) {
            return Err(InsertError::Crowded);
        }
        if !self.index.place(reverse_hash, pack(index, Direction::Reverse)) {
            self.index.take(forward_hash, pack(index, Direction::Forward));
            return Err(InsertError::Crowded);
        }
        match self.free {
            Some(_) => self.free = place.links().next(),
            None => self.fresh += 1,
        }
        *place = record;
        *place.links_mut() = Links::IDLE;
        self.live += 1;
        Ok(index)
    }

    /// Removes the record at `index`; see [`FlowTable::remove`].
    #[inline(always)]
    pub(super) fn remove(&mut self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> Option<R> {
        let place = self.records.get_mut(index.0.checked_sub(self.base)? as usize)?;
        let (forward, reverse) = (pack(index, Direction::Forward), pack(index, Direction::Reverse));
        if !place.links().is_live() || place.links().is_scheduled() || !self.index.take(forward_hash, forward) {
            return None;
        }
        if !self.index.take(reverse_hash, reverse) {
            // The insertion succeeds: either the entry's former position is still free, or an entry was moved there and
            // has left another position free.
            let back = self.index.place(forward_hash, forward);
            debug_assert!(back);
            return None;
        }
        let record = *place;
        *place.links_mut() = Links::free(self.free);
        self.free = Some(index);
        self.live -= 1;
        Some(record)
    }

    /// Whether the keys of the record at `index` have these hashes.
    pub(super) fn holds(&self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> bool {
        self.index.holds(forward_hash, pack(index, Direction::Forward))
            && self.index.holds(reverse_hash, pack(index, Direction::Reverse))
    }
}
