//! Headers with the highest cost for the default matcher, as found by an attacker who knows the rules.
//!
//! The search is hill climbing from random headers and from corners of rules: one field is changed, and the change is
//! kept unless it reduces the cost of the lookup. The cost is counted instead of timed, so that other processes on the
//! machine do not affect the search.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sluice_filter::{CutTree, Field, Range, Rule, VisitCounts};

use super::traces::{Traffic, Tuple, header};
use crate::rig::frames::Random;

/// Name of the trace in rows.
pub const NAME: &str = "attack";
/// Number of headers in the trace.
const HEADERS: usize = 8192;
/// Number of consecutive steps without improvement after which a header counts as a local maximum.
const PATIENCE: usize = 128;
/// Number of climbs per start: every climb except the first begins a few changes away from the best header found so
/// far.
const CLIMBS: usize = 4;
/// Number of fields changed between two climbs.
const KICKS: usize = 2;

/// Duration of the search, and its random seed.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Maximum duration of the search.
    pub time: Duration,
    /// Seed of the random generator that draws the changes.
    pub seed: u64,
}

/// Largest value of each field.
const LAST: Tuple = [u32::MAX, u32::MAX, u16::MAX as u32, u16::MAX as u32, u8::MAX as u32];

/// Estimated cost of a lookup in cycles: all children of a node are compared in one step, a leaf costs a miss in
/// the nearest cache and a comparison of 16 rules, and each tree costs one loop iteration.
pub fn cost(visits: VisitCounts) -> u32 {
    (8 * visits.nodes + 20 * visits.leaves + 10 * visits.groups) as u32
}

/// The headers with the highest cost, without duplicates, in random order.
pub fn worst(best: &CutTree<u32>, rules: &[Rule<u32>], attack: Attack) -> Traffic {
    let mut search = Search {
        best,
        rules,
        // Spreads similar seeds far apart, and avoids the state 0, which the generator would never leave.
        random: Random(attack.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        worst: BTreeSet::new(),
    };
    let (begin, mut starts) = (Instant::now(), 0);
    while begin.elapsed() < attack.time || search.worst.is_empty() {
        search.chain(starts % 2 == 0);
        starts += 1;
    }
    let mut headers: Vec<_> = search.worst.iter().map(|(_, tuple)| header(tuple)).collect();
    for place in (1..headers.len()).rev() {
        headers.swap(place, search.random.below(place as u64 + 1) as usize);
    }
    eprintln!(
        "attack: seed {}, {starts} starts in {:.1} s, {} headers kept",
        attack.seed,
        begin.elapsed().as_secs_f64(),
        headers.len()
    );
    Traffic { name: NAME, headers }
}

struct Search<'a> {
    best: &'a CutTree<u32>,
    rules: &'a [Rule<u32>],
    random: Random,
    worst: BTreeSet<(u32, Tuple)>,
}

impl Search<'_> {
    /// Climbs once from a corner of a rule or from a random header, then several times from points near the maximum
    /// found so far.
    fn chain(&mut self, from_rule: bool) {
        let start = if from_rule {
            self.corner()
        } else {
            LAST.map(|last| self.random.below(u64::from(last) + 1))
        };
        let mut top = self.climb(start);
        self.keep(top);
        for _ in 1..CLIMBS {
            let mut beside = top.1;
            for _ in 0..KICKS {
                beside = self.changed(&beside);
            }
            let other = self.climb(beside);
            self.keep(other);
            top = top.max(other);
        }
    }

    fn climb(&mut self, start: Tuple) -> (u32, Tuple) {
        let mut at = (self.cost(&start), start);
        let mut vain = 0;
        while vain < PATIENCE {
            let next = self.changed(&at.1);
            let cost = self.cost(&next);
            vain = if cost > at.0 { 0 } else { vain + 1 };
            if cost >= at.0 {
                at = (cost, next);
            }
        }
        at
    }

    fn keep(&mut self, top: (u32, Tuple)) {
        self.worst.insert(top);
        if self.worst.len() > HEADERS {
            self.worst.pop_first();
        }
    }

    fn cost(&self, tuple: &Tuple) -> u32 {
        cost(self.best.visits(&header(tuple)))
    }

    /// Returns the tuple with one field changed to a bound of a rule's range, to a value next to that bound, to a value
    /// a small step away, or to a random value.
    fn changed(&mut self, tuple: &Tuple) -> Tuple {
        let mut changed = *tuple;
        let field = self.random.below(5) as usize;
        let value = match self.random.below(8) {
            0..=3 => {
                let ends = ranges(self.rule())[field];
                let beside = [
                    ends.first,
                    ends.last,
                    ends.first.wrapping_sub(1),
                    ends.last.wrapping_add(1),
                ];
                beside[self.random.below(4) as usize]
            }
            4 => tuple[field].wrapping_add(1 + self.random.below(4)),
            5 => tuple[field].wrapping_sub(1 + self.random.below(4)),
            6 => tuple[field] ^ 1 << self.random.below(32),
            _ => self.random.below(1 << 32),
        };
        changed[field] = value & LAST[field];
        changed
    }

    fn corner(&mut self) -> Tuple {
        let ranges = ranges(self.rule());
        ranges.map(|Range { first, last }| if self.random.below(2) == 0 { first } else { last })
    }

    fn rule(&mut self) -> &Rule<u32> {
        &self.rules[self.random.below(self.rules.len() as u64) as usize]
    }
}

fn ranges(rule: &Rule<u32>) -> [Range<u32>; 5] {
    let field = |field: Field| {
        let Range { first, last } = rule.get(field);
        let last = last.min(field.last_named());
        Range { first, last }
    };
    let [from, to, protocol] = [Field::SourcePort, Field::DestinationPort, Field::Protocol].map(field);
    [rule.source, rule.destination, from, to, protocol]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::sets::Set;
    use sluice_filter::Header;

    use crate::filter::traces::Trace;

    #[test]
    fn worst_headers_are_distinct_real_and_dearer_than_those_of_rules() {
        let set = Set::of_paper(5_000);
        let best = CutTree::new(&set.rules);
        let time = Duration::from_millis(200);
        let found = worst(&best, &set.rules, Attack { time, seed: 7 }).headers;
        let mean = |headers: &[Header<u32>]| {
            let sum: u32 = headers.iter().map(|header| cost(best.visits(header))).sum();
            f64::from(sum) / headers.len() as f64
        };
        let usual = Trace::Uniform.traffic(&set.rules, 1000).headers;
        assert!(mean(&usual) < mean(&found), "{} and {}", mean(&usual), mean(&found));
        assert!(
            found
                .iter()
                .all(|header| header.get(Field::SourcePort) <= u16::MAX.into())
        );
        let distinct: std::collections::HashSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len());
    }
}
