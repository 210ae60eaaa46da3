//! Memory of nodes: segments, which readers access without locks, and the writer's block allocator.

use std::sync::OnceLock;

use super::sync::{AtomicU32, zeros};

/// Number of 4-byte words in an allocation unit. Positions are counted in units.
pub const UNIT: u32 = 4;
/// Maximum number of segments in a table. A segment has at most 256 MiB.
pub const SEGMENTS: usize = 64;
/// Number of position bits for the unit within the segment.
const OFFSET_BITS: u32 = 24;
/// Size of the first segment in units (1 KiB).
const FIRST: u32 = 64;

/// If the memory has at least this size in units (4 MiB), it grows by a third at a time instead of doubling.
const SLOW_GROWTH_FROM: u32 = 1 << 18;

/// Position of a block in at most 30 bits: segment, and allocation unit within the segment.
pub type Position = u32;

/// Segments of memory. A segment is allocated once, and exists until the end of the table.
#[derive(Debug)]
pub struct Segments([OnceLock<Box<[AtomicU32]>>; SEGMENTS]);

impl Segments {
    /// Creates an empty set of segments.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// The words from `position` to the end of its segment; empty if the position is invalid.
    #[inline(always)]
    pub fn at(&self, position: Position) -> &[AtomicU32] {
        let segment = self.0.get((position >> OFFSET_BITS) as usize).and_then(OnceLock::get);
        let offset = ((position & ((1 << OFFSET_BITS) - 1)) * UNIT) as usize;
        segment.and_then(|words| words.get(offset..)).unwrap_or_default()
    }
}

/// Access to segments during one pass, with a cache of the last segment, because most blocks of a pass are in one
/// segment.
pub struct CachedSegments<'s> {
    segments: &'s Segments,
    number: u32,
    words: &'s [AtomicU32],
}

impl<'s> CachedSegments<'s> {
    /// Creates the access with an empty cache.
    pub fn new(segments: &'s Segments) -> Self {
        let (number, words) = (u32::MAX, [].as_slice());
        Self {
            segments,
            number,
            words,
        }
    }

    /// The words from `position` to the end of its segment; see [`Segments::at`].
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

/// Maximum size, in units, of a block that is not an array.
const SMALL: usize = 68;

/// The writer's allocator of blocks. A free block is reused for a block of equal size. Adjacent free blocks are merged
/// only if no free block is large enough.
#[derive(Debug)]
pub struct BlockAllocator {
    /// Free blocks of at most [`SMALL`] units, by size.
    small: [Vec<Position>; SMALL + 1],
    /// Position and size, in units, of each larger free block.
    large: Vec<(Position, u32)>,
    /// Position and size, in units, of the free range from which new blocks are cut.
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
    /// Whether the remaining segments suffice for any single modification of a table.
    pub fn has_capacity(&self) -> bool {
        self.segments + 12 <= SEGMENTS
    }

    /// Number of bytes in the allocated segments.
    pub fn bytes(&self) -> usize {
        self.units as usize * UNIT as usize * size_of::<u32>()
    }

    /// Allocates a block of at least `words` words with unspecified contents. `None` if all segments are exhausted.
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

    /// Frees a block. `words` must be the number of words that was passed to [`BlockAllocator::allocate`].
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

    /// Provides a free range of at least `units` units.
    #[cold]
    fn refill(&mut self, units: u32, segments: &Segments) -> Option<()> {
        let (position, remaining) = std::mem::take(&mut self.rest);
        self.add(position, remaining);
        if !self.choose(units) {
            let free = self.join();
            // Merge free blocks only if enough memory is free, because merging must examine all free blocks.
            if free < self.units / 8 || !self.choose(units) {
                self.grow(units, segments)?;
            }
        }
        Some(())
    }

    /// Selects the largest free block as the free range, if it has at least `units` units.
    fn choose(&mut self, units: u32) -> bool {
        let largest = (0..self.large.len()).max_by_key(|&place| self.large[place].1);
        let Some(place) = largest.filter(|&place| self.large[place].1 >= units) else {
            return false;
        };
        self.rest = self.large.swap_remove(place);
        true
    }

    /// Merges adjacent free blocks. Returns the number of free units.
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
                // Blocks of different segments have no adjacent positions, so they are never merged.
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

    /// Allocates another segment of at least `needed` units. The segment doubles the existing memory, or adds a third
    /// of it above [`SLOW_GROWTH_FROM`].
    fn grow(&mut self, needed: u32, segments: &Segments) -> Option<()> {
        let (position, remaining) = std::mem::take(&mut self.rest);
        self.add(position, remaining);
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
