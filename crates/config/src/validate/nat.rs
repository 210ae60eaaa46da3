//! Validation of pools in relation to each other and to interfaces.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Check;
use super::routers::of_router;
use crate::config::{Interface, Pool, RouterIndex, Timeouts};
use crate::problem::{Problem, RouterProblem};
use crate::read::place;
use crate::schema;
use crate::value::AddressRange;

/// Maximum number of addresses per pool. Each address needs a port bitmap.
const MAX_ADDRESSES: u64 = 1 << 20;

/// Maximum number of pools. Each pool has a meter for its limits. A removed pool keeps its meter until its last session
/// ends.
const MAX_POOLS: usize = 512;

/// Maximum number of entries in the tables of the translation.
const MAX_ENTRIES: u32 = 1 << 24;

/// Maximum number of packets that the data plane queues, for example for address resolution.
const MAX_PARKED: u32 = 1 << 16;

/// Linux's default range of ephemeral ports.
const HOST_PORTS: (u16, u16) = (32_768, 60_999);

impl Check<'_> {
    pub(super) fn pools(&mut self, interfaces: &[Interface], inherited: &Timeouts) -> Vec<Pool> {
        let document = self.document;
        let (mut pools, mut routers) = (Vec::new(), Vec::new());
        self.session_limits(place!["nat", "limits"], &document.nat.limits);
        self.in_range(
            place!["nat", "spare-addresses"],
            "a number of addresses",
            u64::from(document.nat.spare_addresses),
            0..=MAX_ADDRESSES,
        );
        let nat = &document.nat;
        self.in_range(
            place!["nat", "subscriber-prefix"],
            "a prefix length",
            nat.subscriber_prefix,
            8..=32,
        );
        for (key, description, value, min) in [
            ("subscribers", "a number of subscribers", nat.subscribers, 1),
            ("port-blocks", "a number of blocks", nat.port_blocks, 1),
            ("quarantined-ports", "a number of ports", nat.quarantined_ports, 0),
        ] {
            self.in_range(place!["nat", key], description, value, min..=MAX_ENTRIES);
        }
        self.in_range(
            place!["nat", "unsolicited-syns"],
            "a number of packets",
            nat.unsolicited_syns,
            0..=MAX_PARKED,
        );
        let (count, max) = (document.nat.pools.len(), MAX_POOLS);
        self.in_range(place!["nat", "pools"], "a number of pools", count, 0..=max);
        for (index, (name, written)) in document.nat.pools.iter().enumerate() {
            let at = place!["nat", "pools", name];
            self.name(at, name);
            if written.addresses.is_empty() {
                self.report(at, Problem::EmptyPool(name.clone()));
            }
            let count = written.addresses.iter().map(AddressRange::count).sum();
            let at = place!["nat", "pools", name, "addresses"];
            self.in_range(at, "a number of addresses", count, 0..=MAX_ADDRESSES);
            let router = self.pool_router(name);
            routers.push(router);
            for (k, &range) in written.addresses.iter().enumerate() {
                self.pool_range(name, k, range);
                self.pool_beside_interfaces((name, router), k, range, interfaces);
                self.pool_beside_pools((index, &routers), name, k, range);
            }
            let of_sites = self.site_pools.contains_key(name.as_str());
            if !of_sites && !self.scopes().iter().any(|scope| scope.names(name)) {
                self.advise(place!["nat", "pools", name], Problem::UnusedPool(name.clone()));
            }
            pools.extend(self.pool(name, written, inherited).map(|pool| Pool { router, ..pool }));
        }
        pools
    }

    fn pool_range(&mut self, pool: &str, k: usize, range: AddressRange) {
        let at = place!["nat", "pools", pool, "addresses", k];
        for end in [range.first(), range.last()] {
            let Some(reason) = self.unusable(IpAddr::V4(end)) else {
                continue;
            };
            self.report(
                at,
                Problem::UnusableAddress {
                    address: IpAddr::V4(end),
                    reason,
                },
            );
            break;
        }
    }

    /// Check a pool against the interfaces. A pool may contain the address of its rules' output interface, because the
    /// gateway opens no connections from this address. If a pool contained an address of another interface, packets of
    /// hosts to the gateway would match the pool.
    fn pool_beside_interfaces(
        &mut self,
        (pool, router): (&str, RouterIndex),
        k: usize,
        range: AddressRange,
        interfaces: &[Interface],
    ) {
        let at = place!["nat", "pools", pool, "addresses", k];
        let scopes = self.scopes();
        for (_, interface) in of_router(interfaces, router) {
            let mut rules = scopes.iter().flat_map(|scope| scope.source);
            let leads_out = self.site_pools.contains_key(pool)
                || rules.any(|rule| rule.pool == pool && rule.out.as_ref().is_none_or(|out| *out == interface.name));
            for own in &interface.addresses {
                let (IpAddr::V4(address), IpNet::V4(net)) = (own.address(), own.net()) else {
                    continue;
                };
                let interface = interface.name.clone();
                if range.contains(address) && !leads_out {
                    let pool = pool.to_owned();
                    self.report(
                        at,
                        Problem::PoolHoldsInsideAddress {
                            address,
                            pool,
                            interface: interface.clone(),
                        },
                    );
                }
                // A source rule with `local` translates the host stack's connections to ports of the pool.
                let mut rules = scopes.iter().flat_map(|scope| scope.source);
                let of_pool = rules.any(|rule| {
                    let from = rule.from.ipv4();
                    rule.local && rule.pool == pool && from.is_some_and(|from| from.contains(&address))
                });
                if range.contains(address) && leads_out && !of_pool && self.allocates_host_ports(pool, router) {
                    let pool = pool.to_owned();
                    self.advise(at, RouterProblem::PortsOfHost { address, pool }.into());
                }
                // RFC 3021: a /31 has neither a network nor a broadcast address.
                let special = [net.network(), net.broadcast()];
                if let Some(&address) = special
                    .iter()
                    .find(|end| net.prefix_len() < 31 && range.contains(**end))
                {
                    self.report(
                        at,
                        Problem::PoolHoldsBroadcast {
                            address,
                            pool: pool.to_owned(),
                            interface,
                        },
                    );
                }
            }
        }
    }

    /// Whether the router has a host stack, and a pool allocates ports in the ephemeral range of that host stack.
    fn allocates_host_ports(&self, pool: &str, router: RouterIndex) -> bool {
        let name = self.numbering.routers.names().nth(router.into()).flatten();
        let router = name.and_then(|name| self.document.routers.get(name));
        let Some(pool) = self
            .document
            .nat
            .pools
            .get(pool)
            .filter(|_| router.is_some_and(|router| router.daemon))
        else {
            return false;
        };
        let free = pool.ports.without(&pool.reserved_ports);
        free.iter()
            .any(|range_ports| range_ports.first() <= HOST_PORTS.1 && HOST_PORTS.0 <= range_ports.last())
    }

    /// Check that pools with common addresses belong to the same router and have different ports.
    fn pool_beside_pools(
        &mut self,
        (index, routers): (usize, &[RouterIndex]),
        pool: &str,
        k: usize,
        range: AddressRange,
    ) {
        let document = self.document;
        let Some(written) = document.nat.pools.get(pool) else {
            return;
        };
        let earlier = document
            .nat
            .pools
            .iter()
            .zip(routers)
            .take(index)
            .filter(|((_, other), router)| Some(*router) == routers.get(index) && ports_overlap(other, written));
        let others =
            earlier.flat_map(|((name, other), _)| other.addresses.iter().map(move |range| (name.as_str(), range)));
        let own = written.addresses.iter().take(k).map(|range| (pool, range));
        let found = others
            .chain(own)
            .find_map(|(name, other)| Some((name.to_owned(), range.overlap(other)?)));
        if let Some((other, overlap)) = found {
            let at = place!["nat", "pools", pool, "addresses", k];
            self.report(at, Problem::PoolsOverlap { range, other, overlap });
        }
    }
}

/// Whether the ranges from the lowest to the highest port of two pools overlap. The whole ranges are compared, because
/// the port allocations of a pool are stored as one range.
fn ports_overlap(one: &schema::Pool, other: &schema::Pool) -> bool {
    let hulls = one.ports.hull().zip(other.ports.hull());
    hulls.is_some_and(|(one, other)| one.overlap(&other).is_some())
}
