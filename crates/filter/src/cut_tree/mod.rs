//! The default matcher: search trees that cut the header space.
//!
//! Rules are divided into three groups: narrow source, narrow destination, and all others. Each group has a search
//! tree. A node of the tree cuts one field, the root into up to 256 pieces and other nodes into up to 16 pieces. A leaf
//! has at most 16 rules, which are compared simultaneously. All rules of one of the first two groups are narrow in the
//! same field, so that cutting this field creates few copies. The leaves contain each rule 1.0 to 1.3 times on average,
//! compared with up to 60 times in a single tree of all rules (decision 0008). A lookup searches the trees of all
//! groups; among the rules found, the rule with the lowest number decides.
//!
//! For any header, the cost of a lookup is bounded by the depths of the three trees and the numbers of rules in their
//! largest leaves.

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

/// Maximum number of pieces into which a node cuts its field.
const MAX_PIECES: usize = 16;
/// Number of packets that are searched simultaneously.
const BATCH: usize = 64;
/// Up to this number of packets, the packets are searched one by one instead of as a batch.
const SINGLE_LOOKUPS: usize = 8;
/// Number of kinds of rules: narrow source, narrow destination, and all others.
const KINDS: usize = 3;
/// Fields other than the addresses that nodes may cut.
const FIELDS: [Field; 3] = [Field::SourcePort, Field::DestinationPort, Field::Protocol];

/// Reference from a piece to a node or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

impl Child {
    /// A leaf without rules.
    const EMPTY: Self = Self(Self::LEAF);
    const LEAF: u32 = 1 << 31;
    /// Position of a bit field in a reference. The bit field is the index of the header word that the node cuts.
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

/// A node: the first value of each piece except the first piece, in ascending order, and the children of all pieces.
/// Unused child entries repeat the last child. The last value is not used.
#[derive(Debug)]
#[repr(C, align(64))]
struct Node {
    values: [u32; MAX_PIECES],
    children: [AtomicU32; MAX_PIECES],
}

impl Node {
    /// Creates a node with these cuts and without children. The largest value can't be a cut, because it marks unused
    /// entries.
    fn new(cuts: &[u32]) -> Self {
        let mut values = [u32::MAX; MAX_PIECES];
        values[..cuts.len()].copy_from_slice(cuts);
        Self {
            values,
            children: [const { AtomicU32::new(Child::EMPTY.0) }; MAX_PIECES],
        }
    }

    fn cuts(&self) -> &[u32] {
        cuts(&self.values)
    }

    /// Sets the child of a piece. For the last piece, the unused entries are set as well, because a search for the
    /// largest value selects an entry after the last piece.
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

/// The cuts of a node or root, without the unused entries. Unused entries have the largest value.
fn cuts(values: &[u32]) -> &[u32] {
    &values[..values.partition_point(|value| *value < u32::MAX)]
}

/// A group's tree.
#[derive(Debug)]
struct Group {
    root: Box<Root>,
    /// A lower bound of the group's rule numbers.
    first: AtomicU32,
    /// The addresses that the rules match. Present if all rules of the group are narrow.
    reach: Option<Reach>,
    /// Which kinds of rules the group contains.
    kinds: [bool; KINDS],
}

impl Group {
    /// Whether the group may contain a matching rule that precedes the rule found so far.
    #[inline(always)]
    fn may_precede<A: Address>(&self, header: &Header<A>, found: RuleNumber) -> bool {
        self.first.load(Ordering::Relaxed) < found && self.reach.as_ref().is_none_or(|reach| reach.has(header))
    }

    /// Updates the group for the insertion of a rule.
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
    /// Number of leaves when the tree was built.
    built: usize,
    /// Rules with conditions that leaves don't compare, by rule number.
    further: Vec<(RuleNumber, Rule<A>)>,
    /// Rules that were inserted after the tree was built and that have conditions that leaves don't compare.
    added: AppendTable<Box<[Rule<A>]>>,
    /// Covered rules, which some leaves omit. Every modification of the trees holds this lock.
    hidden: Mutex<CoveredIndex<A>>,
}

impl<A: Address> CutTree<A> {
    /// Creates a matcher of sorted rules. The rules are numbered from 0.
    pub fn new(rules: &[Rule<A>]) -> Self {
        Self::numbered((0..).zip(rules.iter().cloned()))
    }

    /// Creates a matcher of rules with ascending numbers. Several entries with one number are hyperrectangles of one
    /// rule.
    pub fn numbered(rules: impl Iterator<Item = (RuleNumber, Rule<A>)>) -> Self {
        build::build(rules)
    }

    /// Selects an instruction set for the search, instead of the widest available instruction set.
    pub fn with_vectors(self, vectors: Vectors) -> Self {
        Self { vectors, ..self }
    }

    /// Number of rule copies in all leaves. The quotient of this number and the number of rules shows how often a rule
    /// is copied.
    pub fn entries(&self) -> usize {
        self.leaves.iter().map(Leaf::len).sum()
    }

    /// Counts the nodes and leaves that a lookup visits.
    pub fn visits(&self, header: &Header<A>) -> VisitCounts {
        self.vectors.run(SingleSearch { best: self, header }).0
    }

    /// Number of the first rule in a leaf that matches a header, or [`RuleNumber::MAX`].
    #[inline(always)]
    fn first_of_leaf<L: Lanes>(&self, leaf: &Leaf<A>, header: &Header<A>, lanes: L) -> RuleNumber {
        let mut held = leaf.matching(header, lanes);
        if held & leaf.further() != 0 {
            held = self.held_further(leaf, header, held);
        }
        leaf.number(held)
    }

    /// Removes rules from the front of the set `held` until the header satisfies all conditions of the first remaining
    /// rule, including those that leaves don't compare.
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
        let hyperrectangles = self.further[from..].iter().take_while(|(number, _)| *number == rule);
        let added = self
            .added
            .get(rule)
            .map_or(&[][..], |(_, hyperrectangles)| hyperrectangles);
        hyperrectangles
            .map(|(_, rule)| rule)
            .chain(added)
            .any(|rule| rule.matches(header))
    }

    /// A leaf, followed by the chained leaves with further rules of the same region.
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
                // Padding a small batch with unused entries costs more than a few single lookups.
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
