//! Covered rules. A region's leaves omit a rule if an earlier rule matches all headers of the region.

use std::collections::{HashMap, HashSet};

use super::region::Region;
use crate::RuleNumber;

/// The rules that one rule covers in one region.
#[derive(Debug)]
pub struct CoveredRules<A> {
    /// Number of the covering rule.
    pub by: RuleNumber,
    pub part: Region<A>,
    pub numbers: Vec<RuleNumber>,
}

/// All covered rules. Covered rules are restored to the leaves when their covering rule is removed.
#[derive(Debug)]
pub struct CoveredIndex<A> {
    /// Covered rules by the number of the covering rule.
    by: HashMap<RuleNumber, Vec<CoveredRules<A>>>,
    /// Numbers of all covered rules; the set may also contain numbers of rules that are no longer covered.
    numbers: HashSet<RuleNumber>,
}

impl<A> CoveredIndex<A> {
    pub fn new(all: Vec<CoveredRules<A>>) -> Self {
        let mut hidden = Self {
            by: HashMap::new(),
            numbers: HashSet::new(),
        };
        hidden.add(all);
        hidden
    }

    pub fn add(&mut self, more: Vec<CoveredRules<A>>) {
        for hidden in more {
            self.numbers.extend(&hidden.numbers);
            self.by.entry(hidden.by).or_default().push(hidden);
        }
    }

    /// The rules that the rule `number` covers, by region.
    pub fn by(&self, number: RuleNumber) -> impl Iterator<Item = &CoveredRules<A>> {
        self.by.get(&number).into_iter().flatten()
    }

    /// Removes a rule from the index.
    pub fn forget(&mut self, number: RuleNumber) {
        self.by.remove(&number);
        if self.numbers.remove(&number) {
            for hidden in self.by.values_mut().flatten() {
                hidden.numbers.retain(|other| *other != number);
            }
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        let of = |hidden: &CoveredRules<A>| size_of_val(hidden) + size_of_val(hidden.numbers.as_slice());
        let all = self.by.values().flatten().map(of).sum::<usize>();
        all + self.numbers.len() * size_of::<RuleNumber>()
    }
}
