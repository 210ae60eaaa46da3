//! The engine: sessions, nodes, batches and their execution.
//!
//! A worker receives a burst, and `parse` parses its packets. Each node moves the packets of its list to the lists of the next
//! nodes, until each packet is sent, dropped, parked or handed to another worker. Nodes never own a buffer; at the end of the
//! burst, the worker executes their decisions ([`packet::io`]).
#![forbid(unsafe_code)]

// The table of nodes must come first, because the packet lists are derived from it.
#[macro_use]
pub mod nodes;

pub mod packet;
pub mod session;

pub mod snapshot;

pub mod features;

pub mod worker;

pub mod control;

pub mod placement;
