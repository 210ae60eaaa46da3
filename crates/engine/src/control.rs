//! Engine interfaces for the control thread: commits, workers and their memory.

pub mod graph;
pub mod plane;
