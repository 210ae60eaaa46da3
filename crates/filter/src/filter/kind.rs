//! The matchers that a configuration may choose from.

use std::sync::Mutex;

use crate::{Address, Best, CachedTrie, Header, Linear, Lists, Matcher, Probe, Rule, RuleNumber, TooLarge, Trie};

/// Which matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
        probe: Probe,
    },
}

/// A matcher, with what each worker keeps.
#[derive(Debug)]
pub(super) enum Any<A: Address> {
    Best(Best<A>),
    Linear(Linear<A>),
    Trie(Trie<A>),
    CachedTrie(CachedTrie<A>, Box<[Mutex<Lists>]>),
}

impl<A: Address> Any<A> {
    pub fn new(rules: &[Rule<A>], kind: Kind, workers: usize) -> Result<Self, TooLarge> {
        Ok(match kind {
            Kind::Best => Self::Best(Best::new(rules)),
            Kind::Linear => Self::Linear(Linear::new(rules)),
            Kind::Trie { most } => Self::Trie(Trie::new(rules, most)?),
            Kind::CachedTrie { most, entries, probe } => {
                let trie = CachedTrie::new(Trie::new(rules, most)?, entries, probe);
                let lists = (0..workers).map(|_| Mutex::new(trie.memory())).collect();
                Self::CachedTrie(trie, lists)
            }
        })
    }

    pub fn first_of_each(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>], worker: usize) {
        match self {
            Self::Best(best) => best.first_of_each(&mut (), headers, found),
            Self::Linear(linear) => linear.first_of_each(&mut (), headers, found),
            Self::Trie(trie) => trie.first_of_each(&mut (), headers, found),
            // A worker's own lists are never held by another; who is none of them goes without.
            Self::CachedTrie(trie, lists) => match lists.get(worker).map(Mutex::try_lock) {
                Some(Ok(mut lists)) => trie.first_of_each(&mut lists, headers, found),
                _ => trie.trie().first_of_each(&mut (), headers, found),
            },
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Best(best) => best.bytes(),
            Self::Linear(linear) => linear.bytes(),
            Self::Trie(trie) => trie.bytes(),
            Self::CachedTrie(trie, lists) => trie.bytes() + lists.len() * trie.memory_bytes(),
        }
    }
}
