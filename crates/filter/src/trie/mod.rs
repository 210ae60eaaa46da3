//! The trie of paper P1 (section 2.2, Fig. 2; see docs/papers.md), as in nf-HiPAC. The trie has one level for each
//! dimension; the nodes contain elementary intervals.
//!
//! A node is built from the rules that match all values on the path to the node. A binary search finds the interval of
//! a value. An interval refers to a node of the next level, or at the last level to the first matching rule. Fig. 2 of
//! the paper shows the intervals 3-7 and 8-15, but the rules of its Table 1 yield 3-8 and 9-15.
//!
//! Three measures prevent copies of wildcard rules in every interval of every level: nodes built from the same rules
//! are shared, fields without conditions have no level, and rules after a rule that matches all remaining headers are
//! omitted.

mod build;
mod cached;

use thiserror::Error;

pub use self::cached::{CachedTrie, ListSearch, NodeLists, SearchCounts};
use crate::header::Dimension;
use crate::{Address, Header, Matcher, Rule, RuleNumber};

/// The trie would exceed its maximum size, or its construction would need four times that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a trie of {rules} rules exceeds the limit of {max} bytes, or its construction exceeds four times this limit")]
pub struct TrieTooLarge {
    /// Number of rules.
    pub rules: usize,
    /// Maximum size in bytes.
    pub max: usize,
}

/// Reference from an interval to a node or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

impl Child {
    /// Reference of an interval that no rule matches.
    const EMPTY: Self = Self(u32::MAX);
    const RULE: u32 = 1 << 31;

    fn rule(rule: RuleNumber) -> Self {
        Self(rule | Self::RULE)
    }

    fn node(number: usize) -> Self {
        Self(number as u32)
    }

    /// Result of the search if the reference ends it; `None` if the search continues at node [`Child::number`].
    #[inline(always)]
    fn end(self) -> Option<Option<RuleNumber>> {
        (self.0 & Self::RULE != 0).then_some((self != Self::EMPTY).then_some(self.0 & !Self::RULE))
    }

    #[inline(always)]
    fn number(self) -> usize {
        self.0 as usize
    }
}

/// A node. The last values of its intervals, and its children, are contiguous in two arrays of the trie.
#[derive(Clone, Copy, Debug)]
struct Node {
    level: u32,
    /// Number of intervals.
    count: u32,
    /// Index of the node's first value in the trie's array of addresses or of numbers.
    values: u32,
    /// Index of the node's first child in the trie's array of children.
    children: u32,
}

/// A trie over the rules of one address family.
#[derive(Clone, Debug)]
pub struct Trie<A> {
    levels: Vec<Dimension>,
    nodes: Vec<Node>,
    addresses: Vec<A>,
    numbers: Vec<u32>,
    children: Vec<Child>,
    root: Child,
}

impl<A: Address> Trie<A> {
    /// Creates a trie of sorted rules. `max` is its maximum size in bytes.
    pub fn new(rules: &[Rule<A>], max: usize) -> Result<Self, TrieTooLarge> {
        build::build(rules, max)
    }

    /// Number of nodes in all levels.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The path of a header: the index of its interval at each level from the top, counted from 1 as in paper P1, and
    /// the first matching rule.
    pub fn path(&self, header: &Header<A>) -> (Vec<usize>, Option<RuleNumber>) {
        let (mut path, mut at) = (Vec::new(), self.root);
        loop {
            if let Some(end) = at.end() {
                return (path, end);
            }
            let node = self.nodes[at.number()];
            let index = self.locate(&node, header, 0, node.count as usize);
            path.push(index + 1);
            at = self.child(&node, index);
        }
    }

    /// Index of the interval that contains a header's value. The binary search is restricted to the indexes `from..to`.
    #[inline(always)]
    fn locate(&self, node: &Node, header: &Header<A>, from: usize, to: usize) -> usize {
        let first = node.values as usize;
        let (from, to) = (first + from, first + to);
        match self.levels[node.level as usize] {
            Dimension::Source => {
                from + self.addresses[from..to].partition_point(|last| *last < header.source()) - first
            }
            Dimension::Destination => {
                from + self.addresses[from..to].partition_point(|last| *last < header.destination()) - first
            }
            Dimension::Field(field) => {
                let value = header.get(field);
                from + self.numbers[from..to].partition_point(|last| *last < value) - first
            }
        }
    }

    /// Position of a header's value relative to an interval of a node: before, within or after the interval.
    #[inline(always)]
    fn compare(&self, node: &Node, index: usize, header: &Header<A>) -> core::cmp::Ordering {
        fn compare_at<T: Ord>(values: &[T], index: usize, value: &T) -> core::cmp::Ordering {
            if values[index] < *value {
                core::cmp::Ordering::Greater
            } else if index > 0 && *value <= values[index - 1] {
                core::cmp::Ordering::Less
            } else {
                core::cmp::Ordering::Equal
            }
        }
        let first = node.values as usize;
        let values = first..first + node.count as usize;
        match self.levels[node.level as usize] {
            Dimension::Source => compare_at(&self.addresses[values], index, &header.source()),
            Dimension::Destination => compare_at(&self.addresses[values], index, &header.destination()),
            Dimension::Field(field) => compare_at(&self.numbers[values], index, &header.get(field)),
        }
    }

    #[inline(always)]
    fn child(&self, node: &Node, index: usize) -> Child {
        self.children[node.children as usize + index]
    }
}

impl<A: Address> Matcher<A> for Trie<A> {
    type Cache = ();

    fn cache(&self) {}

    #[inline]
    fn first(&self, _: &mut (), header: &Header<A>) -> Option<RuleNumber> {
        let mut at = self.root;
        loop {
            if let Some(end) = at.end() {
                return end;
            }
            let node = self.nodes[at.number()];
            at = self.child(&node, self.locate(&node, header, 0, node.count as usize));
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice())
            + size_of_val(self.addresses.as_slice())
            + size_of_val(self.numbers.as_slice())
            + size_of_val(self.children.as_slice())
    }
}
