//! Record of destinations with changed routes. Caches of routing results use this record to find invalid results.

use sluice_table::changes::{Accumulate, ChangedRegions};
use sluice_table::prefix::{MAX_ROUTERS, RouterIndex};

use crate::{Address, Prefix};

/// Hash of a router and a region of destinations. A region is a /24 in IPv4 and a /48 in IPv6.
#[inline(always)]
fn region(router: RouterIndex, address: Address) -> u64 {
    // The hash includes the router, so that regions of two routers share a bit only by chance.
    let of_router = u64::from(router).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match address {
        Address::V4(bits) => u64::from(bits >> 8) ^ of_router,
        Address::V6(bits) => (bits >> 80) as u64 ^ of_router,
    }
}

/// Maximum number of bits by which a changed prefix may be shorter than a region. For a shorter prefix, all routes of
/// the router count as changed.
const FREE: u8 = 16;

/// Bitmap of virtual routers.
#[derive(Clone, Debug)]
struct Routers(Box<[u64; MAX_ROUTERS / 64]>);

impl Default for Routers {
    fn default() -> Self {
        Self(Box::new([0; MAX_ROUTERS / 64]))
    }
}

impl Routers {
    fn mark(&mut self, router: RouterIndex) {
        if let Some(word) = self.0.get_mut(usize::from(router) / 64) {
            *word |= 1 << (router % 64);
        }
    }

    #[inline(always)]
    fn contains(&self, router: RouterIndex) -> bool {
        let word = self.0.get(usize::from(router) / 64);
        word.is_some_and(|word| word >> (router % 64) & 1 != 0)
    }
}

/// Changed routes of one address family.
#[derive(Clone, Debug, Default)]
struct FamilyChanges {
    regions: ChangedRegions,
    /// Routers for which every region counts as changed.
    routers: Routers,
    /// Whether any route has changed.
    any: bool,
}

/// Destinations with changed routes. Sessions to these destinations are revalidated.
#[derive(Clone, Debug, Default)]
pub struct RouteChanges([FamilyChanges; 2]);

impl RouteChanges {
    /// Records a changed route of a router.
    pub fn mark(&mut self, router: RouterIndex, prefix: Prefix) {
        let (address, length) = (prefix.address(), prefix.length());
        let (number, longest) = match address {
            Address::V4(_) => (0, 24u8),
            Address::V6(_) => (1, 48),
        };
        let family = &mut self.0[number];
        family.any = true;
        let free = longest.saturating_sub(length);
        if free > FREE {
            family.routers.mark(router);
        } else {
            family.regions.mark(region(router, address), free.into());
        }
    }

    /// Records that all routes of a router have changed.
    pub fn mark_all(&mut self, router: RouterIndex) {
        for family in &mut self.0 {
            family.any = true;
            family.routers.mark(router);
        }
    }

    /// Whether the route to an address may have changed. False is exact; true may be a false positive.
    #[inline(always)]
    pub fn may_affect(&self, router: RouterIndex, address: Address) -> bool {
        let family = match address {
            Address::V4(_) => &self.0[0],
            Address::V6(_) => &self.0[1],
        };
        family.any && (family.regions.contains(region(router, address)) || family.routers.contains(router))
    }
}

impl Accumulate for RouteChanges {
    fn add(&mut self, other: &Self) {
        for (family, other) in self.0.iter_mut().zip(&other.0) {
            family.any |= other.any;
            family.regions.add(&other.regions);
            let routers = family.routers.0.iter_mut().zip(&*other.routers.0);
            routers.for_each(|(own, more)| *own |= more);
        }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        !self.0[0].any && !self.0[1].any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, length: u8) -> Prefix {
        Prefix::new(address(text), length)
    }

    fn address(text: &str) -> Address {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    #[test]
    fn destinations_of_a_changed_route_are_concerned_and_no_others() {
        let cases = [
            ("203.0.113.0", 24, "203.0.113.9", "203.0.112.9"),
            ("203.0.113.64", 26, "203.0.113.9", "203.0.114.9"),
            ("198.18.0.0", 15, "198.19.255.1", "198.20.0.1"),
            ("10.0.0.0", 8, "10.200.7.1", "11.0.0.1"),
            ("2001:db8:7::", 48, "2001:db8:7:9::1", "2001:db8:8::1"),
            ("2001:db8::", 32, "2001:db8:7:9::1", "2001:db9::1"),
        ];
        for (network, length, inside, outside) in cases {
            let mut changed = RouteChanges::default();
            assert!(changed.is_empty());
            changed.mark(3, prefix(network, length));
            assert!(!changed.is_empty());
            assert!(changed.may_affect(3, address(inside)), "{network}/{length}");
            assert!(!changed.may_affect(3, address(outside)), "{network}/{length}");
            assert!(!changed.may_affect(4, address(inside)), "{network}/{length}");
            let mut sum = RouteChanges::default();
            sum.add(&changed);
            assert!(sum.may_affect(3, address(inside)) && !sum.is_empty());
        }
    }

    #[test]
    fn default_route_concerns_all_of_its_router_and_family() {
        let mut changed = RouteChanges::default();
        changed.mark(3, prefix("0.0.0.0", 0));
        assert!(changed.may_affect(3, address("8.8.8.8")));
        assert!(!changed.may_affect(3, address("2001:db8::1")));
        assert!(!changed.may_affect(2, address("8.8.8.8")));
        changed.mark_all(4095);
        assert!(changed.may_affect(4095, address("2001:db8::1")));
        assert!(!changed.may_affect(4094, address("2001:db8::1")));
    }
}
