//! Up to 16 rules that are compared with a header at once.

use core::borrow::Borrow;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use sluice_table::simd::lanes::Lanes;

use super::words::WordAddress;
use crate::field::NONE;
use crate::{Address, Field, Header, Range, Rule, RuleNumber};

/// Rules of a leaf.
pub const LEAF_RULES: usize = 16;

/// A rule on its way into leaves.
#[derive(Clone, Debug)]
pub struct Entry<A> {
    /// Its number.
    pub number: RuleNumber,
    /// What leaves compare of it.
    pub rule: Rule<A>,
    /// It asks for more.
    pub further: bool,
}

/// Rules side by side, in order of their numbers: of each field the first value, and how far the last one is behind it.
///
/// Nothing of it changes but that rules go, and which leaf is the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Leaf<A: WordAddress> {
    source: A::Column,
    destination: A::Column,
    /// Source ports in the low halves, destination ports in the high ones.
    ports: [[u32; LEAF_RULES]; 2],
    protocol: [[u8; LEAF_RULES]; 2],
    /// Bit per slot: there is a rule; one that names no source ports; no destination ports; neither.
    used: [AtomicU16; 4],
    /// It asks for more than is compared here.
    further: u16,
    /// The leaf that goes on with further rules of the same part; 0: none does.
    next: AtomicU32,
    /// One more: none.
    numbers: [RuleNumber; LEAF_RULES + 1],
}

/// Whether a rule asks for more than leaves compare.
pub fn has_further_conditions<A: Address>(rule: &Rule<A>) -> bool {
    let compared = [Field::SourcePort, Field::DestinationPort, Field::Protocol];
    Field::ALL
        .iter()
        .any(|&field| !compared.contains(&field) && !rule.is_any(field))
}

impl<A: Address> Leaf<A> {
    /// Of at most 16 rules in their order, and the leaf that goes on with more, 0 where none does.
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

    /// The rules that it has, in their order, as far as it compares them.
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

    /// Do without a rule from now on, where it is there. Who misses it sees what was done before: see [`Leaf::next`].
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

    /// How many rules.
    pub fn len(&self) -> usize {
        self.used(0).count_ones() as usize
    }

    /// The rule of the first slot of some, [`RuleNumber::MAX`] where there is none.
    #[inline(always)]
    pub fn number(&self, held: u16) -> RuleNumber {
        self.numbers[(u32::from(held) | 1 << LEAF_RULES).trailing_zeros() as usize]
    }

    /// Which slots' rules ask for more than is compared.
    #[inline(always)]
    pub fn further(&self) -> u16 {
        self.further
    }

    /// The leaf that goes on with more rules, 0 where none does. Who looked for rules before, and missed one that has gone, is
    /// led to those that came for it.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        fence(Ordering::Acquire);
        self.next.load(Ordering::Relaxed)
    }

    /// Let another leaf go on.
    pub fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    /// A bit for each rule that holds a header, as far as it is compared here.
    #[inline(always)]
    pub fn matching<L: Lanes>(&self, header: &Header<A>, lanes: L) -> u16 {
        let (from, to) = (header.get(Field::SourcePort), header.get(Field::DestinationPort));
        // A packet that has no ports meets rules that name none, whichever it is taken to have.
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
