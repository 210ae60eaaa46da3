//! Rules that matched in the current packet. The actions of matched rules are applied at the end of the packet, so that
//! a pass rule takes precedence over a drop rule regardless of the buffers that the two rules inspect.

/// A set of rules with a list of its members, allocated for all rules in advance.
#[derive(Debug)]
pub(super) struct RuleSet {
    pub rules: Vec<u32>,
    /// A second list, used while the first is taken out.
    spare: Vec<u32>,
    is_set: Box<[u64]>,
}

impl RuleSet {
    /// Creates an empty set for this number of rules.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            rules: Vec::with_capacity(count),
            spare: Vec::with_capacity(count),
            is_set: vec![0; count.div_ceil(64)].into(),
        }
    }

    /// Adds a rule, if it is not in the set.
    pub fn add(&mut self, rule: u32) {
        let Some(word) = self.is_set.get_mut(rule as usize / 64) else {
            return;
        };
        let bit = 1 << (rule % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.rules.push(rule);
        }
    }

    /// Takes all members out, in evaluation order, and leaves the set empty. [`RuleSet::put_back`] returns the list for
    /// reuse.
    pub fn take(&mut self) -> Vec<u32> {
        let spare = std::mem::take(&mut self.spare);
        let mut rules = std::mem::replace(&mut self.rules, spare);
        for rule in &rules {
            if let Some(word) = self.is_set.get_mut(*rule as usize / 64) {
                *word = 0;
            }
        }
        rules.sort_unstable();
        rules
    }

    /// Returns a list for reuse.
    pub fn put_back(&mut self, mut rules: Vec<u32>) {
        rules.clear();
        self.spare = rules;
    }
}

/// Rules that matched with a packet.
#[derive(Debug)]
pub(super) struct FiredRules {
    /// Rules whose actions apply.
    pub acts: RuleSet,
    /// Bit set of the matched rules that must be reported.
    reported: Box<[u64]>,
}

impl FiredRules {
    /// Creates an empty set for this number of rules.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            acts: RuleSet::with_capacity(count),
            reported: vec![0; count.div_ceil(64)].into(),
        }
    }

    /// Adds a matched rule.
    pub fn add(&mut self, rule: u32, is_reported: bool) {
        self.acts.add(rule);
        if let Some(word) = self.reported.get_mut(rule as usize / 64) {
            *word |= u64::from(is_reported) << (rule % 64);
        }
    }

    /// Clears the reported flag of a rule, and returns it.
    pub fn take_reported(&mut self, rule: u32) -> bool {
        let Some(word) = self.reported.get_mut(rule as usize / 64) else {
            return false;
        };
        let is = *word >> (rule % 64) & 1 == 1;
        *word &= !(1 << (rule % 64));
        is
    }
}
