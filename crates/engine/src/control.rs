//! The control thread: commits, workers, memory.

pub mod graph;
pub mod plane;
