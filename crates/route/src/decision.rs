//! What a session keeps of a routing decision.

use bytemuck::{Pod, Zeroable};

use crate::neighbour::{NeighbourIndex, Neighbours};
use crate::{Address, InterfaceIndex, NextHop, NextHops, Reason};

/// No neighbour held.
const NONE: u32 = u32::MAX;

/// Where packets of a session go: 8 bytes of plain data. It may hold a neighbour, which is given back by
/// [`Decision::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Decision {
    neighbour: u32,
    interface: u16,
    next_hop: u16,
}

impl Decision {
    /// Decide by the next hop of the route to `destination`, and hold its neighbour where there is an entry.
    /// `Err` for next hops that refuse. [`Decision::neighbour`] is none for the gateway's own addresses, and while
    /// the neighbour has no entry: then the keeper is to be asked, and the decision made again.
    pub fn decide(
        next_hop: u32,
        destination: Address,
        next_hops: &NextHops,
        neighbours: &Neighbours,
    ) -> Result<Self, Reason> {
        let (interface, address) = match next_hops.get(next_hop) {
            NextHop::Drop(refusal) => return Err(refusal.reason()),
            NextHop::Local(interface) => (interface, None),
            NextHop::Attached(interface) => (interface, Some(destination)),
            NextHop::Gateway { interface, address } => (interface, Some(address)),
        };
        let held = address.and_then(|address| {
            let index = neighbours.find(interface, address)?;
            neighbours.hold(index, interface, address).then_some(index.0)
        });
        Ok(Self {
            neighbour: held.unwrap_or(NONE),
            interface,
            next_hop: next_hop as u16,
        })
    }

    /// Interface that packets leave by.
    #[inline(always)]
    pub fn interface(&self) -> InterfaceIndex {
        self.interface
    }

    /// Index of the next hop when the decision was made, to show and to compare. Once the session's generation is out
    /// of date the slot may be another's; what a packet needs is in the decision itself.
    #[inline(always)]
    pub fn next_hop(&self) -> u32 {
        self.next_hop as u32
    }

    /// The neighbour that is held.
    #[inline(always)]
    pub fn neighbour(&self) -> Option<NeighbourIndex> {
        (self.neighbour != NONE).then_some(NeighbourIndex(self.neighbour))
    }

    /// Give back what the decision holds. Call once, when the session ends or is decided again.
    pub fn release(self, neighbours: &Neighbours) {
        if let Some(neighbour) = self.neighbour() {
            neighbours.release(neighbour);
        }
    }
}
