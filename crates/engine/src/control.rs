//! The parts of the engine that the control thread uses: commits, workers, memory.

pub mod graph;
pub mod plane;
