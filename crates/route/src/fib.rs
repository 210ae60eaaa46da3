//! The forwarding table of one virtual router: both families, changed route by route while workers look up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_table::prefix::{Match, PrefixError, PrefixReader, PrefixTable, Quiescence};

use crate::next_hop::NextHopError;
use crate::{Address, NextHop, NextHopKeeper, Prefix, RouteSet};

/// Groups of prefixes that share a generation, per family. Groups beyond it share by hash, which makes sessions
/// decide again too often, never too seldom.
const GROUPS: usize = 1024;

/// Generations of routes: one over all, and one per group of destinations (/16 in IPv4, /32 in IPv6). A session
/// whose group's generation is not the one it was decided under is decided again.
#[derive(Debug)]
pub struct Generations {
    all: AtomicU32,
    groups4: Box<[AtomicU32]>,
    groups6: Box<[AtomicU32]>,
}

impl Generations {
    fn new() -> Self {
        let groups = || (0..GROUPS).map(|_| AtomicU32::new(0)).collect();
        Self {
            all: AtomicU32::new(0),
            groups4: groups(),
            groups6: groups(),
        }
    }

    /// Raised by every change of the router's routes: while it stands still, so do the groups.
    #[inline(always)]
    pub fn all(&self) -> u32 {
        self.all.load(Ordering::Acquire)
    }

    /// Generation of the group of an IPv4 destination.
    #[inline(always)]
    pub fn group4(&self, destination: u32) -> u32 {
        self.groups4
            .get(Self::place4(destination))
            .map_or(0, |group| group.load(Ordering::Acquire))
    }

    /// Generation of the group of an IPv6 destination.
    #[inline(always)]
    pub fn group6(&self, destination: u128) -> u32 {
        self.groups6
            .get(Self::place6(destination))
            .map_or(0, |group| group.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn place4(destination: u32) -> usize {
        (destination >> 16) as usize % GROUPS
    }

    #[inline(always)]
    fn place6(destination: u128) -> usize {
        let high = (destination >> 96) as u32;
        (high ^ high >> 16) as usize % GROUPS
    }

    /// The groups that a changed route covers, after the change is published.
    fn raise(&self, prefix: Prefix) {
        let raise = |group: &AtomicU32| {
            group.fetch_add(1, Ordering::Release);
        };
        match prefix.address() {
            // A shorter prefix covers a power of two of groups, in a row.
            Address::V4(bits) => {
                let count = 1usize << 16u8.saturating_sub(prefix.length());
                if count >= GROUPS {
                    self.groups4.iter().for_each(raise);
                } else {
                    self.groups4.iter().skip(Self::place4(bits)).take(count).for_each(raise);
                }
            }
            Address::V6(_) if prefix.length() < 32 => self.groups6.iter().for_each(raise),
            Address::V6(bits) => self.groups6.iter().skip(Self::place6(bits)).take(1).for_each(raise),
        }
        self.all.fetch_add(1, Ordering::Release);
    }
}

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

/// The forwarding table of a virtual router, on the control thread.
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
    /// The longest route to an address.
    #[inline]
    pub fn find(&self, address: Address) -> Option<Match> {
        match address {
            Address::V4(bits) => self.v4.find(bits),
            Address::V6(bits) => self.v6.find(bits),
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

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that lookups use.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// All routes with their next hop's index, IPv4 first, by prefix.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        let v4 = self
            .v4
            .iter()
            .map(|(bits, length, index)| (Prefix::new(Address::V4(bits), length), index));
        let v6 = self
            .v6
            .iter()
            .map(|(bits, length, index)| (Prefix::new(Address::V6(bits), length), index));
        v4.chain(v6)
    }

    /// Next hop's index of exactly this route.
    pub fn get(&self, prefix: Prefix) -> Option<u32> {
        match prefix.address() {
            Address::V4(bits) => self.v4.get(bits, prefix.length()),
            Address::V6(bits) => self.v6.get(bits, prefix.length()),
        }
    }

    /// Add a route or lead it elsewhere. True where something changed.
    pub fn insert(&mut self, prefix: Prefix, next_hop: NextHop, keeper: &mut NextHopKeeper) -> Result<bool, FibError> {
        let index = keeper.take(next_hop)?;
        self.set(prefix, index, keeper)
    }

    /// Lead a route to a next hop whose use is handed over.
    fn set(&mut self, prefix: Prefix, index: u32, keeper: &mut NextHopKeeper) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.insert(bits, prefix.length(), index),
            Address::V6(bits) => self.v6.insert(bits, prefix.length(), index),
        };
        let old = old.inspect_err(|_| keeper.give(index))?;
        if let Some(old) = old {
            keeper.give(old);
        }
        if old != Some(index) {
            self.generations.raise(prefix);
        }
        Ok(old != Some(index))
    }

    /// Remove a route. True where there was one.
    pub fn remove(&mut self, prefix: Prefix, keeper: &mut NextHopKeeper) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.remove(bits, prefix.length())?,
            Address::V6(bits) => self.v6.remove(bits, prefix.length())?,
        };
        let Some(old) = old else { return Ok(false) };
        keeper.give(old);
        self.generations.raise(prefix);
        Ok(true)
    }

    /// Make the routes those of `wanted` by their difference: what is new first, so that nothing that stays
    /// routable is unroutable in between. Nothing changes where next hops run out.
    pub fn apply(&mut self, wanted: &RouteSet, keeper: &mut NextHopKeeper) -> Result<Applied, FibError> {
        let mut ready = Vec::new();
        for (prefix, next_hop) in wanted.iter() {
            match keeper.take(next_hop) {
                Ok(index) if self.get(prefix) == Some(index) => keeper.give(index),
                Ok(index) => ready.push((prefix, index)),
                Err(error) => {
                    ready.into_iter().for_each(|(_, index)| keeper.give(index));
                    return Err(error.into());
                }
            }
        }
        let gone: Vec<_> = self
            .iter()
            .map(|(prefix, _)| prefix)
            .filter(|prefix| !wanted.contains(*prefix))
            .collect();
        let mut applied = Applied::default();
        for (prefix, index) in ready {
            let known = self.get(prefix).is_some();
            self.set(prefix, index, keeper)?;
            *(if known {
                &mut applied.changed
            } else {
                &mut applied.added
            }) += 1;
        }
        for prefix in gone {
            self.remove(prefix, keeper)?;
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
