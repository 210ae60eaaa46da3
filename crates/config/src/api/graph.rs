//! `/v1/graph`: the nodes that process packets, and the chains of routers.

use serde::{Deserialize, Serialize};

/// The current graph of all routers or of a single router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Graph {
    /// Nodes in the order of processing.
    pub nodes: Vec<GraphNode>,
    /// Edges between nodes.
    pub edges: Vec<GraphEdge>,
    /// Chains of each router, in the order of the file.
    pub chains: Vec<GraphChain>,
    /// Number of packet copies that chains could not send, because the queue was full, the frame was too long, or no
    /// buffer was free.
    pub copies_lost: u64,
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphNode {
    /// Name of the node.
    pub name: String,
    /// Function of the node.
    pub help: String,
    /// Exits from the graph at this node, in addition to transmission.
    pub leaves: Vec<String>,
    /// Counters of the node, summed over all routers. Absent if other nodes do the work of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<NodeWork>,
}

/// Counters of a node, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NodeWork {
    /// Number of times that workers have run the node.
    pub runs: u64,
    /// Number of packets. A packet that returns to the node is counted again.
    pub packets: u64,
    /// Clock cycles that workers have spent in the node.
    pub cycles: u64,
}

/// An edge between two nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphEdge {
    /// Node that sends the packets.
    pub from: String,
    /// Node that receives the packets.
    pub to: String,
    /// Condition under which packets take the edge. Empty if the edge is the only edge from its node.
    pub why: String,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphChain {
    /// Virtual router of the chain.
    pub router: String,
    /// Name of the chain. Packets enter at `input`.
    pub name: String,
    /// Steps of the chain.
    pub steps: Vec<GraphStep>,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphStep {
    /// Description of the step as text.
    pub step: String,
    /// Chain at which all packets, or those to which the step applies, continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Number of packets that the step has counted: those that passed, matched, exceeded the rate or were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Frame bytes of the counted packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
