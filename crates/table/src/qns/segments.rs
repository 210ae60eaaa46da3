//! Lines in segments. Each segment doubles the number of lines, is allocated once, and exists until the end of the
//! table.

use std::marker::PhantomData;
use std::sync::OnceLock;

use super::key::Address;
use super::sync::{AtomicU64, FIRST, words};

/// Maximum number of segments. Line numbers have 31 bits.
const SEGMENTS: usize = 32;

/// Number of words in a cache line.
const ALIGNMENT: usize = crate::memory::LINE / size_of::<u64>();

#[derive(Debug)]
struct Segment {
    words: Box<[AtomicU64]>,
    /// Word index that line 0 would have in this segment. The index is chosen so that the lines of the segment are
    /// aligned to cache lines.
    origin: usize,
}

/// The lines of one address family, by number.
#[derive(Debug)]
pub struct Lines<A> {
    segments: [OnceLock<Segment>; SEGMENTS],
    family: PhantomData<A>,
}

/// The segment that contains a line.
#[inline(always)]
pub fn segment(line: u32) -> usize {
    ((line | (FIRST - 1)).ilog2() - (FIRST.ilog2() - 1)) as usize
}

/// Number of the first line in a segment.
pub fn first(segment: usize) -> u32 {
    match segment {
        0 => 0,
        _ => FIRST << (segment - 1),
    }
}

impl<A: Address> Lines<A> {
    /// Creates an empty set of segments.
    pub fn new() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            family: PhantomData,
        }
    }

    /// The line with this number; `None` if its segment is not allocated.
    #[inline(always)]
    pub fn get(&self, line: u32) -> Option<&A::Line> {
        let segment = self.segments[segment(line) % SEGMENTS].get()?;
        A::line(&segment.words, segment.origin.wrapping_add(line as usize * A::WORDS))
    }

    /// The line with this number. Allocates its segment with zeroed lines if necessary.
    pub fn make(&self, line: u32) -> Option<&A::Line> {
        let segment = segment(line);
        self.segments[segment % SEGMENTS].get_or_init(|| {
            let first = first(segment) as usize;
            let lines = first.max(FIRST as usize);
            let words = words(lines * A::WORDS + ALIGNMENT - 1);
            let skipped = words.as_ptr().align_offset(crate::memory::LINE).min(ALIGNMENT - 1);
            Segment {
                origin: skipped.wrapping_sub(first * A::WORDS),
                words,
            }
        });
        self.get(line)
    }

    /// Size of all segments in bytes.
    pub fn bytes(&self) -> usize {
        let made = self.segments.iter().filter_map(OnceLock::get);
        made.map(|segment| size_of_val(&*segment.words)).sum()
    }
}
