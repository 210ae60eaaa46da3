//! Networks of inside hosts, derived from the translation rules. If untranslated flows have sessions, both directions
//! of a flow must belong to one shard, whichever interfaces they arrive on.

use sluice_nat::Address;
use sluice_nat::rule::{DestinationAction, Prefix};
use sluice_wire::Context;

use crate::session::family::Family;
use crate::snapshot::{Interface, Nat};

/// Minimum prefix length at which the prefix of a source rule counts as a network of inside hosts. A rule with a
/// shorter prefix counts as a rule for any source.
const SHORTEST: u8 = 4;

/// Disjoint address ranges of each virtual router, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsideHosts<A>(Vec<(Context, A, A)>);

impl<A: Address> InsideHosts<A> {
    /// Merges ranges, which may be in any order.
    pub fn new(mut ranges: Vec<(Context, A, A)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(Context, A, A)> = Vec::new();
        for (context, first, last) in ranges {
            match merged.last_mut() {
                Some((same, _, end)) if *same == context && first <= *end => *end = last.max(*end),
                _ => merged.push((context, first, last)),
            }
        }
        Self(merged)
    }

    /// Derives the inside hosts: the addresses that source rules translate, and the targets of destination rules. For a
    /// rule for any source, the addresses on links of inside interfaces are included. If the rule is restricted to an
    /// outside interface and `all` is set, all addresses are included instead.
    pub fn of<F: Family<Address = A>>(nat: &Nat<F>, interfaces: &[Interface], all: bool) -> Self {
        let mut ranges = Vec::new();
        let range = |context: Context, prefix: Prefix<A>| {
            let first = prefix.address.number();
            let bits = u32::from(A::BITS - prefix.length);
            (
                context,
                prefix.address,
                A::from_number(first | 1u128.checked_shl(bits).map_or(u128::MAX, |one| one - 1)),
            )
        };
        let mut whole = Vec::new();
        for (_, rule, _) in nat.rules.sources(usize::MAX) {
            match rule.inside.length < SHORTEST && !(all && rule.outside.is_some()) {
                true => whole.push(rule.context),
                false => ranges.push(range(rule.context, rule.inside)),
            }
        }
        for (_, rule, _) in nat.rules.destinations(usize::MAX) {
            match rule.action {
                DestinationAction::Host(host, _) => ranges.push((rule.context, host, host)),
                DestinationAction::Hosts(set, _) => {
                    let hosts = nat.rules.set(set).map_or(&[][..], |set| &set.hosts);
                    ranges.extend(hosts.iter().map(|host| (rule.context, host.address, host.address)));
                }
                DestinationAction::Static(address) => {
                    let length = rule.external.length;
                    ranges.push(range(rule.context, Prefix { address, length }));
                }
                DestinationAction::Exempt => {}
            }
        }
        let is_inside = |interface: &&Interface| whole.contains(&interface.context) && !interface.outside;
        for interface in interfaces.iter().filter(is_inside) {
            for (address, length) in &interface.link.addresses {
                let number = match (*address, A::BITS) {
                    (sluice_route::Address::V4(address), 32) => u128::from(address),
                    (sluice_route::Address::V6(address), 128) => address,
                    _ => continue,
                };
                let bits = u32::from(A::BITS - length);
                let first = 1u128.checked_shl(bits).map_or(0, |one| number & !(one - 1));
                let prefix = Prefix {
                    address: A::from_number(first),
                    length: *length,
                };
                ranges.push(range(interface.context, prefix));
            }
        }
        Self::new(ranges)
    }

    /// Whether an address belongs to an inside host.
    #[inline(always)]
    pub fn has(&self, context: Context, address: A) -> bool {
        let after = self.0.partition_point(|range| (range.0, range.1) <= (context, address));
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        before.is_some_and(|range| range.0 == context && address <= range.2)
    }

    /// The endpoints of a flow (address and port) in a fixed order: the inside host first. The order of the arguments
    /// doesn't change the result.
    #[inline(always)]
    pub fn ends<P: Ord>(&self, context: Context, one: (A, P), other: (A, P)) -> ((A, P), (A, P)) {
        let in_order = match (self.has(context, one.0), self.has(context, other.0)) {
            (true, false) => true,
            (false, true) => false,
            _ => one <= other,
        };
        if in_order { (one, other) } else { (other, one) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hosts_ends_do_not_depend_on_direction_and_are_those_of_the_router(
            ranges in prop::collection::vec((0u32..2, 0u32..100, 0u32..20), 0..6), one in 0u32..130, other in 0u32..130,
        ) {
            let hosts = InsideHosts::new(ranges.iter().map(|&(context, first, length)| (context, first, first + length)).collect());
            for context in 0..2 {
                let ends = |one, other| {
                    let ((host, ()), (other, ())) = hosts.ends(context, (one, ()), (other, ()));
                    (host, other)
                };
                prop_assert_eq!(ends(one, other), ends(other, one));
                let holds = |address, &(of, first, length): &(u32, u32, u32)| {
                    of == context && first <= address && address <= first + length
                };
                let has = |address| ranges.iter().any(|range| holds(address, range));
                prop_assert_eq!(has(one), hosts.has(context, one));
                if has(one) && !has(other) {
                    prop_assert_eq!((one, other), ends(other, one));
                }
            }
        }
    }
}
