//! What a writer learns of neighbours, and what it has the worker do.

use crate::Reason;
use crate::neighbour::table::NeighbourIndex;

/// What is to be done about an entry. Interface, address and MAC are those of the entry, readable while the action
/// is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a broadcast ARP request, or a solicitation to the solicited-node multicast address.
    Request {
        /// Whom to ask for.
        index: NeighbourIndex,
    },
    /// Send a request or solicitation to the MAC that is known.
    Probe {
        /// Whom to ask.
        index: NeighbourIndex,
    },
    /// The MAC is known now, or is another: send what waits.
    Resolved {
        /// Who answered.
        index: NeighbourIndex,
    },
    /// It does not answer, or has given way: drop what waits.
    Failed {
        /// Who does not answer.
        index: NeighbourIndex,
    },
}

/// Answer to [`NeighbourKeeper::resolve`](super::NeighbourKeeper::resolve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Its MAC is known.
    Known(NeighbourIndex),
    /// It is being asked for: park.
    Pending(NeighbourIndex),
    /// Drop under this reason.
    Refused(Reason),
}

/// Flags of a neighbour advertisement, RFC 4861 section 4.4. An ARP reply to our request is solicited and
/// overrides; a gratuitous one overrides only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Answers our solicitation.
    pub solicited: bool,
    /// Replaces a MAC that differs.
    pub overrides: bool,
}

/// What a packet said of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It asked for one of our own addresses: known from now on (RFC 826, RFC 4861 section 7.2.3).
    Solicitation,
    /// It stated its MAC; updates an entry, never makes one. Gratuitous ARP of either kind is this too.
    Advertisement(Advertisement),
}
