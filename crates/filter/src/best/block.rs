//! Up to 16 rules that are compared with a header at once.

use crate::header::NONE;
use crate::{Address, Field, Header, Range, Rule, RuleNumber};

/// Rules of a block.
pub const SLOTS: usize = 16;

/// Rules side by side: of each field the first value, and how far the last one is behind it. In order of their numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Block<A> {
    source: [A; SLOTS],
    source_span: [A; SLOTS],
    destination: [A; SLOTS],
    destination_span: [A; SLOTS],
    source_port: [u16; SLOTS],
    source_port_span: [u16; SLOTS],
    destination_port: [u16; SLOTS],
    destination_port_span: [u16; SLOTS],
    protocol: [u8; SLOTS],
    protocol_span: [u8; SLOTS],
    numbers: [RuleNumber; SLOTS],
    /// Bit per slot: there is a rule.
    used: u16,
    /// It names source ports.
    names_source: u16,
    /// It names destination ports.
    names_destination: u16,
    /// It asks for more than is compared here.
    further: u16,
    goes_on: bool,
}

/// Whether a rule asks for more than blocks compare.
pub fn asks_further<A: Address>(rule: &Rule<A>) -> bool {
    let compared = [Field::SourcePort, Field::DestinationPort, Field::Protocol];
    Field::ALL
        .iter()
        .any(|&field| !compared.contains(&field) && !rule.is_any(field))
}

impl<A: Address> Block<A> {
    /// Of at most 16 rules in their order; whether the next block goes on with more.
    pub fn new(rules: &[Rule<A>], numbers: &[RuleNumber], goes_on: bool) -> Self {
        let mut block = Self {
            source: [A::default(); SLOTS],
            source_span: [A::default(); SLOTS],
            destination: [A::default(); SLOTS],
            destination_span: [A::default(); SLOTS],
            source_port: [0; SLOTS],
            source_port_span: [0; SLOTS],
            destination_port: [0; SLOTS],
            destination_port_span: [0; SLOTS],
            protocol: [0; SLOTS],
            protocol_span: [0; SLOTS],
            numbers: [RuleNumber::MAX; SLOTS],
            used: 0,
            names_source: 0,
            names_destination: 0,
            further: 0,
            goes_on,
        };
        for (slot, &number) in numbers.iter().enumerate().take(SLOTS) {
            let rule = &rules[number as usize];
            let bit = 1 << slot;
            block.used |= bit;
            block.numbers[slot] = number;
            block.source[slot] = rule.source.first;
            block.source_span[slot] = rule.source.last.distance(rule.source.first);
            block.destination[slot] = rule.destination.first;
            block.destination_span[slot] = rule.destination.last.distance(rule.destination.first);
            let ports = |field| {
                let Range { first, last } = rule.get(field);
                let named = !rule.is_any(field);
                let last = last.min(u16::MAX.into());
                (first as u16, (last - first) as u16, if named { bit } else { 0 })
            };
            let named;
            (block.source_port[slot], block.source_port_span[slot], named) = ports(Field::SourcePort);
            block.names_source |= named;
            let named;
            (block.destination_port[slot], block.destination_port_span[slot], named) = ports(Field::DestinationPort);
            block.names_destination |= named;
            let Range { first, last } = rule.get(Field::Protocol);
            (block.protocol[slot], block.protocol_span[slot]) = (first as u8, (last - first) as u8);
            if asks_further(rule) {
                block.further |= bit;
            }
        }
        block
    }

    /// How many rules.
    pub fn len(&self) -> usize {
        self.used.count_ones() as usize
    }

    /// The first rule.
    #[inline(always)]
    pub fn first(&self) -> RuleNumber {
        self.numbers[0]
    }

    /// The rule of a slot.
    #[inline(always)]
    pub fn number(&self, slot: usize) -> RuleNumber {
        self.numbers[slot % SLOTS]
    }

    /// Whether a slot's rule asks for more than is compared.
    #[inline(always)]
    pub fn asks_further(&self, slot: usize) -> bool {
        self.further >> slot & 1 != 0
    }

    /// Whether the next block has more rules.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// A bit for each rule that holds the header, as far as it is compared here.
    #[inline(always)]
    pub fn matches(&self, header: &Header<A>) -> u32 {
        let (from, to) = (header.get(Field::SourcePort), header.get(Field::DestinationPort));
        let mut found = self.used;
        if from == NONE {
            found &= !self.names_source;
        }
        if to == NONE {
            found &= !self.names_destination;
        }
        let protocol = header.get(Field::Protocol) as u8;
        let (from_any, to_any) = (from == NONE, to == NONE);
        let (from, to) = (from as u16, to as u16);
        // Field by field and without a branch, so that all slots are compared side by side.
        let mut held = [true; SLOTS];
        for (held, (first, span)) in held.iter_mut().zip(self.source.iter().zip(&self.source_span)) {
            *held &= header.source.distance(*first) <= *span;
        }
        for (held, (first, span)) in held.iter_mut().zip(self.destination.iter().zip(&self.destination_span)) {
            *held &= header.destination.distance(*first) <= *span;
        }
        for (held, (first, span)) in held.iter_mut().zip(self.source_port.iter().zip(&self.source_port_span)) {
            *held &= (from.wrapping_sub(*first) <= *span) | from_any;
        }
        let destination_ports = self.destination_port.iter().zip(&self.destination_port_span);
        for (held, (first, span)) in held.iter_mut().zip(destination_ports) {
            *held &= (to.wrapping_sub(*first) <= *span) | to_any;
        }
        for (held, (first, span)) in held.iter_mut().zip(self.protocol.iter().zip(&self.protocol_span)) {
            *held &= protocol.wrapping_sub(*first) <= *span;
        }
        let held = held
            .iter()
            .enumerate()
            .fold(0, |bits, (slot, &held)| bits | u32::from(held) << slot);
        held & u32::from(found)
    }
}
