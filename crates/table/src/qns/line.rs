//! A line of the table. A line consists of a header, a link and two entries. The header contains a version and a tag
//! for each slot. The link refers to the next line and contains a sieve: a bit set of the tags in the following lines.

use super::key::Address;
use super::sync::{AtomicU64, Ordering};

/// Number of entries in a line.
pub const SLOTS: usize = 2;
/// Number of words before the entries: the header and the link.
const HEAD: usize = 2;

/// Tag of a hash, as stored in the header. The tag is never 0, because 0 marks a free slot.
#[inline(always)]
pub fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

/// Header of a line: version in the high 32 bits, and a 16-bit tag for each slot in the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(u64);

impl Header {
    /// Tag of a slot; 0 if the slot is free.
    #[inline(always)]
    pub fn tag(self, slot: usize) -> u16 {
        (self.0 >> (16 * slot)) as u16
    }

    /// Slots with this tag, as bits 0 and 1.
    #[inline(always)]
    pub fn matches(self, tag: u16) -> usize {
        let differ = self.0 as u32 ^ (u32::from(tag) * 0x1_0001);
        usize::from(differ as u16 == 0) | usize::from(differ < 0x1_0000) << 1
    }

    /// Returns the header of the next version, with a different tag in one slot.
    fn with(self, slot: usize, tag: u16) -> Self {
        let tags = self.0 as u32 & !(0xffff << (16 * slot)) | u32::from(tag) << (16 * slot);
        let version = (self.0 >> 32) as u32;
        Header(u64::from(version.wrapping_add(1)) << 32 | u64::from(tags))
    }
}

/// Loads the header with acquire ordering, so that entries written before the header are visible.
#[inline(always)]
pub fn header(line: &[AtomicU64]) -> Header {
    Header(line[0].load(Ordering::Acquire))
}

/// Link to the next line of a bucket, with a sieve (a bit set of the tags in the following lines).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest(u64);

impl Rest {
    /// Creates a link to an overflow line. The sieve contains the tags of this line and all following lines.
    pub fn new(next: u32, sieve: u32) -> Self {
        Rest(u64::from(sieve) << 32 | (u64::from(next) + 1))
    }

    /// The link of the last line.
    pub const NONE: Self = Rest(0);

    /// Number of the next overflow line.
    #[inline(always)]
    pub fn next(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    /// Whether a following line may have an entry with this tag.
    #[inline(always)]
    pub fn may_have(self, tag: u16) -> bool {
        self.0 >> 32 & u64::from(sieve(tag)) != 0
    }

    /// Sieve of the tags in the following lines.
    pub fn sieve(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Bit of a tag in a sieve. The lowest bit of a tag is ignored, because all tags have it set.
#[inline(always)]
pub fn sieve(tag: u16) -> u32 {
    1 << (tag >> 1 & 31)
}

/// Loads the link with acquire ordering, so that lines written before the link are visible.
#[inline(always)]
pub fn rest(line: &[AtomicU64]) -> Rest {
    Rest(line[1].load(Ordering::Acquire))
}

/// Sets the link of a line.
pub fn set_rest(line: &[AtomicU64], rest: Rest) {
    line[1].store(rest.0, Ordering::Release);
}

/// Reads the entry of a slot. The entry is consistent if the header is equal before and after the read.
#[inline(always)]
pub fn entry<A: Address>(line: &[AtomicU64], slot: usize) -> A::Entry {
    let mut entry = A::Entry::default();
    let words = entry.as_mut();
    let first = HEAD + slot * words.len();
    for (word, cell) in words.iter_mut().zip(&line[first..]) {
        // Acquire ordering: if this read returns a word of a later entry of the slot, the changed header is visible
        // afterwards.
        *word = cell.load(Ordering::Acquire);
    }
    entry
}

/// Stores an entry in a free slot. The store of the header makes the entry visible to readers.
pub fn fill<A: Address>(line: &[AtomicU64], slot: usize, tag: u16, entry: &A::Entry) {
    let words = entry.as_ref();
    let first = HEAD + slot * words.len();
    for (word, cell) in words.iter().zip(&line[first..]) {
        cell.store(*word, Ordering::Release);
    }
    let header = header(line).with(slot, tag);
    line[0].store(header.0, Ordering::Release);
}

/// Frees a slot.
pub fn clear(line: &[AtomicU64], slot: usize) {
    let header = header(line).with(slot, 0);
    line[0].store(header.0, Ordering::Release);
}

/// The first free slot of the line.
pub fn free_slot(line: &[AtomicU64]) -> Option<usize> {
    let header = header(line);
    (0..SLOTS).find(|&slot| header.tag(slot) == 0)
}
