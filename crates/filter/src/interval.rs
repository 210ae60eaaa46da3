//! Elementary intervals: a dimension cut wherever the range of a rule begins or ends, each interval with the rules
//! valid there.

use crate::{Address, Field, Range, Rule, RuleNumber};

/// An interval: its last value, and the rules that contain all of it, in order.
pub struct Interval<T> {
    pub last: T,
    pub rules: Vec<RuleNumber>,
}

/// Computes the intervals of a dimension in ascending order, from the first value to the last, for rules with these
/// ranges. Calls `each` with one interval at a time; stops if it returns false.
pub fn intervals<T: Address>(ranges: &[(RuleNumber, Range<T>)], last: T, mut each: impl FnMut(Interval<T>) -> bool) {
    let mut edges: Vec<(T, bool, RuleNumber)> = Vec::with_capacity(2 * ranges.len());
    for &(rule, range) in ranges {
        edges.push((range.first, true, rule));
        // A range that includes the last value needs no end.
        if range.last < last
            && let Some(next) = range.last.next()
        {
            edges.push((next, false, rule));
        }
    }
    edges.sort_unstable();
    let mut active = std::collections::BTreeSet::new();
    let mut edges = edges.into_iter().peekable();
    let mut goes_on = true;
    let mut emit = |active: &std::collections::BTreeSet<RuleNumber>, last| {
        each(Interval {
            last,
            rules: active.iter().copied().collect(),
        })
    };
    while let Some(&(at, ..)) = edges.peek() {
        if let Some(before) = at.before().filter(|_| goes_on) {
            goes_on = emit(&active, before);
        }
        while let Some((_, begins, rule)) = edges.next_if(|edge| edge.0 == at) {
            if begins {
                active.insert(rule);
            } else {
                active.remove(&rule);
            }
        }
    }
    if goes_on {
        emit(&active, last);
    }
}

/// Computes the intervals of a field, for some of the rules. TCP flags are cut value by value, because the values that
/// match a mask need not be adjacent.
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
