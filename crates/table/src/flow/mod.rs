//! The flow table: records of fixed capacity, each found by two keys, one per direction.
//!
//! A lookup is cut in passes, so that a batch hides the latency of memory: [`prefetch`](FlowTable::prefetch) the
//! bucket, take the [`candidate`](FlowTable::candidate) (which prefetches the record), then
//! [`confirm`](FlowTable::confirm) it. An established flow touches one line of the index and the lines of its
//! record. The caller hashes keys, and passes every key with its hash.
//!
//! Whatever the keys, a lookup reads at most two buckets and a stash of 32 entries.

mod index;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use record::Previous;
pub use record::{Links, Record, RecordIndex};

use crate::memory::{LINE, Line};
use crate::prefetch::{prefetch_all_at, prefetch_all_far_at};
use index::{Bucket, Entry, Glance, Index};
use sluice_wire::key::Direction;

/// How far ahead of a scan records are asked for.
const SCANNED_AHEAD: usize = 4;

/// Most records of one table.
pub const CAPACITY_LIMIT: usize = 1 << 30;

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
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
pub enum Refused {
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
    index: Index<'m>,
    records: &'m mut [R],
    /// Head of the list of records that were used and are free.
    free: Option<RecordIndex>,
    /// Records from here on were never used.
    fresh: u32,
    live: u32,
}

impl<'m, R: Record> FlowTable<'m, R> {
    /// Lines of memory for a table of `capacity` records.
    pub const fn lines_for(capacity: usize) -> usize {
        const { assert!(size_of::<R>().is_multiple_of(LINE) && align_of::<R>() <= LINE) };
        Index::buckets_for(capacity) + capacity * (size_of::<R>() / LINE)
    }

    /// An empty table of `capacity` records. All of its memory is written, and what it held is lost; memory beyond
    /// [`lines_for`](Self::lines_for) is left alone.
    pub fn new(memory: &'m mut [Line], capacity: usize) -> Result<Self, Misfit> {
        if capacity == 0 || capacity > CAPACITY_LIMIT {
            return Err(Misfit::Capacity(capacity));
        }
        let (needed, given) = (Self::lines_for(capacity), memory.len());
        let Some(memory) = memory.get_mut(..needed) else {
            return Err(Misfit::Memory { needed, given });
        };
        // Records first: from an aligned start they lie in pairs of lines, which processors fetch together.
        let (records, buckets) = memory.split_at_mut(capacity * (size_of::<R>() / LINE));
        records.fill(Line::ZERO);
        Ok(FlowTable {
            index: Index::new(bytemuck::cast_slice_mut::<Line, Bucket>(buckets)),
            records: bytemuck::cast_slice_mut(records),
            free: None,
            fresh: 0,
            live: 0,
        })
    }

    /// Records in use.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Whether no record is in use.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Most records.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Bytes of memory: records, index and the table itself.
    pub fn bytes(&self) -> usize {
        Self::lines_for(self.capacity()) * LINE + size_of::<Self>()
    }

    /// First pass: ask for the bucket of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Second pass: the record that probably has the key of this hash, all its lines asked for.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Candidate {
        match self.index.glance(hash) {
            Glance::Entry(entry) => {
                prefetch_all_far_at(self.records, (entry >> 1) as usize);
                Candidate(entry)
            }
            Glance::Elsewhere => Candidate::ELSEWHERE,
            Glance::Nothing => Candidate::NONE,
        }
    }

    /// Shortly before the third pass: the candidate's lines come near.
    #[inline(always)]
    pub fn approach(&self, candidate: Candidate) {
        prefetch_all_at(self.records, (candidate.0 >> 1) as usize);
    }

    /// What the candidate's record holds, whosever it is: to ask for what it leads to before it is known to be the one.
    #[inline(always)]
    pub fn glance(&self, candidate: Candidate) -> Option<&R> {
        self.records.get((candidate.0 >> 1) as usize)
    }

    /// Third pass: the record that has this key, and as which direction's.
    #[inline(always)]
    pub fn confirm(&self, hash: u64, candidate: Candidate, key: &R::Key) -> Option<Found> {
        let (index, direction) = unpack(candidate.0);
        if let Some(record) = self.records.get(index.0 as usize)
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
        let is_it = |entry| {
            let (index, direction) = unpack(entry);
            self.records
                .get(index.0 as usize)
                .is_some_and(|record| record.matches(key, direction))
        };
        self.index.find(hash, is_it).map(unpack)
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

    /// The record at `index`; `None` beyond the capacity. Which records are in use the caller knows, or asks
    /// [`Links::is_live`].
    #[inline(always)]
    pub fn get(&self, index: RecordIndex) -> Option<&R> {
        self.records.get(index.0 as usize)
    }

    /// The record at `index`, to write; its keys must stay as they are.
    #[inline(always)]
    pub fn get_mut(&mut self, index: RecordIndex) -> Option<&mut R> {
        self.records.get_mut(index.0 as usize)
    }

    /// Ask for the record that the next insertion will write.
    #[inline(always)]
    pub fn prefetch_insert(&self) {
        let next = self.free.unwrap_or(RecordIndex(self.fresh));
        prefetch_all_at(self.records, next.0 as usize);
    }

    /// Ask for the lines of the record at `index`.
    #[inline(always)]
    pub fn prefetch_record(&self, index: RecordIndex) {
        prefetch_all_at(self.records, index.0 as usize);
    }

    /// Insert a record, found from now on by its forward and its reverse key, whose hashes these are. Asks for the
    /// record that the next insertion will write.
    pub fn insert(&mut self, forward_hash: u64, reverse_hash: u64, record: R) -> Result<RecordIndex, Refused> {
        let reverse_key = record.key(Direction::Reverse);
        if forward_hash == reverse_hash && record.matches(&reverse_key, Direction::Forward) {
            return Err(Refused::Mirrored);
        }
        for (which, hash) in [(Direction::Forward, forward_hash), (Direction::Reverse, reverse_hash)] {
            if let Some((index, direction)) = self.find(hash, &record.key(which)) {
                return Err(Refused::Duplicate {
                    which,
                    index,
                    direction,
                });
            }
        }
        let index = self.free.unwrap_or(RecordIndex(self.fresh));
        let Some(place) = self.records.get_mut(index.0 as usize) else {
            return Err(Refused::Full);
        };
        if !self.index.place(forward_hash, pack(index, Direction::Forward)) {
            return Err(Refused::Crowded);
        }
        if !self.index.place(reverse_hash, pack(index, Direction::Reverse)) {
            self.index.take(forward_hash, pack(index, Direction::Forward));
            return Err(Refused::Crowded);
        }
        match self.free {
            Some(_) => self.free = place.links().next(),
            None => self.fresh += 1,
        }
        *place = record;
        *place.links_mut() = Links::IDLE;
        self.live += 1;
        self.prefetch_insert();
        Ok(index)
    }

    /// Remove the record at `index`, whose keys have these hashes. `None`, and nothing changed, where there is no
    /// such record, a hash is not its key's, or it is still scheduled on a wheel: cancel that first.
    pub fn remove(&mut self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> Option<R> {
        let place = self.records.get_mut(index.0 as usize)?;
        let (forward, reverse) = (pack(index, Direction::Forward), pack(index, Direction::Reverse));
        if !place.links().is_live() || place.links().is_scheduled() || !self.index.take(forward_hash, forward) {
            return None;
        }
        if !self.index.take(reverse_hash, reverse) {
            // Its place is free still, or another's entry has come home to it and left one elsewhere.
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

    /// Whether the record at `index` is in use and its keys have these hashes.
    pub(crate) fn holds(&self, index: RecordIndex, forward_hash: u64, reverse_hash: u64) -> bool {
        self.get(index).is_some_and(|record| record.links().is_live())
            && self.index.holds(forward_hash, pack(index, Direction::Forward))
            && self.index.holds(reverse_hash, pack(index, Direction::Reverse))
    }

    /// Visit the records in use among the next `count` places from `cursor` on (0 to begin), for listing in small
    /// pieces. Returns the cursor of the next piece; `None` after the last. A record that lives from the first
    /// piece to the last is visited exactly once.
    pub fn scan(&self, cursor: u32, count: u32, mut visit: impl FnMut(RecordIndex, &R)) -> Option<u32> {
        let end = self.fresh.min(cursor.saturating_add(count));
        for index in cursor..end {
            prefetch_all_at(self.records, index as usize + SCANNED_AHEAD);
            if let Some(record) = self.records.get(index as usize)
                && record.links().is_live()
            {
                visit(RecordIndex(index), record);
            }
        }
        (end < self.fresh).then_some(end)
    }
}
