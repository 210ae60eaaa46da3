//! What a packet leads to beside its own way: work that needs new buffers, and what packets wait for.

use sluice_route::Address;
use sluice_route::neighbour::NeighbourIndex;

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::BufferIndex;
use crate::packet::reason::Reason;

/// Work that needs new buffers: done in the second half of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Cut a datagram that is too long for its hop.
    Cut(BufferIndex, AdjacencyIndex),
    /// Ask a link for a neighbour, or the neighbour itself whether it is still there.
    Ask {
        /// Whom.
        neighbour: NeighbourIndex,
        /// Its MAC is known.
        probe: bool,
    },
    /// Send a router advertisement to all hosts of an interface.
    Advertise(u16),
    /// Tell all of a link that an address is here.
    Announce {
        /// The link's interface.
        interface: u16,
        /// Which address.
        place: AddressPosition,
    },
    /// Send the echo request that the owner has.
    Probe,
}

/// An address of an interface: in the network of which of its addresses, and which there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPosition {
    pub(crate) network: u16,
    pub(crate) offset: u32,
}

/// A neighbour that has to be found before a packet can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvedNeighbour {
    /// The link that it is on.
    pub interface: u16,
    /// Its address.
    pub address: Address,
}

/// A SYN that is to wait.
#[derive(Clone, Copy, Debug)]
pub struct UnsolicitedSyn {
    /// Its slot.
    pub slot: BufferIndex,
    /// Hash of its key.
    pub hash: u64,
    /// Nanosecond of its answer.
    pub due: u64,
    /// Why it is not let in.
    pub reason: Reason,
}
