//! The flow table: records of fixed capacity, each found by two keys, one per direction.
//!
//! A lookup is cut in passes, so that a batch hides the latency of memory: [`prefetch`](FlowTable::prefetch) the
//! bucket, take the [`candidate`](FlowTable::candidate) (which prefetches the record), then
//! [`confirm`](FlowTable::confirm) it. An established flow touches one line of the index and the lines of its
//! record. The caller hashes keys, and passes every key with its hash.
//!
//! Whatever the keys, a lookup reads at most two buckets and a stash of 32 entries of each part of the table.
//!
//! A table is one part, its home, and grows by others from a [`Reserve`] that tables share, one at a time, where the home is full: what
//! is in the home costs nothing for that, the others are looked through one after the other.

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
use index::{Entry, Glance, Index};
use sluice_wire::key::Direction;

/// How far ahead of a scan records are asked for.
const SCANNED_AHEAD: u32 = 4;

/// Most records of one table.
pub const CAPACITY_LIMIT: usize = 1 << 30;

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableSizeError {
    /// The memory is not as large as [`FlowTable::lines_for`] says.
    #[error("the flow table needs {needed} lines of memory and got {given}")]
    Memory {
        /// Lines it takes.
        needed: usize,
        /// Lines it got.
        given: usize,
    },
    /// No capacity, or more than [`CAPACITY_LIMIT`].
    #[error("a flow table can't hold {0} records")]
    Capacity(usize),
}

/// Why a record was not inserted. The table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// Every record is in use.
    #[error("the table is full")]
    Full,
    /// Too many keys of the same hash: both buckets and the stash are taken. Keys hashed with a secret seed don't
    /// come here.
    #[error("the places of a key's hash are taken")]
    Crowded,
    /// A key is there already.
    #[error("the {which:?} key is the {direction:?} key of another record")]
    Duplicate {
        /// Which key of the refused record.
        which: Direction,
        /// The record that has it,
        index: RecordIndex,
        /// and as which of its keys.
        direction: Direction,
    },
    /// The two keys of the record are the same.
    #[error("both keys are the same")]
    Mirrored,
}

/// What a bucket says about a hash, before any key was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate(Entry);

impl Candidate {
    /// No record has this hash.
    pub const NONE: Candidate = Candidate(Entry::MAX);
    /// Not in the home bucket, but it may be elsewhere.
    const ELSEWHERE: Candidate = Candidate(Entry::MAX - 1);

    /// Whether no record has this hash: [`FlowTable::confirm`] would say `None`.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// A record and which of its keys was found.
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

/// Records found by the keys of both directions.
#[derive(Debug)]
pub struct FlowTable<'m, R> {
    home: Part<'m, R>,
    /// What came from the reserve, in the order of its records' places.
    further: Vec<Part<'m, R>>,
    reserve: Option<Arc<Reserve<Part<'m, R>>>>,
}

impl<'m, R: Record> FlowTable<'m, R> {
    /// Lines of memory for a table of `capacity` records, without what it takes from a reserve.
    pub const fn lines_for(capacity: usize) -> usize {
        const { assert!(size_of::<R>().is_multiple_of(LINE) && align_of::<R>() <= LINE) };
        Index::buckets_for(capacity) + capacity * (size_of::<R>() / LINE)
    }

    /// An empty table of `capacity` records. All of its memory is written, and what it held is lost; memory beyond
    /// [`lines_for`](Self::lines_for) is left alone.
    pub fn new(memory: &'m mut [Line], capacity: usize) -> Result<Self, TableSizeError> {
        Ok(FlowTable {
            home: Part::new(memory, capacity)?,
            further: Vec::new(),
            reserve: None,
        })
    }

    /// Take further parts from a reserve, all of one size, where this table is full, and give them back when they are empty.
    pub fn share(&mut self, reserve: Arc<Reserve<Part<'m, R>>>) {
        self.further.reserve(reserve.available());
        self.reserve = Some(reserve);
    }

    /// Records in use.
    pub fn len(&self) -> usize {
        let further: u32 = self.further.iter().map(|part| part.live).sum();
        (self.home.live + further) as usize
    }

    /// Whether no record is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most records, as far as it can be said: what is left in the reserve may be another's the next moment.
    pub fn capacity(&self) -> usize {
        let left = self.reserve.as_ref().map_or(0, |reserve| reserve.available());
        let each = self
            .further
            .first()
            .map_or(self.home.records.len(), |part| part.records.len());
        self.home.records.len() + (self.further.len() + left) * each
    }

    /// Whether so many more records find room, as far as it can be said.
    #[inline(always)]
    pub fn has_capacity_for(&self, count: usize) -> bool {
        self.home.live as usize + count <= self.home.records.len() || self.has_capacity_further(count)
    }

    #[cold]
    fn has_capacity_further(&self, count: usize) -> bool {
        self.len() + count <= self.capacity()
    }

    /// Bytes of memory: records, index and the table itself.
    pub fn bytes(&self) -> usize {
        let parts = core::iter::once(&self.home).chain(&self.further);
        let lines: usize = parts.map(|part| Self::lines_for(part.records.len())).sum();
        lines * LINE + size_of::<Self>()
    }

    /// First pass: ask for the bucket of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.home.index.prefetch(hash);
    }

    /// Second pass: the record that probably has the key of this hash, all its lines asked for.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Candidate {
        match self.home.index.glance(hash) {
            Glance::Entry(entry) => {
                prefetch_all_far_at(self.home.records, (entry >> 1) as usize);
                Candidate(entry)
            }
            Glance::Elsewhere => Candidate::ELSEWHERE,
            Glance::Nothing if self.further.is_empty() => Candidate::NONE,
            Glance::Nothing => self.candidate_further(hash),
        }
    }

    /// Asks for the buckets of all other parts.
    #[cold]
    fn candidate_further(&self, hash: u64) -> Candidate {
        for part in &self.further {
            part.index.prefetch(hash);
        }
        Candidate::ELSEWHERE
    }

    /// Shortly before the third pass: the candidate's lines come near.
    #[inline(always)]
    pub fn prefetch_candidate(&self, candidate: Candidate) {
        prefetch_all_at(self.home.records, (candidate.0 >> 1) as usize);
    }

    /// What the candidate's record holds, whosever it is: to ask for what it leads to before it is known to be the one.
    #[inline(always)]
    pub fn peek(&self, candidate: Candidate) -> Option<&R> {
        self.home.records.get((candidate.0 >> 1) as usize)
    }

    /// Third pass: the record that has this key, and as which direction's.
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

    /// The record that has this key, in one go.
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

    /// `out[k]` becomes what has `keys[k]`, whose hash is `hashes[k]`, as far as all three reach.
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

    /// The record at `index`; `None` where there is no such place. Which records are in use the caller knows, or asks
    /// [`Links::is_live`].
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

    /// The record at `index`, to write; its keys must stay as they are.
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

    /// Which of the further parts has a place; none where it is the home's.
    fn place_of(&self, index: RecordIndex) -> Option<usize> {
        let first = self.further.first()?;
        Some(index.0.checked_sub(first.base)? as usize / first.records.len())
    }

    /// The part that has a place.
    fn part_mut(&mut self, index: RecordIndex) -> Option<&mut Part<'m, R>> {
        if (index.0 as usize) < self.home.records.len() {
            return Some(&mut self.home);
        }
        let place = self.place_of(index)?;
        self.further.get_mut(place)
    }

    /// Ask for the record that the next insertion will write.
    #[inline(always)]
    pub fn prefetch_insert(&self) {
        prefetch_all_at(self.home.records, self.home.next() as usize);
    }

    /// Ask for the lines of the record at `index`.
    #[inline(always)]
    pub fn prefetch_record(&self, index: RecordIndex) {
        match self.place_of(index).and_then(|place| self.further.get(place)) {
            Some(part) => prefetch_all_at(part.records, (index.0 - part.base) as usize),
            None => prefetch_all_at(self.home.records, index.0 as usize),
        }
    }

    /// Insert a record, found from now on by its forward and its reverse key, whose hashes these are. Asks for the
    /// record that the next insertion will write.
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

    /// The same where the home is full: into the first other part that has room, or one more.
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

    /// Remove the record at `index`, whose keys have these hashes. `None`, and nothing changed, where there is no
    /// such record, a hash is not its key's, or it is still scheduled on a wheel: cancel that first.
    pub fn remove(&mut self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> Option<R> {
        let removed = self.part_mut(index)?.remove(index, forward_hash, reverse_hash);
        if !self.further.is_empty() {
            self.release_parts();
        }
        removed
    }

    /// Give the last parts back that are empty.
    #[cold]
    fn release_parts(&mut self) {
        let Some(reserve) = &self.reserve else { return };
        while let Some(part) = self.further.pop_if(|part| part.live == 0) {
            reserve.release(part.emptied());
        }
    }

    /// Whether the record at `index` is in use and its keys have these hashes.
    pub(crate) fn holds(&self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> bool {
        let place = self.place_of(index);
        let part = place.map_or(Some(&self.home), |place| self.further.get(place));
        self.get(index).is_some_and(|record| record.links().is_live())
            && part.is_some_and(|part| part.holds(index, forward_hash, reverse_hash))
    }

    /// Visit the records in use among the next `count` places from `cursor` on (0 to begin), for listing in small
    /// pieces. Returns the cursor of the next piece; `None` after the last. A record that lives from the first
    /// piece to the last is visited exactly once.
    pub fn scan(&self, cursor: u32, count: u32, mut visit: impl FnMut(RecordIndex, &R)) -> Option<u32> {
        let last = self.further.last().unwrap_or(&self.home);
        let reach = last.base + last.fresh;
        let end = reach.min(cursor.saturating_add(count));
        for index in cursor..end {
            self.prefetch_record(RecordIndex(index.saturating_add(SCANNED_AHEAD)));
            if let Some(record) = self.get(RecordIndex(index))
                && record.links().is_live()
            {
                visit(RecordIndex(index), record);
            }
        }
        (end < reach).then_some(end)
    }
}
