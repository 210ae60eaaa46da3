//! Virtual routers: forwarding tables, next hops, neighbours, and decisions based on addresses alone.
//!
//! The [`Fib`] of all routers maps a destination to a next hop ([`NextHops`]), and a next hop to a neighbour's MAC
//! ([`neighbour::Neighbours`]). Every worker reads all three without locks while routes and neighbours change.
#![forbid(unsafe_code)]

pub mod address;
pub mod changes;
pub mod feed;
pub mod fib;
pub mod hop_set;
pub mod neighbour;
pub mod next_hop;
pub mod policer;
pub mod reason;
pub mod rib;
pub mod ribs;
pub mod routes;
pub mod source;
pub mod source_tables;

pub use address::{Address, InterfaceIndex, Prefix};
pub use changes::RouteChanges;
pub use fib::{Fib, FibReader};
pub use hop_set::{Balance, HopSet, HopSetError};
pub use next_hop::{DropKind, NextHop, NextHopWriter, NextHops};
pub use reason::Reason;
pub use ribs::Ribs;
pub use routes::{Interface, Route, RouteError, RouteSet, Via};
pub use sluice_table::prefix::{MAX_ROUTERS, RouterIndex};
pub use source::{SourceValidation, validate_reverse_path, validate_source};
pub use source_tables::{Lookup, SourceTables};

/// Nanoseconds since a starting point that the caller chooses; this crate never reads a clock.
pub type Time = u64;

/// One second.
pub const SECOND: Time = 1_000_000_000;
