//! What a node declares of itself: the lists, the dispatch, traces, cycles, `sluice show graph` and the picture in
//! `docs/architecture.md` follow from it and from the table of nodes.

use crate::packet::counters::CycleStage;
use crate::packet::lists::Leave;

/// A node of the graph.
#[derive(Debug)]
pub struct Node {
    /// Its name: that of its file.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// What its cycles are counted as; none where others do its part on the way.
    pub stage: Option<CycleStage>,
    /// How a packet may leave the graph here.
    pub leaves: &'static [Leave],
    /// The nodes that may have a packet next.
    pub exits: &'static [Exit],
}

/// A way from a node to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Exit {
    /// The node that has the packet next.
    pub to: &'static str,
    /// Why, in a word or three; nothing where there is no choice.
    pub why: &'static str,
    /// What a snapshot must have for it: all of these [`needs`].
    pub needs: u16,
}

impl Exit {
    /// The way to a node, why a packet takes it, and what a snapshot must have for it.
    pub const fn new(to: &'static str, why: &'static str, needs: u16) -> Self {
        Self { to, why, needs }
    }
}

/// What a snapshot must have so that a packet may take a way, a bit each.
pub mod needs {
    /// Nothing.
    pub const ALWAYS: u16 = 0;
    /// Some interface is a router's.
    pub const ROUTED: u16 = 1;
    /// Some interface of a router has sessions.
    pub const STATEFUL: u16 = 1 << 1;
    /// There are sessions at all: those of bridges count too.
    pub const FLOWS: u16 = 1 << 2;
    /// Flows of some interface are inspected.
    pub const INSPECTED: u16 = 1 << 3;
    /// Applications of some interface's flows are identified.
    pub const IDENTIFIED: u16 = 1 << 4;
    /// Some interface is a bridge's.
    pub const BRIDGED: u16 = 1 << 5;
    /// Some router has a host.
    pub const HOSTED: u16 = 1 << 6;
    /// Some interface is an end of a virtual link, or a tunnel.
    pub const LINKED: u16 = 1 << 7;
    /// Some router has chains.
    pub const CHAINED: u16 = 1 << 8;
    /// Some workers leave parsing to others.
    pub const PARSED_ELSEWHERE: u16 = 1 << 9;
    /// Some workers parse and leave the rest to others.
    pub const ROUTED_ELSEWHERE: u16 = 1 << 10;
    /// Plain IPv4 packets of some interface need a route and nothing else.
    pub const PLAIN: u16 = 1 << 11;
    /// Routers or interfaces have shares or rates.
    pub const SHARED: u16 = 1 << 12;
    /// Some interface is a tunnel, or the router that tunnels' outer packets come to.
    pub const TUNNELLED: u16 = 1 << 13;
    /// Some interface has subscribers' sites behind it, or their public addresses.
    pub const SITES: u16 = 1 << 14;
}
