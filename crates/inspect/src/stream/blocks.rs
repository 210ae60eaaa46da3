//! Retained bytes of streams that receivers may still accept: queued bytes beyond a gap, and released bytes that are
//! outside of the window and not acknowledged.
//!
//! Blocks are aligned to sequence numbers and are found by a keyed hash of direction and block number, so that neither
//! reordering nor chosen sequence numbers can make a lookup slow. A block has a bit for each of its bytes. The first copy of
//! a byte is kept.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use sluice_table::hash::Hasher;

use super::free::FreeList;
use super::side::{Half, NONE, mark};
use crate::source_quota::{Source, SourceQuota};

/// Size in bytes of a block.
pub(super) const BLOCK: usize = 1 << BLOCK_BITS;
/// Number of low-order sequence number bits that form the offset in a block.
const BLOCK_BITS: u32 = 11;
/// Number of bytes that one word of the bit map covers.
const WORD_BYTES: usize = 64;

/// Number of bytes retained for each direction of a connection after a reset, from the first unacknowledged byte on. If
/// the reset was lost, the sender retransmits these bytes and receives another reset. No segment is longer.
const RETAINED_AFTER_RESET: u32 = 1 << 16;

/// A block of bytes of one direction.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Block {
    /// Index of the window of the direction to which the block belongs.
    owner: u32,
    /// Sequence number of the first byte, shifted right by [`BLOCK_BITS`].
    number: u32,
    /// Next block with the same hash.
    chained: u32,
    /// Preceding and following block in the unordered list of the direction's blocks.
    before: u32,
    after: u32,
    unused: [u32; 11],
    /// Bit map of the bytes that are present.
    present: [u64; BLOCK / WORD_BYTES],
    bytes: [u8; BLOCK],
}

/// Result of comparing bytes with the retained bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// All bytes that the receiver can still accept are equal to the retained bytes.
    Same,
    /// All bytes are retained, and some differ.
    Differ,
    /// Some bytes can't be compared, because they are no longer retained.
    NotRetained,
}

/// The blocks of all directions, and their limits.
#[derive(Debug)]
pub(super) struct Blocks<'m> {
    blocks: &'m mut [Block],
    /// First block of each hash bucket; the number of buckets is a power of two.
    buckets: &'m mut [u32],
    free: FreeList<'m>,
    hasher: Hasher,
    /// Maximum number of blocks of a connection.
    share: usize,
    /// Number of blocks that queued bytes must leave free for bytes that fill a gap. The reserve applies to the connection's share and to the pool.
    reserve: usize,
    /// Blocks of each source. A source may use no more blocks than the number of free blocks.
    sources: SourceQuota,
}

/// Number of hash buckets for this number of blocks.
pub(super) const fn buckets_for(blocks: usize) -> usize {
    blocks.next_power_of_two()
}

/// Splits a range of bytes at block boundaries. Yields block number, offset in the block, and range in the input.
fn pieces(sequence: u32, length: usize) -> impl Iterator<Item = (u32, usize, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = sequence.wrapping_add(at as u32);
        let place = first as usize % BLOCK;
        let range = at..length.min(at + BLOCK - place);
        at = range.end;
        (!range.is_empty()).then_some((first >> BLOCK_BITS, place, range))
    })
}

/// Splits a range of a block at word boundaries of the bit map. Yields word index, bits, and range in the input.
fn words(place: usize, length: usize) -> impl Iterator<Item = (usize, u64, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = place + at;
        let count = (WORD_BYTES - first % WORD_BYTES).min(length - at);
        let range = at..at + count;
        at = range.end;
        (count > 0).then(|| {
            (
                first / WORD_BYTES,
                u64::MAX >> (WORD_BYTES - count) << (first % WORD_BYTES),
                range,
            )
        })
    })
}

impl Block {
    /// Writes bytes at offsets where no byte is present yet.
    fn write(&mut self, place: usize, bytes: &[u8]) {
        for (word, mask, range) in words(place, bytes.len()) {
            let there = self.present[word] & mask;
            let own = &mut self.bytes[place + range.start..place + range.end];
            if there == 0 {
                own.copy_from_slice(&bytes[range]);
            } else if there != mask {
                let first = (place + range.start) % WORD_BYTES;
                for (bit, (own, byte)) in own.iter_mut().zip(&bytes[range]).enumerate() {
                    if there & 1 << (first + bit) == 0 {
                        *own = *byte;
                    }
                }
            }
            self.present[word] |= mask;
        }
    }

    fn has(&self, place: usize, length: usize) -> bool {
        words(place, length).all(|(word, mask, _)| self.present[word] & mask == mask)
    }

    /// Number of contiguous bytes present from an offset on.
    fn run(&self, place: usize) -> usize {
        let mut end = place;
        while let Some(word) = self.present.get(end / WORD_BYTES) {
            let ones = (word >> (end % WORD_BYTES)).trailing_ones() as usize;
            end += ones;
            if ones == 0 || !end.is_multiple_of(WORD_BYTES) {
                break;
            }
        }
        end - place
    }

    /// Offset of the first byte present, from an offset on.
    fn first(&self, place: usize) -> Option<usize> {
        let from = self.present.get(place / WORD_BYTES..)?;
        let masked = from.iter().enumerate().map(|(at, word)| match at {
            0 => word & u64::MAX << (place % WORD_BYTES),
            _ => *word,
        });
        let mut found = masked.enumerate().filter(|(_, word)| *word != 0);
        let (at, word) = found.next()?;
        Some((place / WORD_BYTES + at) * WORD_BYTES + word.trailing_zeros() as usize)
    }
}

impl<'m> Blocks<'m> {
    /// `blocks` has a block for every index in `free`. The length of `buckets` is given by [`buckets_for`].
    pub(super) fn new(
        blocks: &'m mut [Block],
        buckets: &'m mut [u32],
        free: FreeList<'m>,
        hasher: Hasher,
        (share, reserve): (usize, usize),
    ) -> Self {
        buckets.fill(NONE);
        Self {
            blocks,
            buckets,
            free,
            hasher,
            share,
            reserve,
            sources: SourceQuota::new(1),
        }
    }

    /// Accounts the blocks of a direction to a different source.
    pub(super) fn set_source(&mut self, side: &mut Half, source: Source) {
        self.sources.release(Source(side.source), side.blocks);
        self.sources.charge(source, side.blocks);
        side.source = source.0;
    }

    /// Whether the source of a direction has reached its quota. `has` is the number of blocks of the direction's
    /// connection. `ahead`: the bytes are beyond a gap. The quota does not limit a source with only one connection. For
    /// bytes that fill a gap, the limit is half of the pool instead: if other connections could prevent their storage,
    /// the bytes queued after the gap could never be released.
    pub(super) fn is_source_full(&self, side: &Half, has: usize, needed: usize, ahead: bool) -> bool {
        let reserve = if ahead { self.reserve } else { 0 };
        let remaining = self.free.available().saturating_sub(reserve);
        let source = Source(side.source);
        if self.sources.usage(source) as usize <= has {
            return false;
        }
        match side.has_queued() && !ahead {
            true => self.sources.usage(source) as usize + needed > self.blocks.len() / 2 + 1,
            false => !self.sources.permits(source, needed, remaining),
        }
    }

    /// Number of blocks in use.
    pub(super) fn taken(&self) -> usize {
        self.free.used()
    }

    fn bucket(&self, owner: u32, number: u32) -> usize {
        let hash = self.hasher.block([u64::from(owner) << 32 | u64::from(number), 0]);
        hash as usize & (self.buckets.len() - 1)
    }

    fn get(&self, at: u32) -> Option<&Block> {
        self.blocks.get(at as usize)
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Block> {
        self.blocks.get_mut(at as usize)
    }

    fn find(&self, side: &Half, number: u32) -> Option<u32> {
        if side.blocks == 0 {
            return None;
        }
        let mut at = self.buckets[self.bucket(side.window, number)];
        while let Some(block) = self.get(at) {
            if (block.owner, block.number) == (side.window, number) {
                return Some(at);
            }
            at = block.chained;
        }
        None
    }

    /// Returns the block with this number, and allocates it if it does not exist.
    fn block(&mut self, side: &mut Half, number: u32) -> Option<&mut Block> {
        let at = match self.find(side, number) {
            Some(at) => at,
            None => self.take(side, number)?,
        };
        self.get_mut(at)
    }

    fn take(&mut self, side: &mut Half, number: u32) -> Option<u32> {
        let at = self.free.allocate()?;
        let bucket = self.bucket(side.window, number);
        let (chained, after) = (self.buckets[bucket], side.head);
        let block = self.blocks.get_mut(at as usize)?;
        (block.owner, block.number) = (side.window, number);
        (block.chained, block.before, block.after) = (chained, NONE, after);
        block.present = [0; BLOCK / WORD_BYTES];
        if let Some(after) = self.get_mut(after) {
            after.before = at;
        }
        self.buckets[bucket] = at;
        side.head = at;
        side.blocks += 1;
        self.sources.charge(Source(side.source), 1);
        Some(at)
    }

    fn release(&mut self, side: &mut Half, at: u32) {
        let Some(&Block {
            owner,
            number,
            chained,
            before,
            after,
            ..
        }) = self.get(at)
        else {
            return;
        };
        let bucket = self.bucket(owner, number);
        if self.buckets[bucket] == at {
            self.buckets[bucket] = chained;
        } else {
            let mut other = self.buckets[bucket];
            while let Some(block) = self.get_mut(other) {
                if block.chained == at {
                    block.chained = chained;
                    break;
                }
                other = block.chained;
            }
        }
        match self.get_mut(before) {
            Some(before) => before.after = after,
            None => side.head = after,
        }
        if let Some(after) = self.get_mut(after) {
            after.before = before;
        }
        side.blocks -= 1;
        self.sources.release(Source(side.source), 1);
        self.free.release(at);
    }

    /// Number of additional blocks that are needed to store these bytes.
    pub(super) fn needed(&self, side: &Half, sequence: u32, length: usize) -> usize {
        let pieces = pieces(sequence, length);
        pieces.filter(|(number, ..)| self.find(side, *number).is_none()).count()
    }

    /// Whether a connection may allocate more blocks. `others` is the number of blocks of its other direction. `ahead`:
    /// the bytes are beyond a gap.
    pub(super) fn has_capacity(&self, side: &Half, others: u32, needed: usize, ahead: bool) -> bool {
        let reserve = if ahead { self.reserve } else { 0 };
        let share = self.share.saturating_sub(reserve);
        let has = side.blocks as usize + others as usize;
        needed == 0
            || (has + needed <= share
                && needed + reserve <= self.free.available()
                && !self.is_source_full(side, has, needed, ahead))
    }

    /// Stores bytes that are not present yet. Bytes that are present are not overwritten.
    pub(super) fn write(&mut self, side: &mut Half, sequence: u32, bytes: &[u8]) {
        for (number, place, range) in pieces(sequence, bytes.len()) {
            if let Some(block) = self.block(side, number) {
                block.write(place, &bytes[range]);
            }
        }
    }

    /// Whether any present byte of a range differs from `bytes`.
    pub(super) fn differs(&self, side: &Half, sequence: u32, bytes: &[u8]) -> bool {
        let differs = |block: &Block, place: usize, bytes: &[u8]| {
            words(place, bytes.len()).any(|(word, mask, range)| {
                let there = block.present[word] & mask;
                let own = &block.bytes[place + range.start..place + range.end];
                let first = (place + range.start) % WORD_BYTES;
                let is_set = |bit: usize| there & 1 << (first + bit) != 0;
                match there {
                    0 => false,
                    _ if there == mask => *own != bytes[range],
                    _ => {
                        let both = own.iter().zip(&bytes[range]).enumerate();
                        both.into_iter().any(|(bit, (own, byte))| is_set(bit) && own != byte)
                    }
                }
            })
        };
        pieces(sequence, bytes.len()).any(|(number, place, range)| {
            let block = self.find(side, number).and_then(|at| self.get(at));
            block.is_some_and(|block| differs(block, place, &bytes[range]))
        })
    }

    /// Overwrites `bytes` with the bytes of the range that are present. Returns the number of bytes that differed.
    pub(super) fn rewrite(&self, side: &Half, sequence: u32, bytes: &mut [u8]) -> usize {
        let mut differing = 0;
        for (number, place, range) in pieces(sequence, bytes.len()) {
            let Some(block) = self.find(side, number).and_then(|at| self.get(at)) else {
                continue;
            };
            for (at, byte) in (place..).zip(&mut bytes[range]) {
                if block.present[at / WORD_BYTES] >> (at % WORD_BYTES) & 1 != 0 && block.bytes[at] != *byte {
                    *byte = block.bytes[at];
                    differing += 1;
                }
            }
        }
        differing
    }

    /// Whether all bytes of a range are present.
    pub(super) fn has(&self, side: &Half, sequence: u32, length: usize) -> bool {
        pieces(sequence, length).all(|(number, place, range)| {
            let block = self.find(side, number).and_then(|at| self.get(at));
            block.is_some_and(|block| block.has(place, range.len()))
        })
    }

    /// The contiguous bytes that are present from a sequence number on, within one block.
    pub(super) fn run(&self, side: &Half, sequence: u32) -> &[u8] {
        let place = sequence as usize % BLOCK;
        let block = self.find(side, sequence >> BLOCK_BITS).and_then(|at| self.get(at));
        block.map_or(&[], |block| &block.bytes[place..place + block.run(place)])
    }

    /// Distance from the direction's next byte to the first queued byte.
    pub(super) fn first_queued(&self, side: &Half) -> Option<u32> {
        let (mut at, mut nearest) = (side.head, None);
        while let Some(block) = self.get(at) {
            let start = block.number << BLOCK_BITS;
            // Distance from the start of the block to the direction's next byte. Earlier bytes are ignored.
            let old = side.next.wrapping_sub(start) as i32;
            if let Some(place) = block.first(old.clamp(0, BLOCK as i32) as usize) {
                let distance = start.wrapping_add(place as u32).wrapping_sub(side.next);
                nearest = Some(nearest.map_or(distance, |nearest: u32| nearest.min(distance)));
            }
            at = block.after;
        }
        nearest
    }

    /// Releases the blocks that the receiver has acknowledged since its acknowledgement number had the value `before`.
    pub(super) fn acknowledged(&mut self, side: &mut Half, before: u32) {
        let (first, end) = (before >> BLOCK_BITS, side.acked >> BLOCK_BITS);
        let count = end.wrapping_sub(first) & (u32::MAX >> BLOCK_BITS);
        if count <= side.blocks {
            for number in (0..count).map(|more| first.wrapping_add(more) & (u32::MAX >> BLOCK_BITS)) {
                if let Some(at) = self.find(side, number) {
                    self.release(side, at);
                }
            }
            return;
        }
        self.release_before(side, side.acked);
    }

    /// Releases the blocks before a sequence number.
    pub(super) fn release_before(&mut self, side: &mut Half, sequence: u32) {
        let mut at = side.head;
        while let Some(block) = self.get(at) {
            let (number, after) = (block.number, block.after);
            let behind = (number << BLOCK_BITS).wrapping_add(BLOCK as u32);
            if behind.wrapping_sub(sequence) as i32 <= 0 {
                self.release(side, at);
            }
            at = after;
        }
    }

    /// Releases blocks of a reset connection, because no acknowledgement will release them. [`RETAINED_AFTER_RESET`]
    /// released bytes and the same number of queued bytes are kept. The stream ends at the last kept byte. Discarded
    /// released bytes are [`Comparison::NotRetained`]: no other copy passes.
    pub(super) fn cut(&mut self, side: &mut Half) {
        let max = RETAINED_AFTER_RESET as usize / BLOCK + 1;
        if side.blocks as usize <= max {
            return;
        }
        let limit = side.next.wrapping_add(RETAINED_AFTER_RESET);
        if side.has_queued() && side.end.wrapping_sub(limit) as i32 > 0 {
            side.end = limit;
            side.flags |= mark::FIN_QUEUED;
        }
        let mut at = side.head;
        while let Some(block) = self.get(at) {
            let (start, after) = (block.number << BLOCK_BITS, block.after);
            let is_released = start.wrapping_add(BLOCK as u32).wrapping_sub(side.next) as i32 <= 0;
            let from = if is_released { side.acked } else { side.next };
            if start.wrapping_sub(from) as i32 >= RETAINED_AFTER_RESET as i32 {
                self.release(side, at);
            }
            at = after;
        }
    }

    /// Releases all blocks of a direction.
    pub(super) fn clear(&mut self, side: &mut Half) {
        while side.blocks > 0 {
            self.release(side, side.head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_table::memory::Line;

    fn with(count: usize, share: usize, test: impl FnOnce(&mut Blocks<'_>, &mut Half)) {
        let mut lines = vec![Line::ZERO; count * size_of::<Block>() / size_of::<Line>()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
        let (mut buckets, mut stack) = (vec![0; buckets_for(count)], vec![0; count]);
        let mut blocks = Blocks::new(
            bytemuck::cast_slice_mut(bytes),
            &mut buckets,
            FreeList::new(&mut stack),
            Hasher::new([1, 2]),
            (share, 1),
        );
        let mut side = Half::unseen(0);
        side.window = 3;
        test(&mut blocks, &mut side);
    }

    #[test]
    fn first_copy_of_each_byte_stays_over_blocks_and_where_numbers_wrap() {
        with(8, 8, |blocks, side| {
            let from = 0u32.wrapping_sub(3000);
            blocks.write(side, from.wrapping_add(100), &[1; 50]);
            let mut long: Vec<u8> = vec![2; 4000];
            assert!(blocks.differs(side, from, &long));
            assert_eq!(50, blocks.rewrite(side, from, &mut long));
            blocks.write(side, from, &long);
            assert!(!blocks.differs(side, from, &long));
            assert!(blocks.has(side, from, 4000) && !blocks.has(side, from, 4001));
            let mut read = vec![];
            while read.len() < 4000 {
                let run = blocks.run(side, from.wrapping_add(read.len() as u32));
                assert!(!run.is_empty());
                read.extend_from_slice(run);
            }
            assert_eq!([&[2; 100][..], &[1; 50], &[2; 3850]].concat(), read);
        });
    }

    #[test]
    fn acknowledged_blocks_are_released_and_others_stay() {
        for span in [5, 1 << 18] {
            with(8, 8, |blocks, side| {
                side.acked = 1000;
                for block in [0, 1, 2, span] {
                    blocks.write(side, block << BLOCK_BITS | 7, b"kept");
                }
                let before = std::mem::replace(&mut side.acked, 2 << BLOCK_BITS);
                blocks.acknowledged(side, before);
                assert_eq!((2, 2), (side.blocks, blocks.taken()));
                assert!(blocks.has(side, 2 << BLOCK_BITS | 7, 4));
                let before = std::mem::replace(&mut side.acked, span << BLOCK_BITS);
                blocks.acknowledged(side, before);
                assert_eq!(1, blocks.taken());
                side.next = (span << BLOCK_BITS) - 3;
                assert_eq!(Some(10), blocks.first_queued(side));
                blocks.clear(side);
                assert_eq!((0, 0, NONE), (side.blocks, blocks.taken(), side.head));
            });
        }
    }

    #[test]
    fn room_is_bounded_by_share_and_pool_and_less_ahead_of_a_gap() {
        with(6, 4, |blocks, side| {
            assert!(blocks.has_capacity(side, 0, 4, false) && !blocks.has_capacity(side, 0, 5, false));
            assert!(blocks.has_capacity(side, 0, 3, true) && !blocks.has_capacity(side, 0, 4, true));
            assert!(!blocks.has_capacity(side, 2, 3, false));
            blocks.write(side, 0, &[0; 2 * BLOCK]);
            assert!(blocks.has_capacity(side, 0, blocks.needed(side, 10, 2 * BLOCK), true));
            let mut other = Half::unseen(0);
            other.window = 4;
            blocks.write(&mut other, 0, &[0; 2 * BLOCK]);
            // A source may use no more blocks than the number of free blocks, so its quota is exhausted.
            assert!(!blocks.has_capacity(side, 0, 1, false) && blocks.is_source_full(side, 2, 1, false));
            // Bytes that fill a gap may take up to half of the pool.
            side.end = side.next + 1;
            assert!(!blocks.has_capacity(side, 0, 1, false));
            blocks.set_source(&mut other, Source(9));
            assert!(blocks.has_capacity(side, 0, 1, false) && blocks.has_capacity(side, 0, 1, true));
            blocks.write(&mut other, 2 * BLOCK as u32, &[0; BLOCK]);
            assert!(blocks.has_capacity(side, 0, 1, false) && !blocks.has_capacity(side, 0, 1, true));
        });
    }
}
