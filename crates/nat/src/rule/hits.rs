//! Hit counters of rules.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use super::RuleId;

/// Number of counters in the first segment. Each further segment doubles the total number.
const FIRST: u32 = 64;
const SEGMENTS: usize = RuleId::MAX.ilog2() as usize - FIRST.ilog2() as usize + 1;

/// One counter for each rule, in memory segments that never move. Several threads may increment counters concurrently.
#[derive(Debug, Default)]
pub struct Hits([OnceLock<Box<[AtomicU64]>>; SEGMENTS]);

impl Hits {
    /// Location of a rule's counter: number of the segment, and index in the segment.
    #[inline(always)]
    fn place(rule: RuleId) -> (usize, usize) {
        let segment = (rule.0 / FIRST + 1).ilog2();
        (segment as usize, (rule.0 - FIRST * ((1 << segment) - 1)) as usize)
    }

    #[inline(always)]
    fn of(&self, rule: RuleId) -> Option<&AtomicU64> {
        let (segment, place) = Self::place(rule);
        self.0.get(segment)?.get()?.get(place)
    }

    /// Initialises the counter of a rule with the value `with`.
    pub fn start(&self, rule: RuleId, with: u64) {
        let (segment, place) = Self::place(rule);
        let Some(segment_of) = self.0.get(segment) else { return };
        let counts = segment_of.get_or_init(|| (0..FIRST << segment).map(|_| AtomicU64::new(0)).collect());
        if let Some(count) = counts.get(place) {
            count.store(with, Ordering::Relaxed);
        }
    }

    /// Adds `count` to the counter of a rule.
    #[inline(always)]
    pub fn add(&self, rule: RuleId, count: u64) {
        if let Some(hits) = self.of(rule) {
            hits.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Value of a rule's counter.
    pub fn get(&self, rule: RuleId) -> u64 {
        self.of(rule).map_or(0, |hits| hits.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_rules_lie_apart() {
        let hits = Hits::default();
        let rules = [0, 1, 63, 64, 65, 191, 192, 5000, RuleId::MAX - 1].map(RuleId);
        for rule in rules {
            hits.start(rule, 0);
            hits.add(rule, u64::from(rule.0) + 1);
        }
        for rule in rules {
            assert_eq!(u64::from(rule.0) + 1, hits.get(rule));
        }
        // The counter of a rule that never existed is 0.
        assert_eq!(0, hits.get(RuleId(70)));
        hits.add(RuleId(u32::MAX), 1);
        assert_eq!(0, hits.get(RuleId(u32::MAX)));
        hits.start(RuleId(64), 7);
        assert_eq!(7, hits.get(RuleId(64)));
    }
}
