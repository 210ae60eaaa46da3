//! The graph of nodes: which there are, where each may send a packet and why, and which of it a snapshot has.
//!
//! The picture in `docs/architecture.md` is compared with this table, and so is what tracers see of packets.

use sluice_route::RouterIndex;

use crate::placement::Part;
use crate::snapshot::{Interface, Snapshot};
use crate::stages::Stages;

/// A node, or an end of the graph.
#[derive(Debug)]
pub struct Node {
    /// Its name: that of its file in `nodes/`, but for the ends.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// What tracers call it: nothing where others do its part of the way for it.
    pub traced: &'static [&'static str],
    /// How a packet may leave the graph here.
    pub leaves: &'static [Leave],
}

/// How a packet leaves the graph, other than sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Dropped, for a reason that is counted.
    Drop,
    /// Taken in by the router itself, or by its host.
    TakenIn,
    /// Put aside until something comes, or time is over.
    Park,
    /// Given to another worker.
    HandOver,
    /// Held until its shard has come to this worker.
    Hold,
    /// Queued behind what there is to receive.
    Queue,
}

impl Leave {
    /// All of them.
    pub const ALL: [Leave; 6] = [
        Self::Drop,
        Self::TakenIn,
        Self::Park,
        Self::HandOver,
        Self::Hold,
        Self::Queue,
    ];

    /// Its name, as in traces, where drops have those of their reasons.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::TakenIn => "taken-in",
            Self::Park => "park",
            Self::HandOver => "hand-over",
            Self::Hold => "hold",
            Self::Queue => "queue",
        }
    }
}

/// A way from one node to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that sends a packet there.
    pub from: &'static str,
    /// The node that has it next.
    pub to: &'static str,
    /// Why, in a word or three; nothing where there is no choice.
    pub why: &'static str,
    /// What a snapshot must have for it: all of these.
    needs: u16,
}

const ALWAYS: u16 = 0;
/// Some interface is a router's.
const ROUTED: u16 = 1;
/// Some interface of a router has sessions.
const STATEFUL: u16 = 1 << 1;
/// There are sessions at all: those of bridges count too.
const FLOWS: u16 = 1 << 2;
const INSPECTED: u16 = 1 << 3;
const RECOGNISED: u16 = 1 << 4;
const BRIDGED: u16 = 1 << 5;
const HOSTED: u16 = 1 << 6;
const LINKED: u16 = 1 << 7;
const CHAINED: u16 = 1 << 8;
/// Some workers leave parsing to others.
const PARSED_ELSEWHERE: u16 = 1 << 9;
/// Some workers parse and leave the rest to others.
const ROUTED_ELSEWHERE: u16 = 1 << 10;

/// Plain IPv4 packets of some interface need a route and nothing else.
const PLAIN: u16 = 1 << 11;
/// Routers or interfaces have shares or rates.
const SHARED: u16 = 1 << 12;
/// Some interface is a tunnel, or the router that tunnels' outer packets come to.
const TUNNELLED: u16 = 1 << 13;
/// Some interface has subscribers' sites behind it, or their public addresses.
const SITES: u16 = 1 << 14;

macro_rules! nodes {
    ($($name:literal $help:literal [$($traced:literal),*] [$($leave:ident),*];)+) => {
        /// Every node, the ends included, in the order of a packet's way.
        pub const NODES: &[Node] = &[$(Node {
            name: $name,
            help: $help,
            traced: &[$($traced),*],
            leaves: &[$(Leave::$leave),*],
        }),+];
    };
}

nodes! {
    "receive" "frames from devices" [] [];
    "pass" "what other workers do the next part for" [] [HandOver, Drop];
    "admit" "what routers may have of a queue that they share" [] [Drop];
    "parse" "headers and validity" ["parse"] [Drop];
    "chain" "the steps of a router's chains" ["chain"] [Drop];
    "bridge" "frames between the two interfaces of a bridge" ["bridge"] [HandOver, Drop];
    "fragments" "later fragments are told the ports of their datagram" ["fragments"] [Park, HandOver, Drop];
    "established" "packets of known sessions" ["established"] [HandOver, Hold, Queue, Drop];
    "decide" "the first packet of a flow" ["decide"] [Park, Drop];
    "revise" "sessions of an older snapshot" ["revise"] [Drop];
    "inspect" "streams searched in order" ["inspect"] [Park, Drop];
    "recognise" "applications of sessions" ["recognise"] [];
    "forward" "packets without a session: routed, counted down" ["forward"] [HandOver, Drop];
    "transit" "plain IPv4 packets that need a route and nothing else" ["transit"] [Drop];
    "gateway" "what is addressed to the router itself" ["gateway"] [TakenIn, HandOver, Drop];
    "host" "what a router's host sends" ["host"] [HandOver, Drop];
    "punt" "what a router's host gets" ["punt"] [TakenIn, Drop];
    "subscriber" "DHCP of subscribers' sites, and ARP about their addresses" ["subscriber"] [TakenIn, Drop];
    "neighbour" "ARP, neighbour discovery, and who waits for it" ["discover", "wait"] [TakenIn, Park, HandOver, Drop];
    "complain" "ICMP errors and resets" ["complain"] [HandOver, Drop];
    "cut" "datagrams longer than the next link takes" [] [HandOver, Drop];
    "output" "the link header of the next hop" [] [HandOver, Drop];
    "cross" "over a virtual link to another router" ["cross"] [Drop];
    "encapsulate" "into a tunnel: the header of the outer packet" ["encapsulate"] [Drop];
    "decapsulate" "out of a tunnel: what the outer packet carries" ["decapsulate"] [TakenIn, Drop];
    "transmit" "frames to devices" [] [];
}

macro_rules! edges {
    ($($from:literal => $to:literal, $why:literal, $needs:expr;)+) => {
        /// Every way from node to node.
        pub const EDGES: &[Edge] = &[$(Edge { from: $from, to: $to, why: $why, needs: $needs }),+];
    };
}

edges! {
    "receive" => "parse", "", ALWAYS;
    "receive" => "admit", "routers have shares, or rates", SHARED;
    "admit" => "parse", "what they may have", SHARED;
    "receive" => "pass", "others parse", PARSED_ELSEWHERE;
    "parse" => "pass", "others route", ROUTED | ROUTED_ELSEWHERE;
    "parse" => "established", "has a stateful service", STATEFUL;
    "parse" => "forward", "has none", ROUTED;
    "parse" => "transit", "has none, and is plain", PLAIN;
    "transit" => "output", "", PLAIN;
    "transit" => "forward", "takes more than a route", PLAIN;
    "transit" => "decapsulate", "for an end of a tunnel", PLAIN | TUNNELLED;
    "parse" => "fragments", "fragment", FLOWS;
    "parse" => "neighbour", "ARP, ND", ROUTED;
    "parse" => "bridge", "on a bridge", BRIDGED;
    "parse" => "punt", "to a group, and a host listens", HOSTED;
    "parse" => "subscriber", "DHCP of sites", SITES;
    "parse" => "chain", "its router has chains", CHAINED;
    "chain" => "established", "sessions", CHAINED | STATEFUL;
    "chain" => "fragments", "a fragment", CHAINED | STATEFUL;
    "chain" => "forward", "none, or left out", CHAINED;
    "chain" => "pass", "others route", CHAINED | ROUTED_ELSEWHERE;
    "chain" => "transmit", "a copy", CHAINED;
    "bridge" => "established", "its flow is inspected", BRIDGED | INSPECTED;
    "bridge" => "fragments", "a fragment that is inspected", BRIDGED | INSPECTED;
    "bridge" => "transmit", "as it came", BRIDGED;
    "fragments" => "established", "", FLOWS;
    "established" => "decide", "no session", FLOWS;
    "established" => "revise", "older snapshot", FLOWS;
    "established" => "inspect", "is inspected", INSPECTED;
    "established" => "recognise", "its application is looked for", RECOGNISED;
    "established" => "established", "to an inside host by its outside address", STATEFUL;
    "established" => "bridge", "session of a bridge", BRIDGED | INSPECTED;
    "established" => "output", "", STATEFUL;
    "established" => "cut", "too long", STATEFUL;
    "established" => "complain", "TTL, MTU, refused", FLOWS;
    "established" => "punt", "its session is the host's", STATEFUL | HOSTED;
    "decide" => "established", "session made", FLOWS;
    "decide" => "host", "its host sent it, and no session knows it", STATEFUL | HOSTED;
    "decide" => "forward", "nothing to translate", STATEFUL;
    "decide" => "gateway", "to itself", STATEFUL;
    "decide" => "neighbour", "neighbour unknown", STATEFUL;
    "decide" => "complain", "no route, refused", STATEFUL;
    "revise" => "established", "", FLOWS;
    "revise" => "neighbour", "neighbour unknown", STATEFUL;
    "revise" => "complain", "no route", STATEFUL;
    "inspect" => "established", "goes on", INSPECTED;
    "inspect" => "complain", "rejected", INSPECTED;
    "recognise" => "established", "", RECOGNISED;
    "forward" => "output", "", ROUTED;
    "forward" => "gateway", "to itself", ROUTED;
    "forward" => "cut", "too long", ROUTED;
    "forward" => "complain", "no route, TTL, MTU, refused", ROUTED;
    "gateway" => "forward", "echo reply", ROUTED;
    "gateway" => "complain", "nothing listens there", ROUTED;
    "gateway" => "fragments", "of an echo request", ROUTED;
    "gateway" => "punt", "its router has a host", HOSTED;
    "gateway" => "subscriber", "DHCP for sites", SITES;
    "gateway" => "transmit", "echo reply in a site", SITES;
    "subscriber" => "transmit", "what control sends", SITES;
    "subscriber" => "forward", "DHCP to servers", SITES;
    "host" => "output", "to a neighbour, or a group", HOSTED;
    "host" => "forward", "to somebody elsewhere", HOSTED;
    "host" => "established", "may have a session", STATEFUL | HOSTED;
    "host" => "fragments", "a fragment that may be one", STATEFUL | HOSTED;
    "neighbour" => "transmit", "answer", ROUTED;
    "neighbour" => "punt", "router discovery", HOSTED;
    "neighbour" => "subscriber", "ARP that claims a site's address", SITES;
    "neighbour" => "established", "known by now, with sessions", STATEFUL;
    "neighbour" => "fragments", "known by now, a fragment", STATEFUL;
    "neighbour" => "forward", "known by now", ROUTED;
    "neighbour" => "complain", "nobody answers", ROUTED;
    "complain" => "forward", "ICMP error", ROUTED;
    "complain" => "established", "to an inside host by its outside address", STATEFUL;
    "complain" => "transmit", "ICMP error in a site", SITES;
    "complain" => "bridge", "ICMP error on a bridge", BRIDGED | INSPECTED;
    "cut" => "output", "", ROUTED;
    "output" => "neighbour", "neighbour unknown", ROUTED;
    "output" => "transmit", "", ROUTED;
    "output" => "cross", "over a virtual link", LINKED;
    "cross" => "parse", "as from a wire", LINKED;
    "cross" => "encapsulate", "into a tunnel", TUNNELLED;
    "encapsulate" => "forward", "the outer packet", TUNNELLED;
    "parse" => "decapsulate", "for an end of a tunnel", TUNNELLED;
    "decapsulate" => "parse", "what is inside", TUNNELLED;
    "decapsulate" => "forward", "a keepalive goes back", TUNNELLED;
}

/// The node of a name.
pub fn node(name: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == name)
}

/// The ways that packets of a snapshot may take, of one router where one is named.
pub fn live(snapshot: &Snapshot, stages: &Stages, router: Option<RouterIndex>) -> Vec<&'static Edge> {
    let has = has(snapshot, stages, router);
    let live = EDGES.iter().filter(|edge| edge.needs & !has == 0);
    // What nothing leads to is not there, whatever it would lead to.
    let mut edges: Vec<_> = live.collect();
    loop {
        let reached = |name: &str| name == "receive" || name == "host" || edges.iter().any(|edge| edge.to == name);
        let kept: Vec<_> = edges.iter().copied().filter(|edge| reached(edge.from)).collect();
        if kept.len() == edges.len() {
            return edges;
        }
        edges = kept;
    }
}

fn has(snapshot: &Snapshot, stages: &Stages, router: Option<RouterIndex>) -> u16 {
    let of = |interface: &&Interface| match router {
        Some(router) => interface.bridge.is_none() && interface.router == router,
        None => true,
    };
    let inspection = snapshot.inspection.as_deref();
    let applications = snapshot.applications.as_deref();
    // The worker that parses has no next one to leave routes to.
    let is_local = stages.workers(Part::Session).is_empty();
    let mut has = ALWAYS;
    for (number, interface) in (0..).zip(&snapshot.interfaces).filter(|(_, interface)| of(interface)) {
        let bridged = interface.bridge.is_some();
        let stateful = interface.stateful.contains(&true);
        let inspected = inspection.is_some_and(|inspection| inspection.is_on(number));
        let sought = applications.is_some_and(|applications| applications.is_on(number));
        for (bit, is_so) in [
            (ROUTED, !bridged),
            (STATEFUL, stateful && !bridged),
            (PLAIN, !bridged && is_local && snapshot.needs_routes_alone(interface)),
            (FLOWS, stateful || inspected || sought),
            (INSPECTED, inspected),
            (RECOGNISED, sought),
            (BRIDGED, bridged),
            (HOSTED, interface.host),
            (CHAINED, !bridged && snapshot.chains_at(number).is_some()),
            (
                SITES,
                snapshot
                    .sites
                    .as_deref()
                    .is_some_and(|sites| sites.is_access(number) || sites.is_public(number)),
            ),
            (LINKED, interface.peer.is_some() || interface.tunnel.is_some()),
            (
                TUNNELLED,
                interface.tunnel.is_some() || !bridged && snapshot.tunnels.end_in(interface.router),
            ),
        ] {
            has |= if is_so { bit } else { 0 };
        }
    }
    let elsewhere = |part: Part, before: Part| {
        let (workers, all) = (stages.workers(part), stages.workers(before));
        !workers.is_empty() && (all.is_empty() || all.iter().any(|worker| !workers.contains(worker)))
    };
    for (bit, is_so) in [
        (PARSED_ELSEWHERE, elsewhere(Part::Parse, Part::Receive)),
        (ROUTED_ELSEWHERE, elsewhere(Part::Session, Part::Parse)),
        (SHARED, snapshot.shares.is_some()),
    ] {
        has |= if is_so { bit } else { 0 };
    }
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_is_between_nodes_and_every_node_has_one() {
        for edge in EDGES {
            assert!(node(edge.from).is_some() && node(edge.to).is_some(), "{edge:?}");
        }
        for node in NODES {
            let meets = |edge: &&Edge| edge.from == node.name || edge.to == node.name;
            assert!(EDGES.iter().any(|edge| meets(&edge)), "{}", node.name);
        }
    }

    #[test]
    fn edges_from_one_node_differ() {
        for (place, edge) in EDGES.iter().enumerate() {
            let same = |other: &Edge| (other.from, other.to) == (edge.from, edge.to);
            assert!(!EDGES[..place].iter().any(same), "{edge:?} twice");
        }
    }
}
