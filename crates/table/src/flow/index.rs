//! The index of a flow table. The index maps a hash to candidate entries, usually within one cache line.
//!
//! A bucket is one cache line with eight entries, each with a tag of 16 hash bits. An entry is stored in its home
//! bucket if possible. If the home bucket is full, the entry is stored as a guest in its alternative bucket, or another
//! entry is moved to make space. If both buckets are full, the entry is stored in a stash of [`STASH`] entries. A home
//! bucket contains the tags of its displaced entries, so lookups of other entries read only one bucket. When a position
//! in a bucket becomes free, a displaced entry of this bucket is moved back to it.
//!
//! The alternative bucket is a function of the home bucket and the tag. Applied to the alternative bucket and the tag,
//! the same function yields the home bucket, so an entry can be moved without knowing its hash.

use crate::prefetch::{prefetch_far_at, prefetch_read_at};
use crate::simd::tags::{LaneMask, equal};
use bytemuck::{Pod, Zeroable};

/// Number of entries in a bucket.
const BUCKET_ENTRIES: usize = 8;
/// Maximum number of tags of displaced entries in a bucket. Further displaced entries are only counted.
const MAX_AWAY_TAGS: usize = 6;
/// Number of entries in the stash.
pub(super) const STASH: usize = 32;
/// Maximum number of buckets that a removal visits to move displaced entries back.
const MAX_MOVES_HOME: usize = 4;

/// A record index and a direction, in 32 bits.
pub(super) type Entry = u32;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Tag of each entry; 0 means no entry.
    tags: [u16; BUCKET_ENTRIES],
    overflow: Overflow,
    entries: [Entry; BUCKET_ENTRIES],
}

/// Overflow data of a bucket. It describes the displaced entries, whose home is this bucket but which are stored
/// elsewhere, and the guests, which are stored in this bucket but have another home.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Overflow {
    /// Tags of the displaced entries that are stored in their alternative bucket; 0 means no entry.
    displaced: [u16; MAX_AWAY_TAGS],
    /// Number of displaced entries without a tag in `displaced`.
    more: u16,
    /// Bit set of the entries in this bucket that are guests from another bucket.
    guests: u8,
    /// Number of displaced entries of this bucket that are stored in the stash.
    stashed: u8,
}

impl Bucket {
    fn empty(&self) -> Option<usize> {
        equal(self.tags, 0).next()
    }

    #[inline(always)]
    fn tagged(&self, tag: u16) -> LaneMask {
        equal(self.tags, tag)
    }

    /// Whether an entry with this tag may be stored outside of the home bucket.
    #[inline(always)]
    fn overflows(&self, tag: u16) -> bool {
        let displaced = equal(bytemuck::cast(self.overflow), tag).up_to(MAX_AWAY_TAGS as u32);
        !displaced.is_empty() || self.overflow.more != 0 || self.overflow.stashed != 0
    }

    fn is_guest(&self, slot: usize) -> bool {
        self.overflow.guests >> slot & 1 != 0
    }

    fn put(&mut self, slot: usize, tag: u16, entry: Entry, guest: bool) {
        self.tags[slot] = tag;
        self.entries[slot] = entry;
        self.overflow.guests |= u8::from(guest) << slot;
    }

    fn clear(&mut self, slot: usize) {
        self.tags[slot] = 0;
        self.overflow.guests &= !(1 << slot);
    }

    fn has_free_tag(&self) -> bool {
        self.overflow.more < u16::MAX
    }

    fn leaves(&mut self, tag: u16) {
        match self.overflow.displaced.iter_mut().find(|displaced| **displaced == 0) {
            Some(displaced) => *displaced = tag,
            None => self.overflow.more += 1,
        }
    }

    fn returns(&mut self, tag: u16) {
        match self.overflow.displaced.iter_mut().find(|displaced| **displaced == tag) {
            Some(displaced) => *displaced = 0,
            None => self.overflow.more -= 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stashed {
    entry: Entry,
    home: u32,
    tag: u16,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Slot(u32, usize),
    Stash(usize),
}

#[derive(Debug)]
pub(super) struct Index<'m> {
    buckets: &'m mut [Bucket],
    stash: [Stashed; STASH],
    stashed: usize,
}

/// Result of a lookup in only the home bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HomeLookup {
    Entry(Entry),
    Displaced,
    Nothing,
}

/// Tag of a hash. The tag is never 0.
#[inline(always)]
fn tag_of(hash: u64) -> u16 {
    let tag = (hash >> 48) as u16;
    tag + u16::from(tag == 0)
}

#[inline(always)]
fn reduce(number: u32, count: u32) -> u32 {
    ((u64::from(number) * u64::from(count)) >> 32) as u32
}

impl<'m> Index<'m> {
    /// Number of buckets for `capacity` records with two entries each. The index takes 28 bytes per record, and its
    /// maximum load is 4/7.
    pub const fn buckets_for(capacity: usize) -> usize {
        let buckets = (capacity * 7).div_ceil(16);
        if buckets < 2 { 2 } else { buckets }
    }

    /// Creates an empty index in `buckets` (at most 2^31 buckets).
    pub fn new(buckets: &'m mut [Bucket]) -> Self {
        buckets.fill(Bucket::zeroed());
        Index {
            buckets,
            stash: [Stashed {
                entry: 0,
                home: 0,
                tag: 0,
            }; STASH],
            stashed: 0,
        }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> u32 {
        reduce(hash as u32, self.buckets.len() as u32)
    }

    /// The alternative bucket of an entry: `other(other(b, t), t) == b`.
    #[inline(always)]
    fn other(&self, bucket: u32, tag: u16) -> u32 {
        let count = self.buckets.len() as u32;
        let sum = reduce(u32::from(tag).wrapping_mul(0x9e37_79b1), count);
        if sum >= bucket {
            sum - bucket
        } else {
            sum + count - bucket
        }
    }

    fn bucket(&self, number: u32) -> &Bucket {
        &self.buckets[number as usize]
    }

    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        &mut self.buckets[number as usize]
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_far_at(self.buckets, self.home(hash) as usize);
    }

    #[inline(always)]
    pub fn lookup_home(&self, hash: u64) -> HomeLookup {
        let tag = tag_of(hash);
        let Some(bucket) = self.buckets.get(self.home(hash) as usize) else {
            return HomeLookup::Nothing;
        };
        let tagged = bucket.tagged(tag);
        if !tagged.is_empty() {
            return HomeLookup::Entry(bucket.entries[tagged.first()]);
        }
        if bucket.overflows(tag) {
            prefetch_read_at(self.buckets, self.other(self.home(hash), tag) as usize);
            return HomeLookup::Displaced;
        }
        HomeLookup::Nothing
    }

    /// The entry with this hash that satisfies the predicate `is_match`. Reads at most two buckets and the stash.
    #[inline]
    pub fn find(&self, hash: u64, mut is_match: impl FnMut(Entry) -> bool) -> Option<Entry> {
        self.locate(hash, &mut is_match).map(|(_, entry)| entry)
    }

    #[inline]
    fn locate(&self, hash: u64, is_match: &mut impl FnMut(Entry) -> bool) -> Option<(Place, Entry)> {
        let (home, tag) = (self.home(hash), tag_of(hash));
        let bucket = self.bucket(home);
        for slot in bucket.tagged(tag) {
            let entry = bucket.entries[slot];
            if is_match(entry) {
                return Some((Place::Slot(home, slot), entry));
            }
        }
        if bucket.overflows(tag) {
            self.locate_displaced(home, tag, is_match)
        } else {
            None
        }
    }

    #[cold]
    fn locate_displaced(
        &self,
        home: u32,
        tag: u16,
        is_match: &mut impl FnMut(Entry) -> bool,
    ) -> Option<(Place, Entry)> {
        let other = self.other(home, tag);
        let bucket = self.bucket(other);
        for slot in bucket.tagged(tag) {
            let entry = bucket.entries[slot];
            if is_match(entry) {
                return Some((Place::Slot(other, slot), entry));
            }
        }
        let stash = self.stash[..self.stashed].iter().enumerate();
        let mut here = stash.filter(|(_, stashed)| stashed.home == home && stashed.tag == tag);
        here.find(|(_, stashed)| is_match(stashed.entry))
            .map(|(k, stashed)| (Place::Stash(k), stashed.entry))
    }

    /// Inserts an entry. Returns false, without visible effect, if both buckets and the stash are full.
    #[must_use]
    pub fn place(&mut self, hash: u64, entry: Entry) -> bool {
        let (home, tag) = (self.home(hash), tag_of(hash));
        if let Some(slot) = self.bucket(home).empty() {
            self.bucket_mut(home).put(slot, tag, entry, false);
            return true;
        }
        self.place_displaced(home, tag, entry)
    }

    #[cold]
    fn place_displaced(&mut self, home: u32, tag: u16, entry: Entry) -> bool {
        let other = self.other(home, tag);
        let displaced = other != home && self.bucket(home).has_free_tag();
        if displaced && let Some(slot) = self.bucket(other).empty() {
            self.displace_entry(home, other, slot, tag, entry);
            return true;
        }
        if let Some(slot) = self.make_space(home) {
            self.bucket_mut(home).put(slot, tag, entry, false);
            return true;
        }
        // The insertion may have displaced another entry from the home bucket, so the displaced entries are counted
        // again.
        if displaced
            && self.bucket(home).has_free_tag()
            && let Some(slot) = self.make_space(other)
        {
            self.displace_entry(home, other, slot, tag, entry);
            return true;
        }
        let Some(place) = self.stash.get_mut(self.stashed) else {
            return false;
        };
        *place = Stashed { entry, home, tag };
        self.stashed += 1;
        self.bucket_mut(home).overflow.stashed += 1;
        true
    }

    fn displace_entry(&mut self, home: u32, other: u32, slot: usize, tag: u16, entry: Entry) {
        self.bucket_mut(other).put(slot, tag, entry, true);
        self.bucket_mut(home).leaves(tag);
    }

    /// Moves one entry of a full bucket to the entry's other bucket. Guests are moved first. Returns the free position.
    fn make_space(&mut self, bucket: u32) -> Option<usize> {
        for guests in [true, false] {
            for slot in 0..BUCKET_ENTRIES {
                let from = self.bucket(bucket);
                if from.is_guest(slot) != guests || !(guests || from.has_free_tag()) {
                    continue;
                }
                let (tag, entry) = (from.tags[slot], from.entries[slot]);
                let other = self.other(bucket, tag);
                if other == bucket {
                    continue;
                }
                let Some(to) = self.bucket(other).empty() else { continue };
                self.bucket_mut(bucket).clear(slot);
                if guests {
                    self.bucket_mut(other).put(to, tag, entry, false);
                    self.bucket_mut(other).returns(tag);
                } else {
                    self.displace_entry(bucket, other, to, tag, entry);
                }
                return Some(slot);
            }
        }
        None
    }

    /// Whether this entry is stored under this hash.
    pub fn holds(&self, hash: u64, entry: Entry) -> bool {
        self.find(hash, |found| found == entry).is_some()
    }

    /// Removes an entry. Returns false if the entry does not exist.
    pub fn take(&mut self, hash: u64, entry: Entry) -> bool {
        let (home, tag) = (self.home(hash), tag_of(hash));
        match self.locate(hash, &mut |found| found == entry) {
            None => return false,
            Some((Place::Stash(k), _)) => self.remove_stashed(k),
            Some((Place::Slot(bucket, slot), _)) => {
                if self.bucket(bucket).is_guest(slot) {
                    self.bucket_mut(home).returns(tag);
                }
                self.bucket_mut(bucket).clear(slot);
                self.refill(bucket);
            }
        }
        true
    }

    fn remove_stashed(&mut self, k: usize) {
        let home = self.stash[k].home;
        self.stashed -= 1;
        self.stash[k] = self.stash[self.stashed];
        self.bucket_mut(home).overflow.stashed -= 1;
    }

    /// Moves a displaced entry back to a position of `bucket` that became free. Then refills the position that the
    /// moved entry has left, and so on.
    fn refill(&mut self, mut bucket: u32) {
        for _ in 0..MAX_MOVES_HOME {
            if self.stashed != 0 && self.refill_from_stash(bucket) {
                return;
            }
            let Some(&tag) = self
                .bucket(bucket)
                .overflow
                .displaced
                .iter()
                .find(|displaced| **displaced != 0)
            else {
                return;
            };
            let other = self.other(bucket, tag);
            let host = self.bucket(other);
            let Some(from) = host.tagged(tag).find(|&slot| host.is_guest(slot)) else {
                return;
            };
            let entry = host.entries[from];
            let Some(to) = self.bucket(bucket).empty() else { return };
            self.bucket_mut(other).clear(from);
            self.bucket_mut(bucket).put(to, tag, entry, false);
            self.bucket_mut(bucket).returns(tag);
            bucket = other;
        }
    }

    #[cold]
    fn refill_from_stash(&mut self, bucket: u32) -> bool {
        let Some(to) = self.bucket(bucket).empty() else {
            return false;
        };
        for k in 0..self.stashed {
            let Stashed { entry, home, tag } = self.stash[k];
            if home == bucket {
                self.remove_stashed(k);
                self.bucket_mut(bucket).put(to, tag, entry, false);
                return true;
            }
            if self.other(home, tag) == bucket && self.bucket(home).has_free_tag() {
                self.remove_stashed(k);
                self.displace_entry(home, bucket, to, tag, entry);
                return true;
            }
        }
        false
    }

    /// Counts all entries, and checks the overflow data of every bucket.
    #[cfg(test)]
    pub fn audit(&self) -> Audit {
        let mut audit = Audit {
            entries: self.stashed,
            stashed: self.stashed,
            ..Audit::default()
        };
        let mut displaced = vec![Vec::new(); self.buckets.len()];
        for (number, bucket) in (0u32..).zip(self.buckets.iter()) {
            for slot in (0..BUCKET_ENTRIES).filter(|&slot| bucket.tags[slot] != 0) {
                audit.entries += 1;
                if bucket.is_guest(slot) {
                    audit.displaced += 1;
                    displaced[self.other(number, bucket.tags[slot]) as usize].push(bucket.tags[slot]);
                }
            }
            let stray = (0..BUCKET_ENTRIES).any(|slot| bucket.tags[slot] == 0 && bucket.is_guest(slot));
            assert!(!stray, "an empty place is marked as a guest's");
        }
        for (number, (bucket, mut expected)) in (0u32..).zip(self.buckets.iter().zip(displaced)) {
            let count = expected.len();
            let mut marked: Vec<u16> = bucket.overflow.displaced.into_iter().filter(|&tag| tag != 0).collect();
            assert_eq!(
                count,
                marked.len() + usize::from(bucket.overflow.more),
                "marks of bucket {number}"
            );
            marked.retain(|tag| match expected.iter().position(|t| t == tag) {
                Some(k) => {
                    expected.swap_remove(k);
                    false
                }
                None => true,
            });
            assert!(marked.is_empty(), "bucket {number} marks a tag that is nowhere");
            let stashed = self.stash[..self.stashed]
                .iter()
                .filter(|stashed| stashed.home == number)
                .count();
            assert_eq!(
                stashed,
                usize::from(bucket.overflow.stashed),
                "stash marks of bucket {number}"
            );
        }
        audit
    }
}

/// Numbers of entries in an index, counted from the buckets.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Audit {
    pub entries: usize,
    pub displaced: usize,
    pub stashed: usize,
}
