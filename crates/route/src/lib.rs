//! Virtual routers: forwarding tables, next hops, neighbours, and decisions that depend only on addresses.
//!
//! The [`Fib`] of all routers maps a destination to a next hop ([`NextHops`]). A next hop refers to a neighbour with
//! its MAC ([`neighbour::Neighbours`]). Every worker reads these tables without locks while routes and neighbours
//! change.
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

/// Time in nanoseconds since a start time that the caller selects. This crate never reads a clock.
pub type Time = u64;

/// One second in nanoseconds.
pub const SECOND: Time = 1_000_000_000;
