//! Neighbours on links: resolution by ARP (RFC 826) and neighbour discovery (RFC 4861), and packets parked during
//! resolution.
//!
//! Every worker reads [`Neighbours`]. One worker owns the [`NeighbourWriter`], and only this worker modifies the table.

mod conflict;
mod deadlines;
mod hash;
mod parking;
mod quota;
mod table;
mod timing;
mod writer;

/// Atomics of the table. The model test compiles this module with the atomics of the model checker.
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
pub use writer::{Action, Advertisement, NeighbourMessage, NeighbourWriter, Resolution};
