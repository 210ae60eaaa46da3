//! The blocks that nodes live in: segments that readers reach without a lock, and the writer's account of them.

use std::sync::OnceLock;

use super::sync::{AtomicU32, zeros};

/// Words (of 4 bytes) in the unit that positions count.
pub const UNIT: u32 = 4;
/// Most segments of one table, each of at most 256 MiB.
pub const SEGMENTS: usize = 64;
/// Bits of a position that count units within a segment.
const OFFSET_BITS: u32 = 24;
/// Units of the first segment: 1 KiB.
const FIRST: u32 = 64;

/// Units from which on memory grows by less than it has: 4 MiB.
const SLOW_GROWTH_FROM: u32 = 1 << 18;

/// Place of a block: segment and unit within it. At most 30 bits.
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

/// Segments as one pass sees them, in which most blocks are of the same one.
pub struct CachedSegments<'s> {
    segments: &'s Segments,
    number: u32,
    words: &'s [AtomicU32],
}

impl<'s> CachedSegments<'s> {
    /// None near yet.
    pub fn new(segments: &'s Segments) -> Self {
        let (number, words) = (u32::MAX, [].as_slice());
        Self {
            segments,
            number,
            words,
        }
    }

    /// As [`Segments::at`].
    #[inline(always)]
    pub fn at(&mut self, position: Position) -> &'s [AtomicU32] {
        let number = position >> OFFSET_BITS;
        if number != self.number {
            (self.number, self.words) = (number, self.segments.at(number << OFFSET_BITS));
        }
        let offset = ((position & ((1 << OFFSET_BITS) - 1)) * UNIT) as usize;
        self.words.get(offset..).unwrap_or_default()
    }
}

/// Most units of a block that is not one of the arrays.
const SMALL: usize = 68;

/// The writer's account of free blocks. Those of a size are given out again as they are; they are joined with their
/// neighbours only where nothing large enough is left.
#[derive(Debug)]
pub struct BlockAllocator {
    /// By units.
    small: [Vec<Position>; SMALL + 1],
    /// Position and units.
    large: Vec<(Position, u32)>,
    /// What new blocks are cut from: position and units.
    rest: (Position, u32),
    segments: usize,
    units: u32,
}

impl Default for BlockAllocator {
    fn default() -> Self {
        Self {
            small: std::array::from_fn(|_| Vec::new()),
            large: Vec::new(),
            rest: (0, 0),
            segments: 0,
            units: 0,
        }
    }
}

impl BlockAllocator {
    /// Whether the segments left suffice for any one change of a table.
    pub fn has_capacity(&self) -> bool {
        self.segments + 12 <= SEGMENTS
    }

    /// Bytes of the segments made so far.
    pub fn bytes(&self) -> usize {
        self.units as usize * UNIT as usize * size_of::<u32>()
    }

    /// A block of at least `words` words, its contents unspecified. `None` where the address space is used up.
    pub fn allocate(&mut self, words: u32, segments: &Segments) -> Option<Position> {
        let units = words.div_ceil(UNIT);
        if let Some(position) = self.small.get_mut(units as usize).and_then(Vec::pop) {
            return Some(position);
        }
        if self.rest.1 < units {
            self.refill(units, segments)?;
        }
        let position = self.rest.0;
        self.rest = (position + units, self.rest.1 - units);
        Some(position)
    }

    /// Take back a block got by [`Account::take`] with the same number of words.
    pub fn release(&mut self, position: Position, words: u32) {
        self.add(position, words.div_ceil(UNIT));
    }

    fn add(&mut self, position: Position, units: u32) {
        match self.small.get_mut(units as usize) {
            Some(_) if units == 0 => {}
            Some(list) => list.push(position),
            None => self.large.push((position, units)),
        }
    }

    /// Something to cut so many units from.
    #[cold]
    fn refill(&mut self, units: u32, segments: &Segments) -> Option<()> {
        let (position, left) = std::mem::take(&mut self.rest);
        self.add(position, left);
        if !self.choose(units) {
            let free = self.join();
            // Joining takes a look at all that is free: what it is to save has to be worth it.
            if free < self.units / 8 || !self.choose(units) {
                self.grow(units, segments)?;
            }
        }
        Some(())
    }

    /// The largest block, where it takes so many units.
    fn choose(&mut self, units: u32) -> bool {
        let largest = (0..self.large.len()).max_by_key(|&place| self.large[place].1);
        let Some(place) = largest.filter(|&place| self.large[place].1 >= units) else {
            return false;
        };
        self.rest = self.large.swap_remove(place);
        true
    }

    /// Join free blocks with their neighbours; returns how many units are free.
    fn join(&mut self) -> u32 {
        let mut all = std::mem::take(&mut self.large);
        for (units, list) in self.small.iter_mut().enumerate() {
            all.extend(list.drain(..).map(|position| (position, units as u32)));
        }
        all.sort_unstable();
        let free = all.iter().map(|(_, units)| units).sum();
        let mut joined: Option<(Position, u32)> = None;
        for (position, units) in all {
            joined = match joined {
                // Segments are apart: the last unit of one is never followed by the first of the next.
                Some((first, before)) if first + before == position => Some((first, before + units)),
                before => {
                    if let Some((first, units)) = before {
                        self.add(first, units);
                    }
                    Some((position, units))
                }
            };
        }
        if let Some((first, units)) = joined {
            self.add(first, units);
        }
        free
    }

    /// As much as there is, or a third of it where that is much, and at least so many units, in one more segment.
    fn grow(&mut self, needed: u32, segments: &Segments) -> Option<()> {
        let (position, left) = std::mem::take(&mut self.rest);
        self.add(position, left);
        let more = if self.units < SLOW_GROWTH_FROM {
            self.units
        } else {
            self.units / 3
        };
        let units = more.clamp(needed.max(FIRST), (1 << OFFSET_BITS) - 1);
        let segment = segments.0.get(self.segments)?;
        segment.set(zeros((units * UNIT) as usize)).ok()?;
        self.rest = ((self.segments as u32) << OFFSET_BITS, units);
        self.segments += 1;
        self.units += units;
        Some(())
    }
}
