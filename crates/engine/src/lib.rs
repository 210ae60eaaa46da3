//! The engine: sessions, nodes, batches, execution.
//!
//! A worker receives a burst, `parse` finds out what it holds, and every node moves the packets of its list to the
//! list of their next node, until each is sent, dropped, parked or handed over. Nodes never own a buffer; the worker
//! moves ownership at the end of the burst ([`packet::io`]).
#![forbid(unsafe_code)]

// The table of nodes first: the lists follow from it.
#[macro_use]
pub mod nodes;

pub mod packet;
pub mod session;

pub mod snapshot;

pub mod features;

pub mod worker;

pub mod control;

pub mod placement;
