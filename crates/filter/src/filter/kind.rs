//! The matchers that can be configured.

use std::sync::Mutex;

use crate::{
    Address, CachedTrie, CutTree, Header, Linear, ListSearch, Matcher, NodeLists, Rule, RuleNumber, Trie, TrieTooLarge,
};

/// Selects a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatcherKind {
    /// The default matcher, [`CutTree`].
    Best,
    /// The linear search, [`Linear`].
    Linear,
    /// The trie, [`Trie`], with a maximum size.
    Trie {
        /// Maximum size of the trie in bytes.
        max: usize,
    },
    /// The trie with lists of recent intervals, [`CachedTrie`].
    CachedTrie {
        /// Maximum size of the trie in bytes.
        max: usize,
        /// Maximum number of entries in a list.
        entries: u16,
        /// Search method in a list.
        probe: ListSearch,
    },
}

/// A matcher, and its state for each worker.
#[derive(Debug)]
pub(super) struct AnyMatcher<A: Address> {
    which: Which<A>,
    /// Rule numbers, indexed by the position in the matcher's list; empty if the matcher stores the rule numbers itself.
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
    /// Creates a matcher of sorted hyperrectangles, each with the number of its rule.
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
            MatcherKind::Trie { max } => Which::Trie(Trie::new(&rules, max)?),
            MatcherKind::CachedTrie { max, entries, probe } => {
                let trie = CachedTrie::new(Trie::new(&rules, max)?, entries, probe);
                let lists = (0..workers).map(|_| Mutex::new(trie.cache())).collect();
                Which::CachedTrie(trie, lists)
            }
        };
        Ok(Self {
            which,
            numbers: numbers.into(),
        })
    }

    /// The matcher, if single rules can be inserted and removed in it.
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
            // The lists of a worker are locked only by the worker itself. If the caller is not a worker, the trie is
            // searched without lists.
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
