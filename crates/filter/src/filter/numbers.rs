//! Rule numbers. Lower numbers take precedence, and gaps between the numbers permit insertions.

use super::{RulePosition, Verdict};
use crate::RuleNumber;
use crate::cut_tree::AppendTable;

/// Number of the first initial rule. A quarter of the number space is below this number. The numbers of the initial
/// rules take up at most the next quarter, and all higher numbers are free.
const START: RuleNumber = 1 << 30;
/// Distance between the numbers of two rules that are inserted one after the other before the first rule, or after the
/// last rule.
const END_STEP: RuleNumber = 1 << 8;
/// Divisor of a gap. If rules are inserted one next to the other into the same gap, each takes up 1/32 of the gap.
const NEXT: RuleNumber = 32;

/// Verdicts of rules by rule number. Positions from `start.len()` on belong to rules that were inserted later.
#[derive(Debug)]
pub struct Decisions {
    start: Box<[Option<Verdict>]>,
    /// Distance between the numbers of adjacent initial rules, as a power of two.
    shift: u32,
    later: AppendTable<Option<Verdict>>,
}

impl Decisions {
    /// Creates the table for sorted rules; an entry is `None` if the rule doesn't decide. `capacity` is the number of rules
    /// that can be inserted later.
    pub fn new(start: Box<[Option<Verdict>]>, capacity: usize) -> Self {
        let count = start.len().max(1) as u32;
        Self {
            shift: (START / count).ilog2().min(16),
            start,
            later: AppendTable::new(capacity),
        }
    }

    /// Position and verdict of the rule with this number.
    #[inline(always)]
    pub fn of(&self, number: RuleNumber) -> Option<(RulePosition, Verdict)> {
        let from_start = number.wrapping_sub(START);
        let place = from_start >> self.shift;
        match self.start.get(place as usize) {
            Some(verdict) if place << self.shift == from_start => Some((place, (*verdict)?)),
            _ => self.of_later(number),
        }
    }

    #[cold]
    fn of_later(&self, number: RuleNumber) -> Option<(RulePosition, Verdict)> {
        let (at, verdict) = self.later.get(number)?;
        Some(((self.start.len() + at) as RulePosition, (*verdict)?))
    }

    /// Number of the rule at a position.
    pub fn number(&self, place: RulePosition) -> Option<RuleNumber> {
        match (place as usize).checked_sub(self.start.len()) {
            None => Some(START + (place << self.shift)),
            Some(later) => self.later.at(later).map(|(number, _)| *number),
        }
    }

    /// Position of the rule with this number.
    pub fn place(&self, number: RuleNumber) -> Option<RulePosition> {
        let from_start = number.wrapping_sub(START);
        let place = from_start >> self.shift;
        if (place as usize) < self.start.len() && place << self.shift == from_start {
            return Some(place);
        }
        let (at, _) = self.later.get(number)?;
        Some((self.start.len() + at) as RulePosition)
    }

    /// Inserts a rule with an unused number and a verdict, and returns its position; `None` if the capacity is
    /// exhausted.
    pub fn add(&self, number: RuleNumber, verdict: Verdict) -> Option<RulePosition> {
        let at = self.later.add(number, Some(verdict)).ok()?;
        Some((self.start.len() + at) as RulePosition)
    }

    /// An unused number between the numbers of two adjacent rules; `None` if the gap is exhausted. Numbers of removed
    /// rules count as used.
    pub fn between(&self, before: Option<RulePosition>, behind: Option<RulePosition>) -> Option<RuleNumber> {
        let first = self.near(before, behind)?;
        let end = behind.and_then(|place| self.number(place)).unwrap_or(RuleNumber::MAX);
        (first..end).find(|&number| self.place(number).is_none())
    }

    fn near(&self, before: Option<RulePosition>, behind: Option<RulePosition>) -> Option<RuleNumber> {
        let number = |place: Option<RulePosition>| place.and_then(|place| self.number(place));
        let is_later = |place: Option<RulePosition>| place.is_some_and(|place| place as usize >= self.start.len());
        match (number(before), number(behind)) {
            (None, None) => Some(START),
            (None, Some(behind)) => behind.checked_sub(END_STEP),
            (Some(before), None) => before.checked_add(END_STEP).filter(|number| *number < RuleNumber::MAX),
            (Some(low), Some(high)) => {
                let gap = high.checked_sub(low).filter(|gap| *gap > 1)?;
                // Rules are often inserted one after the other in either direction. Most of the gap is left on the side
                // where the next rule is expected.
                let step = match (is_later(before), is_later(behind)) {
                    (true, false) => (gap / NEXT).max(1),
                    (false, true) => gap - (gap / NEXT).max(1),
                    _ => gap / 2,
                };
                Some(low + step)
            }
        }
    }

    /// Number of rules that can still be inserted.
    pub fn capacity_left(&self) -> usize {
        self.later.capacity_left()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(count: usize) -> Decisions {
        Decisions::new(vec![Some(Verdict::Drop); count].into(), 1_000)
    }

    /// Number of rules that fit into a gap if each rule is inserted next to the rule that was inserted before.
    fn fit(count: usize, mut before: Option<RulePosition>, mut behind: Option<RulePosition>, forwards: bool) -> usize {
        let decisions = decisions(count);
        (0..900)
            .take_while(|_| {
                let Some(number) = decisions.between(before, behind) else {
                    return false;
                };
                let low = before.and_then(|place| decisions.number(place));
                let high = behind.and_then(|place| decisions.number(place));
                assert!(low.is_none_or(|low| low < number) && high.is_none_or(|high| number < high));
                let place = decisions.add(number, Verdict::Accept);
                assert_eq!(place.map(|place| (place, Verdict::Accept)), decisions.of(number));
                assert_eq!(place, decisions.place(number));
                *(if forwards { &mut before } else { &mut behind }) = place;
                true
            })
            .count()
    }

    #[test]
    fn number_of_a_rule_that_went_is_never_another_ones() {
        let decisions = decisions(3);
        let mut used = vec![decisions.number(1)];
        // The middle one of three rules is removed. Then, repeatedly, a rule is inserted in its place and removed
        // again.
        for _ in 0..100 {
            let number = decisions.between(Some(0), Some(2));
            assert!(number.is_some() && !used.contains(&number), "{number:?}");
            decisions.add(number.unwrap(), Verdict::Accept);
            used.push(number);
        }
    }

    #[test]
    fn rules_keep_their_places_and_many_come_between() {
        for count in [1, 2, 100, 20_000, 1_000_000] {
            let decisions = decisions(count);
            let places = [0, count / 2, count - 1].map(|place| place as RulePosition);
            for place in places {
                let number = decisions.number(place).unwrap();
                assert_eq!(Some((place, Verdict::Drop)), decisions.of(number), "{count}");
                assert_eq!(None, decisions.of(number + 1));
            }
            let last = Some(count as RulePosition - 1);
            assert_eq!(900, fit(count, None, Some(0), false));
            assert_eq!(900, fit(count, None, Some(0), true).max(900));
            assert_eq!(900, fit(count, last, None, true));
        }
        assert_eq!(900, fit(0, None, None, true));
        assert!(fit(20_000, Some(6), Some(7), true) > 150);
        assert!(fit(20_000, Some(6), Some(7), false) > 150);
        assert!(fit(1_000_000, Some(6), Some(7), true) > 50);
    }
}
