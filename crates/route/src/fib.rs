//! The forwarding table of all virtual routers: both families, changed route by route while workers look up.

use std::sync::Arc;

use sluice_table::prefix::{MAX_ROUTERS, Match, PrefixError, PrefixReader, PrefixTable, Quiescence, RouterIndex};

use crate::next_hop::NextHopError;
use crate::{Address, Generations, HopSet, NextHop, NextHopKeeper, Prefix, RouteSet};

/// Why a change of routes is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// No next hop is left.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// The prefix table can't take it.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// What [`Fib::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Routes that are new.
    pub added: usize,
    /// Routes that lead elsewhere now.
    pub changed: usize,
    /// Routes that are gone.
    pub removed: usize,
}

/// A router's change, with a use taken of each next hop that it needs.
struct Prepared {
    ready: Vec<(Prefix, u32)>,
    gone: Vec<Prefix>,
}

/// The forwarding table of all virtual routers, on the control thread.
#[derive(Debug)]
pub struct Fib {
    v4: PrefixTable<u32>,
    v6: PrefixTable<u128>,
    generations: Arc<Generations>,
}

/// The same, on a worker. Values are indexes into [`crate::NextHops`].
#[derive(Clone, Debug)]
pub struct FibReader {
    /// IPv4 routes.
    pub v4: PrefixReader<u32>,
    /// IPv6 routes.
    pub v6: PrefixReader<u128>,
    /// Generations of the routes.
    pub generations: Arc<Generations>,
}

impl FibReader {
    /// The longest route of a router to an address.
    #[inline]
    pub fn find(&self, router: RouterIndex, address: Address) -> Option<Match> {
        match address {
            Address::V4(bits) => self.v4.find(router, bits),
            Address::V6(bits) => self.v6.find(router, bits),
        }
    }
}

impl Fib {
    /// No routes yet.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self {
            v4: PrefixTable::new(quiescence.clone()),
            v6: PrefixTable::new(quiescence),
            generations: Arc::new(Generations::new()),
        }
    }

    /// A view for workers.
    pub fn reader(&self) -> FibReader {
        FibReader {
            v4: self.v4.reader(),
            v6: self.v6.reader(),
            generations: self.generations.clone(),
        }
    }

    /// Number of routes of a router.
    pub fn len(&self, router: RouterIndex) -> usize {
        self.v4.len(router) + self.v6.len(router)
    }

    /// Whether a router has no routes.
    pub fn is_empty(&self, router: RouterIndex) -> bool {
        self.len(router) == 0
    }

    /// Bytes that lookups use.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// Bytes of the lists of routes that only the control thread reads.
    pub fn list_bytes(&self) -> usize {
        self.v4.list_bytes() + self.v6.list_bytes()
    }

    /// All routes of a router with their next hop's index, IPv4 first, by prefix.
    pub fn iter(&self, router: RouterIndex) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        let v4 = self
            .v4
            .iter(router)
            .map(|(bits, length, index)| (Prefix::new(Address::V4(bits), length), index));
        let v6 = self
            .v6
            .iter(router)
            .map(|(bits, length, index)| (Prefix::new(Address::V6(bits), length), index));
        v4.chain(v6)
    }

    /// Next hop's index of exactly this route.
    pub fn get(&self, router: RouterIndex, prefix: Prefix) -> Option<u32> {
        match prefix.address() {
            Address::V4(bits) => self.v4.get(router, bits, prefix.length()),
            Address::V6(bits) => self.v6.get(router, bits, prefix.length()),
        }
    }

    /// Add a route or lead it elsewhere. True where something changed.
    pub fn insert(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        next_hop: NextHop,
        keeper: &mut NextHopKeeper,
    ) -> Result<bool, FibError> {
        let index = keeper.take(next_hop)?;
        self.set(router, prefix, index, keeper)
    }

    /// Add a route to a set of next hops, or lead it there. True where something changed.
    pub fn insert_set(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        set: &HopSet,
        keeper: &mut NextHopKeeper,
    ) -> Result<bool, FibError> {
        let index = keeper.take_set(set)?;
        self.set(router, prefix, index, keeper)
    }

    /// Lead a route to a next hop whose use is handed over.
    fn set(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        index: u32,
        keeper: &mut NextHopKeeper,
    ) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.insert(router, bits, prefix.length(), index),
            Address::V6(bits) => self.v6.insert(router, bits, prefix.length(), index),
        };
        let old = old.inspect_err(|_| keeper.give(index))?;
        if let Some(old) = old {
            keeper.give(old);
        }
        if old != Some(index) {
            self.generations.raise(router, prefix);
        }
        Ok(old != Some(index))
    }

    /// Remove a route. True where there was one.
    pub fn remove(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        keeper: &mut NextHopKeeper,
    ) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.remove(router, bits, prefix.length())?,
            Address::V6(bits) => self.v6.remove(router, bits, prefix.length())?,
        };
        let Some(old) = old else { return Ok(false) };
        keeper.give(old);
        self.generations.raise(router, prefix);
        Ok(true)
    }

    /// Remove all routes of a router.
    pub fn clear(&mut self, router: RouterIndex, keeper: &mut NextHopKeeper) {
        if self.is_empty(router) {
            return;
        }
        self.v4.clear(router, |index| keeper.give(index));
        self.v6.clear(router, |index| keeper.give(index));
        self.generations.raise_all(router);
    }

    /// Make the routes of a router those of `wanted` by their difference: what is new first, so that nothing that stays
    /// routable is unroutable in between. Nothing changes where next hops run out.
    pub fn apply(
        &mut self,
        router: RouterIndex,
        wanted: &RouteSet,
        keeper: &mut NextHopKeeper,
    ) -> Result<Applied, FibError> {
        let prepared = self.prepare(router, wanted, keeper)?;
        self.carry_out(router, prepared, keeper)
    }

    /// The same of all routers, `wanted` by router; those beyond have no routes then. Nothing changes in any of them
    /// where next hops run out.
    pub fn apply_all(&mut self, wanted: &[RouteSet], keeper: &mut NextHopKeeper) -> Result<Applied, FibError> {
        let mut all = Vec::with_capacity(wanted.len());
        for (router, wanted) in (0..).zip(wanted) {
            match self.prepare(router, wanted, keeper) {
                Ok(prepared) => all.push((router, prepared)),
                Err(error) => {
                    let taken = all.into_iter().flat_map(|(_, prepared)| prepared.ready);
                    taken.for_each(|(_, index)| keeper.give(index));
                    return Err(error);
                }
            }
        }
        let mut applied = Applied::default();
        for (router, prepared) in all {
            let of_router = self.carry_out(router, prepared, keeper)?;
            applied.added += of_router.added;
            applied.changed += of_router.changed;
            applied.removed += of_router.removed;
        }
        for router in wanted.len()..MAX_ROUTERS {
            applied.removed += self.len(router as RouterIndex);
            self.clear(router as RouterIndex, keeper);
        }
        Ok(applied)
    }

    fn prepare(
        &self,
        router: RouterIndex,
        wanted: &RouteSet,
        keeper: &mut NextHopKeeper,
    ) -> Result<Prepared, FibError> {
        let mut ready = Vec::new();
        for (prefix, next_hop) in wanted.iter() {
            match keeper.take(next_hop) {
                Ok(index) if self.get(router, prefix) == Some(index) => keeper.give(index),
                Ok(index) => ready.push((prefix, index)),
                Err(error) => {
                    ready.into_iter().for_each(|(_, index)| keeper.give(index));
                    return Err(error.into());
                }
            }
        }
        let known = self.iter(router).map(|(prefix, _)| prefix);
        let gone = known.filter(|prefix| !wanted.contains(*prefix)).collect();
        Ok(Prepared { ready, gone })
    }

    fn carry_out(
        &mut self,
        router: RouterIndex,
        prepared: Prepared,
        keeper: &mut NextHopKeeper,
    ) -> Result<Applied, FibError> {
        let mut applied = Applied::default();
        for (prefix, index) in prepared.ready {
            let known = self.get(router, prefix).is_some();
            self.set(router, prefix, index, keeper)?;
            *(if known {
                &mut applied.changed
            } else {
                &mut applied.added
            }) += 1;
        }
        for prefix in prepared.gone {
            self.remove(router, prefix, keeper)?;
            applied.removed += 1;
        }
        Ok(applied)
    }

    /// Use memory again that no worker reads any more. Changes do it too; call it when they stop.
    pub fn reclaim(&mut self) {
        self.v4.reclaim();
        self.v6.reclaim();
    }
}
