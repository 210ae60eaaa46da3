//! The blocks that nodes live in: segments that readers reach without a lock, and the writer's account of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::sync::AtomicU32;

/// Words (of 4 bytes) in the unit that positions count.
pub const UNIT: u32 = 4;
/// Most segments of one table, each of at most 512 MiB.
pub const SEGMENTS: usize = 64;
/// Bits of a position that count units within a segment.
const OFFSET_BITS: u32 = 25;
/// Units of the first segment: 1 KiB.
const FIRST: u32 = 64;

/// Place of a block: segment and unit within it. At most 31 bits.
pub type Position = u32;

/// Segments, each made once and kept as long as the table.
#[derive(Debug)]
pub struct Segments([OnceLock<Box<[AtomicU32]>>; SEGMENTS]);

impl Segments {
    /// No segment yet.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// The words from `position` to the end of its segment; empty where there is no such place.
    #[inline(always)]
    pub fn at(&self, position: Position) -> &[AtomicU32] {
        let segment = self.0.get((position >> OFFSET_BITS) as usize).and_then(OnceLock::get);
        let offset = ((position & ((1 << OFFSET_BITS) - 1)) * UNIT) as usize;
        segment.and_then(|words| words.get(offset..)).unwrap_or_default()
    }
}

/// The writer's account: which units are free, best fit, neighbours joined again.
#[derive(Debug, Default)]
pub struct Account {
    by_size: BTreeSet<(u32, Position)>,
    by_position: BTreeMap<Position, u32>,
    segments: usize,
    units: u32,
}

impl Account {
    /// Whether the segments left suffice for any one change of a table.
    pub fn has_room(&self) -> bool {
        self.segments + 12 <= SEGMENTS
    }

    /// Bytes of the segments made so far.
    pub fn bytes(&self) -> usize {
        self.units as usize * UNIT as usize * size_of::<u32>()
    }

    /// A block of at least `words` words, its contents unspecified. `None` where the address space is used up.
    pub fn take(&mut self, words: u32, segments: &Segments) -> Option<Position> {
        let units = words.div_ceil(UNIT);
        loop {
            if let Some(&(size, position)) = self.by_size.range((units, 0)..).next() {
                self.by_size.remove(&(size, position));
                self.by_position.remove(&position);
                if size > units {
                    self.add(position + units, size - units);
                }
                return Some(position);
            }
            self.grow(units, segments)?;
        }
    }

    /// Take back a block got by [`Account::take`] with the same number of words.
    pub fn give(&mut self, mut position: Position, words: u32) {
        let mut units = words.div_ceil(UNIT);
        if let Some((&before, &size)) = self.by_position.range(..position).next_back()
            && before + size == position
        {
            self.by_position.remove(&before);
            self.by_size.remove(&(size, before));
            position = before;
            units += size;
        }
        if let Some(size) = self.by_position.remove(&(position + units)) {
            self.by_size.remove(&(size, position + units));
            units += size;
        }
        self.add(position, units);
    }

    fn add(&mut self, position: Position, units: u32) {
        self.by_size.insert((units, position));
        self.by_position.insert(position, units);
    }

    /// Half of what there is, and at least so many units, in one more segment.
    fn grow(&mut self, needed: u32, segments: &Segments) -> Option<()> {
        let units = (self.units / 2).clamp(needed.max(FIRST), (1 << OFFSET_BITS) - 1);
        let segment = segments.0.get(self.segments)?;
        let words = (0..units * UNIT).map(|_| AtomicU32::new(0)).collect();
        segment.set(words).ok()?;
        self.add((self.segments as u32) << OFFSET_BITS, units);
        self.segments += 1;
        self.units += units;
        Some(())
    }
}
