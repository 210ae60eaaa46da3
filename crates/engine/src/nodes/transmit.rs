//! transmit: frames go to a device, or stay in the hand where its queue is full. The worker does it at the end of a burst.

use crate::nodes::declaration::Node;

/// The node.
pub const NODE: Node = Node {
    name: "transmit",
    help: "transmits frames to devices",
    stage: None,
    leaves: &[],
    exits: &[],
};
