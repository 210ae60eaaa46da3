//! Builds the search trees of the three groups of rules.

use core::sync::atomic::{AtomicU32, Ordering};

use sluice_table::arena::Arena;
use sluice_table::simd::lanes::Vectors;

use super::append_table::AppendTable;
use super::covered::{CoveredIndex, CoveredRules};
use super::leaf::{Entry, LEAF_RULES, Leaf, has_further_conditions};
use super::reach::Reach;
use super::region::{Region, WordRanges};
use super::root::{ROOT_PIECES, Root};
use super::{Child, CutTree, Group, KINDS, MAX_PIECES, Node};
use crate::{Address, Range, Rule, RuleNumber};

/// Maximum number of rule copies that the tree of a group may contain in addition to the rules, as a fraction of the
/// number of all rules.
const COPY_SHARE: (usize, usize) = (5, 6);
/// Divisor: a group with less than 1/64 of all rules gets no separate tree.
const MIN_GROUP: usize = 64;
/// Maximum number of rules in a new leaf. The other entries of the leaf stay free for rules that are inserted later.
const LEAF_FILL: usize = 10;
/// Maximum depth of a tree. If cuts have not separated rules down to this depth, the rules are stored in a chain of
/// leaves.
const MAX_DEPTH: usize = 24;
/// Divisor: the contiguous node and leaf arrays reserve one spare entry for each 32 entries, with a fixed minimum.
const SPARE_NODES_SHARE: usize = 32;
const MIN_SPARE: usize = 64;
/// Minimum number of spare nodes and leaves that can be stored in separate memory when the contiguous arrays are full.
const MIN_SPARE_FURTHER: usize = 1_024;

/// Builder of a tree, with the nodes and leaves that have been built.
pub struct Builder<A: Address> {
    /// Number of existing nodes and of existing leaves.
    pub existing: [usize; 2],
    pub nodes: Vec<Node>,
    pub leaves: Vec<Leaf<A>>,
    /// Rules that are omitted from leaves, because an earlier rule covers them.
    pub hidden: Vec<CoveredRules<A>>,
    /// Number of rule copies that the builder may still create in the subtree.
    pub spare: usize,
}

pub fn build<A: Address>(rules: impl Iterator<Item = (RuleNumber, Rule<A>)>) -> CutTree<A> {
    let (mut entries, mut further) = (Vec::new(), Vec::new());
    for (number, rule) in rules {
        let has_further = has_further_conditions(&rule);
        if has_further {
            further.push((number, rule.clone()));
        }
        entries.push(Entry {
            number,
            rule,
            further: has_further,
        });
    }
    let mut kinds: [Vec<&Entry<A>>; KINDS] = Default::default();
    for entry in &entries {
        kinds[kind(&entry.rule)].push(entry);
    }
    // For a group with few rules, it costs each packet more to search a separate tree than to search a larger tree of
    // the last group.
    let mut group_of = [0, 1, KINDS - 1];
    for kind in 0..KINDS - 1 {
        if kinds[kind].len() <= entries.len() / MIN_GROUP {
            let few = core::mem::take(&mut kinds[kind]);
            kinds[KINDS - 1].extend(few);
            kinds[KINDS - 1].sort_by_key(|entry| entry.number);
            group_of[kind] = KINDS - 1;
        }
    }
    let mut builder = Builder::new([0, 0]);
    builder.leaves.push(Leaf::new(&[] as &[Entry<A>], 0));
    let mut groups = Vec::new();
    for (kind, members) in kinds
        .into_iter()
        .enumerate()
        .filter(|&(kind, _)| group_of[kind] == kind)
    {
        builder.spare = entries.len() * COPY_SHARE.0 / COPY_SHARE.1;
        let first = members.first().map_or(RuleNumber::MAX, |entry| entry.number);
        let queried = members.iter().map(|entry| &entry.rule);
        groups.push(Group {
            reach: match kind {
                0 => Some(Reach::of(0, queried.map(|rule| rule.source))),
                1 => Some(Reach::of(A::WORDS, queried.map(|rule| rule.destination))),
                _ => None,
            },
            root: Box::new(builder.root(&members, Region::whole())),
            first: AtomicU32::new(first),
            kinds: group_of.map(|group| group == kind),
        });
    }
    // The groups with the lowest rule numbers are searched first, because a match in them often makes the other searches unnecessary.
    groups.sort_by_key(|group| group.first.load(Ordering::Relaxed));
    let capacity = |existing: usize| existing / SPARE_NODES_SHARE + MIN_SPARE;
    CutTree {
        vectors: Vectors::detect(),
        groups,
        built: builder.leaves.len(),
        further,
        added: AppendTable::new(builder.leaves.len() / 8 + MIN_SPARE),
        hidden: CoveredIndex::new(builder.hidden).into(),
        nodes: with_capacity(builder.nodes, capacity),
        leaves: with_capacity(builder.leaves, capacity),
    }
}

fn with_capacity<T>(values: Vec<T>, capacity: impl Fn(usize) -> usize) -> Arena<T> {
    let (capacity, additional) = (capacity(values.len()), values.len() + MIN_SPARE_FURTHER);
    Arena::new(values, capacity, additional)
}

/// Kind of a rule: narrow source range, narrow destination range, or neither range narrow.
pub fn kind<A: Address>(rule: &Rule<A>) -> usize {
    match (is_narrow(&rule.source), is_narrow(&rule.destination)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => KINDS - 1,
    }
}

/// Whether a range contains less than 1/4096 of all addresses of the family.
fn is_narrow<A: Address>(range: &Range<A>) -> bool {
    range.last.distance(range.first) < A::LAST.shifted(12)
}

impl<A: Address> Builder<A> {
    /// Creates a builder. The numbers of new nodes and leaves follow the numbers of the existing nodes and leaves.
    pub fn new(existing: [usize; 2]) -> Self {
        Self {
            existing,
            nodes: Vec::new(),
            leaves: Vec::new(),
            hidden: Vec::new(),
            spare: 0,
        }
    }

    /// Builds a subtree from sorted rules.
    pub fn child(&mut self, entries: &[&Entry<A>], part: Region<A>, depth: usize) -> Child {
        let covers = entries.iter().position(|entry| part.is_within(entry));
        let entries = match covers {
            Some(last) => self.without_hidden(entries, last, part),
            None => entries,
        };
        if entries.is_empty() {
            return Child::EMPTY;
        }
        if entries.len() <= LEAF_RULES || depth >= MAX_DEPTH {
            return self.leaves(entries, 0);
        }
        match self.node(entries, part, depth) {
            Some(child) => child,
            None => self.leaves(entries, 0),
        }
    }

    /// Omits all rules after a rule that covers the whole region.
    fn without_hidden<'e>(&mut self, entries: &'e [&'e Entry<A>], last: usize, part: Region<A>) -> &'e [&'e Entry<A>] {
        let (shown, hidden) = entries.split_at(last + 1);
        if !hidden.is_empty() {
            let mut numbers: Vec<_> = hidden.iter().map(|entry| entry.number).collect();
            // The hyperrectangles of one rule are adjacent in the list.
            numbers.dedup();
            let by = entries[last].number;
            self.hidden.push(CoveredRules { by, part, numbers });
        }
        shown
    }

    /// Builds a chain of leaves. The last leaf of the chain refers to the leaf `then`.
    pub fn leaves(&mut self, entries: &[&Entry<A>], then: u32) -> Child {
        let first = self.existing[1] + self.leaves.len();
        let count = entries.len().div_ceil(LEAF_RULES);
        for (number, entries) in (1..).zip(entries.chunks(LEAF_RULES)) {
            let next = if number < count { (first + number) as u32 } else { then };
            self.leaves.push(Leaf::new(entries, next));
        }
        Child::leaf(first)
    }

    /// Builds the root of a group's tree.
    fn root(&mut self, entries: &[&Entry<A>], part: Region<A>) -> Root {
        match self.division(entries, &part, ROOT_PIECES) {
            Some((dimension, division)) => {
                let children = self.children(entries, part, dimension, &division, 0);
                Root::new(part.word(dimension).0, &division.cuts, &children)
            }
            None => Root::new(0, &[], &[self.child(entries, part, 0)]),
        }
    }

    /// Builds a node that cuts the best dimension; `None` if no cut separates any rules.
    fn node(&mut self, entries: &[&Entry<A>], part: Region<A>, depth: usize) -> Option<Child> {
        let (dimension, division) = self.division(entries, &part, MAX_PIECES)?;
        let number = self.nodes.len();
        self.nodes.push(Node::new(&division.cuts));
        let children = self.children(entries, part, dimension, &division, depth);
        for (piece, child) in children.into_iter().enumerate() {
            self.nodes[number].set_child(piece, child);
        }
        Some(Child::node(self.existing[0] + number, part.word(dimension).0))
    }

    /// The best dimension to cut, and its division into pieces. The number of pieces is the largest with which the
    /// number of rule copies stays within its limit.
    fn division(&self, entries: &[&Entry<A>], part: &Region<A>, max: usize) -> Option<(usize, Division)> {
        let queried = part.queried(entries);
        let max = entries.len().div_ceil(LEAF_FILL).min(max);
        let mut pieces = core::iter::successors(Some(max), |pieces| Some(pieces / 2)).take_while(|pieces| *pieces > 1);
        pieces.find_map(|pieces| {
            let divisions = queried.iter().map(|queried| Division::of(queried, pieces));
            let affordable = |division: &Division| division.copied.is_some_and(|copied| copied <= self.spare);
            let divisions = divisions.enumerate().filter(|(_, division)| affordable(division));
            divisions.min_by_key(|(_, division)| division.cost)
        })
    }

    /// Builds the subtree of each piece. Each piece that must be divided further gets a share of the allowed number of
    /// copies.
    fn children(
        &mut self,
        entries: &[&Entry<A>],
        part: Region<A>,
        dimension: usize,
        division: &Division,
        depth: usize,
    ) -> Vec<Child> {
        let mut spare = self.spare - division.copied.unwrap_or(0);
        let ranges: Vec<_> = entries
            .iter()
            .map(|entry| part.of_rule(dimension, &entry.rule))
            .collect();
        let pieces = division.pieces(entries, &ranges);
        let demand = |members: &[&Entry<A>]| members.len().saturating_sub(LEAF_RULES);
        let mut all: usize = pieces.iter().map(|(_, members)| demand(members)).sum();
        let mut children = Vec::with_capacity(pieces.len());
        for (within, members) in pieces {
            let demanded = demand(&members);
            self.spare = if demanded == 0 { 0 } else { spare * demanded / all };
            (spare, all) = (spare - self.spare, all - demanded);
            children.push(self.child(&members, part.narrowed(dimension, within), depth + 1));
            spare += self.spare;
        }
        self.spare = spare;
        children
    }
}

/// A division of one header word into pieces.
struct Division {
    within: Range<u32>,
    /// First value of each piece except the first piece.
    cuts: Vec<u32>,
    /// Cost of the division. The division with the lowest cost is chosen.
    cost: u128,
    /// Number of rule copies that the division creates; `None` if the division separates no rules.
    copied: Option<usize>,
}

impl Division {
    /// Divides a word so that every piece contains a similar number of range ends.
    fn of(queried: &WordRanges, pieces: usize) -> Self {
        let (edges, within) = (&queried.edges, queried.within);
        let mut cuts: Vec<u32> = (1..pieces)
            .filter_map(|piece| edges.get(edges.len() * piece / pieces).copied())
            .collect();
        cuts.dedup();
        let mut sizes = vec![0usize; cuts.len() + 1];
        for range in &queried.of_rules {
            reached(&cuts, range).for_each(|piece| sizes[piece] += 1);
        }
        let count = queried.of_rules.len();
        let divides = sizes.iter().all(|size| *size < count);
        let cost = sizes.iter().map(|size| (size * size) as u128).sum();
        Self {
            within,
            copied: divides.then(|| sizes.iter().sum::<usize>().saturating_sub(count)),
            cost: if divides { cost } else { u128::MAX },
            cuts,
        }
    }

    /// Each piece, with the rules that overlap the piece. `ranges` are the ranges of the rules in the divided word.
    fn pieces<'e, A>(&self, entries: &[&'e Entry<A>], ranges: &[Range<u32>]) -> Vec<(Range<u32>, Vec<&'e Entry<A>>)> {
        let Range { first, last } = self.within;
        let firsts = [first].into_iter().chain(self.cuts.iter().copied());
        let last_values = self.cuts.iter().map(|cut| cut - 1).chain([last]);
        let mut pieces: Vec<_> = firsts
            .zip(last_values)
            .map(|(first, last)| (Range { first, last }, Vec::new()))
            .collect();
        for (&entry, range) in entries.iter().zip(ranges) {
            reached(&self.cuts, range).for_each(|piece| pieces[piece].1.push(entry));
        }
        pieces
    }
}

/// Indexes of the pieces that a range overlaps.
fn reached(cuts: &[u32], range: &Range<u32>) -> core::ops::RangeInclusive<usize> {
    let piece = |value: u32| cuts.partition_point(|cut| *cut <= value);
    piece(range.first)..=piece(range.last)
}
