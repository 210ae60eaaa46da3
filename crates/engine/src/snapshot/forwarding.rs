//! Forwarding state: routes and neighbours for lookups by workers.

use std::sync::Arc;

use sluice_route::neighbour::{NeighbourIndex, Neighbours};
use sluice_route::{
    Balance, FibReader, Lookup, NextHop, NextHops, Reason, RouterIndex, SourceValidation, validate_source,
};
use sluice_table::prefix::{NO_ROUTE, PrefixReader};

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::{Family, PerFamily};

/// Result of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingDecision {
    /// Send to a neighbour that has an entry in the neighbour table.
    Hop(AdjacencyIndex),
    /// Send to a neighbour that has no entry in the neighbour table.
    Unknown(UnresolvedNeighbour),
    /// Deliver to the gateway itself.
    Local,
    /// No usable route exists.
    Refused(Reason),
}

/// A worker's access to the current routes and neighbours.
#[derive(Clone, Debug)]
pub struct ForwardingState {
    /// Access to the FIB.
    pub fib: FibReader,
    /// Next hops of routes.
    pub next_hops: Arc<NextHops>,
    /// The neighbour table.
    pub neighbours: Arc<Neighbours>,
}

/// The routes of both families.
struct AllRoutes;

impl PerFamily for AllRoutes {
    type Of<F: Family> = PrefixReader<F::Number>;
}

impl ForwardingState {
    /// The value of a router's most specific route for an address, or [`NO_ROUTE`] if no route matches.
    #[inline(always)]
    pub fn route_value<F: Family>(&self, router: RouterIndex, address: F::Address) -> u32 {
        let routes = F::select::<AllRoutes>(&self.fib.v4, &self.fib.v6);
        routes.lookup(router, F::number(address)).unwrap_or(NO_ROUTE)
    }

    /// Looks up several addresses, each in the routing table of its router, and returns the values of their routes.
    #[inline(always)]
    pub fn route_values<F: Family>(&self, routers: &[RouterIndex], addresses: &[F::Address], values: &mut [u32]) {
        let mut numbers = [F::Number::default(); BURST_BUFFERS];
        let numbers = F::numbers(addresses, &mut numbers);
        let routes = F::select::<AllRoutes>(&self.fib.v4, &self.fib.v6);
        routes.lookup_batch(routers, numbers, values);
    }

    /// The route for an address: a source-based route if one matches, otherwise a route of the router.
    #[inline]
    pub fn route<F: Family>(&self, lookup: Lookup<'_>, address: F::Address) -> u32 {
        match lookup.is_plain() {
            true => self.route_value::<F>(lookup.router(), address),
            false => self.route_by_source::<F>(lookup, address),
        }
    }

    #[inline(never)]
    fn route_by_source<F: Family>(&self, lookup: Lookup<'_>, address: F::Address) -> u32 {
        let mut routes = lookup.tables().map(|table| self.route_value::<F>(table, address));
        routes.find(|&route| route != NO_ROUTE).unwrap_or(NO_ROUTE)
    }

    /// Looks up an address. If the route has several next hops, the hash of the flow or of its source address selects a
    /// next hop.
    #[inline]
    pub fn find<F: Family>(
        &self,
        lookup: Lookup<'_>,
        address: F::Address,
        flow: impl FnOnce() -> u64,
    ) -> ForwardingDecision {
        let route = self
            .next_hops
            .choose(self.route::<F>(lookup, address), |balance| match balance {
                Balance::Flow => flow(),
                Balance::Host => lookup.host_hash(),
            });
        self.destination::<F>(route, address)
    }

    /// Whether an adjacency is among the next hops of the current route to an address.
    pub fn is_offered<F: Family>(&self, lookup: Lookup<'_>, address: F::Address, hop: AdjacencyIndex) -> bool {
        let route = self.route::<F>(lookup, address);
        self.next_hops
            .members(route)
            .any(|member| self.destination::<F>(member, address) == ForwardingDecision::Hop(hop))
    }

    /// Looks up an address, restricted to next hops on one interface; `None` if the route has no next hop on that
    /// interface.
    pub fn find_by_interface<F: Family>(
        &self,
        lookup: Lookup<'_>,
        address: F::Address,
        interface: u16,
    ) -> Option<ForwardingDecision> {
        let members = self.next_hops.members(self.route::<F>(lookup, address));
        let mut destinations = members.map(|member| self.destination::<F>(member, address));
        destinations.find(|destination| match destination {
            ForwardingDecision::Hop(hop) => hop.interface() == usize::from(interface),
            ForwardingDecision::Unknown(wanted) => wanted.interface == interface,
            ForwardingDecision::Local | ForwardingDecision::Refused(_) => false,
        })
    }

    /// The forwarding decision for a next hop of the route to `address`.
    #[inline(always)]
    pub fn destination<F: Family>(&self, route: u32, address: F::Address) -> ForwardingDecision {
        match self.resolved_gateway(route) {
            Some(hop) => ForwardingDecision::Hop(hop),
            None => self.unresolved_next_hop::<F>(route, address),
        }
    }

    /// The adjacency of a resolved gateway, which is the most common next hop.
    #[inline(always)]
    pub fn resolved_gateway(&self, route: u32) -> Option<AdjacencyIndex> {
        let (interface, neighbour) = self.next_hops.adjacency(route)?;
        Some(AdjacencyIndex::new(interface, neighbour.0))
    }

    #[inline]
    fn unresolved_next_hop<F: Family>(&self, route: u32, address: F::Address) -> ForwardingDecision {
        let (interface, address, gateway) = match self.next_hops.get(route) {
            NextHop::Drop(refusal) => return ForwardingDecision::Refused(refusal.reason()),
            NextHop::Local(_) => return ForwardingDecision::Local,
            NextHop::Attached(interface) => (interface, F::address(address), false),
            NextHop::Gateway { interface, address } => (interface, address, true),
        };
        match self.neighbours.find(interface, address) {
            Some(neighbour) => {
                if gateway {
                    self.next_hops.bind(route, neighbour, &self.neighbours);
                }
                ForwardingDecision::Hop(AdjacencyIndex::new(interface, neighbour.0))
            }
            None => ForwardingDecision::Unknown(UnresolvedNeighbour { interface, address }),
        }
    }

    /// The forwarding decision for a neighbour, given by interface and address.
    pub fn neighbour(&self, wanted: UnresolvedNeighbour) -> ForwardingDecision {
        match self.neighbours.find(wanted.interface, wanted.address) {
            Some(neighbour) => ForwardingDecision::Hop(AdjacencyIndex::new(wanted.interface, neighbour.0)),
            None => ForwardingDecision::Unknown(wanted),
        }
    }

    /// Interface and address of an adjacency's neighbour.
    pub fn unresolved(&self, hop: AdjacencyIndex) -> Option<UnresolvedNeighbour> {
        let neighbour = self.neighbours.snapshot(NeighbourIndex(hop.neighbour()))?;
        Some(UnresolvedNeighbour {
            interface: neighbour.interface,
            address: neighbour.address,
        })
    }

    /// The MAC of the neighbour, if known.
    #[inline(always)]
    pub fn mac(&self, hop: AdjacencyIndex) -> Option<[u8; 6]> {
        self.neighbours.mac_for_sending(NeighbourIndex(hop.neighbour()))
    }

    /// Adds a session's reference to the neighbour of an adjacency. Returns `false` if the entry was reused for another
    /// neighbour.
    pub fn acquire(&self, hop: AdjacencyIndex) -> bool {
        !hop.has_neighbour()
            || self.unresolved(hop).is_some_and(|wanted| {
                self.neighbours
                    .hold(NeighbourIndex(hop.neighbour()), wanted.interface, wanted.address)
            })
    }

    /// Removes a session's reference to a neighbour.
    pub fn release(&self, hop: AdjacencyIndex) {
        if !hop.has_neighbour() {
            return;
        }
        self.neighbours.release(NeighbourIndex(hop.neighbour()));
    }

    /// Whether a packet from `source` may arrive on `interface` of `router` (BCP 38, RFC 3704).
    #[inline]
    pub fn validate_source<F: Family>(
        &self,
        validation: SourceValidation,
        router: RouterIndex,
        interface: u16,
        source: F::Address,
    ) -> Result<(), Reason> {
        let source = F::address(source);
        validate_source(validation, router, source, interface, &self.fib, &self.next_hops)
    }
}

/// For each direction: an adjacency, and the number of consecutive sessions that have this adjacency and are not yet
/// included in the neighbour's reference count.
type Counts = [(AdjacencyIndex, u32); 2];

const NO_COUNTS: Counts = [(AdjacencyIndex::NONE, 0); 2];

/// References to neighbours from the new sessions of a batch. References to the same neighbour are added to its
/// reference count together, because each update of this count is an atomic read-modify-write operation.
#[derive(Debug)]
pub struct NeighbourReferences(Counts);

impl Default for NeighbourReferences {
    fn default() -> Self {
        Self(NO_COUNTS)
    }
}

impl NeighbourReferences {
    /// Adds references for the adjacencies of one more session. If an entry was reused for another neighbour, returns
    /// `false` without an effect.
    #[inline(always)]
    pub fn take(&mut self, forwarding: &ForwardingState, hops: [AdjacencyIndex; 2]) -> bool {
        for (place, hop) in hops.into_iter().enumerate() {
            let (held, count) = &mut self.0[place];
            if *held == hop {
                *count += 1;
            } else if !self.start(forwarding, hops, place) {
                return false;
            }
        }
        true
    }

    /// Starts to count references for a different adjacency. The first reference is written immediately, so that the
    /// neighbour can't be removed before the remaining references are written.
    #[inline(never)]
    fn start(&mut self, forwarding: &ForwardingState, hops: [AdjacencyIndex; 2], place: usize) -> bool {
        Self::write(forwarding, &mut self.0[place]);
        if forwarding.acquire(hops[place]) {
            self.0[place].0 = hops[place];
            return true;
        }
        self.release(forwarding, &hops[..place]);
        false
    }

    /// Removes the references of the session that was added last.
    #[cold]
    pub fn release(&mut self, forwarding: &ForwardingState, hops: &[AdjacencyIndex]) {
        self.flush(forwarding);
        hops.iter().for_each(|&hop| forwarding.release(hop));
    }

    /// Writes the counted references to the neighbour table.
    pub fn flush(&mut self, forwarding: &ForwardingState) {
        self.0.iter_mut().for_each(|counted| Self::write(forwarding, counted));
    }

    fn write(forwarding: &ForwardingState, counted: &mut (AdjacencyIndex, u32)) {
        let (hop, count) = std::mem::replace(counted, (AdjacencyIndex::NONE, 0));
        if count > 0 && hop.has_neighbour() {
            forwarding.neighbours.add_holds(NeighbourIndex(hop.neighbour()), count);
        }
    }
}

/// References to neighbours that sessions release when they end. Releases of the same neighbour are subtracted from its
/// reference count together.
#[derive(Debug)]
pub struct NeighbourReleases(Counts);

impl Default for NeighbourReleases {
    fn default() -> Self {
        Self(NO_COUNTS)
    }
}

impl NeighbourReleases {
    /// Releases the references of one more session.
    #[inline(always)]
    pub fn release(&mut self, forwarding: &ForwardingState, hops: [AdjacencyIndex; 2]) {
        for (counted, hop) in self.0.iter_mut().zip(hops) {
            if counted.0 != hop {
                Self::write(forwarding, counted);
                counted.0 = hop;
            }
            counted.1 += 1;
        }
    }

    /// Writes the counted releases to the neighbour table.
    pub fn flush(&mut self, forwarding: &ForwardingState) {
        self.0.iter_mut().for_each(|counted| Self::write(forwarding, counted));
    }

    fn write(forwarding: &ForwardingState, counted: &mut (AdjacencyIndex, u32)) {
        let (hop, count) = std::mem::replace(counted, (AdjacencyIndex::NONE, 0));
        if count > 0 && hop.has_neighbour() {
            forwarding
                .neighbours
                .release_many(NeighbourIndex(hop.neighbour()), count);
        }
    }
}
