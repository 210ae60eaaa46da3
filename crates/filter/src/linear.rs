//! Linear search: the baseline of benchmarks, and the reference for tests of every other matcher.

use crate::{Address, Header, Matcher, Rule, RuleNumber};

/// Compares the rules one by one (paper P1, Fig. 1; see docs/papers.md).
#[derive(Clone, Debug)]
pub struct Linear<A> {
    rules: Vec<Rule<A>>,
}

impl<A: Address> Linear<A> {
    /// Creates a matcher of sorted rules.
    pub fn new(rules: &[Rule<A>]) -> Self {
        Self { rules: rules.to_vec() }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule<A>] {
        &self.rules
    }
}

impl<A: Address> Matcher<A> for Linear<A> {
    type Cache = ();

    fn cache(&self) {}

    fn first(&self, _: &mut (), header: &Header<A>) -> Option<RuleNumber> {
        let found = self.rules.iter().position(|rule| rule.matches(header))?;
        Some(found as RuleNumber)
    }

    fn bytes(&self) -> usize {
        size_of_val(self.rules.as_slice())
    }
}
