//! The graph of nodes: which there are, where each may send a packet and why, and which of it a snapshot has.
//!
//! The picture in `docs/architecture.md` is compared with this table, and so is what tracers see of packets.

use sluice_route::RouterIndex;

use crate::placement::Part;
use crate::snapshot::stages::Stages;
use crate::snapshot::{Interface, Snapshot};

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
    "receive" "receives frames from devices" [] [];
    "hand-off" "hands packets to the workers of the next stage" [] [HandOver, Drop];
    "admit" "limits routers to their share of a receive queue" [] [Drop];
    "parse" "parses headers and checks their validity" ["parse"] [Drop];
    "chain" "runs the steps of a router's chains" ["chain"] [Drop];
    "bridge" "forwards frames between the two interfaces of a bridge" ["bridge"] [HandOver, Drop];
    "virtual-reassembly" "gives later fragments the ports of their datagram" ["virtual-reassembly"] [Park, HandOver, Drop];
    "session-lookup" "finds the session of a packet and translates it" ["session-lookup"] [HandOver, Hold, Queue, Drop];
    "slow-path" "decides the first packet of a flow" ["slow-path"] [Park, Drop];
    "revalidate" "decides sessions of an older snapshot again" ["revalidate"] [Drop];
    "inspect" "inspects streams in order" ["inspect"] [Park, Drop];
    "identify" "identifies the applications of sessions" ["identify"] [];
    "forward" "routes packets without a session" ["forward"] [HandOver, Drop];
    "ip4-fast-forward" "routes plain IPv4 packets without a session" ["ip4-fast-forward"] [Drop];
    "local-delivery" "receives what is addressed to the router itself" ["local-delivery"] [TakenIn, HandOver, Drop];
    "host" "sends packets of a router's host" ["host"] [HandOver, Drop];
    "punt" "delivers packets to a router's host" ["punt"] [TakenIn, Drop];
    "subscriber" "relays DHCP and ARP of subscribers' sites to the control plane" ["subscriber"] [TakenIn, Drop];
    "neighbour" "answers ARP and neighbour discovery, parks packets that wait for a neighbour" ["discover", "wait"] [TakenIn, Park, HandOver, Drop];
    "icmp-error" "makes ICMP errors and resets" ["icmp-error"] [HandOver, Drop];
    "fragmentation" "fragments datagrams longer than the MTU" [] [HandOver, Drop];
    "output" "writes the link header of the next hop" [] [HandOver, Drop];
    "inter-router-link" "passes packets over a virtual link to another router" ["inter-router-link"] [Drop];
    "encapsulate" "writes the outer header of a tunnel" ["encapsulate"] [Drop];
    "decapsulate" "removes the outer header of a tunnel" ["decapsulate"] [TakenIn, Drop];
    "transmit" "transmits frames to devices" [] [];
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
    "admit" => "parse", "within its share", SHARED;
    "receive" => "hand-off", "parsed by another worker", PARSED_ELSEWHERE;
    "parse" => "hand-off", "routed by another worker", ROUTED | ROUTED_ELSEWHERE;
    "parse" => "session-lookup", "has a stateful service", STATEFUL;
    "parse" => "forward", "no stateful service", ROUTED;
    "parse" => "ip4-fast-forward", "plain, no stateful service", PLAIN;
    "ip4-fast-forward" => "output", "", PLAIN;
    "ip4-fast-forward" => "forward", "needs more than a route", PLAIN;
    "ip4-fast-forward" => "decapsulate", "to a tunnel endpoint", PLAIN | TUNNELLED;
    "parse" => "virtual-reassembly", "fragment", FLOWS;
    "parse" => "neighbour", "ARP, ND", ROUTED;
    "parse" => "bridge", "on a bridge", BRIDGED;
    "parse" => "punt", "multicast to the router's host", HOSTED;
    "parse" => "subscriber", "DHCP of sites", SITES;
    "parse" => "chain", "its router has chains", CHAINED;
    "chain" => "session-lookup", "sessions", CHAINED | STATEFUL;
    "chain" => "virtual-reassembly", "a fragment", CHAINED | STATEFUL;
    "chain" => "forward", "no sessions", CHAINED;
    "chain" => "hand-off", "routed by another worker", CHAINED | ROUTED_ELSEWHERE;
    "chain" => "transmit", "a copy", CHAINED;
    "bridge" => "session-lookup", "inspected flow", BRIDGED | INSPECTED;
    "bridge" => "virtual-reassembly", "fragment of an inspected flow", BRIDGED | INSPECTED;
    "bridge" => "transmit", "unchanged", BRIDGED;
    "virtual-reassembly" => "session-lookup", "", FLOWS;
    "session-lookup" => "slow-path", "no session", FLOWS;
    "session-lookup" => "revalidate", "older snapshot", FLOWS;
    "session-lookup" => "inspect", "inspected", INSPECTED;
    "session-lookup" => "identify", "application not identified yet", RECOGNISED;
    "session-lookup" => "session-lookup", "hairpinned", STATEFUL;
    "session-lookup" => "bridge", "session of a bridge", BRIDGED | INSPECTED;
    "session-lookup" => "output", "", STATEFUL;
    "session-lookup" => "fragmentation", "too long", STATEFUL;
    "session-lookup" => "icmp-error", "TTL, MTU, rejected", FLOWS;
    "session-lookup" => "punt", "session of the router's host", STATEFUL | HOSTED;
    "slow-path" => "session-lookup", "session created", FLOWS;
    "slow-path" => "host", "from the host, no session", STATEFUL | HOSTED;
    "slow-path" => "forward", "nothing to translate", STATEFUL;
    "slow-path" => "local-delivery", "to the router itself", STATEFUL;
    "slow-path" => "neighbour", "neighbour unknown", STATEFUL;
    "slow-path" => "icmp-error", "no route, rejected", STATEFUL;
    "revalidate" => "session-lookup", "", FLOWS;
    "revalidate" => "neighbour", "neighbour unknown", STATEFUL;
    "revalidate" => "icmp-error", "no route", STATEFUL;
    "inspect" => "session-lookup", "passed", INSPECTED;
    "inspect" => "icmp-error", "rejected", INSPECTED;
    "identify" => "session-lookup", "", RECOGNISED;
    "forward" => "output", "", ROUTED;
    "forward" => "local-delivery", "to the router itself", ROUTED;
    "forward" => "fragmentation", "too long", ROUTED;
    "forward" => "icmp-error", "no route, TTL, MTU, rejected", ROUTED;
    "local-delivery" => "forward", "echo reply", ROUTED;
    "local-delivery" => "icmp-error", "no listener", ROUTED;
    "local-delivery" => "virtual-reassembly", "fragment of an echo request", ROUTED;
    "local-delivery" => "punt", "its router has a host", HOSTED;
    "local-delivery" => "subscriber", "DHCP for sites", SITES;
    "local-delivery" => "transmit", "echo reply in a site", SITES;
    "subscriber" => "transmit", "from the control plane", SITES;
    "subscriber" => "forward", "DHCP to servers", SITES;
    "host" => "output", "to a neighbour, or a group", HOSTED;
    "host" => "forward", "to another network", HOSTED;
    "host" => "session-lookup", "may have a session", STATEFUL | HOSTED;
    "host" => "virtual-reassembly", "fragment that may have a session", STATEFUL | HOSTED;
    "neighbour" => "transmit", "answer", ROUTED;
    "neighbour" => "punt", "router discovery", HOSTED;
    "neighbour" => "subscriber", "ARP conflict about a site's address", SITES;
    "neighbour" => "session-lookup", "resolved, with sessions", STATEFUL;
    "neighbour" => "virtual-reassembly", "resolved, fragment", STATEFUL;
    "neighbour" => "forward", "resolved", ROUTED;
    "neighbour" => "icmp-error", "unresolved", ROUTED;
    "icmp-error" => "forward", "ICMP error", ROUTED;
    "icmp-error" => "session-lookup", "hairpinned", STATEFUL;
    "icmp-error" => "transmit", "ICMP error in a site", SITES;
    "icmp-error" => "bridge", "ICMP error on a bridge", BRIDGED | INSPECTED;
    "fragmentation" => "output", "", ROUTED;
    "output" => "neighbour", "neighbour unknown", ROUTED;
    "output" => "transmit", "", ROUTED;
    "output" => "inter-router-link", "over a virtual link", LINKED;
    "inter-router-link" => "parse", "received on the peer interface", LINKED;
    "inter-router-link" => "encapsulate", "into a tunnel", TUNNELLED;
    "encapsulate" => "forward", "the outer packet", TUNNELLED;
    "parse" => "decapsulate", "to a tunnel endpoint", TUNNELLED;
    "decapsulate" => "parse", "inner packet", TUNNELLED;
    "decapsulate" => "forward", "keepalive reply", TUNNELLED;
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
