//! Computes the cost of rules, which is limited for a filter.

use crate::filter::FilterRule;
use crate::problem::FilterProblem;

use super::{MAX_FILTER_COMBINATIONS, goes_on};

/// Maximum number of rules that are evaluated individually for every packet.
const MOST_GOING_ON: usize = 256;

/// Cost of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of rules that are evaluated individually, because they continue with the next rule or have conditions on
    /// applications.
    going_on: usize,
    combinations: u64,
}

impl Weight {
    /// Cost of a rule.
    pub fn of(rule: &FilterRule) -> Self {
        Self {
            going_on: usize::from(goes_on(rule.action) || rule.selection.is_asked_alone()),
            combinations: rule.selection.combinations(),
        }
    }

    /// Sum of two costs.
    pub fn with(self, other: Self) -> Self {
        Self {
            going_on: self.going_on + other.going_on,
            combinations: self.combinations.saturating_add(other.combinations),
        }
    }

    /// The cost without the cost of one rule.
    pub fn without(self, one: Self) -> Self {
        Self {
            going_on: self.going_on.saturating_sub(one.going_on),
            combinations: self.combinations.saturating_sub(one.combinations),
        }
    }

    /// Check that the cost is within the limits of a filter.
    ///
    /// # Errors
    /// Too many rules are evaluated individually, or there are too many combinations.
    pub fn check(self) -> Result<(), FilterProblem> {
        if self.going_on > MOST_GOING_ON {
            return Err(FilterProblem::TooManyGoingOn(self.going_on));
        }
        let (combinations, most) = (self.combinations, MAX_FILTER_COMBINATIONS);
        match combinations > most {
            true => Err(FilterProblem::TooLarge { combinations, most }),
            false => Ok(()),
        }
    }
}
