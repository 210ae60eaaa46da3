//! Events that the neighbour writer processes, and actions that it requests from the worker.

use crate::Reason;
use crate::neighbour::table::NeighbourIndex;

/// Action that the writer requests for an entry. Interface, address and MAC of the entry are readable during the
/// action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a broadcast ARP request, or a neighbour solicitation to the solicited-node multicast address.
    Request {
        /// Entry to resolve.
        index: NeighbourIndex,
    },
    /// Send a unicast ARP request or neighbour solicitation to the known MAC.
    Probe {
        /// Entry to probe.
        index: NeighbourIndex,
    },
    /// The MAC is known or has changed. Send the parked packets.
    Resolved {
        /// Resolved entry.
        index: NeighbourIndex,
    },
    /// The neighbour does not answer, or its entry was displaced. Drop the parked packets.
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
    /// Resolution is in progress. Park the packet.
    Pending(NeighbourIndex),
    /// Drop the packet for this reason.
    Refused(Reason),
}

/// Flags of a neighbour advertisement (RFC 4861, section 4.4). An ARP reply to a request of the gateway counts as
/// solicited and override, a gratuitous ARP reply only as override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Solicited flag: the message answers a solicitation of the gateway.
    pub solicited: bool,
    /// Override flag: the message replaces a different MAC.
    pub overrides: bool,
}

/// Type of a received message about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// A request for an address of the gateway. Creates an entry for the sender (RFC 826; RFC 4861, section 7.2.3).
    Solicitation,
    /// An announcement of the sender's MAC, including gratuitous ARP requests and replies. An announcement updates an
    /// entry but never creates one.
    Advertisement(Advertisement),
}
