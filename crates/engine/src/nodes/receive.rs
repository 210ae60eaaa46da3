//! receive: frames of a device come into the hand. The worker does it, a burst from each port whose turn it is.

use crate::nodes::declaration::{Exit, Node, needs};

/// The node.
pub const NODE: Node = Node {
    name: "receive",
    help: "receives frames from devices",
    stage: None,
    leaves: &[],
    exits: &[
        Exit::new("parse", "", needs::ALWAYS),
        Exit::new("admit", "routers have shares, or rates", needs::SHARED),
        Exit::new("hand-off", "parsed by another worker", needs::PARSED_ELSEWHERE),
    ],
};
