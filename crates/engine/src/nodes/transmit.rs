//! transmit: transmits frames to devices. Frames stay in the burst buffers while the queue of their device is full.
//! This node has no list: the worker transmits at the end of a burst.

use crate::nodes::declaration::Node;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "transmit",
    help: "transmits frames to devices",
    stage: None,
    leaves: &[],
    exits: &[],
};
