//! Words of a node. An entry is 0 (no route), a leaf (length of its route plus 1, and value) or a branch (position
//! of a block). A block of 256 slots is 16 header words and one entry per run of equal slots. A header word holds
//! 16 bits that mark where runs begin and, in its upper half, the number of runs begun in the words before.

use super::memory::{Position, Segments};
use super::sync::{AtomicU32, Ordering};

/// Slots of a node.
pub const SLOTS: usize = 256;
/// Header words of a block.
pub const HEADER: usize = 16;
/// No route.
pub const EMPTY: u32 = 0;

const BRANCH: u32 = 1 << 31;
const VALUE_BITS: u32 = 23;
/// The part of a leaf that is its value.
pub const VALUE: u32 = (1 << VALUE_BITS) - 1;

/// All slots of a node, spread out.
pub type Slots = [u32; SLOTS];

/// The entry of a route of `length` bits.
pub fn leaf(length: u8, value: u32) -> u32 {
    (length as u32 + 1) << VALUE_BITS | value & VALUE
}

/// The entry that leads to a block.
pub fn branch(position: Position) -> u32 {
    BRANCH | position
}

/// Whether an entry leads to a block.
#[inline(always)]
pub fn is_branch(entry: u32) -> bool {
    entry & BRANCH != 0
}

/// Where a branch leads.
#[inline(always)]
pub fn position(entry: u32) -> Position {
    entry & !BRANCH
}

/// Length of a leaf's route plus 1; 0 for no route.
#[inline(always)]
pub fn rank_of_length(entry: u32) -> u32 {
    (entry & !BRANCH) >> VALUE_BITS
}

/// Index of the entry that covers `slot`, of a block whose header word for that slot is `word`.
#[inline(always)]
pub fn entry_index(word: u32, slot: usize) -> usize {
    let begun = word & ((2 << (slot & 15)) - 1) & 0xffff;
    HEADER - 1 + (word >> 16) as usize + begun.count_ones() as usize
}

/// Header word of `slot`; 0 outside the block.
#[inline(always)]
pub fn header(block: &[AtomicU32], slot: usize) -> u32 {
    block.get(slot >> 4).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// The entry at `index` of a block; none outside of it. What it leads to may be read.
#[inline(always)]
pub fn entry(block: &[AtomicU32], index: usize) -> u32 {
    block.get(index).map_or(EMPTY, |word| word.load(Ordering::Acquire))
}

/// Follow a branch by one byte of an address.
#[inline(always)]
pub fn step(segments: &Segments, from: u32, slot: usize) -> u32 {
    let block = segments.at(position(from));
    entry(block, entry_index(header(block, slot), slot))
}

/// Number of entries of a block.
pub fn runs(block: &[AtomicU32]) -> usize {
    entry_index(header(block, SLOTS - 1), SLOTS - 1) + 1 - HEADER
}

/// The slots of a block.
pub fn spread(block: &[AtomicU32]) -> Slots {
    std::array::from_fn(|slot| entry(block, entry_index(header(block, slot), slot)))
}

/// Header words of slots, and their number of runs.
pub fn header_of(slots: &Slots) -> ([u32; HEADER], usize) {
    let mut header = [0; HEADER];
    let mut runs = 0;
    for (word, part) in slots.chunks_exact(16).enumerate() {
        header[word] = (runs as u32) << 16;
        for (bit, entry) in part.iter().enumerate() {
            let slot = word * 16 + bit;
            if slot == 0 || slots[slot - 1] != *entry {
                header[word] |= 1 << bit;
                runs += 1;
            }
        }
    }
    (header, runs)
}

/// Write the entries of slots whose header is that of the block already, each by one store.
pub fn store_entries(block: &[AtomicU32], slots: &Slots) {
    let mut index = HEADER;
    for slot in 0..SLOTS {
        if slot == 0 || slots[slot - 1] != slots[slot] {
            if block[index].load(Ordering::Relaxed) != slots[slot] {
                block[index].store(slots[slot], Ordering::Release);
            }
            index += 1;
        }
    }
}

/// Write a block that no reader can reach yet.
pub fn store_block(block: &[AtomicU32], header: &[u32; HEADER], slots: &Slots) {
    for (word, value) in block.iter().zip(header) {
        word.store(*value, Ordering::Relaxed);
    }
    store_entries(block, slots);
}
