//! What rules take of what a filter may have.

use crate::filter::FilterRule;
use crate::problem::FilterProblem;

use super::{MAX_FILTER_COMBINATIONS, goes_on};

/// Rules after which others are asked.
const MOST_GOING_ON: usize = 256;

/// What rules take of what a filter may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Rules that go on, or are about applications.
    going_on: usize,
    combinations: u64,
}

impl Weight {
    /// That of a rule.
    pub fn of(rule: &FilterRule) -> Self {
        Self {
            going_on: usize::from(goes_on(rule.action) || rule.selection.is_asked_alone()),
            combinations: rule.selection.combinations(),
        }
    }

    /// That of both.
    pub fn with(self, other: Self) -> Self {
        Self {
            going_on: self.going_on + other.going_on,
            combinations: self.combinations.saturating_add(other.combinations),
        }
    }

    /// That of the others, without one of them.
    pub fn without(self, one: Self) -> Self {
        Self {
            going_on: self.going_on.saturating_sub(one.going_on),
            combinations: self.combinations.saturating_sub(one.combinations),
        }
    }

    /// Whether a filter may have so much.
    ///
    /// # Errors
    /// There are too many rules that go on, or too many combinations.
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
