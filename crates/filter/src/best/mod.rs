//! The matcher that is used where nothing else is asked for.
//!
//! Rules are in three groups: with few sources, with few destinations, and the rest. Within a group a search tree cuts one
//! field at a time into up to 16 pieces, until at most 16 rules are left, which are compared at once. Cutting by what all
//! rules of a group have little of hardly copies any: 1.0 to 1.3 times over, where one tree of all rules copies them up to 60
//! times (decision 0008). A packet asks all groups; the first rule of those found decides.
//!
//! Whatever the header, a lookup costs at most the depth of three trees and the rules of their largest leaves.

mod added;
mod build;
mod edit;
mod hidden;
mod leaf;
mod part;
pub(crate) mod words;

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use sluice_table::arena::{Arena, View};
use sluice_table::simd::lanes::{Lanes, Vectors, Work};

pub(crate) use self::added::Added;
pub use self::edit::Full;
use self::hidden::AllHidden;

use self::leaf::Leaf;
use crate::{Address, Field, Header, Matcher, Rule, RuleNumber};

/// Pieces that a node cuts its field into at most.
const PIECES: usize = 16;
/// Packets whose ways are gone side by side.
const BATCH: usize = 64;
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
    values: [u32; PIECES],
    children: [AtomicU32; PIECES],
}

impl Node {
    /// With cuts, which lead nowhere yet. None is the largest value: that stands for no cut.
    fn new(cuts: &[u32]) -> Self {
        let mut values = [u32::MAX; PIECES];
        values[..cuts.len()].copy_from_slice(cuts);
        Self {
            values,
            children: [const { AtomicU32::new(Child::NOTHING.0) }; PIECES],
        }
    }

    fn cuts(&self) -> &[u32] {
        &self.values[..self.values.partition_point(|value| *value < u32::MAX)]
    }

    /// Let a piece lead there. The largest value is not below those that are not used, which lead where the last piece does.
    fn lead(&mut self, piece: usize, to: Child) {
        let end = if piece == self.cuts().len() { PIECES } else { piece + 1 };
        self.children[piece..end].fill_with(|| AtomicU32::new(to.0));
    }

    #[inline(always)]
    fn leads(&self, piece: usize) -> Child {
        Child(self.children[piece % PIECES].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn child<L: Lanes>(&self, value: u32, lanes: L) -> Child {
        let piece = (lanes.not_below(&self.values, value) & 0x7fff).count_ones();
        self.leads(piece as usize)
    }
}

/// A group's tree.
#[derive(Debug)]
struct Group {
    root: AtomicU32,
    /// How many nodes every way down goes through at least.
    level: usize,
    /// A number that none of its rules comes before.
    first: AtomicU32,
    /// Which kinds of rules it has.
    kinds: [bool; KINDS],
}

impl Group {
    #[inline(always)]
    fn root(&self) -> Child {
        Child(self.root.load(Ordering::Relaxed))
    }
}

/// The default matcher.
#[derive(Debug)]
pub struct Best<A: Address> {
    vectors: Vectors,
    groups: Vec<Group>,
    nodes: Arena<Node>,
    leaves: Arena<Leaf<A>>,
    /// How many leaves there were from the start.
    built: usize,
    /// Rules that ask for more than leaves compare, by number.
    further: Vec<(RuleNumber, Rule<A>)>,
    /// The same of those that were added later.
    added: Added<Box<[Rule<A>]>>,
    /// Rules that some leaves need not have. Who changes anything holds it.
    hidden: Mutex<AllHidden<A>>,
}

impl<A: Address> Best<A> {
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
    pub fn visits(&self, header: &Header<A>) -> Visits {
        self.vectors.run(Count { best: self, header })
    }

    /// The first of a leaf's rules that holds a header, else [`RuleNumber::MAX`].
    #[inline(always)]
    fn first_of_leaf<L: Lanes>(&self, leaf: &Leaf<A>, header: &Header<A>, lanes: L) -> RuleNumber {
        let mut held = leaf.held(header, lanes);
        if held & leaf.further() != 0 {
            held = self.held_further(leaf, header, held);
        }
        // All bits where there is none.
        leaf.number(held.trailing_zeros() as usize) | u32::from(held != 0).wrapping_sub(1)
    }

    /// Without the first ones that a header does not meet after all.
    #[cold]
    fn held_further(&self, leaf: &Leaf<A>, header: &Header<A>, mut held: u16) -> u16 {
        while held != 0 {
            let slot = held.trailing_zeros();
            if leaf.further() >> slot & 1 == 0 || self.holds(leaf.number(slot as usize), header) {
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
        boxes.map(|(_, rule)| rule).chain(added).any(|rule| rule.has(header))
    }

    /// A leaf, and those that go on with its rules.
    #[inline(always)]
    fn chain(&self, first: Child) -> impl Iterator<Item = &Leaf<A>> {
        let mut next = self.leaves.get(first.leaf_number());
        (first.leaf_number() + 1..).map_while(move |number| {
            let leaf = next?;
            next = if leaf.goes_on() { self.leaves.get(number) } else { None };
            Some(leaf)
        })
    }
}

/// Which lanes of a batch have further to go.
struct List {
    lanes: [u8; BATCH],
    count: usize,
}

impl List {
    #[inline(always)]
    fn new() -> Self {
        Self {
            lanes: [0; BATCH],
            count: 0,
        }
    }

    /// Put a lane on it if `is`, without a branch.
    #[inline(always)]
    fn push_if(&mut self, lane: usize, is: bool) {
        self.lanes[self.count % BATCH] = lane as u8;
        self.count += usize::from(is);
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.count.min(BATCH)).map(|at| usize::from(self.lanes[at]) % BATCH)
    }
}

/// Up to a batch of headers, and of each the first rule.
struct Search<'a, A: Address> {
    best: &'a Best<A>,
    headers: &'a [Header<A>],
    found: &'a mut [Option<RuleNumber>],
}

impl<A: Address> Work for Search<'_, A> {
    type Output = ();

    /// All lanes go one node on, then all one more, and so on; each asks memory for what it comes to next. It takes no branch
    /// to tell which lane is where.
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { best, headers, found } = self;
        let count = headers.len().min(found.len()).min(BATCH);
        let headers = &headers[..count];
        let mut first = [RuleNumber::MAX; BATCH];
        let mut at = [Child::NOTHING; BATCH];
        let trees = best.trees();
        for group in &best.groups {
            let mut asked = List::new();
            let begins = group.first.load(Ordering::Relaxed);
            for (lane, first) in first[..count].iter().enumerate() {
                asked.push_if(lane, begins < *first);
            }
            trees.descend(group, &asked, headers, &mut at, lanes);
            while asked.count != 0 {
                let mut next = List::new();
                for lane in asked.iter() {
                    let Some(leaf) = trees.leaves.get(at[lane].leaf_number()) else {
                        continue;
                    };
                    let rule = best.first_of_leaf(leaf, &headers[lane], lanes);
                    first[lane] = first[lane].min(rule);
                    at[lane] = Child(at[lane].0 + 1);
                    next.push_if(lane, leaf.goes_on() & (rule == RuleNumber::MAX));
                }
                asked = next;
            }
        }
        for (found, first) in found.iter_mut().zip(&first[..count]) {
            *found = (*first != RuleNumber::MAX).then_some(*first);
        }
    }
}

/// All groups' trees.
struct Trees<'a, A: Address> {
    nodes: View<'a, Node>,
    leaves: View<'a, Leaf<A>>,
}

impl<A: Address> Best<A> {
    #[inline(always)]
    fn trees(&self) -> Trees<'_, A> {
        Trees {
            nodes: self.nodes.view(),
            leaves: self.leaves.view(),
        }
    }
}

impl<A: Address> Trees<'_, A> {
    /// Lanes go down to their leaves.
    #[inline(always)]
    fn descend<L: Lanes>(&self, group: &Group, asked: &List, headers: &[Header<A>], at: &mut [Child; BATCH], lanes: L) {
        let root = group.root();
        *at = [root; BATCH];
        if !root.is_node() {
            return;
        }
        for lane in asked.iter() {
            at[lane] = self.below(root, &headers[lane], lanes);
        }
        // As long as no way ends.
        for _ in 1..group.level {
            for lane in asked.iter() {
                at[lane] = self.below(at[lane], &headers[lane], lanes);
            }
        }
        let mut going = List::new();
        for lane in asked.iter() {
            going.push_if(lane, at[lane].is_node());
            self.prefetch_leaf(at[lane]);
        }
        while going.count != 0 {
            let mut next = List::new();
            for lane in going.iter() {
                let child = self.below(at[lane], &headers[lane], lanes);
                at[lane] = child;
                next.push_if(lane, child.is_node());
                self.prefetch_leaf(child);
            }
            going = next;
        }
    }

    /// Where a node leads to.
    #[inline(always)]
    fn below<L: Lanes>(&self, node: Child, header: &Header<A>, lanes: L) -> Child {
        // No closure: it would not have the instructions that `lanes` stands for.
        match self.nodes.get(node.node_number()) {
            Some(below) => below.child(header.words[node.word()], lanes),
            None => Child::NOTHING,
        }
    }

    /// Nodes are few: they stay near by themselves.
    #[inline(always)]
    fn prefetch_leaf(&self, child: Child) {
        let number = if child.is_node() { 0 } else { child.leaf_number() };
        self.leaves.prefetch_all_read(number);
    }
}

/// What a lookup comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Trees asked.
    pub groups: usize,
    /// Nodes gone through.
    pub nodes: usize,
    /// Leaves looked at.
    pub leaves: usize,
}

/// Counts them.
struct Count<'a, A: Address> {
    best: &'a Best<A>,
    header: &'a Header<A>,
}

impl<A: Address> Work for Count<'_, A> {
    type Output = Visits;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Visits {
        let Self { best, header } = self;
        let mut visits = Visits::default();
        let mut first = RuleNumber::MAX;
        for group in &best.groups {
            if group.first.load(Ordering::Relaxed) >= first {
                continue;
            }
            visits.groups += 1;
            let mut at = group.root();
            while at.is_node() {
                visits.nodes += 1;
                at = best.trees().below(at, header, lanes);
            }
            for leaf in best.chain(at) {
                visits.leaves += 1;
                let rule = best.first_of_leaf(leaf, header, lanes);
                first = first.min(rule);
                if rule != RuleNumber::MAX {
                    break;
                }
            }
        }
        visits
    }
}

impl<A: Address> Matcher<A> for Best<A> {
    type Memory = ();

    fn memory(&self) {}

    fn first(&self, memory: &mut (), header: &Header<A>) -> Option<RuleNumber> {
        let mut found = [None];
        self.first_of_each(memory, core::slice::from_ref(header), &mut found);
        found[0]
    }

    fn first_of_each(&self, _: &mut (), headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        for (headers, found) in headers.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            let best = self;
            self.vectors.run(Search { best, headers, found });
        }
    }

    fn bytes(&self) -> usize {
        let hidden = self.hidden.lock().map_or(0, |hidden| hidden.bytes());
        let further = size_of_val(self.further.as_slice()) + self.added.bytes();
        self.nodes.bytes() + self.leaves.bytes() + further + hidden
    }
}
