//! receive: receives frames from devices into the burst buffers. The worker does this itself: one burst from each port in turn.

use crate::nodes::declaration::{Exit, Node, needs};

/// Declaration of this node of the graph.
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
