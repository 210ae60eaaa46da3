//! The flow table. Each record has two keys, one for each direction of its flow.
//!
//! A lookup has three passes, which hides memory latency in a batch. [`prefetch`](FlowTable::prefetch) prefetches the
//! bucket, [`candidate`](FlowTable::candidate) finds and prefetches a record, and [`confirm`](FlowTable::confirm)
//! compares its key. The lookup of an established flow reads one line of the index and the lines of the record. The
//! caller computes the hashes of keys.
//!
//! For any keys, a lookup reads at most two buckets and a stash of 32 entries in each part of the table.
//!
//! A table has one home part. When the home part is full, the table takes further parts, one at a time, from a
//! [`Reserve`] that several tables share. Further parts do not slow down lookups of records in the home part. Other
//! lookups search the further parts one after another.

mod index;
mod part;
mod record;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use part::Part;
pub(crate) use record::Previous;
pub use record::{Links, Record, RecordIndex};

use crate::memory::{LINE, Line};
use crate::prefetch::{prefetch_all_at, prefetch_all_far_at};
use crate::reserve::Reserve;
use index::{Entry, HomeLookup, Index};
use sluice_wire::key::Direction;

/// Number of records that a scan prefetches in advance.
const PREFETCH_DISTANCE: u32 = 4;

/// Maximum number of records in a table.
pub const CAPACITY_LIMIT: usize = 1 << 30;

/// Why a table can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableSizeError {
    /// The memory is smaller than [`FlowTable::lines_for`] requires.
    #[error("the flow table needs {needed} cache lines of memory, but got {provided}")]
    Memory {
        /// Required number of lines.
        needed: usize,
        /// Provided number of lines.
        provided: usize,
    },
    /// The capacity is 0 or more than [`CAPACITY_LIMIT`].
    #[error("a flow table can't hold {0} records")]
    Capacity(usize),
}

/// Why a record was not inserted. The table remains unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// All records are in use.
    #[error("the table is full")]
    Full,
    /// Too many keys have one hash: both buckets and the stash are full. Does not occur with hashes that are keyed with
    /// a secret seed.
    #[error("the hash buckets of a key are full")]
    Crowded,
    /// One of the keys is already in the table.
    #[error("the {which:?} key is the {direction:?} key of another record")]
    Duplicate {
        /// Direction of the duplicate key in the rejected record.
        which: Direction,
        /// The existing record with this key.
        index: RecordIndex,
        /// Direction of the key in the existing record.
        direction: Direction,
    },
    /// Both keys of the record are equal.
    #[error("the two keys of the record are equal")]
    Mirrored,
}

/// Result of a lookup by hash, before the keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate(Entry);

impl Candidate {
    /// No record has this hash.
    pub const NONE: Candidate = Candidate(Entry::MAX);
    /// The home bucket contains no candidate, but the alternative bucket, the stash or a further part may contain one.
    const DISPLACED: Candidate = Candidate(Entry::MAX - 1);

    /// Whether no record has this hash, so that [`FlowTable::confirm`] would return `None`.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// A record, and the direction of its matching key.
pub type Found = (RecordIndex, Direction);

#[inline(always)]
fn pack(index: RecordIndex, direction: Direction) -> Entry {
    index.0 << 1 | direction as u32
}

#[inline(always)]
fn unpack(entry: Entry) -> Found {
    let direction = if entry & 1 == 0 {
        Direction::Forward
    } else {
        Direction::Reverse
    };
    (RecordIndex(entry >> 1), direction)
}

/// A table of records with lookups by the key of either direction.
#[derive(Debug)]
pub struct FlowTable<'m, R> {
    home: Part<'m, R>,
    /// Parts from the reserve, sorted by the indexes of their records.
    further: Vec<Part<'m, R>>,
    reserve: Option<Arc<Reserve<Part<'m, R>>>>,
}

impl<'m, R: Record> FlowTable<'m, R> {
    /// Number of memory lines for a table of `capacity` records, excluding parts from a reserve.
    pub const fn lines_for(capacity: usize) -> usize {
        const { assert!(size_of::<R>().is_multiple_of(LINE) && align_of::<R>() <= LINE) };
        Index::buckets_for(capacity) + capacity * (size_of::<R>() / LINE)
    }

    /// Creates an empty table of `capacity` records. Overwrites the memory; memory beyond
    /// [`lines_for`](Self::lines_for) is not used.
    pub fn new(memory: &'m mut [Line], capacity: usize) -> Result<Self, TableSizeError> {
        Ok(FlowTable {
            home: Part::new(memory, capacity)?,
            further: Vec::new(),
            reserve: None,
        })
    }

    /// Sets the reserve from which a full table takes further parts. All parts have the size of the home part. The
    /// table returns empty parts to the reserve.
    pub fn share(&mut self, reserve: Arc<Reserve<Part<'m, R>>>) {
        self.further.reserve(reserve.available());
        self.reserve = Some(reserve);
    }

    /// Number of records in use.
    pub fn len(&self) -> usize {
        let further: u32 = self.further.iter().map(|part| part.live).sum();
        (self.home.live + further) as usize
    }

    /// Whether no record is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated maximum number of records, including the reserve. Other tables may take parts of the reserve at any
    /// time.
    pub fn capacity(&self) -> usize {
        let remaining = self.reserve.as_ref().map_or(0, |reserve| reserve.available());
        let each = self
            .further
            .first()
            .map_or(self.home.records.len(), |part| part.records.len());
        self.home.records.len() + (self.further.len() + remaining) * each
    }

    /// Whether the table probably has space for `count` more records.
    #[inline(always)]
    pub fn has_capacity_for(&self, count: usize) -> bool {
        self.home.live as usize + count <= self.home.records.len() || self.has_capacity_further(count)
    }

    #[cold]
    fn has_capacity_further(&self, count: usize) -> bool {
        self.len() + count <= self.capacity()
    }

    /// Size of the memory in bytes: records, index, and the table itself.
    pub fn bytes(&self) -> usize {
        let parts = core::iter::once(&self.home).chain(&self.further);
        let lines: usize = parts.map(|part| Self::lines_for(part.records.len())).sum();
        lines * LINE + size_of::<Self>()
    }

    /// First pass: prefetches the bucket of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.home.index.prefetch(hash);
    }

    /// Second pass: finds the record that probably has the key of this hash, and prefetches all cache lines of the
    /// record.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Candidate {
        match self.home.index.lookup_home(hash) {
            HomeLookup::Entry(entry) => {
                prefetch_all_far_at(self.home.records, (entry >> 1) as usize);
                Candidate(entry)
            }
            HomeLookup::Displaced => Candidate::DISPLACED,
            HomeLookup::Nothing if self.further.is_empty() => Candidate::NONE,
            HomeLookup::Nothing => self.candidate_further(hash),
        }
    }

    /// Prefetches the buckets of a hash in all further parts.
    #[cold]
    fn candidate_further(&self, hash: u64) -> Candidate {
        for part in &self.further {
            part.index.prefetch(hash);
        }
        Candidate::DISPLACED
    }

    /// Optional step before the third pass: prefetches the candidate's lines into the first-level cache.
    #[inline(always)]
    pub fn prefetch_candidate(&self, candidate: Candidate) {
        prefetch_all_at(self.home.records, (candidate.0 >> 1) as usize);
    }

    /// The candidate's record, without a comparison of its key. The caller may use the record only for prefetches of
    /// further data.
    #[inline(always)]
    pub fn peek(&self, candidate: Candidate) -> Option<&R> {
        self.home.records.get((candidate.0 >> 1) as usize)
    }

    /// Third pass: the record that has this key, and the key's direction.
    #[inline(always)]
    pub fn confirm(&self, hash: u64, candidate: Candidate, key: &R::Key) -> Option<Found> {
        let (index, direction) = unpack(candidate.0);
        if let Some(record) = self.home.records.get(index.0 as usize)
            && record.matches(key, direction)
        {
            return Some((index, direction));
        }
        if candidate.is_none() {
            None
        } else {
            self.search(hash, key)
        }
    }

    /// Third pass, first part: the candidate's record, if it has the key, according to `has_key`. Otherwise another record may
    /// have the key, unless the candidate is none: see [`search_mut`](Self::search_mut). The caller must not change the keys of
    /// the record.
    #[inline(always)]
    pub fn candidate_mut(
        &mut self,
        candidate: Candidate,
        has_key: impl FnOnce(&R, Direction) -> bool,
    ) -> Option<(Found, &mut R)> {
        let (index, direction) = unpack(candidate.0);
        let record = self.home.records.get_mut(index.0 as usize)?;
        has_key(record, direction).then_some(((index, direction), record))
    }

    /// Third pass, second part: the record that has this key, wherever it lies.
    #[cold]
    #[inline(never)]
    pub fn search_mut(&mut self, hash: u64, key: &R::Key) -> Option<(Found, &mut R)> {
        let found = self.search(hash, key)?;
        Some((found, self.get_mut(found.0)?))
    }

    /// Looks up a single key without separate passes.
    #[inline]
    pub fn find(&self, hash: u64, key: &R::Key) -> Option<Found> {
        self.confirm(hash, self.candidate(hash), key)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, hash: u64, key: &R::Key) -> Option<Found> {
        let parts = core::iter::once(&self.home).chain(&self.further);
        parts.into_iter().find_map(|part| part.find(hash, key))
    }

    /// Sets `out[k]` to the result for `keys[k]`, whose hash is `hashes[k]`. If the slices differ in length, only as
    /// many keys are looked up as the shortest slice has elements.
    pub fn find_batch(&self, hashes: &[u64], keys: &[R::Key], out: &mut [Option<Found>]) {
        const BATCH: usize = 64;
        let mut candidates = [Candidate::NONE; BATCH];
        for ((hashes, keys), out) in hashes.chunks(BATCH).zip(keys.chunks(BATCH)).zip(out.chunks_mut(BATCH)) {
            for &hash in hashes {
                self.prefetch(hash);
            }
            for (&hash, candidate) in hashes.iter().zip(&mut candidates) {
                *candidate = self.candidate(hash);
            }
            for (((&hash, key), &candidate), out) in hashes.iter().zip(keys).zip(&candidates).zip(out) {
                *out = self.confirm(hash, candidate, key);
            }
        }
    }

    /// The record at `index`; `None` if the index is out of range. The record may be free. Callers that can't exclude a
    /// free record must check [`Links::is_live`].
    #[inline(always)]
    pub fn get(&self, index: RecordIndex) -> Option<&R> {
        match self.home.records.get(index.0 as usize) {
            Some(record) => Some(record),
            None => self.get_further(index),
        }
    }

    #[cold]
    fn get_further(&self, index: RecordIndex) -> Option<&R> {
        let part = self.further.get(self.place_of(index)?)?;
        part.records.get((index.0 - part.base) as usize)
    }

    /// The record at `index`, mutable. The caller must not change its keys.
    #[inline(always)]
    pub fn get_mut(&mut self, index: RecordIndex) -> Option<&mut R> {
        let at = index.0 as usize;
        if at < self.home.records.len() {
            return self.home.records.get_mut(at);
        }
        self.get_further_mut(index)
    }

    #[cold]
    fn get_further_mut(&mut self, index: RecordIndex) -> Option<&mut R> {
        let place = self.place_of(index)?;
        let part = self.further.get_mut(place)?;
        part.records.get_mut((index.0 - part.base) as usize)
    }

    /// Position in `further` of the part that contains an index; `None` for the home part.
    fn place_of(&self, index: RecordIndex) -> Option<usize> {
        let first = self.further.first()?;
        Some(index.0.checked_sub(first.base)? as usize / first.records.len())
    }

    /// The part that contains an index, mutable.
    fn part_mut(&mut self, index: RecordIndex) -> Option<&mut Part<'m, R>> {
        if (index.0 as usize) < self.home.records.len() {
            return Some(&mut self.home);
        }
        let place = self.place_of(index)?;
        self.further.get_mut(place)
    }

    /// Prefetches the record that the next insertion writes.
    #[inline(always)]
    pub fn prefetch_insert(&self) {
        prefetch_all_at(self.home.records, self.home.next() as usize);
    }

    /// Prefetches the lines of the record at `index`.
    #[inline(always)]
    pub fn prefetch_record(&self, index: RecordIndex) {
        match self.place_of(index).and_then(|place| self.further.get(place)) {
            Some(part) => prefetch_all_at(part.records, (index.0 - part.base) as usize),
            None => prefetch_all_at(self.home.records, index.0 as usize),
        }
    }

    /// Inserts a record with the hashes of its forward and reverse key. Prefetches the record that the next insertion
    /// writes.
    pub fn insert(&mut self, forward_hash: u64, reverse_hash: u64, record: R) -> Result<RecordIndex, InsertError> {
        let reverse_key = record.key(Direction::Reverse);
        if forward_hash == reverse_hash && record.matches(&reverse_key, Direction::Forward) {
            return Err(InsertError::Mirrored);
        }
        for (which, hash) in [(Direction::Forward, forward_hash), (Direction::Reverse, reverse_hash)] {
            if let Some((index, direction)) = self.find(hash, &record.key(which)) {
                return Err(InsertError::Duplicate {
                    which,
                    index,
                    direction,
                });
            }
        }
        if self.home.is_full() {
            return self.insert_further(forward_hash, reverse_hash, record);
        }
        let inserted = self.home.insert(forward_hash, reverse_hash, record);
        self.prefetch_insert();
        inserted
    }

    /// Inserts a record when the home part is full: into the first further part that has space, or else into a new part
    /// from the reserve.
    #[cold]
    fn insert_further(&mut self, forward_hash: u64, reverse_hash: u64, record: R) -> Result<RecordIndex, InsertError> {
        let place = match self.further.iter().position(|part| !part.is_full()) {
            Some(place) => place,
            None => {
                let mut part = self
                    .reserve
                    .as_ref()
                    .and_then(|reserve| reserve.allocate())
                    .ok_or(InsertError::Full)?;
                let last = self.further.last().unwrap_or(&self.home);
                part.base = last.base + last.records.len() as u32;
                self.further.push(part);
                self.further.len() - 1
            }
        };
        let part = self.further.get_mut(place).ok_or(InsertError::Full)?;
        part.insert(forward_hash, reverse_hash, record)
    }

    /// Removes the record at `index`. The hashes must be the hashes of its keys. The caller must cancel the record's
    /// schedule on a timer wheel before. Returns `None`, without effect, if the record does not exist or is scheduled,
    /// or if a hash is wrong.
    pub fn remove(&mut self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> Option<R> {
        let removed = self.part_mut(index)?.remove(index, forward_hash, reverse_hash);
        if !self.further.is_empty() {
            self.release_parts();
        }
        removed
    }

    /// Returns trailing empty parts to the reserve.
    #[cold]
    fn release_parts(&mut self) {
        let Some(reserve) = &self.reserve else { return };
        while let Some(part) = self.further.pop_if(|part| part.live == 0) {
            reserve.release(part.reset());
        }
    }

    /// Whether the record at `index` is in use and its keys have these hashes.
    pub(crate) fn holds(&self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> bool {
        let place = self.place_of(index);
        let part = place.map_or(Some(&self.home), |place| self.further.get(place));
        self.get(index).is_some_and(|record| record.links().is_live())
            && part.is_some_and(|part| part.holds(index, forward_hash, reverse_hash))
    }

    /// Scans the table in small steps: visits the records in use among the next `count` indexes, starting at `cursor`.
    /// The first cursor is 0. Returns the next cursor, or `None` after the last index. A record that is in use during
    /// the whole scan is visited exactly once.
    pub fn scan(&self, cursor: u32, count: u32, mut visit: impl FnMut(RecordIndex, &R)) -> Option<u32> {
        let last = self.further.last().unwrap_or(&self.home);
        let reach = last.base + last.fresh;
        let end = reach.min(cursor.saturating_add(count));
        for index in cursor..end {
            self.prefetch_record(RecordIndex(index.saturating_add(PREFETCH_DISTANCE)));
            if let Some(record) = self.get(RecordIndex(index))
                && record.links().is_live()
            {
                visit(RecordIndex(index), record);
            }
        }
        (end < reach).then_some(end)
    }
}
