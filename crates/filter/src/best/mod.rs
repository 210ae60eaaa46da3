//! The matcher that is used where nothing else is asked for.
//!
//! Rules are in three groups: with few sources, with few destinations, and the rest. Within a group a search tree cuts one
//! field at a time into up to 17 pieces, until at most 16 rules are left, which are compared at once. Cutting by what all
//! rules of a group have little of hardly copies any: 1.0 to 1.3 times over, where one tree of all rules copies them up to 60
//! times (decision 0008). A packet asks all groups; the first rule of those found decides.
//!
//! Whatever the header, a lookup costs at most the depth of three trees and the rules of their largest leaves.

mod block;
mod build;

use sluice_table::prefetch::prefetch_all_at;

use self::block::Block;
use crate::header::Dimension;
use crate::{Address, Field, Header, Matcher, Rule, RuleNumber};

/// Pieces less one that a node cuts its field into at most.
const CUTS: usize = 16;
/// Packets whose ways are gone side by side.
const LANES: usize = 16;

/// Fields that nodes may cut, beside the addresses.
const FIELDS: [Field; 3] = [Field::SourcePort, Field::DestinationPort, Field::Protocol];

/// Where a piece leads: to a node, to a block of rules, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

impl Child {
    const NOTHING: Self = Self(u32::MAX);
    const BLOCK: u32 = 1 << 31;

    fn block(number: usize) -> Self {
        Self(number as u32 | Self::BLOCK)
    }

    #[inline(always)]
    fn is_node(self) -> bool {
        self.0 & Self::BLOCK == 0
    }
}

/// A node's way on: for each of its values up to 16, in ascending order, one piece below it, and one behind the last.
#[derive(Clone, Copy, Debug)]
struct Node {
    cut: Dimension,
    /// How many values.
    count: u32,
    /// Which values, among those of addresses or of fields.
    values: u32,
    children: [Child; CUTS + 1],
}

/// A group's tree.
#[derive(Clone, Copy, Debug)]
struct Group {
    root: Child,
    /// The first of its rules.
    first: RuleNumber,
}

/// The default matcher.
#[derive(Clone, Debug)]
pub struct Best<A: Address> {
    groups: Vec<Group>,
    nodes: Vec<Node>,
    addresses: Vec<[A; CUTS]>,
    numbers: Vec<[u32; CUTS]>,
    blocks: Vec<Block<A>>,
    /// Rules that ask for more than blocks compare, by number.
    further: Vec<(RuleNumber, Rule<A>)>,
}

impl<A: Address> Best<A> {
    /// Of rules in their order.
    pub fn new(rules: &[Rule<A>]) -> Self {
        build::build(rules)
    }

    /// How many rules all blocks hold: beside the number of rules, how often rules are copied.
    pub fn entries(&self) -> usize {
        self.blocks.iter().map(Block::len).sum()
    }

    #[inline(always)]
    fn step(&self, number: u32, header: &Header<A>) -> Child {
        let node = &self.nodes[number as usize];
        let values = node.values as usize;
        let piece = match node.cut {
            Dimension::Source => below(&self.addresses[values], header.source),
            Dimension::Destination => below(&self.addresses[values], header.destination),
            Dimension::Field(field) => below(&self.numbers[values], header.get(field)),
        };
        node.children[piece.min(node.count) as usize]
    }

    #[inline(always)]
    fn prefetch(&self, at: Child) {
        if at.is_node() {
            prefetch_all_at(&self.nodes, at.0 as usize);
        } else if at != Child::NOTHING {
            prefetch_all_at(&self.blocks, (at.0 & !Child::BLOCK) as usize);
        }
    }

    /// The first rule of a chain of blocks, if it goes before `before`.
    #[inline(always)]
    fn compare(&self, at: Child, header: &Header<A>, before: RuleNumber) -> RuleNumber {
        if at == Child::NOTHING {
            return before;
        }
        let mut number = (at.0 & !Child::BLOCK) as usize;
        loop {
            let block = &self.blocks[number];
            if block.first() >= before {
                return before;
            }
            let mut found = block.matches(header);
            while found != 0 {
                let slot = found.trailing_zeros() as usize;
                let rule = block.number(slot);
                if rule >= before {
                    return before;
                }
                if !block.asks_further(slot) || self.holds(rule, header) {
                    return rule;
                }
                found &= found - 1;
            }
            if !block.goes_on() {
                return before;
            }
            number += 1;
        }
    }

    #[cold]
    fn holds(&self, rule: RuleNumber, header: &Header<A>) -> bool {
        let at = self.further.binary_search_by_key(&rule, |(number, _)| *number);
        at.is_ok_and(|at| self.further[at].1.has(header))
    }
}

/// How many of the values, which ascend, a number is not below.
#[inline(always)]
fn below<T: Address>(values: &[T; CUTS], number: T) -> u32 {
    values.iter().map(|value| u32::from(*value <= number)).sum()
}

impl<A: Address> Matcher<A> for Best<A> {
    type Memory = ();

    fn memory(&self) {}

    fn first(&self, _: &mut (), header: &Header<A>) -> Option<RuleNumber> {
        let mut best = RuleNumber::MAX;
        for group in &self.groups {
            if group.first >= best {
                continue;
            }
            let mut at = group.root;
            while at.is_node() {
                at = self.step(at.0, header);
            }
            best = self.compare(at, header, best);
        }
        (best != RuleNumber::MAX).then_some(best)
    }

    fn first_of_each(&self, _: &mut (), headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (headers, found) in headers.chunks(LANES).zip(found.chunks_mut(LANES)) {
            let mut best = [RuleNumber::MAX; LANES];
            for group in &self.groups {
                let mut at = [group.root; LANES];
                let mut going = group.root.is_node();
                while going {
                    going = false;
                    for (at, header) in at.iter_mut().zip(headers) {
                        if at.is_node() {
                            *at = self.step(at.0, header);
                            self.prefetch(*at);
                            going |= at.is_node();
                        }
                    }
                }
                for ((at, header), best) in at.iter().zip(headers).zip(&mut best) {
                    *best = self.compare(*at, header, *best);
                }
            }
            for (found, best) in found.iter_mut().zip(best) {
                *found = (best != RuleNumber::MAX).then_some(best);
            }
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice())
            + size_of_val(self.addresses.as_slice())
            + size_of_val(self.numbers.as_slice())
            + size_of_val(self.blocks.as_slice())
            + size_of_val(self.further.as_slice())
    }
}
