//! The engine: sessions, nodes, batches and their execution.
//!
//! A worker receives a burst, `parse` parses its packets, and each node moves the packets of its list to the list of their next
//! node, until each packet is sent, dropped, parked or handed over. Nodes never own a buffer; the worker moves ownership at the
//! end of the burst ([`packet::io`]).
#![forbid(unsafe_code)]

// The table of nodes comes first, because the packet lists are derived from it.
#[macro_use]
pub mod nodes;

pub mod packet;
pub mod session;

pub mod snapshot;

pub mod features;

pub mod worker;

pub mod control;

pub mod placement;
