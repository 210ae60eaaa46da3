//! The engine: sessions, nodes, batches, execution.
//!
//! A worker receives a burst, `parse` finds out what it holds, and every node moves the packets of its list to the
//! list of their next node, until each is sent, dropped, parked or handed over. Nodes never own a buffer; the worker
//! moves ownership at the end of the burst ([`io`]).
#![forbid(unsafe_code)]

pub mod announcements;
pub mod applications;
pub mod assist;
pub mod batch;
pub mod bound_interfaces;
pub mod capture;
pub mod chains;
pub mod context;
pub mod control_plane;
pub mod counters;
pub mod creation;
pub mod events;
pub mod family;
pub mod filter;
pub mod forwarding;
pub mod graph;
pub mod input_filter;
pub mod inside_hosts;
pub mod inspection;
pub mod io;
pub mod ip_id;
pub mod marks;
pub mod mss;
pub mod nodes;
pub mod pending_syns;
pub mod placement;
pub mod pool_migration;
pub mod probes;
pub mod punt;
pub mod reason;
pub mod records;
pub mod redirect;
pub mod request;
pub mod session;
pub mod shard;
pub mod shard_owners;
pub mod shared_capacity;
pub mod shares;
pub mod snapshot;
pub mod stages;
pub mod steering;
pub mod time;
pub mod trace;
mod translation_targets;
pub mod tunnels;
pub mod virtual_reassembly;
pub mod vlan_table;
pub mod worker;
