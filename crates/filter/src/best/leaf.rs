//! Up to 16 rules that are compared with a header at once.

use core::borrow::Borrow;
use core::sync::atomic::{AtomicU16, Ordering};

use sluice_table::simd::lanes::Lanes;

use super::words::Worded;
use crate::header::NONE;
use crate::{Address, Field, Header, Range, Rule, RuleNumber};

/// Rules of a leaf.
pub const SLOTS: usize = 16;

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
/// Nothing of it changes but that rules go.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Leaf<A: Worded> {
    source: A::Column,
    destination: A::Column,
    source_port: [[u16; SLOTS]; 2],
    destination_port: [[u16; SLOTS]; 2],
    protocol: [[u8; SLOTS]; 2],
    /// Bit per slot: there is a rule; one that names no source ports; no destination ports; neither.
    used: [AtomicU16; 4],
    /// It asks for more than is compared here.
    further: u16,
    goes_on: bool,
    numbers: [RuleNumber; SLOTS],
}

/// Whether a rule asks for more than leaves compare.
pub fn asks_further<A: Address>(rule: &Rule<A>) -> bool {
    let compared = [Field::SourcePort, Field::DestinationPort, Field::Protocol];
    Field::ALL
        .iter()
        .any(|&field| !compared.contains(&field) && !rule.is_any(field))
}

impl<A: Address> Leaf<A> {
    /// Of at most 16 rules in their order; whether the next leaf goes on with more.
    pub fn new(entries: &[impl Borrow<Entry<A>>], goes_on: bool) -> Self {
        let mut leaf = Self {
            source: Default::default(),
            destination: Default::default(),
            source_port: Default::default(),
            destination_port: Default::default(),
            protocol: Default::default(),
            used: Default::default(),
            further: 0,
            goes_on,
            numbers: [RuleNumber::MAX; SLOTS],
        };
        let mut used = [0; 4];
        for (slot, entry) in entries.iter().enumerate().take(SLOTS) {
            let Entry { number, rule, further } = entry.borrow();
            let bit = 1 << slot;
            leaf.numbers[slot] = *number;
            A::put(&mut leaf.source, slot, rule.source);
            A::put(&mut leaf.destination, slot, rule.destination);
            let ports = |column: &mut [[u16; SLOTS]; 2], field| {
                let Range { first, last } = rule.get(field);
                (column[0][slot], column[1][slot]) = (first as u16, (last.min(u16::MAX.into()) - first) as u16);
                rule.is_any(field)
            };
            let any_source = ports(&mut leaf.source_port, Field::SourcePort);
            let any_destination = ports(&mut leaf.destination_port, Field::DestinationPort);
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
        (0..SLOTS).filter(move |slot| used >> slot & 1 != 0).map(move |slot| {
            let port = |field, [first, span]: &[[u16; SLOTS]; 2], any: u16| match any >> slot & 1 {
                1 => Rule::<A>::any().get(field),
                _ => Range {
                    first: first[slot].into(),
                    last: (first[slot] + span[slot]).into(),
                },
            };
            let [first, span] = self.protocol;
            let fields = [
                port(Field::SourcePort, &self.source_port, any_source),
                port(Field::DestinationPort, &self.destination_port, any_destination),
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

    /// Do without a rule from now on, where it is there.
    pub fn remove(&self, number: RuleNumber) {
        for slot in (0..SLOTS).filter(|&slot| self.numbers[slot] == number) {
            for used in &self.used {
                used.fetch_and(!(1 << slot), Ordering::Relaxed);
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

    /// The rule of a slot.
    #[inline(always)]
    pub fn number(&self, slot: usize) -> RuleNumber {
        self.numbers[slot % SLOTS]
    }

    /// Which slots' rules ask for more than is compared.
    #[inline(always)]
    pub fn further(&self) -> u16 {
        self.further
    }

    /// Whether the next leaf has more rules.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// A bit for each rule that holds a header, as far as it is compared here.
    #[inline(always)]
    pub fn held<L: Lanes>(&self, header: &Header<A>, lanes: L) -> u16 {
        let (from, to) = (header.get(Field::SourcePort), header.get(Field::DestinationPort));
        let used = self.used(((from / NONE) | (to / NONE) << 1) as usize);
        let ports = |[first, span]: &[[u16; SLOTS]; 2], port: u32| {
            // A packet that has none meets the rules that name none: `used` keeps no other.
            lanes.within16(first, span, port as u16) | 0u16.wrapping_sub((port / NONE) as u16)
        };
        let [first, span] = &self.protocol;
        used & A::held(&header.words, &self.source, lanes)
            & A::held(&header.words[A::WORDS..], &self.destination, lanes)
            & ports(&self.source_port, from)
            & ports(&self.destination_port, to)
            & lanes.within8(first, span, header.get(Field::Protocol) as u8)
    }
}
