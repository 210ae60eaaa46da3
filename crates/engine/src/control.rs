//! The control thread's part of the engine: commits, workers, memory.

pub mod graph;
pub mod plane;
