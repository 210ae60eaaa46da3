//! Record of the addresses that are affected by changes of individual rules.

use sluice_table::changes::{Accumulate, ChangedRegions};

use super::Prefix;
use crate::Address;

/// Prefix length of a region: /26 in IPv4 and /64 in IPv6.
fn region_length<A: Address>() -> u8 {
    if A::BITS == 32 { 26 } else { 64 }
}

#[inline(always)]
fn region<A: Address>(address: A) -> u64 {
    let [high, low] = address.words();
    if A::BITS == 32 { low >> 6 } else { high }
}

fn mark<A: Address>(regions: &mut ChangedRegions, prefix: Prefix<A>) {
    let free = region_length::<A>().saturating_sub(prefix.length);
    regions.mark(region(prefix.address), free.into());
}

/// Regions of the address space in which rules have changed.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    sources: ChangedRegions,
    destinations: ChangedRegions,
}

impl Changed {
    /// Records a change of a source rule for these inside addresses.
    pub fn source<A: Address>(&mut self, inside: Prefix<A>) {
        mark(&mut self.sources, inside);
    }

    /// Records a change of a destination rule for these external addresses.
    pub fn destination<A: Address>(&mut self, external: Prefix<A>) {
        mark(&mut self.destinations, external);
    }

    /// Whether the changed rules may affect a flow between two addresses. False is exact; true may be a false positive.
    #[inline(always)]
    pub fn may_affect<A: Address>(&self, source: A, destination: A) -> bool {
        self.sources.contains(region(source)) || self.destinations.contains(region(destination))
    }
}

impl Accumulate for Changed {
    fn add(&mut self, other: &Self) {
        self.sources.add(&other.sources);
        self.destinations.add(&other.destinations);
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.destinations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(source: Option<(u32, u8)>, destination: Option<(u32, u8)>) -> Changed {
        let mut changed = Changed::default();
        let prefix = |(address, length)| Prefix { address, length };
        source.map(prefix).into_iter().for_each(|prefix| changed.source(prefix));
        let destination = destination.map(prefix);
        destination.into_iter().for_each(|prefix| changed.destination(prefix));
        changed
    }

    #[test]
    fn flow_is_concerned_by_what_changed_for_its_ends() {
        let (host, server) = (0x0a01_0203, 0xcb00_7101);
        assert!(Changed::default().is_empty());
        let mut since = changed(Some((host, 32)), None);
        assert!(!since.is_empty() && since.may_affect(host, server));
        assert!(!since.may_affect(server, host) && !since.may_affect(host + 64, server));
        since.add(&changed(None, Some((server & !0xfff, 20))));
        assert!(since.may_affect(host, server));
        assert!(since.may_affect(host + 64, server));
        assert!(!since.may_affect(host + 64, server ^ 0x1000));
        since.add(&changed(Some((0, 0)), None));
        assert!(since.may_affect(1u32, 2));
    }

    #[test]
    fn flow_of_ipv6_is_concerned_by_its_ends_alone() {
        let (host, server) = ([0x2001_0db8_0001_0002, 7], [0x2001_0db8_ffff_0000, 1]);
        let mut changed = Changed::default();
        changed.source(Prefix::host(host));
        assert!(changed.may_affect([host[0], 9], server));
        assert!(!changed.may_affect(server, host));
        changed.destination(Prefix {
            address: [0x2001_0db8_ffff_0000, 0],
            length: 48,
        });
        assert!(changed.may_affect(server, [server[0] ^ 0xabcd, 1]));
        assert!(!changed.may_affect(server, [server[0] ^ 1 << 16, 1]));
    }
}
