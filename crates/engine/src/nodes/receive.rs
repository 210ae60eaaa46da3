//! receive: receives frames from devices into the burst buffers. This node has no list: the worker receives one burst
//! from each port, port by port.

use crate::nodes::declaration::{Exit, Node, needs};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "receive",
    help: "receives frames from devices",
    stage: None,
    leaves: &[],
    exits: &[
        Exit::new("parse", "", needs::ALWAYS),
        Exit::new("express", "may need nothing unusual", needs::EXPRESS),
        Exit::new("admit", "routers have shares, or rates", needs::SHARED),
        Exit::new("hand-off", "parsed by another worker", needs::PARSED_ELSEWHERE),
    ],
};
