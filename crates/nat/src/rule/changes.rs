//! What single rules have changed for: a cheap no for most sessions, which then need not be decided again.

use std::sync::Arc;

use super::Prefix;
use crate::{Address, Tuple};

/// Generations back to which changes are kept.
const AGES: usize = 8;

/// How many regions are told apart: neighbours are.
const REGIONS: usize = 1 << 18;

/// Most regions of one rule: one for more counts as everywhere.
const MOST: u128 = 1024;

/// Length of the prefix that is a region: /26 in IPv4, /64 in IPv6.
fn region_length<A: Address>() -> u8 {
    if A::BITS == 32 { 26 } else { 64 }
}

#[inline(always)]
fn region<A: Address>(address: A) -> usize {
    let [high, low] = address.words();
    let bits = if A::BITS == 32 { low >> 6 } else { high ^ high >> 36 };
    (bits ^ bits >> 18) as usize % REGIONS
}

/// Regions of addresses that share a bit.
#[derive(Clone, Debug)]
struct Regions {
    bits: Box<[u64; REGIONS / 64]>,
    /// Whether a bit is set.
    any: bool,
    everywhere: bool,
}

impl Default for Regions {
    fn default() -> Self {
        Self {
            bits: Box::new([0; REGIONS / 64]),
            any: false,
            everywhere: false,
        }
    }
}

impl Regions {
    fn mark<A: Address>(&mut self, prefix: Prefix<A>) {
        let length = region_length::<A>();
        let count = 1u128 << length.saturating_sub(prefix.length).min(64);
        if count > MOST {
            self.everywhere = true;
            return;
        }
        let (first, step) = (prefix.address.number(), 1u128 << (A::BITS - length));
        for number in 0..count {
            let region = region(A::from_number(first + number * step));
            self.bits[region / 64] |= 1 << (region % 64);
        }
        self.any = true;
    }

    #[inline(always)]
    fn have<A: Address>(&self, address: A) -> bool {
        let region = region(address);
        self.everywhere || self.any && self.bits[region / 64] >> (region % 64) & 1 != 0
    }

    fn join(&mut self, other: &Self) {
        self.everywhere |= other.everywhere;
        self.any |= other.any;
        self.bits
            .iter_mut()
            .zip(&*other.bits)
            .for_each(|(bits, more)| *bits |= more);
    }
}

/// Where rules have changed.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    sources: Regions,
    destinations: Regions,
}

impl Changed {
    /// A rule for what comes from there has changed.
    pub fn source<A: Address>(&mut self, inside: Prefix<A>) {
        self.sources.mark(inside);
    }

    /// A rule for what is addressed there has changed.
    pub fn destination<A: Address>(&mut self, external: Prefix<A>) {
        self.destinations.mark(external);
    }
}

/// Where rules have changed since each of the last generations.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<[Changed]>);

impl Changes {
    /// Whether a flow is better marked as looked at, before what changed since is forgotten. Each mark is a line of memory
    /// to be written.
    #[inline(always)]
    pub fn is_long_ago(generations: u32) -> bool {
        generations as usize >= AGES / 2
    }

    /// One generation later.
    pub fn followed_by(&self, changed: &Changed) -> Self {
        let older = self.0.iter().take(AGES - 1).map(|since| {
            let mut since = since.clone();
            since.sources.join(&changed.sources);
            since.destinations.join(&changed.destinations);
            since
        });
        Self(std::iter::once(changed.clone()).chain(older).collect())
    }

    /// Whether rules may say something else of a flow than so many generations ago. A no is certain.
    #[inline(always)]
    pub fn may_concern<T: Tuple>(&self, generations: u32, flow: &T) -> bool {
        self.may_concern_between(generations, flow.source(), flow.destination())
    }

    /// The same of a flow from one address to another.
    #[inline(always)]
    pub fn may_concern_between<A: Address>(&self, generations: u32, source: A, destination: A) -> bool {
        let since = self.0.get((generations as usize).wrapping_sub(1));
        since.is_none_or(|since| since.sources.have(source) || since.destinations.have(destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::Tuple4;

    fn flow(source: u32, destination: u32) -> Tuple4 {
        Tuple4 {
            source,
            destination,
            ..Tuple4::default()
        }
    }

    fn changed(source: Option<(u32, u8)>, destination: Option<(u32, u8)>) -> Changed {
        let mut changed = Changed::default();
        let prefix = |(address, length)| Prefix { address, length };
        source.map(prefix).into_iter().for_each(|prefix| changed.source(prefix));
        let destination = destination.map(prefix);
        destination.into_iter().for_each(|prefix| changed.destination(prefix));
        changed
    }

    #[test]
    fn flow_is_concerned_by_what_changed_for_its_ends_since_its_generation() {
        let (host, server) = (0x0a01_0203, 0xcb00_7101);
        let changes = Changes::default();
        // Nothing is known of that time.
        assert!(changes.may_concern(1, &flow(host, server)));
        let changes = changes.followed_by(&changed(Some((host, 32)), None));
        assert!(changes.may_concern(1, &flow(host, server)));
        assert!(!changes.may_concern(1, &flow(server, host)));
        assert!(!changes.may_concern(1, &flow(host + 64, server)));
        let changes = changes.followed_by(&changed(None, Some((server & !0xfff, 20))));
        assert!(changes.may_concern(1, &flow(host, server)));
        assert!(!changes.may_concern(1, &flow(host, server ^ 0x1000)));
        assert!(changes.may_concern(2, &flow(host, server ^ 0x1000)));
        assert!(changes.may_concern(3, &flow(1, 2)));
        let changes = changes.followed_by(&changed(Some((0, 0)), None));
        assert!(changes.may_concern(1, &flow(1, 2)));
        let changes = changes.followed_by(&Changed::default());
        assert!(!changes.may_concern(1, &flow(host, server)));
        assert!(changes.may_concern(4, &flow(host, server)));
        assert!(changes.may_concern(5, &flow(host + 64, server)));
    }
}
