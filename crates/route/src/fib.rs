//! FIB of all virtual routers for both address families. The control thread changes individual routes while workers
//! look up addresses.

use std::sync::Arc;

use sluice_table::changes::Accumulate;
use sluice_table::prefix::{LongestMatch, PrefixError, PrefixReader, PrefixTable, Quiescence, RouterIndex};

use crate::next_hop::NextHopError;
use crate::{Address, HopSet, NextHop, NextHopWriter, Prefix, RouteChanges};

/// Why a change of a route is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The next-hop table is full.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// The prefix table can't store the route.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// The FIB of all virtual routers, as owned by the control thread.
#[derive(Debug)]
pub struct Fib {
    v4: PrefixTable<u32>,
    v6: PrefixTable<u128>,
    changed: RouteChanges,
}

/// A worker's access to the FIB. The values of routes are indexes into [`crate::NextHops`].
#[derive(Clone, Debug)]
pub struct FibReader {
    /// IPv4 routes.
    pub v4: PrefixReader<u32>,
    /// IPv6 routes.
    pub v6: PrefixReader<u128>,
}

impl FibReader {
    /// The longest-prefix match for an address in the routes of a router.
    #[inline]
    pub fn find(&self, router: RouterIndex, address: Address) -> Option<LongestMatch> {
        match address {
            Address::V4(bits) => self.v4.find(router, bits),
            Address::V6(bits) => self.v6.find(router, bits),
        }
    }
}

impl Fib {
    /// Creates an empty FIB.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self {
            v4: PrefixTable::new(quiescence.clone()),
            v6: PrefixTable::new(quiescence),
            changed: RouteChanges::default(),
        }
    }

    /// Creates a worker's access to the FIB.
    pub fn reader(&self) -> FibReader {
        FibReader {
            v4: self.v4.reader(),
            v6: self.v6.reader(),
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

    /// Memory size in bytes of the lookup structures.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }

    /// Memory size in bytes of the route lists, which only the control thread reads.
    pub fn list_bytes(&self) -> usize {
        self.v4.list_bytes() + self.v6.list_bytes()
    }

    /// All routes of a router, each with its next-hop index: IPv4 routes, then IPv6 routes, each sorted by prefix.
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

    /// Next-hop index of the route with exactly this prefix.
    pub fn get(&self, router: RouterIndex, prefix: Prefix) -> Option<u32> {
        match prefix.address() {
            Address::V4(bits) => self.v4.get(router, bits, prefix.length()),
            Address::V6(bits) => self.v6.get(router, bits, prefix.length()),
        }
    }

    /// Adds or changes a route. Returns whether the FIB has changed.
    pub fn insert(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        next_hop: NextHop,
        writer: &mut NextHopWriter,
    ) -> Result<bool, FibError> {
        let index = writer.acquire(next_hop)?;
        self.set(router, prefix, index, writer)
    }

    /// Adds or changes a route that leads to a set of next hops. Returns whether the FIB has changed.
    pub fn insert_set(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        set: &HopSet,
        writer: &mut NextHopWriter,
    ) -> Result<bool, FibError> {
        let index = writer.acquire_set(set)?;
        self.set(router, prefix, index, writer)
    }

    /// Sets the next-hop index of a route. The route takes over the caller's reference to the next hop.
    fn set(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        index: u32,
        writer: &mut NextHopWriter,
    ) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.insert(router, bits, prefix.length(), index),
            Address::V6(bits) => self.v6.insert(router, bits, prefix.length(), index),
        };
        let old = old.inspect_err(|_| writer.release(index))?;
        if let Some(old) = old {
            writer.release(old);
        }
        if old != Some(index) {
            self.changed.mark(router, prefix);
        }
        Ok(old != Some(index))
    }

    /// Removes a route. Returns whether the route existed.
    pub fn remove(
        &mut self,
        router: RouterIndex,
        prefix: Prefix,
        writer: &mut NextHopWriter,
    ) -> Result<bool, FibError> {
        let old = match prefix.address() {
            Address::V4(bits) => self.v4.remove(router, bits, prefix.length())?,
            Address::V6(bits) => self.v6.remove(router, bits, prefix.length())?,
        };
        let Some(old) = old else { return Ok(false) };
        writer.release(old);
        self.changed.mark(router, prefix);
        Ok(true)
    }

    /// Removes all routes of a router.
    pub fn clear(&mut self, router: RouterIndex, writer: &mut NextHopWriter) {
        if self.is_empty(router) {
            return;
        }
        self.v4.clear(router, |index| writer.release(index));
        self.v6.clear(router, |index| writer.release(index));
        self.changed.mark_all(router);
    }

    /// Whether a route has changed since the last [`Fib::take_changed`].
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The destinations with route changes since the last call.
    pub fn take_changed(&mut self) -> RouteChanges {
        std::mem::take(&mut self.changed)
    }

    /// Frees memory that no worker can read any longer. Each modification also frees such memory, so this call is
    /// needed only after the last modification.
    pub fn reclaim(&mut self) {
        self.v4.reclaim();
        self.v6.reclaim();
    }
}
