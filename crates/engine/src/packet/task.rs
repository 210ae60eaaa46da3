//! Tasks that need new buffers, and the neighbours and SYNs for which packets are parked.

use sluice_route::Address;
use sluice_route::neighbour::NeighbourIndex;

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::BufferIndex;
use crate::packet::reason::Reason;

/// A task that needs new buffers. The worker executes it after the nodes have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Fragment a datagram that exceeds the MTU of its hop.
    Cut(BufferIndex, AdjacencyIndex),
    /// Send a neighbour request to all hosts on the link, or a unicast probe to the neighbour.
    Solicit {
        /// Neighbour to resolve.
        neighbour: NeighbourIndex,
        /// Whether the MAC is known, so that the request is a unicast probe.
        probe: bool,
    },
    /// Send a router advertisement to all hosts of an interface.
    Advertise(u16),
    /// Announce an address of the gateway to all hosts of a link.
    Announce {
        /// Interface of the link.
        interface: u16,
        /// Position of the announced address.
        place: AddressPosition,
    },
    /// Send the pending echo request of the owner worker.
    Probe,
}

/// Position of an address of an interface: the index of its network among the interface's addresses, and the offset of
/// the address in that network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPosition {
    pub(crate) network: u16,
    pub(crate) offset: u32,
}

/// A neighbour that must be resolved before a packet can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvedNeighbour {
    /// Interface of the neighbour's link.
    pub interface: u16,
    /// IP address of the neighbour.
    pub address: Address,
}

/// An unsolicited SYN that will be parked.
#[derive(Clone, Copy, Debug)]
pub struct UnsolicitedSyn {
    /// Slot of the SYN.
    pub slot: BufferIndex,
    /// Hash of the SYN's flow key.
    pub hash: u64,
    /// Time at which the SYN is answered, in nanoseconds.
    pub due: u64,
    /// Reason for which the SYN is rejected.
    pub reason: Reason,
}
