//! All pools of a family.

use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use sluice_wire::Context;

use super::check::{PoolError, check};
use super::home::unit;
use super::{Home, Pool, PoolIndex, ValidPool};
use crate::Address;
use crate::behaviour::PortSelection;
use crate::ports::{Borrowed, SharedOf, SharedPorts};
use crate::shard::Shards;

/// Number of address ranges of a virtual router among which [`Pools::window`] selects.
const MAX_RANGES: usize = 8;

/// A range of outside addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<A> {
    addresses: (A, A),
    ports: (u16, u16),
    per_port: u64,
}

impl<A: Address> Window<A> {
    /// Port unit of an outside port; `None` if the port is not in this range.
    #[inline(always)]
    pub fn unit_of(&self, address: A, port: u16) -> Option<u32> {
        let (first, last) = self.addresses;
        let is_inside = (address.number() >= first.number())
            & (address.number() <= last.number())
            & (port >= self.ports.0)
            & (port <= self.ports.1);
        is_inside.then(|| unit(port, self.per_port))
    }
}

/// All pools of an address family. The pools are validated against each other.
#[derive(Clone, Debug)]
pub struct Pools<A> {
    pools: Box<[ValidPool<A>]>,
    /// Every address range of every pool, sorted by virtual router and first address: router, first, last, pool.
    owners: Box<[(Context, A, A, PoolIndex)]>,
    /// Whether at least one pool preserves ports.
    preserves_ports: bool,
    /// Number of port blocks that shards have borrowed.
    borrowed: Arc<Borrowed>,
}

/// Pools are compared by their configuration, not by their allocations.
impl<A: Address> PartialEq for Pools<A> {
    fn eq(&self, other: &Self) -> bool {
        self.pools == other.pools && self.owners == other.owners
    }
}

impl<A: Address> Eq for Pools<A> {}

impl<A: Address> Default for Pools<A> {
    fn default() -> Self {
        Self {
            pools: Box::default(),
            owners: Box::default(),
            preserves_ports: false,
            borrowed: Arc::default(),
        }
    }
}

impl<A: Address> Pools<A> {
    /// Validates the pools individually and against each other. Two pools may share an address only with disjoint port
    /// ranges.
    pub fn new(pools: &[Pool<A>]) -> Result<Self, PoolError> {
        Self::placed(&pools.iter().map(Some).collect::<Vec<_>>())
    }

    /// Validates pools at given indexes; `None` leaves an index unused. A pool must keep its index as long as sessions
    /// may refer to it.
    pub fn placed(pools: &[Option<&Pool<A>>]) -> Result<Self, PoolError> {
        if pools.len() > usize::from(PoolIndex::MAX) + 1 {
            return Err(PoolError::TooMany { count: pools.len() });
        }
        let mut valid = Vec::with_capacity(pools.len());
        let mut owners = Vec::new();
        for (index, pool) in pools.iter().enumerate() {
            let index = index as PoolIndex;
            let Some(pool) = pool else {
                valid.push(ValidPool::none());
                continue;
            };
            valid.push(check(index, pool)?);
            let context = pool.context;
            owners.extend(
                pool.addresses
                    .iter()
                    .map(|&(first, last)| (context, first, last, index)),
            );
        }
        owners.sort_unstable();
        for (k, &(context, first, last, pool)) in owners.iter().enumerate() {
            let near = |range: &&(Context, A, A, PoolIndex)| range.0 == context && range.1 <= last;
            for &(_, from, _, other) in owners[k + 1..].iter().take_while(near) {
                let (a, b) = (valid[usize::from(pool)].ports, valid[usize::from(other)].ports);
                if a.0 <= b.1 && b.0 <= a.1 {
                    return Err(PoolError::Overlap {
                        pool,
                        other,
                        address: from.max(first).display(),
                    });
                }
            }
        }
        Ok(Self {
            preserves_ports: valid.iter().any(|pool| pool.selection == PortSelection::Preserve),
            pools: valid.into(),
            owners: owners.into(),
            borrowed: Arc::default(),
        })
    }

    /// Number of pool indexes, including unused ones.
    pub fn len(&self) -> usize {
        self.pools.len()
    }

    /// Whether there are no pools.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Pool with this index.
    #[inline(always)]
    pub fn get(&self, index: PoolIndex) -> Option<&ValidPool<A>> {
        self.pools.get(usize::from(index))
    }

    /// All pools in order.
    pub fn iter(&self) -> impl Iterator<Item = (PoolIndex, &ValidPool<A>)> {
        self.pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (index as PoolIndex, pool))
    }

    /// A pool of a virtual router that contains the address. A packet to an address of a pool is unsolicited if it
    /// matches neither a session nor a rule.
    #[inline]
    pub fn owner(&self, context: Context, address: A) -> Option<PoolIndex> {
        self.owners_of(context, address).next()
    }

    /// A pool of a virtual router that contains the address and can allocate a port from `first` to `last`.
    pub fn includes(&self, context: Context, address: A, first: u16, last: u16) -> Option<PoolIndex> {
        self.pool_within(context, (address, address), first, last)
            .map(|(index, _)| index)
    }

    /// A pool of a virtual router that contains an address of the range and can allocate a port from `first` to `last`.
    /// Returns the pool with this address.
    pub fn pool_within(&self, context: Context, addresses: (A, A), first: u16, last: u16) -> Option<(PoolIndex, A)> {
        let includes = |pool: PoolIndex| self.get(pool).is_some_and(|pool| pool.has_port_within(first, last));
        let owners = self.ranges(context, addresses.1).iter();
        let owner = owners
            .filter(|range| addresses.0 <= range.2)
            .find(|range| includes(range.3))?;
        Some((owner.3, owner.1.max(addresses.0)))
    }

    /// Owner of an outside port; `None` if no pool allocates the port.
    #[inline]
    pub fn home_of_allocated(&self, shards: Shards, context: Context, address: A, port: u16) -> Option<Home<A>> {
        self.owners_of(context, address)
            .map(|index| &self.pools[usize::from(index)])
            .find(|pool| pool.has_port(port))
            .map(|pool| match self.borrowed.load(Ordering::Relaxed) {
                0 => pool.home(shards, address, port),
                _ => pool.current_home(shards, address, port),
            })
    }

    /// The largest range of outside addresses of a virtual router. `None` if [`Window::unit_of`] would not give each port
    /// of this range its unit, or if shards have borrowed blocks.
    pub fn window(&self, shards: Shards, context: Context) -> Option<Window<A>> {
        if self.borrowed.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let first = self.owners.partition_point(|range| range.0 < context);
        let ranges = self.owners[first..].iter().take_while(|range| range.0 == context);
        let (_, first, last, pool) = *ranges
            .take(MAX_RANGES)
            .max_by_key(|range| range.2.number() - range.1.number())?;
        let pool = self.get(pool).filter(|pool| pool.spreads_plainly(shards))?;
        Some(Window {
            addresses: (first, last),
            ports: pool.ports(),
            per_port: pool.per_port(),
        })
    }

    /// Creates the sets of shared ports for all pools and `shards`. An address that `before` also contains keeps its
    /// existing set. Shards migrate to the new pools one after another, and a block must never have two owners.
    pub fn share(&mut self, before: Option<&Self>, shards: Shards) {
        let mut known = HashMap::new();
        if let Some(before) = before {
            self.borrowed = before.borrowed.clone();
            known.extend(before.all_shared());
        }
        let borrowed = self.borrowed.clone();
        let of_pools = self.owners.iter().map(|&(context, _, _, pool)| (pool, context));
        for (pool, context) in of_pools.collect::<HashMap<_, _>>() {
            let Some(pool) = self.pools.get_mut(usize::from(pool)) else {
                continue;
            };
            let share = |place| {
                let new = || Arc::new(SharedPorts::new(borrowed.clone()));
                known.entry((context, pool.address(place))).or_insert_with(new).clone()
            };
            let shared = pool.shares(shards).then(|| (0..pool.count).map(share).collect());
            pool.shared = SharedOf(shared);
        }
    }

    /// All shared port sets, by virtual router and address.
    fn all_shared(&self) -> impl Iterator<Item = ((Context, A), Arc<SharedPorts>)> {
        self.owners.iter().flat_map(|&(context, first, last, pool)| {
            let pool = self.get(pool);
            let places = pool.and_then(|pool| Some((pool.index_of(first)?, pool.index_of(last)?)));
            let (from, to) = places.map_or((1, 0), |places| places);
            let of_pool = move |place| Some((pool?.address(place), pool?.shared(place)?.clone()));
            (from..=to)
                .filter_map(of_pool)
                .map(move |(address, shared)| ((context, address), shared))
        })
    }

    /// Number of 64-port blocks that shards have borrowed from the shards to which the distribution assigns them.
    pub fn borrowed_blocks(&self) -> u32 {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Whether an outside port belongs to a pool with port preservation.
    pub fn preserves(&self, context: Context, address: A, port: u16) -> bool {
        self.preserves_ports && {
            let mut owners = self
                .owners_of(context, address)
                .map(|index| &self.pools[usize::from(index)]);
            let preserves = |pool: &ValidPool<A>| pool.selection == PortSelection::Preserve;
            owners.find(|pool| pool.has_port(port)).is_some_and(preserves)
        }
    }

    /// The address ranges of a virtual router that start at or below the given address.
    #[inline]
    fn ranges(&self, context: Context, address: A) -> &[(Context, A, A, PoolIndex)] {
        let before = self
            .owners
            .partition_point(|range| (range.0, range.1) <= (context, address));
        let ranges = self.owners.get(..before).unwrap_or_default();
        // Fast path for processes with one virtual router.
        match ranges.first() {
            Some(first) if first.0 != context => {
                let others = ranges.partition_point(|range| range.0 < context);
                ranges.get(others..).unwrap_or_default()
            }
            _ => ranges,
        }
    }

    /// Pools that contain an address. Several pools may share an address with different ports.
    #[inline]
    fn owners_of(&self, context: Context, address: A) -> impl Iterator<Item = PoolIndex> {
        // Address ranges of two pools can overlap if their ports are disjoint. An earlier range may then extend beyond
        // a later range.
        let owners = self.ranges(context, address).iter().rev();
        owners.filter(move |range| address <= range.2).map(|range| range.3)
    }
}
