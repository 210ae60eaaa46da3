//! The matchers that a configuration may choose from.

use std::sync::Mutex;

use crate::{
    Address, CachedTrie, CutTree, Header, Linear, ListSearch, Matcher, NodeLists, Rule, RuleNumber, Trie, TrieTooLarge,
};

/// Which matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatcherKind {
    /// [`Best`].
    Best,
    /// [`Linear`].
    Linear,
    /// [`Trie`] of at most so many bytes.
    Trie {
        /// Bytes.
        most: usize,
    },
    /// [`CachedTrie`].
    CachedTrie {
        /// Bytes of the trie.
        most: usize,
        /// Entries of a list.
        entries: u16,
        /// How lists are searched.
        probe: ListSearch,
    },
}

/// A matcher, with what each worker keeps.
#[derive(Debug)]
pub(super) struct AnyMatcher<A: Address> {
    which: Which<A>,
    /// Numbers of rules by their place in the matcher's list; none where it knows their numbers.
    numbers: Box<[RuleNumber]>,
}

#[derive(Debug)]
enum Which<A: Address> {
    Best(Box<CutTree<A>>),
    Linear(Linear<A>),
    Trie(Trie<A>),
    CachedTrie(CachedTrie<A>, Box<[Mutex<NodeLists>]>),
}

impl<A: Address> AnyMatcher<A> {
    /// Of boxes in order, each with the number of its rule.
    pub fn new(rules: Vec<(RuleNumber, Rule<A>)>, kind: MatcherKind, workers: usize) -> Result<Self, TrieTooLarge> {
        if kind == MatcherKind::Best {
            let best = CutTree::numbered(rules.into_iter());
            return Ok(Self {
                which: Which::Best(best.into()),
                numbers: Box::default(),
            });
        }
        let (numbers, rules): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
        let which = match kind {
            MatcherKind::Best | MatcherKind::Linear => Which::Linear(Linear::new(&rules)),
            MatcherKind::Trie { most } => Which::Trie(Trie::new(&rules, most)?),
            MatcherKind::CachedTrie { most, entries, probe } => {
                let trie = CachedTrie::new(Trie::new(&rules, most)?, entries, probe);
                let lists = (0..workers).map(|_| Mutex::new(trie.cache())).collect();
                Which::CachedTrie(trie, lists)
            }
        };
        Ok(Self {
            which,
            numbers: numbers.into(),
        })
    }

    /// The matcher that single rules can be changed in.
    pub fn cut_tree(&self) -> Option<&CutTree<A>> {
        match &self.which {
            Which::Best(best) => Some(best),
            Which::Linear(_) | Which::Trie(_) | Which::CachedTrie(..) => None,
        }
    }

    pub fn first_of_each(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>], worker: usize) {
        match &self.which {
            Which::Best(best) => return best.first_of_batch(&mut (), headers, found),
            Which::Linear(linear) => linear.first_of_batch(&mut (), headers, found),
            Which::Trie(trie) => trie.first_of_batch(&mut (), headers, found),
            // A worker's own lists are never held by another; who is none of them goes without.
            Which::CachedTrie(trie, lists) => match lists.get(worker).map(Mutex::try_lock) {
                Some(Ok(mut lists)) => trie.first_of_batch(&mut lists, headers, found),
                _ => trie.trie().first_of_batch(&mut (), headers, found),
            },
        }
        for found in found.iter_mut().flatten() {
            *found = self.numbers.get(*found as usize).copied().unwrap_or(RuleNumber::MAX);
        }
    }

    pub fn bytes(&self) -> usize {
        let matcher = match &self.which {
            Which::Best(best) => best.bytes(),
            Which::Linear(linear) => linear.bytes(),
            Which::Trie(trie) => trie.bytes(),
            Which::CachedTrie(trie, lists) => trie.bytes() + lists.len() * trie.cache_bytes(),
        };
        matcher + size_of_val(&*self.numbers)
    }
}
