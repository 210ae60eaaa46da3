//! Rules that matched with the packet that is looked at. What they do is decided at its end, so that a rule that passes
//! comes before one that drops, whichever buffer each of them looks in.

/// A set of rules, and the list of those in it; room for all of them is there from the start.
#[derive(Debug)]
pub(super) struct RuleSet {
    pub rules: Vec<u32>,
    /// Takes the list's place while that is out.
    spare: Vec<u32>,
    is_there: Box<[u64]>,
}

impl RuleSet {
    /// Of so many rules.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            rules: Vec::with_capacity(count),
            spare: Vec::with_capacity(count),
            is_there: vec![0; count.div_ceil(64)].into(),
        }
    }

    /// Add a rule, once.
    pub fn add(&mut self, rule: u32) {
        let Some(word) = self.is_there.get_mut(rule as usize / 64) else {
            return;
        };
        let bit = 1 << (rule % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.rules.push(rule);
        }
    }

    /// All of them, in the order in which rules are asked; none is left. The list comes back by [`Set::put_back`].
    pub fn take(&mut self) -> Vec<u32> {
        let spare = std::mem::take(&mut self.spare);
        let mut rules = std::mem::replace(&mut self.rules, spare);
        for rule in &rules {
            if let Some(word) = self.is_there.get_mut(*rule as usize / 64) {
                *word = 0;
            }
        }
        rules.sort_unstable();
        rules
    }

    /// The list is used again.
    pub fn put_back(&mut self, mut rules: Vec<u32>) {
        rules.clear();
        self.spare = rules;
    }
}

/// Rules that matched with a packet.
#[derive(Debug)]
pub(super) struct FiredRules {
    /// Their actions are due.
    pub acts: RuleSet,
    /// Those that are reported among them, by rule.
    reported: Box<[u64]>,
}

impl FiredRules {
    /// Of so many rules.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            acts: RuleSet::with_capacity(count),
            reported: vec![0; count.div_ceil(64)].into(),
        }
    }

    /// A rule matched.
    pub fn add(&mut self, rule: u32, is_reported: bool) {
        self.acts.add(rule);
        if let Some(word) = self.reported.get_mut(rule as usize / 64) {
            *word |= u64::from(is_reported) << (rule % 64);
        }
    }

    /// Whether a rule is reported; it is not from now on.
    pub fn take_reported(&mut self, rule: u32) -> bool {
        let Some(word) = self.reported.get_mut(rule as usize / 64) else {
            return false;
        };
        let is = *word >> (rule % 64) & 1 == 1;
        *word &= !(1 << (rule % 64));
        is
    }
}
