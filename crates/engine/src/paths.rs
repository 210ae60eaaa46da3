//! Routes and neighbours, as a worker asks for them.

use std::sync::Arc;

use sluice_route::neighbour::{NeighbourIndex, Neighbours};
use sluice_route::{Address, FibReader, InterfaceIndex, NextHop, NextHops, Reason, SourceValidation, validate_source};

use crate::batch::Hop;
use crate::family::Family;

/// A neighbour that has to be found before a packet can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The link that it is on.
    pub interface: InterfaceIndex,
    /// Its address.
    pub address: Address,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a neighbour that has an entry.
    Hop(Hop),
    /// To a neighbour that nobody has asked for yet.
    Unknown(Wanted),
    /// To the gateway itself.
    Local,
    /// Nowhere.
    Refused(Reason),
}

/// One worker's view of the routes, always the newest state.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Routes.
    pub fib: FibReader,
    /// What routes lead to.
    pub next_hops: Arc<NextHops>,
    /// Neighbours.
    pub neighbours: Arc<Neighbours>,
}

impl Paths {
    /// Where an address leads.
    #[inline]
    pub fn find<F: Family>(&self, address: F::Address) -> Destination {
        self.destination::<F>(F::route(self, address), address)
    }

    /// Where a next hop leads that the route of `address` names.
    #[inline(always)]
    pub fn destination<F: Family>(&self, route: u32, address: F::Address) -> Destination {
        if let Some((interface, neighbour)) = self.next_hops.bound(route) {
            return Destination::Hop(Hop::new(interface, neighbour.0));
        }
        self.unbound::<F>(route, address)
    }

    #[inline]
    fn unbound<F: Family>(&self, route: u32, address: F::Address) -> Destination {
        let (interface, address, gateway) = match self.next_hops.get(route) {
            NextHop::Drop(refusal) => return Destination::Refused(refusal.reason()),
            NextHop::Local(_) => return Destination::Local,
            NextHop::Attached(interface) => (interface, F::plain(address), false),
            NextHop::Gateway { interface, address } => (interface, address, true),
        };
        match self.neighbours.find(interface, address) {
            Some(neighbour) => {
                if gateway {
                    self.next_hops.bind(route, neighbour, &self.neighbours);
                }
                Destination::Hop(Hop::new(interface, neighbour.0))
            }
            None => Destination::Unknown(Wanted { interface, address }),
        }
    }

    /// Where a neighbour is that is known by name.
    pub fn neighbour(&self, wanted: Wanted) -> Destination {
        match self.neighbours.find(wanted.interface, wanted.address) {
            Some(neighbour) => Destination::Hop(Hop::new(wanted.interface, neighbour.0)),
            None => Destination::Unknown(wanted),
        }
    }

    /// The neighbour of a hop, by name.
    pub fn wanted(&self, hop: Hop) -> Option<Wanted> {
        let neighbour = self.neighbours.snapshot(NeighbourIndex(hop.neighbour()))?;
        Some(Wanted {
            interface: neighbour.interface,
            address: neighbour.address,
        })
    }

    /// The MAC address to send to, if it is known.
    #[inline(always)]
    pub fn mac(&self, hop: Hop) -> Option<[u8; 6]> {
        self.neighbours.mac_to_send(NeighbourIndex(hop.neighbour()))
    }

    /// Hold a hop's neighbour for a session; false where it is another's by now.
    pub fn hold(&self, hop: Hop) -> bool {
        self.wanted(hop).is_some_and(|wanted| {
            self.neighbours
                .hold(NeighbourIndex(hop.neighbour()), wanted.interface, wanted.address)
        })
    }

    /// Give a session's hold back.
    pub fn let_go(&self, hop: Hop) {
        self.neighbours.release(NeighbourIndex(hop.neighbour()));
    }

    /// Whether a packet from `source` may come in by `interface` (BCP 38, RFC 3704).
    #[inline]
    pub fn validate_source<F: Family>(
        &self,
        validation: SourceValidation,
        interface: u16,
        source: F::Address,
    ) -> Result<(), Reason> {
        validate_source(validation, F::plain(source), interface, &self.fib, &self.next_hops)
    }
}
