//! Rules that are in no leaf of a part of the space, because one before them leaves no header there to them.

use std::collections::HashSet;

use super::part::Part;
use crate::RuleNumber;

/// Rules that one hides in a part.
#[derive(Debug)]
pub struct Hidden<A> {
    /// The rule that hides them.
    pub by: RuleNumber,
    pub part: Part<A>,
    pub numbers: Vec<RuleNumber>,
}

/// All that are hidden, so that they can come back when what hides them goes.
#[derive(Debug)]
pub struct AllHidden<A> {
    all: Vec<Hidden<A>>,
    /// Numbers that may be among them: there are few.
    numbers: HashSet<RuleNumber>,
}

impl<A> AllHidden<A> {
    pub fn new(all: Vec<Hidden<A>>) -> Self {
        let mut hidden = Self {
            all: Vec::new(),
            numbers: HashSet::new(),
        };
        hidden.add(all);
        hidden
    }

    pub fn add(&mut self, more: Vec<Hidden<A>>) {
        let numbers = more.iter().flat_map(|hidden| &hidden.numbers);
        self.numbers.extend(numbers);
        self.all.extend(more);
    }

    /// What a rule hides.
    pub fn by(&self, number: RuleNumber) -> impl Iterator<Item = &Hidden<A>> {
        self.all.iter().filter(move |hidden| hidden.by == number)
    }

    /// A rule is no more.
    pub fn forget(&mut self, number: RuleNumber) {
        self.all.retain(|hidden| hidden.by != number);
        if self.numbers.remove(&number) {
            for hidden in &mut self.all {
                hidden.numbers.retain(|other| *other != number);
            }
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let of = |hidden: &Hidden<A>| size_of_val(hidden) + size_of_val(hidden.numbers.as_slice());
        self.all.iter().map(of).sum::<usize>() + self.numbers.len() * size_of::<RuleNumber>()
    }
}
