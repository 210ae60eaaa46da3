//! `/v1/graph`: the nodes that packets pass, and the chains of routers.

use serde::{Deserialize, Serialize};

/// The graph as it is now: of all routers, or of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Graph {
    /// The nodes, in the order of a packet's way.
    pub nodes: Vec<GraphNode>,
    /// Where they send packets.
    pub edges: Vec<GraphEdge>,
    /// Chains, by router in the order of the file.
    pub chains: Vec<GraphChain>,
    /// Copies that chains asked for and that were not sent: too many at once, too long, or no buffer left.
    pub copies_lost: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphNode {
    /// Its name.
    pub name: String,
    /// What it does.
    pub help: String,
    /// How packets leave the graph here, other than sent.
    pub leaves: Vec<String>,
    /// What it has done, of all routers; nothing where others do its part on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<NodeWork>,
}

/// What a node has done, on all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NodeWork {
    /// Times that it ran.
    pub runs: u64,
    /// Packets that it had; one that comes back counts again.
    pub packets: u64,
    /// Clock cycles that it took.
    pub cycles: u64,
}

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphEdge {
    /// The node that sends a packet there.
    pub from: String,
    /// The node that has it next.
    pub to: String,
    /// Why; empty where there is no choice.
    pub why: String,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphChain {
    /// Its router.
    pub router: String,
    /// Its name; packets begin at `input`.
    pub name: String,
    /// Its steps.
    pub steps: Vec<GraphStep>,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GraphStep {
    /// What it does.
    pub step: String,
    /// The chain that some of its packets, or all, go on at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What it has counted: packets that passed, that matched, that were above its rate or of which a copy was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Their bytes, as frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
