//! A header as the default matcher looks at it: word by word of 32 bits.

use core::fmt::Debug;
use core::hash::Hash;

use sluice_table::simd::lanes::{Lanes, Small, Words};

use crate::header::NONE;
use crate::{Address, Field, Header, Range, Rule};

/// An address whose headers can be looked at so. Words are those of source and destination, the highest first, then the
/// fields as far as they fit; in between, four that are compared as [`Small`].
pub trait Worded: Sized + Copy + Send + Sync + Debug {
    /// Words of an address.
    const WORDS: usize;
    /// The word of the first field.
    const FIELDS: usize;
    /// How many fields fit.
    const FIT: usize;
    /// The first of the four words.
    const SMALL: usize;
    /// Fields that do not fit.
    type More: Copy + Default + Debug + Eq + Hash + Send + Sync + AsRef<[u32]> + AsMut<[u32]>;
    /// Ranges of both addresses.
    type Box: Copy + Send + Sync + Debug;

    /// Words of a header without fields.
    fn words(source: Self, destination: Self) -> Words;
    /// The source of a header.
    fn source(words: &Words) -> Self;
    /// The destination of a header.
    fn destination(words: &Words) -> Self;
    /// A word of an address, the highest first.
    fn word(self, at: usize) -> u32;
    /// The same address with another word, all words below it as in `rest`.
    fn with_word(self, at: usize, word: u32, rest: Self) -> Self;
    /// Of sources and destinations.
    fn of(source: Range<Self>, destination: Range<Self>) -> Self::Box;
    /// Whether addresses and rest, first values and spans, are those of a header.
    fn held<L: Lanes>(addresses: &Self::Box, rest: [Rest; 2], words: &Words, lanes: L) -> bool;
}

#[inline(always)]
fn small<A: Worded>(words: &Words) -> Small {
    core::array::from_fn(|at| words[A::SMALL + at])
}

impl Worded for u32 {
    const WORDS: usize = 1;
    const FIELDS: usize = 4;
    const FIT: usize = 12;
    const SMALL: usize = 0;
    type More = [u32; 0];
    /// Both first ones, and how far the last ones are behind them.
    type Box = [[u32; 2]; 2];

    #[inline(always)]
    fn words(source: u32, destination: u32) -> Words {
        let mut words = [0; 16];
        (words[0], words[1]) = (source, destination);
        words
    }

    #[inline(always)]
    fn source(words: &Words) -> u32 {
        words[0]
    }

    #[inline(always)]
    fn destination(words: &Words) -> u32 {
        words[1]
    }

    #[inline(always)]
    fn word(self, _: usize) -> u32 {
        self
    }

    fn with_word(self, _: usize, word: u32, _: Self) -> Self {
        word
    }

    fn of(source: Range<u32>, destination: Range<u32>) -> [[u32; 2]; 2] {
        [
            [source.first, destination.first],
            [source.last - source.first, destination.last - destination.first],
        ]
    }

    #[inline(always)]
    fn held<L: Lanes>([first, span]: &[[u32; 2]; 2], rest: [Rest; 2], words: &Words, lanes: L) -> bool {
        let of = |[source, destination]: [u32; 2], rest: Rest| [source, destination, rest.ports, rest.protocol];
        lanes.has(&of(*first, rest[0]), &of(*span, rest[1]), &small::<u32>(words))
    }
}

impl Worded for u128 {
    const WORDS: usize = 4;
    const FIELDS: usize = 8;
    const FIT: usize = 4;
    const SMALL: usize = 12;
    type More = [u32; 8];
    type Box = [Range<u128>; 2];

    #[inline(always)]
    fn words(source: u128, destination: u128) -> Words {
        let mut words = [0; 16];
        for at in 0..Self::WORDS {
            words[at] = source.word(at);
            words[Self::WORDS + at] = destination.word(at);
        }
        words
    }

    #[inline(always)]
    fn source(words: &Words) -> u128 {
        words[..4]
            .iter()
            .fold(0, |address, word| address << 32 | u128::from(*word))
    }

    #[inline(always)]
    fn destination(words: &Words) -> u128 {
        words[4..8]
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

    fn of(source: Range<u128>, destination: Range<u128>) -> [Range<u128>; 2] {
        [source, destination]
    }

    #[inline(always)]
    fn held<L: Lanes>([source, destination]: &[Range<u128>; 2], rest: [Rest; 2], words: &Words, lanes: L) -> bool {
        let [first, span] = rest.map(|rest| [0, 0, rest.ports, rest.protocol]);
        source.has(Self::source(words))
            & destination.has(Self::destination(words))
            & lanes.has(&first, &span, &small::<u128>(words))
    }
}

/// Ports, protocol, and which ports there are, as the second half of [`Small`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rest {
    /// Source and destination port.
    pub ports: u32,
    /// Protocol, then which ports there are.
    pub protocol: u32,
}

/// Which ports a packet has: none for the destination, both, none for the source, neither. In this order, so that what a rule
/// asks for is a range.
#[inline(always)]
fn which(from: u32, to: u32) -> u32 {
    // 1, 2, 0 and 3 for none, the source's, the destination's and both missing.
    0b11_00_10_01 >> (2 * ((from / NONE) | ((to / NONE) << 1))) & 3
}

impl Rest {
    /// Of a header.
    #[inline(always)]
    pub fn of<A: Address>(header: &Header<A>) -> Self {
        let (from, to) = (header.get(Field::SourcePort), header.get(Field::DestinationPort));
        Self {
            ports: from & 0xffff | to << 16,
            protocol: header.get(Field::Protocol) & 0xff | which(from, to) << 8,
        }
    }

    /// Put it at the end of a header's words.
    #[inline(always)]
    pub fn put(self, words: &mut [u32]) {
        (words[0], words[1]) = (self.ports, self.protocol);
    }

    /// First values, and how far the last ones are behind them.
    pub fn of_rule<A: Address>(rule: &Rule<A>) -> [Self; 2] {
        let port = |field| {
            let Range { first, last } = rule.get(field);
            let last = last.min(u32::from(u16::MAX));
            (first, last - first, !rule.is_any(field))
        };
        let (from, from_span, names_from) = port(Field::SourcePort);
        let (to, to_span, names_to) = port(Field::DestinationPort);
        let (which, which_span) = match (names_from, names_to) {
            (false, false) => (0, 3),
            (true, false) => (0, 1),
            (false, true) => (1, 1),
            (true, true) => (1, 0),
        };
        let Range { first, last } = rule.get(Field::Protocol);
        [
            Self {
                ports: from | to << 16,
                protocol: first | which << 8,
            },
            Self {
                ports: from_span | to_span << 16,
                protocol: (last - first) | which_span << 8,
            },
        ]
    }
}
