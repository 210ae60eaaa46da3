//! Source-based routing tables (RFC 8043, section 4; `ip rule from` in Linux). For packets from certain networks,
//! lookups search a source-based table before the table of the router.
//!
//! The table of the longest network that contains the source is searched first. If that table has no route to the
//! destination, the table of the next longest network is searched. The router's own table is searched last.

use crate::{Address, Prefix, RouterIndex};

/// Source-based tables of all routers. The networks of a router are sorted longest first and searched linearly. Table
/// numbers follow the router numbers in one number space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTables {
    by_router: Vec<Vec<(Prefix, RouterIndex)>>,
}

impl SourceTables {
    /// Creates a table for each pair of router and network. Table numbers start at `routers`.
    pub fn new(routers: usize, networks: impl IntoIterator<Item = (RouterIndex, Prefix)>) -> Self {
        let mut networks: Vec<_> = networks.into_iter().collect();
        networks.sort_unstable_by_key(|&(router, network)| (router, u8::MAX - network.length(), network));
        networks.dedup();
        let mut by_router = Vec::new();
        for (table, (router, network)) in (routers..).zip(networks) {
            let router = usize::from(router);
            if by_router.len() <= router {
                by_router.resize(router + 1, Vec::new());
            }
            by_router[router].push((network, table as RouterIndex));
        }
        Self { by_router }
    }

    /// Whether there are no tables.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.by_router.is_empty()
    }

    /// The tables of a router with their networks, longest network first.
    #[inline(always)]
    pub fn of(&self, router: RouterIndex) -> &[(Prefix, RouterIndex)] {
        self.by_router.get(usize::from(router)).map_or(&[], Vec::as_slice)
    }

    /// The table of a router for exactly this network.
    pub fn table(&self, router: RouterIndex, network: Prefix) -> Option<RouterIndex> {
        let mut tables = self.of(router).iter();
        tables.find(|(other, _)| *other == network).map(|&(_, table)| table)
    }

    /// All tables, sorted by number, each with its router, network and number.
    pub fn iter(&self) -> impl Iterator<Item = (RouterIndex, Prefix, RouterIndex)> + '_ {
        let routers = (0..).zip(&self.by_router);
        routers.flat_map(|(router, tables)| tables.iter().map(move |&(network, table)| (router, network, table)))
    }

    /// Lookup context for packets from `source` in a router.
    #[inline(always)]
    pub fn lookup(&self, router: RouterIndex, source: Address) -> Lookup<'_> {
        Lookup {
            router,
            source,
            tables: self.of(router),
        }
    }
}

/// Lookup context: router, source-based tables and source of a route lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'t> {
    router: RouterIndex,
    source: Address,
    tables: &'t [(Prefix, RouterIndex)],
}

impl Lookup<'_> {
    /// Number of the router for the lookup.
    #[inline(always)]
    pub fn router(&self) -> RouterIndex {
        self.router
    }

    /// Hash of the source host. The hash is stable across restarts, so that a host keeps its uplink.
    #[inline]
    pub fn host_hash(&self) -> u64 {
        let number = self.source.number();
        // The finaliser of SplitMix64.
        let mut hash = (number as u64 ^ (number >> 64) as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }

    /// Whether the router has no source-based tables.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.tables.is_empty()
    }

    /// The tables in search order: source-based tables with a matching network, then the router's own table.
    pub fn tables(&self) -> impl Iterator<Item = RouterIndex> + '_ {
        let by_source = self.tables.iter().filter(|(network, _)| network.contains(self.source));
        by_source.map(|&(_, table)| table).chain([self.router])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    fn network(text: &str, length: u8) -> Prefix {
        Prefix::new(address(text), length)
    }

    #[test]
    fn longest_network_of_the_source_comes_first_and_the_router_last() {
        let networks = [
            (1, network("10.0.0.0", 8)),
            (1, network("2001:db8::", 32)),
            (1, network("10.1.0.0", 16)),
            (0, network("10.1.0.0", 16)),
            (1, network("10.1.0.0", 16)),
        ];
        let tables = SourceTables::new(2, networks);
        assert_eq!(4, tables.iter().count());
        let found = |router, source: &str| -> Vec<Prefix> {
            let lookup = tables.lookup(router, address(source));
            let numbers: Vec<_> = lookup.tables().collect();
            assert_eq!(Some(&router), numbers.last());
            let named = |number| tables.iter().find(|&(_, _, table)| table == number);
            numbers
                .into_iter()
                .filter_map(named)
                .map(|(_, network, _)| network)
                .collect()
        };
        let both = vec![network("10.1.0.0", 16), network("10.0.0.0", 8)];
        assert_eq!(both, found(1, "10.1.2.3"));
        assert_eq!(vec![network("10.0.0.0", 8)], found(1, "10.2.2.3"));
        assert_eq!(vec![network("2001:db8::", 32)], found(1, "2001:db8::1"));
        assert_eq!(vec![network("10.1.0.0", 16)], found(0, "10.1.2.3"));
        assert!(found(0, "10.2.2.3").is_empty() && found(7, "10.1.2.3").is_empty());
        assert!(tables.lookup(7, address("10.1.2.3")).is_plain());
        let numbers: Vec<_> = tables.iter().map(|(_, _, table)| table).collect();
        assert_eq!(vec![2, 3, 4, 5], numbers);
    }
}
