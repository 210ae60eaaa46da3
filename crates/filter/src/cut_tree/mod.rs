//! The matcher that is used where nothing else is asked for.
//!
//! Rules are in three groups: with few sources, with few destinations, and the rest. Within a group a search tree cuts one
//! field at a time, into up to 256 pieces at its root and 16 further down, until at most 16 rules are left, which are compared
//! at once. Cutting by what all rules of a group have little of hardly copies any: 1.0 to 1.3 times over, where one tree of all
//! rules copies them up to 60 times (decision 0008). A packet asks all groups; the first rule of those found decides.
//!
//! Whatever the header, a lookup costs at most the depth of three trees and the rules of their largest leaves.

mod append_table;
mod build;
mod covered;
mod edit;
mod leaf;
mod reach;
mod region;
mod root;
mod search;
pub(crate) mod words;

use core::array;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use sluice_table::arena::Arena;
use sluice_table::simd::lanes::{Lanes, Vectors};

pub(crate) use self::append_table::AppendTable;
use self::covered::CoveredIndex;
pub use self::edit::CapacityError;

use self::leaf::Leaf;
use self::reach::Reach;
use self::root::Root;
pub use self::search::VisitCounts;
use self::search::{BatchSearch, SingleSearch};
use crate::{Address, Field, Header, Matcher, Rule, RuleNumber};

/// Pieces that a node cuts its field into at most.
const MAX_PIECES: usize = 16;
/// Packets whose ways are gone side by side.
const BATCH: usize = 64;
/// So few packets go alone.
const SINGLE_LOOKUPS: usize = 8;
/// Kinds of rules: with few sources, with few destinations, and the rest.
const KINDS: usize = 3;
/// Fields that nodes may cut, beside the addresses.
const FIELDS: [Field; 3] = [Field::SourcePort, Field::DestinationPort, Field::Protocol];

/// Where a piece leads: to a node, or to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

impl Child {
    /// A leaf without a rule.
    const NOTHING: Self = Self(Self::LEAF);
    const LEAF: u32 = 1 << 31;
    /// Where the word that a node cuts is.
    const WORD: u32 = 27;

    fn leaf(number: usize) -> Self {
        Self(number as u32 | Self::LEAF)
    }

    fn node(number: usize, word: usize) -> Self {
        Self(number as u32 | (word as u32) << Self::WORD)
    }

    #[inline(always)]
    fn node_number(self) -> usize {
        (self.0 & ((1 << Self::WORD) - 1)) as usize
    }

    #[inline(always)]
    fn leaf_number(self) -> usize {
        (self.0 & !Self::LEAF) as usize
    }

    #[inline(always)]
    fn word(self) -> usize {
        (self.0 >> Self::WORD & 15) as usize
    }

    #[inline(always)]
    fn is_node(self) -> bool {
        self.0 & Self::LEAF == 0
    }
}

/// A node: the first value of each piece but the first, in ascending order, and where all pieces lead. Where there are fewer,
/// the last one is there several times; the last value is none.
#[derive(Debug)]
#[repr(C, align(64))]
struct Node {
    values: [u32; MAX_PIECES],
    children: [AtomicU32; MAX_PIECES],
}

impl Node {
    /// With cuts, which lead nowhere yet. None is the largest value: that stands for no cut.
    fn new(cuts: &[u32]) -> Self {
        let mut values = [u32::MAX; MAX_PIECES];
        values[..cuts.len()].copy_from_slice(cuts);
        Self {
            values,
            children: [const { AtomicU32::new(Child::NOTHING.0) }; MAX_PIECES],
        }
    }

    fn cuts(&self) -> &[u32] {
        cuts(&self.values)
    }

    /// Let a piece lead there. The largest value is not below those that are not used, which lead where the last piece does.
    fn set_child(&mut self, piece: usize, to: Child) {
        let end = if piece == self.cuts().len() {
            MAX_PIECES
        } else {
            piece + 1
        };
        self.children[piece..end].fill_with(|| AtomicU32::new(to.0));
    }

    #[inline(always)]
    fn child_at(&self, piece: usize) -> Child {
        Child(self.children[piece % MAX_PIECES].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn child<L: Lanes>(&self, value: u32, lanes: L) -> Child {
        let piece = (lanes.not_below(&self.values, value) & 0x7fff).count_ones();
        self.child_at(piece as usize)
    }
}

/// The values that a node or root is cut at: the largest stands for none.
fn cuts(values: &[u32]) -> &[u32] {
    &values[..values.partition_point(|value| *value < u32::MAX)]
}

/// A group's tree.
#[derive(Debug)]
struct Group {
    root: Box<Root>,
    /// A number that none of its rules comes before.
    first: AtomicU32,
    /// Which addresses they ask for, where that is few.
    reach: Option<Reach>,
    /// Which kinds of rules it has.
    kinds: [bool; KINDS],
}

impl Group {
    /// Whether it may have an earlier rule for a header than one that was found.
    #[inline(always)]
    fn may_precede<A: Address>(&self, header: &Header<A>, found: RuleNumber) -> bool {
        self.first.load(Ordering::Relaxed) < found && self.reach.as_ref().is_none_or(|reach| reach.has(header))
    }

    /// A rule is about to come.
    fn add<A: Address>(&self, number: RuleNumber, rule: &Rule<A>) {
        self.first.fetch_min(number, Ordering::Relaxed);
        if let Some(reach) = &self.reach {
            reach.add(if self.kinds[0] { rule.source } else { rule.destination });
        }
    }
}

/// The default matcher.
#[derive(Debug)]
pub struct CutTree<A: Address> {
    vectors: Vectors,
    groups: Vec<Group>,
    nodes: Arena<Node>,
    leaves: Arena<Leaf<A>>,
    /// How many leaves there were from the start.
    built: usize,
    /// Rules that ask for more than leaves compare, by number.
    further: Vec<(RuleNumber, Rule<A>)>,
    /// The same of those that were added later.
    added: AppendTable<Box<[Rule<A>]>>,
    /// Rules that some leaves need not have. Who changes anything holds it.
    hidden: Mutex<CoveredIndex<A>>,
}

impl<A: Address> CutTree<A> {
    /// Of rules in their order.
    pub fn new(rules: &[Rule<A>]) -> Self {
        Self::numbered((0..).zip(rules.iter().cloned()))
    }

    /// Of rules with numbers that don't descend. Several with one number are boxes of one rule.
    pub fn numbered(rules: impl Iterator<Item = (RuleNumber, Rule<A>)>) -> Self {
        build::build(rules)
    }

    /// The same, searched with other instructions than the widest that there are.
    pub fn with_vectors(self, vectors: Vectors) -> Self {
        Self { vectors, ..self }
    }

    /// How many rules all leaves hold: beside the number of rules, how often rules are copied.
    pub fn entries(&self) -> usize {
        self.leaves.iter().map(Leaf::len).sum()
    }

    /// What a lookup comes to.
    pub fn visits(&self, header: &Header<A>) -> VisitCounts {
        self.vectors.run(SingleSearch { best: self, header }).0
    }

    /// The first of a leaf's rules that holds a header, else [`RuleNumber::MAX`].
    #[inline(always)]
    fn first_of_leaf<L: Lanes>(&self, leaf: &Leaf<A>, header: &Header<A>, lanes: L) -> RuleNumber {
        let mut held = leaf.matching(header, lanes);
        if held & leaf.further() != 0 {
            held = self.held_further(leaf, header, held);
        }
        leaf.number(held)
    }

    /// Without the first ones that a header does not meet after all.
    #[cold]
    fn held_further(&self, leaf: &Leaf<A>, header: &Header<A>, mut held: u16) -> u16 {
        while held != 0 {
            let slot = held.trailing_zeros();
            if leaf.further() >> slot & 1 == 0 || self.holds(leaf.number(held), header) {
                break;
            }
            held &= held - 1;
        }
        held
    }

    fn holds(&self, rule: RuleNumber, header: &Header<A>) -> bool {
        let from = self.further.partition_point(|(number, _)| *number < rule);
        let boxes = self.further[from..].iter().take_while(|(number, _)| *number == rule);
        let added = self.added.get(rule).map_or(&[][..], |(_, boxes)| boxes);
        boxes
            .map(|(_, rule)| rule)
            .chain(added)
            .any(|rule| rule.matches(header))
    }

    /// A leaf, and those that go on with its part's rules.
    fn chain(&self, first: Child) -> impl Iterator<Item = &Leaf<A>> {
        let leaf = |number: usize| self.leaves.get(number);
        core::iter::successors(leaf(first.leaf_number()), move |before| {
            leaf(before.next() as usize).filter(|_| before.next() != 0)
        })
    }
}

impl<A: Address> Matcher<A> for CutTree<A> {
    type Cache = ();

    fn cache(&self) {}

    fn first(&self, _: &mut (), header: &Header<A>) -> Option<RuleNumber> {
        let (_, first) = self.vectors.run(SingleSearch { best: self, header });
        (first != RuleNumber::MAX).then_some(first)
    }

    fn first_of_batch(&self, _: &mut (), headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (headers, found) in headers.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            let best = self;
            let count = headers.len().min(found.len());
            let found = &mut found[..count];
            match headers.try_into() {
                Ok(headers) => self.vectors.run(BatchSearch { best, headers, found }),
                // To fill a batch up costs more than a few headers one after the other.
                Err(_) if count <= SINGLE_LOOKUPS => {
                    for (header, found) in headers.iter().zip(found) {
                        *found = self.first(&mut (), header);
                    }
                }
                Err(_) => {
                    let headers = &array::from_fn(|lane| headers[lane.min(headers.len() - 1)]);
                    self.vectors.run(BatchSearch { best, headers, found });
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        let hidden = self.hidden.lock().map_or(0, |hidden| hidden.bytes());
        let further = size_of_val(self.further.as_slice()) + self.added.bytes();
        let reaches = self.groups.iter().filter_map(|group| group.reach.as_ref());
        let roots = self.groups.len() * size_of::<Root>() + reaches.map(Reach::bytes).sum::<usize>();
        roots + self.nodes.bytes() + self.leaves.bytes() + further + hidden
    }
}
