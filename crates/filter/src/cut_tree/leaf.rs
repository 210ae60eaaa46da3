//! Leaves: up to 16 rules that are compared with a header simultaneously.

use core::borrow::Borrow;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use sluice_table::simd::lanes::Lanes;

use super::words::WordAddress;
use crate::field::NONE;
use crate::{Address, Field, Header, Range, Rule, RuleNumber};

/// Maximum number of rules in a leaf.
pub const LEAF_RULES: usize = 16;

/// A rule before its insertion into leaves.
#[derive(Clone, Debug)]
pub struct Entry<A> {
    /// Number of the rule.
    pub number: RuleNumber,
    /// Fields that leaves compare.
    pub rule: Rule<A>,
    /// Whether the rule has conditions that leaves don't compare.
    pub further: bool,
}

/// Rules as a structure of arrays, sorted by rule number. Each range is stored as a first value and the distance from
/// the first to the last value.
///
/// After construction only two modifications are possible: to remove a rule, and to replace the reference to the next
/// leaf.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Leaf<A: WordAddress> {
    source: A::Column,
    destination: A::Column,
    /// Source ports in the low 16 bits, destination ports in the high 16 bits.
    ports: [[u32; LEAF_RULES]; 2],
    protocol: [[u8; LEAF_RULES]; 2],
    /// Four bit sets of rules: all rules, rules without a source port condition, rules without a destination port
    /// condition, and rules without any port condition.
    used: [AtomicU16; 4],
    /// Bit set of the rules with conditions that leaves don't compare.
    further: u16,
    /// Number of the leaf with further rules of the same region; 0 if none.
    next: AtomicU32,
    /// Rule numbers. The additional last entry represents the absence of a rule.
    numbers: [RuleNumber; LEAF_RULES + 1],
}

/// Whether a rule has conditions that leaves don't compare.
pub fn has_further_conditions<A: Address>(rule: &Rule<A>) -> bool {
    let compared = [Field::SourcePort, Field::DestinationPort, Field::Protocol];
    Field::ALL
        .iter()
        .any(|&field| !compared.contains(&field) && !rule.is_any(field))
}

impl<A: Address> Leaf<A> {
    /// Creates a leaf with at most 16 sorted rules; `next` is the leaf with further rules, or 0.
    pub fn new(entries: &[impl Borrow<Entry<A>>], next: u32) -> Self {
        let mut leaf = Self {
            source: Default::default(),
            destination: Default::default(),
            ports: Default::default(),
            protocol: Default::default(),
            used: Default::default(),
            further: 0,
            next: AtomicU32::new(next),
            numbers: [RuleNumber::MAX; LEAF_RULES + 1],
        };
        let mut used = [0; 4];
        for (slot, entry) in entries.iter().enumerate().take(LEAF_RULES) {
            let Entry { number, rule, further } = entry.borrow();
            let bit = 1 << slot;
            leaf.numbers[slot] = *number;
            A::put(&mut leaf.source, slot, rule.source);
            A::put(&mut leaf.destination, slot, rule.destination);
            let mut ports = |field, half: u32| {
                let Range { first, last } = rule.get(field);
                leaf.ports[0][slot] |= first << half;
                leaf.ports[1][slot] |= (last.min(u16::MAX.into()) - first) << half;
                rule.is_any(field)
            };
            let any_source = ports(Field::SourcePort, 0);
            let any_destination = ports(Field::DestinationPort, 16);
            let uses = [true, any_source, any_destination, any_source && any_destination];
            for (used, uses) in used.iter_mut().zip(uses) {
                *used |= if uses { bit } else { 0 };
            }
            let Range { first, last } = rule.get(Field::Protocol);
            (leaf.protocol[0][slot], leaf.protocol[1][slot]) = (first as u8, (last - first) as u8);
            if *further {
                leaf.further |= bit;
            }
        }
        leaf.used = used.map(AtomicU16::new);
        leaf
    }

    /// The rules of the leaf, in order, with the fields that the leaf compares.
    pub fn entries(&self) -> impl Iterator<Item = Entry<A>> {
        let [used, any_source, any_destination, _] = [0, 1, 2, 3].map(|at| self.used(at));
        (0..LEAF_RULES)
            .filter(move |slot| used >> slot & 1 != 0)
            .map(move |slot| {
                let port = |field, half: u32, any: u16| {
                    let [first, span] = [0, 1].map(|end: usize| self.ports[end][slot] >> half & 0xffff);
                    match any >> slot & 1 {
                        1 => Rule::<A>::any().get(field),
                        _ => Range {
                            first,
                            last: first + span,
                        },
                    }
                };
                let [first, span] = self.protocol;
                let fields = [
                    port(Field::SourcePort, 0, any_source),
                    port(Field::DestinationPort, 16, any_destination),
                    Range {
                        first: first[slot].into(),
                        last: (first[slot] + span[slot]).into(),
                    },
                ];
                Entry {
                    number: self.numbers[slot],
                    rule: Rule::compared(A::range(&self.source, slot), A::range(&self.destination, slot), fields),
                    further: self.further >> slot & 1 != 0,
                }
            })
    }

    /// Removes a rule, if it is present. If a search no longer finds the removed rule, it sees all insertions that were
    /// made before the removal; see [`Leaf::next`].
    pub fn remove(&self, number: RuleNumber) {
        for slot in (0..LEAF_RULES).filter(|&slot| self.numbers[slot] == number) {
            for used in &self.used {
                used.fetch_and(!(1 << slot), Ordering::Release);
            }
        }
    }

    #[inline(always)]
    fn used(&self, at: usize) -> u16 {
        self.used[at & 3].load(Ordering::Relaxed)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.used(0).count_ones() as usize
    }

    /// Number of the first rule of a bit set, or [`RuleNumber::MAX`] if the set is empty.
    #[inline(always)]
    pub fn number(&self, held: u16) -> RuleNumber {
        self.numbers[(u32::from(held) | 1 << LEAF_RULES).trailing_zeros() as usize]
    }

    /// Bit set of the rules with conditions that leaves don't compare.
    #[inline(always)]
    pub fn further(&self) -> u16 {
        self.further
    }

    /// Number of the leaf with further rules, or 0. The fence ensures that a search which no longer finds a removed
    /// rule sees the rules that were inserted in its place.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        fence(Ordering::Acquire);
        self.next.load(Ordering::Relaxed)
    }

    /// Replaces the reference to the next leaf.
    pub fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    /// Bit set of the rules that match a header. Only the conditions that leaves compare are considered.
    #[inline(always)]
    pub fn matching<L: Lanes>(&self, header: &Header<A>, lanes: L) -> u16 {
        let (from, to) = (header.get(Field::SourcePort), header.get(Field::DestinationPort));
        // A packet without ports matches only rules without a port condition. The values of its port fields must not be compared.
        let used = self.used(((from / NONE) | (to / NONE) << 1) as usize);
        let [first, span] = &self.ports;
        let ports = lanes.within_pairs(first, span, from & 0xffff | to << 16);
        let [first, span] = &self.protocol;
        let protocol = lanes.within8(first, span, header.get(Field::Protocol) as u8);
        let source = A::held(&header.words, &self.source, lanes);
        let destination = A::held(&header.words[A::WORDS..], &self.destination, lanes);
        used & source & destination & ports & protocol
    }
}
