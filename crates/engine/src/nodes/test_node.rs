//! test-node: an example of the minimum for a new node, which is this file and a line in the table of nodes. The node
//! is compiled only in tests.

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::lists::{Leave, Lists};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "test-node",
    help: "receives every packet",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery],
    exits: &[Exit::new("transmit", "", needs::ALWAYS)],
};

/// Receives every packet.
pub fn test_node(
    _batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    _ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.test_node) {
        put(&mut lists.taken, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::graph::{edges, node};
    use crate::nodes::{HAS_LIST, NODES};
    use crate::packet::lists::{Location, NodeIndex};
    use crate::packet::reason::{EngineReason, Reason};

    #[test]
    fn node_of_one_file_and_one_line_has_a_list_a_place_and_edges() {
        let mut lists = Lists::new(1);
        assert!(lists.is_done());
        put(&mut lists.test_node, 7);
        assert!(!lists.is_done());
        let Some(Location::Node(index)) = lists.location(7) else {
            panic!("{:?}", lists.location(7))
        };
        assert_eq!((NodeIndex::test_node, "test-node"), (index, index.node().name));
        lists.drop_remaining(EngineReason::Loop);
        assert_eq!(
            Some(Location::Dropped(Reason::from(EngineReason::Loop))),
            lists.location(7)
        );
        assert!(lists.is_done() && HAS_LIST[index as usize]);
        assert_eq!("receives every packet", node("test-node").unwrap().help);
        assert!(edges().any(|edge| (edge.from, edge.to) == ("test-node", "transmit")));
        assert_eq!(NODES.len(), NodeIndex::ALL.len());
    }
}
