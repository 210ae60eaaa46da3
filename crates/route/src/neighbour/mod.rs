//! Neighbours on the links: who answers for an address, resolved by ARP (RFC 826) and neighbour discovery
//! (RFC 4861), and the packets that wait for it.
//!
//! [`Neighbours`] is read by every worker. [`NeighbourKeeper`] belongs to one worker, which alone changes it.

mod conflict;
mod deadlines;
mod hash;
mod parking;
mod quota;
mod table;
mod timing;
mod writer;

/// The atomics of the table; the model test builds the same source on those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
use crate::address;

pub use conflict::{Conflict, Conflicts};
pub use hash::Key as HashKey;
pub(crate) use hash::hash as keyed_hash;
pub use parking::{ParkedCounts, Parking};
pub use table::{Mac, Neighbour, NeighbourIndex, Neighbours, OTHER_END, State};
pub use timing::Timing;
pub use writer::{Action, Advertisement, Heard, NeighbourWriter, Resolution};
