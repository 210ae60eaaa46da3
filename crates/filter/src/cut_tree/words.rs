//! Layout of headers in the default matcher: 32-bit words for nodes, and columns of 16 address ranges for leaves.

use core::fmt::Debug;
use core::hash::Hash;

use sluice_table::simd::lanes::Lanes;

use super::leaf::LEAF_RULES;
use crate::Range;

/// Words of a header, which nodes may cut.
pub type Words = [u32; 16];

/// An address type whose headers consist of 32-bit words: first the source and the destination, most significant word
/// first, then as many fields as fit.
pub trait WordAddress: Sized + Copy + Send + Sync + Debug {
    /// Number of words of an address.
    const WORDS: usize;
    /// Index of the word with the first field.
    const FIELDS: usize = 2 * Self::WORDS;
    /// Number of fields that fit into the words.
    const MAX_FIELDS: usize;
    /// Storage of the fields that do not fit into the words.
    type More: Copy + Default + Debug + Eq + Hash + Send + Sync + AsRef<[u32]> + AsMut<[u32]>;
    /// Storage of 16 ranges.
    type Column: Copy + Default + Debug + Send + Sync;

    /// Reads the address from the first words.
    fn from_words(words: &[u32]) -> Self;
    /// Word of an address at index `at`; index 0 is the most significant word.
    fn word(self, at: usize) -> u32;
    /// Replaces one word of the address, and takes all less significant words from `rest`.
    fn with_word(self, at: usize, word: u32, rest: Self) -> Self;
    /// Stores a range in a slot.
    fn put(column: &mut Self::Column, slot: usize, range: Range<Self>);
    /// The range in a slot.
    fn range(column: &Self::Column, slot: usize) -> Range<Self>;
    /// Bit set of the ranges that contain the address in the first words.
    fn held<L: Lanes>(words: &[u32], column: &Self::Column, lanes: L) -> u16;
}

/// Each range as a first value and the distance from the first to the last value.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Spans {
    first: [u32; LEAF_RULES],
    span: [u32; LEAF_RULES],
}

impl WordAddress for u32 {
    const WORDS: usize = 1;
    const MAX_FIELDS: usize = 14;
    type More = [u32; 0];
    type Column = Spans;

    #[inline(always)]
    fn from_words(words: &[u32]) -> u32 {
        words[0]
    }

    #[inline(always)]
    fn word(self, _: usize) -> u32 {
        self
    }

    fn with_word(self, _: usize, word: u32, _: Self) -> Self {
        word
    }

    fn put(column: &mut Spans, slot: usize, Range { first, last }: Range<u32>) {
        (column.first[slot], column.span[slot]) = (first, last - first);
    }

    fn range(column: &Spans, slot: usize) -> Range<u32> {
        let (first, span) = (column.first[slot], column.span[slot]);
        Range {
            first,
            last: first + span,
        }
    }

    #[inline(always)]
    fn held<L: Lanes>(words: &[u32], column: &Spans, lanes: L) -> u16 {
        lanes.within32(&column.first, &column.span, words[0])
    }
}

/// Both ends of each range as 64-bit halves, high half first.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct RangeEnds {
    first: [[u64; LEAF_RULES]; 2],
    last: [[u64; LEAF_RULES]; 2],
}

impl WordAddress for u128 {
    const WORDS: usize = 4;
    const MAX_FIELDS: usize = 8;
    type More = [u32; 6];
    type Column = RangeEnds;

    #[inline(always)]
    fn from_words(words: &[u32]) -> u128 {
        words[..4]
            .iter()
            .fold(0, |address, word| address << 32 | u128::from(*word))
    }

    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        (self >> (96 - 32 * at)) as u32
    }

    fn with_word(self, at: usize, word: u32, rest: Self) -> Self {
        let below = 96 - 32 * at as u32;
        let kept = u128::MAX.checked_shl(below + 32).unwrap_or(0);
        self & kept | u128::from(word) << below | rest & ((1 << below) - 1)
    }

    fn put(column: &mut RangeEnds, slot: usize, Range { first, last }: Range<u128>) {
        let halves = |address: u128| [(address >> 64) as u64, address as u64];
        for half in 0..2 {
            column.first[half][slot] = halves(first)[half];
            column.last[half][slot] = halves(last)[half];
        }
    }

    fn range(column: &RangeEnds, slot: usize) -> Range<u128> {
        let whole = |[high, low]: &[[u64; LEAF_RULES]; 2]| u128::from(high[slot]) << 64 | u128::from(low[slot]);
        Range {
            first: whole(&column.first),
            last: whole(&column.last),
        }
    }

    #[inline(always)]
    fn held<L: Lanes>(words: &[u32], column: &RangeEnds, lanes: L) -> u16 {
        let half = |at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
        let (high, low) = (half(0), half(2));
        // If the high halves are equal, the low halves are compared.
        let compare = |[high_ends, low_ends]: &[[u64; LEAF_RULES]; 2]| {
            let [equal, above] = lanes.equal_and_above(high_ends, high);
            let [low_equal, low_above] = lanes.equal_and_above(low_ends, low);
            [equal & low_equal, above | equal & low_above]
        };
        let [_, before_first] = compare(&column.first);
        let [at_last, before_last] = compare(&column.last);
        !before_first & (before_last | at_last)
    }
}
