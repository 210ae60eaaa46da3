//! The declaration of a node. Packet lists, dispatch, traces, cycle counters and `sluice show graph` are derived from the
//! declarations and from the table of nodes. A test compares them with the picture in `docs/architecture.md`.

use crate::packet::counters::CycleStage;
use crate::packet::lists::Leave;

/// A node of the graph.
#[derive(Debug)]
pub struct Node {
    /// Name of the node, which is the name of its file.
    pub name: &'static str,
    /// Description of the node in one line.
    pub help: &'static str,
    /// The stage to which the cycles of the node are attributed; `None` for an inline node.
    pub stage: Option<CycleStage>,
    /// Exits by which a packet can leave the graph at this node.
    pub leaves: &'static [Leave],
    /// Edges to the possible next nodes of a packet.
    pub exits: &'static [Exit],
}

/// An edge from one node to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Exit {
    /// Name of the target node of the edge.
    pub to: &'static str,
    /// Condition of the edge in one to three words. The condition is empty for the edge that packets take if no other
    /// condition applies.
    pub why: &'static str,
    /// Configuration conditions under which the edge exists: all of these bits of [`needs`].
    pub needs: u16,
}

impl Exit {
    /// Creates an edge to a node, with its edge condition and its configuration conditions.
    pub const fn new(to: &'static str, why: &'static str, needs: u16) -> Self {
        Self { to, why, needs }
    }
}

/// Configuration conditions for the existence of an edge, one bit per condition.
pub mod needs {
    /// No condition: the edge always exists.
    pub const ALWAYS: u16 = 0;
    /// An interface belongs to a router.
    pub const ROUTED: u16 = 1;
    /// An interface of a router has sessions.
    pub const STATEFUL: u16 = 1 << 1;
    /// Sessions exist, in a router or on a bridge.
    pub const FLOWS: u16 = 1 << 2;
    /// An interface is inspected.
    pub const INSPECTED: u16 = 1 << 3;
    /// Applications are identified on an interface.
    pub const IDENTIFIED: u16 = 1 << 4;
    /// An interface belongs to a bridge.
    pub const BRIDGED: u16 = 1 << 5;
    /// A router has a host.
    pub const HOSTED: u16 = 1 << 6;
    /// An interface is a tunnel or one endpoint of an inter-router link.
    pub const LINKED: u16 = 1 << 7;
    /// A router has chains.
    pub const CHAINED: u16 = 1 << 8;
    /// Some workers don't parse their received packets, and pass them to other workers.
    pub const PARSED_ELSEWHERE: u16 = 1 << 9;
    /// Some workers only parse packets, and pass them to other workers.
    pub const ROUTED_ELSEWHERE: u16 = 1 << 10;
    /// Plain IPv4 packets (without options, not fragmented) of an interface need only a route lookup.
    pub const PLAIN: u16 = 1 << 11;
    /// Routers or interfaces have capacity shares or rate limits.
    pub const SHARED: u16 = 1 << 12;
    /// An interface is a tunnel, or belongs to the underlay router, which receives outer packets.
    pub const TUNNELLED: u16 = 1 << 13;
    /// An interface is the access or public interface of subscribers' sites.
    pub const SITES: u16 = 1 << 14;
    /// The express lane takes packets of an interface, in workers that look up their sessions.
    pub const EXPRESS: u16 = 1 << 15;
}
