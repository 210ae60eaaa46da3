//! The trie of paper P1 with a list of recent intervals at every node (section 3; see docs/papers.md).
//!
//! Each core has separate lists. A list contains the indexes, in ascending order, of intervals in which recent packets
//! were found. A search first checks the intervals of the list. If a listed interval contains the packet's value, the
//! search continues at the next level. Otherwise, the two listed intervals next to the value limit a binary search: the
//! one before the value, and the one after it. The index that the binary search finds replaces the nearer one of the
//! two listed indexes, so that the listed indexes stay evenly distributed (Fig. 9). The paper does not specify these
//! cases, which are handled as follows:
//!
//! - If the list is not full, the new index is inserted without a replacement.
//! - If both indexes are equally near, the lower one is replaced. A new index below or above all listed indexes
//!   replaces the lowest or the highest index.
//! - A hit does not change the list.
//! - A value that no rule contains is in an interval without a child. Such intervals are cached like other intervals.

use core::cmp::Ordering;

use super::Trie;
use crate::{Address, Header, Matcher, RuleNumber};

/// Method of searching a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListSearch {
    /// Linear search from the lowest index.
    #[default]
    InOrder,
    /// Binary search.
    Bisection,
}

/// Counts of list comparisons and binary searches (paper P1, Fig. 15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCounts {
    /// Number of compared list entries whose interval contained the value.
    pub hits: u64,
    /// Number of compared list entries whose interval did not contain the value.
    pub misses: u64,
    /// Number of nodes in which a binary search was necessary.
    pub binary: u64,
}

/// The interval lists of all nodes for one core.
#[derive(Clone, Debug)]
pub struct NodeLists {
    size: usize,
    indexes: Vec<u32>,
    lengths: Vec<u16>,
    /// Counts of searches so far.
    pub searches: SearchCounts,
}

impl NodeLists {
    /// The indexes in the list of a node.
    pub fn of_node(&self, node: usize) -> &[u32] {
        &self.indexes[node * self.size..][..usize::from(self.lengths[node])]
    }

    /// Stores an index at position `place` of a node's list.
    #[inline]
    fn keep(&mut self, node: usize, place: usize, index: u32) {
        let (size, length) = (self.size, usize::from(self.lengths[node]));
        let list = &mut self.indexes[node * size..][..size];
        if length < size {
            list.copy_within(place..length, place + 1);
            list[place] = index;
            self.lengths[node] += 1;
            return;
        }
        let below = place.checked_sub(1).map(|below| (index - list[below], below));
        let above = list.get(place).map(|above| (above - index, place));
        let nearer = match (below, above) {
            (Some(below), Some(above)) if above.0 < below.0 => Some(above),
            (Some(below), _) => Some(below),
            (None, above) => above,
        };
        if let Some((_, nearer)) = nearer {
            list[nearer] = index;
        }
    }
}

/// A trie with lists of recent intervals.
#[derive(Clone, Debug)]
pub struct CachedTrie<A> {
    trie: Trie<A>,
    size: u16,
    probe: ListSearch,
}

impl<A: Address> CachedTrie<A> {
    /// Creates a trie with lists of at most `size` entries each.
    pub fn new(trie: Trie<A>, size: u16, probe: ListSearch) -> Self {
        Self { trie, size, probe }
    }

    /// The trie.
    pub fn trie(&self) -> &Trie<A> {
        &self.trie
    }

    /// The index of a header's interval in a node.
    #[inline(always)]
    fn locate(&self, lists: &mut NodeLists, number: usize, header: &Header<A>) -> usize {
        let node = &self.trie.nodes[number];
        let mut compared = 0;
        let (mut from, mut to) = (0, node.count as usize);
        let list = lists.of_node(number);
        // Find the number of list entries that lie below the value.
        let (mut place, mut end) = (0, list.len());
        while place < end {
            let at = match self.probe {
                ListSearch::InOrder => place,
                ListSearch::Bisection => place + (end - place) / 2,
            };
            let index = list[at] as usize;
            match self.trie.compare(node, index, header) {
                Ordering::Equal => {
                    lists.searches.hits += 1;
                    lists.searches.misses += compared;
                    return index;
                }
                Ordering::Greater => (place, from) = (at + 1, index + 1),
                Ordering::Less => (end, to) = (at, index),
            }
            compared += 1;
        }
        let index = self.trie.locate(node, header, from, to);
        lists.searches.misses += compared;
        lists.searches.binary += 1;
        if self.size > 0 {
            lists.keep(number, place, index as u32);
        }
        index
    }
}

impl<A: Address> Matcher<A> for CachedTrie<A> {
    type Cache = NodeLists;

    fn cache(&self) -> NodeLists {
        let nodes = self.trie.nodes();
        NodeLists {
            size: self.size.into(),
            indexes: vec![0; nodes * usize::from(self.size)],
            lengths: vec![0; nodes],
            searches: SearchCounts::default(),
        }
    }

    #[inline]
    fn first(&self, lists: &mut NodeLists, header: &Header<A>) -> Option<RuleNumber> {
        let mut at = self.trie.root;
        loop {
            if let Some(end) = at.end() {
                return end;
            }
            let index = self.locate(lists, at.number(), header);
            at = self.trie.child(&self.trie.nodes[at.number()], index);
        }
    }

    fn bytes(&self) -> usize {
        self.trie.bytes()
    }

    fn cache_bytes(&self) -> usize {
        self.trie.nodes() * (usize::from(self.size) * size_of::<u32>() + size_of::<u16>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(indexes: &[u32], size: usize) -> NodeLists {
        let mut all = indexes.to_vec();
        all.resize(size, 0);
        NodeLists {
            size,
            indexes: all,
            lengths: vec![indexes.len() as u16],
            searches: SearchCounts::default(),
        }
    }

    #[test]
    fn p1_fig9_nearer_neighbour_goes() {
        let mut lists = lists(&[30, 50, 80], 3);
        lists.keep(0, 2, 52);
        assert_eq!([30, 52, 80], lists.of_node(0));
        lists.keep(0, 2, 75);
        assert_eq!([30, 52, 75], lists.of_node(0));
    }

    #[test]
    fn list_at_its_ends_and_between_two_equally_near() {
        let mut full = lists(&[30, 50], 2);
        full.keep(0, 0, 7);
        assert_eq!([7, 50], full.of_node(0));
        full.keep(0, 2, 99);
        assert_eq!([7, 99], full.of_node(0));
        full.keep(0, 1, 53);
        assert_eq!([53, 99], full.of_node(0));
        let mut growing = lists(&[30], 3);
        growing.keep(0, 0, 7);
        growing.keep(0, 2, 31);
        assert_eq!([7, 30, 31], growing.of_node(0));
    }
}
