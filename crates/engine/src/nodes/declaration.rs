//! The declaration of a node. Packet lists, dispatch, traces, cycle counters, `sluice show graph` and the picture in
//! `docs/architecture.md` are derived from it and from the table of nodes.

use crate::packet::counters::CycleStage;
use crate::packet::lists::Leave;

/// A node of the graph.
#[derive(Debug)]
pub struct Node {
    /// The node's name, which is that of its file.
    pub name: &'static str,
    /// Description of the node in one line.
    pub help: &'static str,
    /// The stage that the node's cycles are counted for. `None` for an inline node.
    pub stage: Option<CycleStage>,
    /// The ways in which a packet may leave the graph in this node.
    pub leaves: &'static [Leave],
    /// The nodes that a packet may go to next.
    pub exits: &'static [Exit],
}

/// An edge from a node to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Exit {
    /// The node that the edge leads to.
    pub to: &'static str,
    /// Condition for the edge in one to three words; empty if the node has no other edge.
    pub why: &'static str,
    /// What a snapshot must configure for the edge to exist: all of these bits of [`needs`].
    pub needs: u16,
}

impl Exit {
    /// An edge to a node, with its condition and what a snapshot must configure for it.
    pub const fn new(to: &'static str, why: &'static str, needs: u16) -> Self {
        Self { to, why, needs }
    }
}

/// What a snapshot must configure for an edge to exist, one bit each.
pub mod needs {
    /// No condition: the edge always exists.
    pub const ALWAYS: u16 = 0;
    /// An interface belongs to a router.
    pub const ROUTED: u16 = 1;
    /// An interface of a router has sessions.
    pub const STATEFUL: u16 = 1 << 1;
    /// Sessions exist, be it in a router or on a bridge.
    pub const FLOWS: u16 = 1 << 2;
    /// An interface is inspected.
    pub const INSPECTED: u16 = 1 << 3;
    /// Applications are identified on an interface.
    pub const IDENTIFIED: u16 = 1 << 4;
    /// An interface belongs to a bridge.
    pub const BRIDGED: u16 = 1 << 5;
    /// A router has a host.
    pub const HOSTED: u16 = 1 << 6;
    /// An interface is an end of an inter-router link, or a tunnel.
    pub const LINKED: u16 = 1 << 7;
    /// A router has chains.
    pub const CHAINED: u16 = 1 << 8;
    /// Some workers leave parsing to other workers.
    pub const PARSED_ELSEWHERE: u16 = 1 << 9;
    /// Some workers parse and leave everything else to other workers.
    pub const ROUTED_ELSEWHERE: u16 = 1 << 10;
    /// Plain IPv4 packets of some interface need only a route.
    pub const PLAIN: u16 = 1 << 11;
    /// Routers or interfaces have shares or rates.
    pub const SHARED: u16 = 1 << 12;
    /// An interface is a tunnel, or belongs to the router that outer packets arrive in.
    pub const TUNNELLED: u16 = 1 << 13;
    /// An interface is the access or public interface of subscribers' sites.
    pub const SITES: u16 = 1 << 14;
}
