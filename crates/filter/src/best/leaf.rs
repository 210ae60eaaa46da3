//! Up to 16 rules that are looked at together: three fields in few bits of all of them first, then whole rules one by one.

use sluice_table::simd::lanes::{Lanes, Looks, Words};

use super::words::{Rest, Worded};
use crate::{Address, Field, Header, Range, Rule, RuleNumber};

/// Rules of a leaf.
pub const SLOTS: usize = 16;
/// Words of a header that a leaf looks at.
const LOOKS: usize = 3;

/// Values of a word that rules ask for, within those that a part of the space has.
pub struct Asked {
    /// Which word.
    pub word: usize,
    /// What the part has.
    pub within: Range<u32>,
    /// What each rule asks for.
    pub of_rules: Vec<Range<u32>>,
}

impl Asked {
    /// Base and shift, so that of all ranges' ends as few as possible share a bucket.
    fn buckets(&self) -> (u32, u8) {
        let base = self.of_rules.iter().map(|range| range.first).min().unwrap_or(0);
        let ends = |range: &Range<u32>| [Some(range.first), (range.last < self.within.last).then_some(range.last)];
        let top = self.of_rules.iter().flat_map(ends).flatten().max().unwrap_or(base);
        let shift = (0..32).find(|shift| (top - base) >> shift < 255).unwrap_or(31);
        (base, shift as u8)
    }
}

/// Rules side by side, in order of their numbers, as far as few bits of three fields say what they are.
#[derive(Clone, Copy, Debug)]
pub struct Leaf(Looks);

/// Where a leaf keeps what else it has to say.
const USED: usize = 0;
const GOES_ON: usize = 1;
/// Among the bases.
const START: usize = LOOKS;

impl Leaf {
    /// Without a rule.
    pub fn empty() -> Self {
        Self(Looks {
            first: [[0; SLOTS]; LOOKS],
            span: [[0; SLOTS]; LOOKS],
            base: [0; 4],
            shift: [0; 4],
            word: [0; 4],
            rest: [0; 4],
        })
    }

    /// Of rules whose entries begin at a place; whether the next leaf has more.
    pub fn new(asked: &[Asked], start: usize, goes_on: bool) -> Self {
        let mut looks: Vec<_> = asked
            .iter()
            .map(|asked| {
                let (base, shift) = asked.buckets();
                let (mut first, mut span) = ([0; SLOTS], [0; SLOTS]);
                for (slot, range) in asked.of_rules.iter().enumerate() {
                    first[slot] = Looks::bucket(base, shift, range.first);
                    span[slot] = Looks::bucket(base, shift, range.last) - first[slot];
                }
                let share: u32 = span.iter().map(|&span| u32::from(span)).sum();
                (share, first, span, base, shift, asked.word as u8)
            })
            .collect();
        looks.sort_by_key(|(share, ..)| *share);
        let mut leaf = Self::empty();
        for (at, (_, first, span, base, shift, word)) in looks.into_iter().take(LOOKS).enumerate() {
            (leaf.0.first[at], leaf.0.span[at]) = (first, span);
            (leaf.0.base[at], leaf.0.shift[at], leaf.0.word[at]) = (base, shift, word);
        }
        let count = asked.first().map_or(0, |asked| asked.of_rules.len());
        leaf.0.rest[USED] = ((1u32 << count) - 1) as u16;
        leaf.0.rest[GOES_ON] = goes_on.into();
        leaf.0.base[START] = start as u32;
        leaf
    }

    /// A bit for each rule that may hold a header.
    #[inline(always)]
    pub fn may_hold<L: Lanes>(&self, words: &Words, lanes: L) -> u16 {
        lanes.may_have(&self.0, words) & self.0.rest[USED]
    }

    /// Whether the next leaf has more rules.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.0.rest[GOES_ON] != 0
    }

    /// The first rule's place among all entries.
    #[inline(always)]
    pub fn start(&self) -> u32 {
        self.0.base[START]
    }
}

/// A rule as leaves have it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry<A: Worded> {
    addresses: A::Box,
    first: Rest,
    span: Rest,
}

/// Whether a rule asks for more than entries compare.
pub fn asks_further<A: Address>(rule: &Rule<A>) -> bool {
    let compared = [Field::SourcePort, Field::DestinationPort, Field::Protocol];
    Field::ALL
        .iter()
        .any(|&field| !compared.contains(&field) && !rule.is_any(field))
}

/// Set in the number of a rule that asks for more than entries compare.
const FURTHER: u32 = 1 << 31;

impl<A: Address> Entry<A> {
    /// Of a rule and its number, which is below 2³¹.
    pub fn new(rule: &Rule<A>, number: RuleNumber) -> Self {
        let number = number | if asks_further(rule) { FURTHER } else { 0 };
        let [mut first, mut span] = Rest::of_rule(rule);
        first.protocol |= number << 16;
        span.protocol |= number & 0xffff_0000;
        Self {
            addresses: A::of(rule.source, rule.destination),
            first,
            span,
        }
    }

    #[inline(always)]
    fn marked(&self) -> u32 {
        self.first.protocol >> 16 | self.span.protocol & 0xffff_0000
    }

    /// The rule.
    #[inline(always)]
    pub fn number(&self) -> RuleNumber {
        self.marked() & !FURTHER
    }

    /// Whether it asks for more than is compared here.
    #[inline(always)]
    pub fn asks_further(&self) -> bool {
        self.marked() & FURTHER != 0
    }

    /// Whether it holds a header, as far as it is compared here.
    #[inline(always)]
    pub fn holds<L: Lanes>(&self, header: &Header<A>, lanes: L) -> bool {
        A::held(&self.addresses, [self.first, self.span], &header.words, lanes)
    }
}
