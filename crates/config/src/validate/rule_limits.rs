//! Limits of translation rules, which are those of the data plane's tables.

use std::collections::{HashMap, HashSet};

use ipnet::Ipv4Net;

use super::Check;
use super::rules::{Part, Rules};
use crate::limits::{MAX_EQUAL_RULES, MAX_HOST_SETS, MAX_RULE_PORTS, MAX_RULES};
use crate::problem::DestinationProblem;
use crate::read::place;
use crate::value::PortRange;

impl Check<'_> {
    /// Check three numbers, summed over all routers: rules, ports in the rules, and sets of hosts.
    pub(super) fn rule_numbers(&mut self, rules: &Rules) {
        let (sources, destinations) = (rules.source.len(), rules.destination.len());
        self.in_range(place!["nat", "source"], "a number of rules", sources, 0..=MAX_RULES);
        let at = place!["nat", "destination"];
        self.in_range(at, "a number of rules", destinations, 0..=MAX_RULES);
        let count = |ports: Option<PortRange>| ports.map_or(1, |ports| u64::from(ports.count()));
        let ports = rules.destination.iter().map(|rule| count(rule.ports)).sum();
        self.in_range(at, "a number of ports in rules", ports, 0..=MAX_RULE_PORTS);
        let sets = rules.host_sets.len();
        self.in_range(at, "a number of rules with several hosts", sets, 0..=MAX_HOST_SETS);
    }

    /// Check the number of a router's rules that differ only in protocol and interface.
    pub(super) fn equal_rules(
        &mut self,
        sources: &HashSet<Part>,
        destinations: &HashMap<Part, Vec<Option<PortRange>>>,
    ) {
        let mut groups: Groups<usize> = HashMap::new();
        for &(from, own, ..) in sources {
            *groups.entry((from, own)).or_default() += 1;
        }
        self.equal_in("source", groups);
        let mut groups: Groups<Vec<&[Option<PortRange>]>> = HashMap::new();
        for (&(network, own, ..), ports) in destinations {
            groups.entry((network, own)).or_default().push(ports);
        }
        let counts = groups.into_iter().map(|(group, rules)| (group, at_one_port(&rules)));
        self.equal_in("destination", counts.collect());
    }

    fn equal_in(&mut self, key: &'static str, groups: Groups<usize>) {
        let largest = groups.into_iter().map(|((network, _), count)| (count, network)).max();
        if let Some((count, network)) = largest.filter(|(count, _)| *count > MAX_EQUAL_RULES) {
            let problem = DestinationProblem::TooManyEqual { network, count };
            self.report(place!["nat", key], problem.into());
        }
    }
}

/// A value for each network, separately for the rules for the host stack.
type Groups<T> = HashMap<(Ipv4Net, bool), T>;

/// Largest number of rules that must be compared for any one port. Each element of `rules` contains the ports of all
/// rules with one protocol and interface. Of these rules, only the most specific one applies to a port.
fn at_one_port(rules: &[&[Option<PortRange>]]) -> usize {
    if rules.len() <= MAX_EQUAL_RULES {
        return rules.len();
    }
    let without = rules.iter().filter(|ports| ports.contains(&None)).count();
    let mut changes = vec![0i64; 1 << 17];
    for ports in rules {
        let mut ranges: Vec<_> = ports
            .iter()
            .flatten()
            .map(|range| (range.first(), range.last()))
            .collect();
        ranges.sort_unstable();
        let mut next = 0;
        for (first, last) in ranges
            .into_iter()
            .map(|(first, last)| (usize::from(first), usize::from(last)))
        {
            if last >= next {
                changes[first.max(next)] += 1;
                changes[last + 1] -= 1;
                next = last + 1;
            }
        }
    }
    let at_port = changes.iter().scan(0, |count, change| {
        *count += change;
        Some(*count)
    });
    without.max(at_port.max().unwrap_or(0) as usize)
}
