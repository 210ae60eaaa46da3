//! Words of a node. An entry is 0 (no route), a leaf (length of the route plus 1, and value) or a branch (position of a
//! block). A block of 256 slots consists of 16 header words and one entry for each run of equal slots. The low 16 bits
//! of a header word mark the starts of runs in 16 slots. The high 16 bits are the number of runs that start in earlier
//! slots.

use super::memory::{Position, Segments};
use super::sync::{AtomicU32, Ordering};

/// Number of slots in a node.
pub const SLOTS: usize = 256;
/// Number of header words in a block.
pub const HEADER: usize = 16;
/// Entry that represents the absence of a route.
pub const EMPTY: u32 = 0;

const BRANCH: u32 = 1 << 31;
const VALUE_BITS: u32 = 23;
/// Mask of the value in a leaf.
pub const VALUE: u32 = (1 << VALUE_BITS) - 1;

/// Leaf entry for a route of `length` bits.
pub fn leaf(length: u8, value: u32) -> u32 {
    (length as u32 + 1) << VALUE_BITS | value & VALUE
}

/// Branch entry that refers to a block.
pub fn branch(position: Position) -> u32 {
    BRANCH | position
}

/// Whether an entry is a branch.
#[inline(always)]
pub fn is_branch(entry: u32) -> bool {
    entry & BRANCH != 0
}

/// Position of the block of a branch.
#[inline(always)]
pub fn position(entry: u32) -> Position {
    entry & !BRANCH
}

/// Length of a leaf's route plus 1; 0 for an entry without a route.
#[inline(always)]
pub fn rank_of_length(entry: u32) -> u32 {
    (entry & !BRANCH) >> VALUE_BITS
}

/// Index of the entry that covers `slot`. `word` is the header word for this slot.
#[inline(always)]
pub fn entry_index(word: u32, slot: usize) -> usize {
    let started = word & ((2 << (slot & 15)) - 1) & 0xffff;
    HEADER - 1 + (word >> 16) as usize + started.count_ones() as usize
}

/// Header word of `slot`; 0 outside the block.
#[inline(always)]
pub fn header(block: &[AtomicU32], slot: usize) -> u32 {
    block.get(slot >> 4).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Entry at `index` of a block. Loads the entry with acquire ordering, so that the contents of the entry's block are
/// visible. Returns an empty entry for an index beyond the block.
#[inline(always)]
pub fn entry(block: &[AtomicU32], index: usize) -> u32 {
    block.get(index).map_or(EMPTY, |word| word.load(Ordering::Acquire))
}

/// Entry of `slot` in the block of the branch `from`.
#[inline(always)]
pub fn step(segments: &Segments, from: u32, slot: usize) -> u32 {
    let block = segments.at(position(from));
    entry(block, entry_index(header(block, slot), slot))
}

/// Number of entries in a block.
pub fn runs(block: &[AtomicU32]) -> usize {
    entry_index(header(block, SLOTS - 1), SLOTS - 1) + 1 - HEADER
}

/// The runs of a node in modifiable form.
pub struct Runs {
    /// Bitmap of the slots at which a run starts.
    run_starts: [u64; 4],
    entries: [u32; SLOTS],
    count: usize,
}

impl Runs {
    /// A node with equal slots.
    pub fn of(entry: u32) -> Self {
        let mut runs = Self::none();
        runs.push(0, entry);
        runs
    }

    fn none() -> Self {
        Self {
            run_starts: [0; 4],
            entries: [EMPTY; SLOTS],
            count: 0,
        }
    }

    /// Reads the runs of a block.
    pub fn read(block: &[AtomicU32]) -> Self {
        let mut runs = Self::none();
        for (word, header) in block.iter().take(HEADER).enumerate() {
            runs.run_starts[word / 4] |= ((header.load(Ordering::Relaxed) & 0xffff) as u64) << (word % 4 * 16);
        }
        runs.count = runs.run_starts.iter().map(|bits| bits.count_ones() as usize).sum();
        let entries = block.iter().skip(HEADER).take(runs.count);
        for (entry, word) in runs.entries.iter_mut().zip(entries) {
            *entry = word.load(Ordering::Relaxed);
        }
        runs
    }

    /// Returns the runs that result if `change` is applied to the entries in a range of slots.
    pub fn changed(&self, range: std::ops::Range<usize>, mut change: impl FnMut(u32) -> u32) -> Self {
        let mut runs = Self::none();
        let mut starts = self.starts();
        let mut start = starts.next();
        for &entry in &self.entries[..self.count] {
            let (first, end) = (start.unwrap_or(SLOTS), starts.next());
            start = end;
            let end = end.unwrap_or(SLOTS);
            if end <= range.start || first >= range.end {
                runs.push(first, entry);
                continue;
            }
            if first < range.start {
                runs.push(first, entry);
            }
            runs.push(first.max(range.start), change(entry));
            if end > range.end {
                runs.push(range.end, entry);
            }
        }
        runs
    }

    /// Slots at which runs start, in ascending order.
    fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        self.run_starts.iter().enumerate().flat_map(|(word, &bits)| {
            let rest = |bits: &u64| Some(bits & bits.wrapping_sub(1)).filter(|bits| *bits != 0);
            std::iter::successors(Some(bits).filter(|bits| *bits != 0), rest)
                .map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// Appends a run that starts at `slot`, or extends the last run if its entry is equal.
    #[inline]
    fn push(&mut self, slot: usize, entry: u32) {
        if self.count == 0 || self.entries[self.count - 1] != entry {
            self.run_starts[slot / 64] |= 1 << (slot % 64);
            self.entries[self.count] = entry;
            self.count += 1;
        }
    }

    /// The entry of all slots, if all slots are equal.
    pub fn only(&self) -> Option<u32> {
        (self.count == 1).then_some(self.entries[0])
    }

    /// Number of words in a block with these runs.
    pub fn words(&self) -> u32 {
        (HEADER + self.count) as u32
    }

    /// Whether the runs of this node and `other` start at equal slots.
    pub fn is_shaped_as(&self, other: &Self) -> bool {
        self.run_starts == other.run_starts
    }

    /// Stores changed entries into a block whose runs start at the same slots. Each entry is changed with one store.
    pub fn store_entries(&self, block: &[AtomicU32]) {
        for (word, entry) in block.iter().skip(HEADER).zip(&self.entries[..self.count]) {
            if word.load(Ordering::Relaxed) != *entry {
                word.store(*entry, Ordering::Release);
            }
        }
    }

    /// Writes the runs into an unpublished block.
    pub fn store(&self, block: &[AtomicU32]) {
        let mut before = 0;
        for (place, word) in block.iter().take(HEADER).enumerate() {
            let bits = (self.run_starts[place / 4] >> (place % 4 * 16)) as u32 & 0xffff;
            word.store(before << 16 | bits, Ordering::Relaxed);
            before += bits.count_ones();
        }
        for (word, entry) in block.iter().skip(HEADER).zip(&self.entries[..self.count]) {
            word.store(*entry, Ordering::Relaxed);
        }
    }
}
