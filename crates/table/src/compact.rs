//! A compact index that maps a hash to the number of a record, with 32 bits per entry.
//!
//! A bucket is one cache line. A bucket contains fifteen entries, the number of its overflow entries, and their maximum
//! distance. An overflow entry belongs to this bucket but is stored in a following bucket. The bits of an entry that
//! the record number does not need contain a tag of hash bits. Thus a lookup rejects nearly all wrong entries without
//! reading their records. Several kinds of keys may share one index. The caller provides a keyed hash.

use bytemuck::{Pod, Zeroable};

use crate::memory::Line;
use crate::prefetch::prefetch_all_at;
use crate::simd::words::equal;

/// Number of entries in a bucket.
const BUCKET_ENTRIES: usize = 15;
/// Average number of entries per bucket if the index is full.
const LOAD: usize = 11;
/// Maximum distance in buckets between an entry and its home bucket. In an index with millions of entries, few entries
/// are more than ten buckets away from their home bucket.
const MAX_PROBES: usize = 64;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Bucket {
    entries: [u32; BUCKET_ENTRIES],
    /// Number of overflow entries, which belong to this bucket but are stored in a following bucket.
    displaced: u16,
    /// Maximum distance of the overflow entries, in buckets.
    far: u16,
}

/// No entry within the maximum distance is free, because the index is too full or the hash is not keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash buckets of a key are full")]
pub struct IndexFull;

/// Maps hashes to record numbers.
#[derive(Debug)]
pub struct CompactIndex<'m> {
    buckets: &'m mut [Bucket],
    /// Mask of the bits of an entry that contain the record number plus one.
    numbers: u32,
}

impl<'m> CompactIndex<'m> {
    /// Number of memory lines that `entries` entries need.
    pub const fn lines_for(entries: usize) -> usize {
        entries.div_ceil(LOAD)
    }

    /// Creates an empty index that uses all of `memory`. Record numbers must be less than `records`.
    pub fn new(memory: &'m mut [Line], records: u32) -> Self {
        memory.fill(Line::ZERO);
        Self {
            buckets: bytemuck::cast_slice_mut(memory),
            numbers: u32::MAX.checked_shr(records.leading_zeros()).unwrap_or(0),
        }
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_all_at(self.buckets, self.home(hash));
    }

    /// Probable result of [`CompactIndex::find`]: the record number in the first entry of the home bucket that has the
    /// tag of this hash.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = self.buckets.get(self.home(hash))?;
        let place = self.tagged(bucket, self.tag(hash)).next()?;
        Some((bucket.entries[place] & self.numbers) - 1)
    }

    /// The record number with this hash that satisfies the predicate `is_match`.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is_match: impl FnMut(u32) -> bool) -> Option<u32> {
        let (home, tag) = (self.home(hash), self.tag(hash));
        let bucket = self.buckets.get(home)?;
        let found = self.look(bucket, tag, &mut is_match);
        if found.is_some() || bucket.displaced == 0 {
            return found;
        }
        self.find_displaced(home, tag, &mut is_match)
    }

    /// Continues the search in the buckets after the home bucket.
    #[cold]
    fn find_displaced(&self, home: usize, tag: u32, is_match: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let far = usize::from(self.buckets.get(home)?.far);
        (1..=far).find_map(|step| self.look(self.buckets.get(self.after(home, step))?, tag, &mut *is_match))
    }

    #[inline(always)]
    fn look(&self, bucket: &Bucket, tag: u32, is_match: &mut (impl FnMut(u32) -> bool + ?Sized)) -> Option<u32> {
        self.tagged(bucket, tag)
            .map(|place| (bucket.entries[place] & self.numbers) - 1)
            .find(|&number| is_match(number))
    }

    /// Adds a record number with its hash.
    #[inline]
    pub fn insert(&mut self, hash: u64, number: u32) -> Result<(), IndexFull> {
        let (home, entry) = (self.home(hash), self.tag(hash) | (number + 1));
        for step in 0..MAX_PROBES {
            let at = self.after(home, step);
            let Some(bucket) = self.buckets.get_mut(at) else {
                return Err(IndexFull);
            };
            if let Some(free) = bucket.places(u32::MAX, 0).next() {
                bucket.entries[free] = entry;
                if step > 0 {
                    let home = &mut self.buckets[home];
                    home.displaced += 1;
                    home.far = home.far.max(step as u16);
                }
                return Ok(());
            }
        }
        Err(IndexFull)
    }

    /// Removes a record number with its hash. Returns false if the entry does not exist.
    #[inline]
    pub fn remove(&mut self, hash: u64, number: u32) -> bool {
        let (home, entry) = (self.home(hash), self.tag(hash) | (number + 1));
        for step in 0..MAX_PROBES {
            let at = self.after(home, step);
            let Some(bucket) = self.buckets.get_mut(at) else {
                return false;
            };
            if let Some(place) = bucket.places(u32::MAX, entry).next() {
                bucket.entries[place] = 0;
                if step > 0 {
                    let home = &mut self.buckets[home];
                    home.displaced -= 1;
                    home.far = if home.displaced == 0 { 0 } else { home.far };
                }
                return true;
            }
            if step >= usize::from(self.buckets[home].far) {
                return false;
            }
        }
        false
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn after(&self, home: usize, step: usize) -> usize {
        let at = home + step;
        if at < self.buckets.len() {
            at
        } else {
            at % self.buckets.len().max(1)
        }
    }

    /// Tag of a hash. The tag is never 0, because 0 marks free entries.
    #[inline(always)]
    fn tag(&self, hash: u64) -> u32 {
        let tag = (hash >> 32) as u32 & !self.numbers;
        if tag == 0 { self.numbers.wrapping_add(1) } else { tag }
    }

    /// Positions of the entries in a bucket that have this tag.
    #[inline(always)]
    fn tagged(&self, bucket: &Bucket, tag: u32) -> impl Iterator<Item = usize> {
        bucket.places(!self.numbers, tag)
    }
}

impl Bucket {
    /// Positions of the entries that equal `wanted` in the bits of `mask`.
    #[inline(always)]
    fn places(&self, mask: u32, wanted: u32) -> impl Iterator<Item = usize> + use<> {
        let mut found = equal(bytemuck::cast_ref(self), mask, wanted) & ((1 << BUCKET_ENTRIES) - 1);
        core::iter::from_fn(move || {
            let place = found.trailing_zeros();
            found &= found.wrapping_sub(1);
            (place < BUCKET_ENTRIES as u32).then_some(place as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn memory(entries: usize) -> Vec<Line> {
        vec![Line::ZERO; CompactIndex::lines_for(entries)]
    }

    fn mixed(number: u64) -> u64 {
        let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }

    #[test]
    fn compact_full_finds_every_record_and_no_other() {
        const COUNT: u32 = 100_000;
        let mut memory = memory(COUNT as usize);
        let mut index = CompactIndex::new(&mut memory, COUNT);
        for number in 0..COUNT {
            index.insert(mixed(number.into()), number).unwrap();
        }
        let mut checked = 0;
        for number in 0..COUNT {
            let hash = mixed(number.into());
            assert_eq!(Some(number), index.find(hash, |found| found == number));
            let absent = index.find(mixed(u64::from(number) | 1 << 40), |_| {
                checked += 1;
                false
            });
            assert_eq!(None, absent);
        }
        // With 15 bits in a tag, fewer than 1 % of the lookups read a wrong record.
        assert!(checked < COUNT / 100, "{checked}");
        for number in 0..COUNT {
            assert!(index.remove(mixed(number.into()), number));
            assert!(!index.remove(mixed(number.into()), number));
        }
        assert!(memory.iter().all(|line| *line == Line::ZERO));
    }

    #[test]
    fn compact_same_hash_is_refused_in_the_end_and_what_is_there_stays() {
        let mut memory = vec![Line::ZERO; 100];
        let mut index = CompactIndex::new(&mut memory, 1 << 20);
        let refused = (0..).find(|&number| index.insert(7, number).is_err());
        assert_eq!(Some((BUCKET_ENTRIES * MAX_PROBES) as u32), refused);
        let last = refused.unwrap() - 1;
        assert_eq!(Some(last), index.find(7, |number| number == last));
    }

    proptest! {
        #[test]
        fn compact_agrees_with_a_set(
            lines in 1usize..5,
            steps in proptest::collection::vec((any::<bool>(), 0u32..64), 0..400),
        ) {
            let mut memory = vec![Line::ZERO; lines];
            let mut index = CompactIndex::new(&mut memory, 64);
            let mut model = BTreeSet::new();
            // The hash has only a few different values, so many entries have equal buckets and tags.
            let hash = |number: u32| mixed(u64::from(number % 7)) & !0xffff_0000_0000_0000;
            for (adds, number) in steps {
                if adds && !model.contains(&number) {
                    if index.insert(hash(number), number).is_ok() {
                        model.insert(number);
                    }
                } else if !adds {
                    prop_assert_eq!(model.remove(&number), index.remove(hash(number), number));
                }
                for number in 0..64 {
                    let found = index.find(hash(number), |found| found == number).is_some();
                    prop_assert_eq!(model.contains(&number), found);
                }
            }
        }
    }
}
