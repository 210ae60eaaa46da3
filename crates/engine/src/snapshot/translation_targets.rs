//! Inside addresses and ports of which each flow belongs to the shard of the flow's client. There are three kinds of
//! targets. If a rule distributes flows to several hosts, these hosts are targets, because the host of a flow is
//! unknown before its session exists. The router's own addresses are targets. The targets of rules that apply to
//! packets from inside clients are included, because all flows of an inside client belong to its own shard.

use std::collections::HashSet;

use sluice_nat::Address;
use sluice_nat::rule::{DestinationAction, DestinationRule, FROM_HOST};
use sluice_wire::Context;

use crate::session::family::Family;
use crate::snapshot::{Interface, Nat};

/// A port range of an address in a context.
type Range<A> = (Context, A, u16, u16);

/// An address and a port.
type End<A> = (A, u16);

/// Translation targets as port ranges, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationTargets<A> {
    ranges: Vec<Range<A>>,
    /// Routers that have a host whose packets may belong to sessions.
    hosted: Vec<Context>,
}

impl<A: Address> TranslationTargets<A> {
    /// The targets that the rules define; `None` if the rules define no targets.
    pub fn of<F: Family<Address = A>>(nat: &Nat<F>, interfaces: &[Interface]) -> Option<Self> {
        let mut spread = Self {
            ranges: Vec::new(),
            hosted: Vec::new(),
        };
        let owned = interfaces.iter().flat_map(|interface| {
            let addresses = interface.link.addresses.iter();
            addresses.map(|(address, _)| (interface.context, *address))
        });
        let owned: HashSet<_> = owned.collect();
        for (_, rule, _) in nat.rules.destinations(usize::MAX) {
            match rule.action {
                DestinationAction::Hosts(set, first) => {
                    let hosts = nat.rules.set(set).map_or(&[][..], |set| &set.hosts);
                    hosts.iter().for_each(|host| spread.add(&rule, host.address, first));
                    spread.host_of(rule.context & FROM_HOST != 0, rule.context);
                }
                DestinationAction::Host(host, first) => {
                    let own = owned.contains(&(rule.context & !FROM_HOST, F::address(host)));
                    let inbound = rule.inbound.and_then(|number| interfaces.get(usize::from(number)));
                    let of_host = rule.context & FROM_HOST != 0;
                    if own || of_host || inbound.is_some_and(|interface| !interface.outside) {
                        spread.add(&rule, host, first);
                    }
                    spread.host_of(own || of_host, rule.context);
                }
                DestinationAction::Static(_) | DestinationAction::Exempt => {}
            }
        }
        for (_, rule, _) in nat.rules.sources(usize::MAX) {
            spread.host_of(rule.context & FROM_HOST != 0, rule.context);
        }
        spread.ranges.sort_unstable();
        (!spread.ranges.is_empty() || !spread.hosted.is_empty()).then_some(spread)
    }

    /// Records whether packets that a router's host sends may belong to sessions.
    fn host_of(&mut self, is_hosted: bool, context: Context) {
        let router = context & !FROM_HOST;
        if is_hosted && !self.hosted.contains(&router) {
            self.hosted.push(router);
        }
    }

    fn add(&mut self, rule: &DestinationRule<A>, host: A, first: Option<u16>) {
        let (from, to) = rule.ports.unwrap_or((0, u16::MAX));
        let first = first.unwrap_or(from);
        self.ranges
            .push((rule.context & !FROM_HOST, host, first, first.saturating_add(to - from)));
    }

    /// Whether packets that a router's host sends may belong to sessions.
    #[inline(always)]
    pub fn has_host(&self, context: Context) -> bool {
        self.hosted.contains(&context)
    }

    fn has(&self, context: Context, end: End<A>) -> bool {
        let before = self
            .ranges
            .partition_point(|range| (range.0, range.1) < (context, end.0));
        let same = self.ranges[before..].iter();
        same.take_while(|range| (range.0, range.1) == (context, end.0))
            .any(|range| (range.2..=range.3).contains(&end.1))
    }

    /// The endpoint that determines the shard of a flow, if the other endpoint is a translation target. The order of
    /// the arguments doesn't change the result.
    #[inline]
    pub fn client(&self, context: Context, one: End<A>, other: End<A>) -> Option<A> {
        match (self.has(context, one), self.has(context, other)) {
            (true, false) => Some(other.0),
            (false, true) => Some(one.0),
            (true, true) => Some(one.min(other).0),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn client_does_not_depend_on_direction_and_is_the_end_that_no_rule_leads_to(
            ranges in prop::collection::vec((0u32..2, 0u32..4, 0u16..8, 0u16..4), 0..8),
            one in (0u32..4, 0u16..12), other in (0u32..4, 0u16..12), context in 0u32..2,
        ) {
            let mut ranges: Vec<_> = ranges.into_iter().map(|(c, a, first, more)| (c, a, first, first + more)).collect();
            ranges.sort_unstable();
            let spread = TranslationTargets { ranges: ranges.clone(), hosted: Vec::new() };
            let has = |end: (u32, u16)| ranges.iter().any(|&(of, address, first, last)| {
                (of, address) == (context, end.0) && first <= end.1 && end.1 <= last
            });
            let client = spread.client(context, one, other);
            prop_assert_eq!(client, spread.client(context, other, one));
            match (has(one), has(other)) {
                (false, false) => prop_assert_eq!(None, client),
                (true, false) => prop_assert_eq!(Some(other.0), client),
                (false, true) => prop_assert_eq!(Some(one.0), client),
                (true, true) => prop_assert!(client.is_some()),
            }
        }
    }
}
