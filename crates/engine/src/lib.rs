//! The engine: sessions, nodes, batches, execution.
#![forbid(unsafe_code)]

pub mod io;
