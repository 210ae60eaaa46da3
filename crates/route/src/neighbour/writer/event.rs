//! Events that a neighbour writer processes, and actions that it requests from the worker.

use crate::Reason;
use crate::neighbour::table::NeighbourIndex;

/// Action requested for an entry. Interface, address and MAC are those of the entry, which can be read while the action
/// is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a broadcast ARP request, or a solicitation to the solicited-node multicast address.
    Request {
        /// Entry to resolve.
        index: NeighbourIndex,
    },
    /// Send a unicast request or solicitation to the known MAC.
    Probe {
        /// Entry to probe.
        index: NeighbourIndex,
    },
    /// The MAC is known or has changed: send the waiting packets.
    Resolved {
        /// Resolved entry.
        index: NeighbourIndex,
    },
    /// The neighbour does not answer, or its entry was displaced: drop the waiting packets.
    Failed {
        /// Failed entry.
        index: NeighbourIndex,
    },
}

/// Result of [`NeighbourWriter::resolve`](super::NeighbourWriter::resolve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The MAC is known.
    Known(NeighbourIndex),
    /// Resolution is in progress: park the packet.
    Pending(NeighbourIndex),
    /// Drop the packet for this reason.
    Refused(Reason),
}

/// Flags of a neighbour advertisement (RFC 4861, section 4.4). An ARP reply to our request counts as solicited and
/// override, a gratuitous one only as override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Solicited flag: it answers our solicitation.
    pub solicited: bool,
    /// Override flag: it replaces a different MAC.
    pub overrides: bool,
}

/// Kind of information about a neighbour in a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A request for one of our own addresses; creates an entry for the sender (RFC 826; RFC 4861, section 7.2.3).
    Solicitation,
    /// An announcement of its MAC, including gratuitous ARP of either kind; updates an entry but never creates one.
    Advertisement(Advertisement),
}
