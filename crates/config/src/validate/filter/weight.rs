//! Computes the cost of rules, which is limited for a filter.

use crate::filter::FilterRule;
use crate::problem::FilterProblem;

use super::{MAX_FILTER_COMBINATIONS, continues};

/// Maximum number of rules that are evaluated individually for every packet.
const MAX_CONTINUING: usize = 256;

/// Cost of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of rules that are evaluated individually, because they continue with the next rule or have conditions on
    /// applications.
    continuing: usize,
    combinations: u64,
}

impl Weight {
    /// Cost of a rule.
    pub fn of(rule: &FilterRule) -> Self {
        Self {
            continuing: usize::from(continues(rule.action) || rule.selection.is_evaluated_individually()),
            combinations: rule.selection.combinations(),
        }
    }

    /// Sum of two costs.
    pub fn with(self, other: Self) -> Self {
        Self {
            continuing: self.continuing + other.continuing,
            combinations: self.combinations.saturating_add(other.combinations),
        }
    }

    /// The cost without the cost of one rule.
    pub fn without(self, one: Self) -> Self {
        Self {
            continuing: self.continuing.saturating_sub(one.continuing),
            combinations: self.combinations.saturating_sub(one.combinations),
        }
    }

    /// Check that the cost is within the limits of a filter.
    ///
    /// # Errors
    /// Too many rules are evaluated individually, or there are too many combinations.
    pub fn check(self) -> Result<(), FilterProblem> {
        if self.continuing > MAX_CONTINUING {
            return Err(FilterProblem::TooManyContinuing(self.continuing));
        }
        let (combinations, max) = (self.combinations, MAX_FILTER_COMBINATIONS);
        match combinations > max {
            true => Err(FilterProblem::TooLarge { combinations, max }),
            false => Ok(()),
        }
    }
}
