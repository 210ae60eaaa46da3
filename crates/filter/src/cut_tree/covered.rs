//! Rules that are in no leaf of a part of the space, because one before them leaves no header there to them.

use std::collections::{HashMap, HashSet};

use super::region::Region;
use crate::RuleNumber;

/// Rules that one hides in a part.
#[derive(Debug)]
pub struct CoveredRules<A> {
    /// The rule that hides them.
    pub by: RuleNumber,
    pub part: Region<A>,
    pub numbers: Vec<RuleNumber>,
}

/// All that are hidden, so that they can come back when what hides them goes.
#[derive(Debug)]
pub struct CoveredIndex<A> {
    /// By the rule that hides them: there are few.
    by: HashMap<RuleNumber, Vec<CoveredRules<A>>>,
    /// Numbers that may be among them: there are few.
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

    /// What a rule hides.
    pub fn by(&self, number: RuleNumber) -> impl Iterator<Item = &CoveredRules<A>> {
        self.by.get(&number).into_iter().flatten()
    }

    /// A rule is no more.
    pub fn forget(&mut self, number: RuleNumber) {
        self.by.remove(&number);
        if self.numbers.remove(&number) {
            for hidden in self.by.values_mut().flatten() {
                hidden.numbers.retain(|other| *other != number);
            }
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let of = |hidden: &CoveredRules<A>| size_of_val(hidden) + size_of_val(hidden.numbers.as_slice());
        let all = self.by.values().flatten().map(of).sum::<usize>();
        all + self.numbers.len() * size_of::<RuleNumber>()
    }
}
