//! The engine: sessions, nodes, batches, execution.
//!
//! A worker receives a burst, `parse` finds out what it holds, and every node moves the packets of its list to the
//! list of their next node, until each is sent, dropped, parked or handed over. Nodes never own a buffer; the worker
//! moves ownership at the end of the burst ([`io`]).
#![forbid(unsafe_code)]

pub mod announcements;
pub mod applications;
pub mod arrivals;
pub mod assist;
pub mod batch;
pub mod capture;
pub mod chains;
pub mod context;
pub mod counters;
pub mod datagrams;
pub mod events;
pub mod family;
pub mod filter;
pub mod graph;
pub mod hosts;
pub mod identification;
pub mod inspection;
pub mod io;
pub mod leases;
pub mod local;
pub mod marks;
pub mod nodes;
pub mod opening;
pub mod owners;
pub mod paths;
pub mod placement;
pub mod plane;
pub mod policy;
pub mod probes;
pub mod punt;
pub mod reason;
pub mod records;
pub mod redirect;
pub mod request;
pub mod reserves;
pub mod segment_size;
pub mod session;
pub mod shard;
pub mod shares;
mod spread;
pub mod stages;
pub mod steering;
pub mod tagged;
pub mod time;
pub mod trace;
pub mod tunnels;
pub mod unsolicited;
pub mod worker;
