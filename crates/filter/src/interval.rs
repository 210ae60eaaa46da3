//! Elementary intervals: a dimension is cut at each end of a rule's range. Each interval has the list of rules that
//! contain the interval.

use crate::{Address, Field, Range, Rule, RuleNumber};

/// An elementary interval: its last value, and the rules that contain the interval, in order.
pub struct Interval<T> {
    pub last: T,
    pub rules: Vec<RuleNumber>,
}

/// Computes the intervals into which the given ranges of rules cut a dimension, in ascending order from 0 to `last`.
/// Calls `each` for each interval, and stops if it returns false.
pub fn intervals<T: Address>(ranges: &[(RuleNumber, Range<T>)], last: T, mut each: impl FnMut(Interval<T>) -> bool) {
    let mut edges: Vec<(T, bool, RuleNumber)> = Vec::with_capacity(2 * ranges.len());
    for &(rule, range) in ranges {
        edges.push((range.first, true, rule));
        // A range that includes the last value needs no end mark.
        if range.last < last
            && let Some(next) = range.last.next()
        {
            edges.push((next, false, rule));
        }
    }
    edges.sort_unstable();
    let mut active = std::collections::BTreeSet::new();
    let mut edges = edges.into_iter().peekable();
    let mut continues = true;
    let mut emit = |active: &std::collections::BTreeSet<RuleNumber>, last| {
        each(Interval {
            last,
            rules: active.iter().copied().collect(),
        })
    };
    while let Some(&(at, ..)) = edges.peek() {
        if let Some(before) = at.before().filter(|_| continues) {
            continues = emit(&active, before);
        }
        while let Some((_, starts, rule)) = edges.next_if(|edge| edge.0 == at) {
            if starts {
                active.insert(rule);
            } else {
                active.remove(&rule);
            }
        }
    }
    if continues {
        emit(&active, last);
    }
}

/// Computes the intervals of a field for a subset of the rules. Each value of the TCP flags is a separate interval,
/// because the values that match a mask need not be adjacent.
pub fn of_field<A: Address>(
    rules: &[Rule<A>],
    among: &[RuleNumber],
    field: Field,
    mut each: impl FnMut(Interval<u32>) -> bool,
) {
    if field == Field::Flags && among.iter().any(|&rule| rules[rule as usize].flags().of != 0) {
        for value in (0..=255).chain([field.last()]) {
            let admits = |rule: &RuleNumber| rules[*rule as usize].admits(field, value);
            let rules = among.iter().copied().filter(admits).collect();
            if !each(Interval { last: value, rules }) {
                return;
            }
        }
        return;
    }
    let ranges: Vec<_> = among
        .iter()
        .map(|&rule| (rule, rules[rule as usize].get(field)))
        .collect();
    intervals(&ranges, field.last(), each);
}
