//! The node graph: nodes, edges with their conditions, and the subgraph that packets can take under a snapshot.
//!
//! Tests compare the picture in `docs/architecture.md` and the traces of packets with this table.

use sluice_route::RouterIndex;

use crate::nodes::NODES;
use crate::nodes::declaration::{Node, needs};
use crate::placement::Part;
use crate::snapshot::stages::Stages;
use crate::snapshot::{Express, Interface, Snapshot};

/// An edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Name of the source node of the edge.
    pub from: &'static str,
    /// Name of the target node of the edge.
    pub to: &'static str,
    /// Condition of the edge in one to three words; empty if it is the only edge of its node.
    pub why: &'static str,
    /// Bit set of the configuration conditions ([`needs`]) under which packets can take the edge.
    needs: u16,
}

/// All edges.
pub fn edges() -> impl Iterator<Item = Edge> {
    NODES.iter().flat_map(|node| {
        node.exits.iter().map(|exit| Edge {
            from: node.name,
            to: exit.to,
            why: exit.why,
            needs: exit.needs,
        })
    })
}

/// The node with this name.
pub fn node(name: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == name)
}

/// The edges that packets can take under a snapshot: in all routers, or in one router.
pub fn live(snapshot: &Snapshot, stages: &Stages, router: Option<RouterIndex>) -> Vec<Edge> {
    let has = has(snapshot, stages, router);
    let live = edges().filter(|edge| edge.needs & !has == 0);
    // Remove edges from nodes that no packet can reach.
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
    // A worker that runs all stages itself doesn't hand packets off to other workers.
    let is_local = stages.workers(Part::Session).is_empty();
    let mut has = needs::ALWAYS;
    for (number, interface) in (0..).zip(&snapshot.interfaces).filter(|(_, interface)| of(interface)) {
        let bridged = interface.bridge.is_some();
        let stateful = interface.stateful.contains(&true);
        let inspected = inspection.is_some_and(|inspection| inspection.is_on(number));
        let pending = applications.is_some_and(|applications| applications.is_on(number));
        for (bit, applies) in [
            (needs::ROUTED, !bridged),
            (needs::STATEFUL, stateful && !bridged),
            (
                needs::PLAIN,
                !bridged && is_local && snapshot.needs_routes_alone(interface),
            ),
            (needs::EXPRESS, snapshot.express(interface) != [Express::Nothing; 2]),
            (needs::FLOWS, stateful || inspected || pending),
            (needs::INSPECTED, inspected),
            (needs::IDENTIFIED, pending),
            (needs::BRIDGED, bridged),
            (needs::HOSTED, interface.host),
            (needs::CHAINED, !bridged && snapshot.chains_at(number).is_some()),
            (
                needs::SITES,
                snapshot
                    .sites
                    .as_deref()
                    .is_some_and(|sites| sites.is_access(number) || sites.is_public(number)),
            ),
            (needs::LINKED, interface.peer.is_some() || interface.tunnel.is_some()),
            (
                needs::TUNNELLED,
                interface.tunnel.is_some() || !bridged && snapshot.tunnels.end_in(interface.router),
            ),
        ] {
            has |= if applies { bit } else { 0 };
        }
    }
    let elsewhere = |part: Part, before: Part| {
        let (workers, all) = (stages.workers(part), stages.workers(before));
        !workers.is_empty() && (all.is_empty() || all.iter().any(|worker| !workers.contains(worker)))
    };
    for (bit, applies) in [
        (needs::PARSED_ELSEWHERE, elsewhere(Part::Parse, Part::Receive)),
        (needs::ROUTED_ELSEWHERE, elsewhere(Part::Session, Part::Parse)),
        (needs::SHARED, snapshot.shares.is_some()),
    ] {
        has |= if applies { bit } else { 0 };
    }
    has
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::lists::NodeIndex;

    #[test]
    fn nodes_have_the_names_of_their_files() {
        for &index in NodeIndex::ALL {
            assert_eq!(format!("{index:?}").replace('_', "-"), index.node().name);
        }
        assert_eq!(NODES.len(), NodeIndex::ALL.len());
    }

    #[test]
    fn every_edge_is_between_nodes_and_every_node_has_one() {
        for edge in edges() {
            assert!(node(edge.from).is_some() && node(edge.to).is_some(), "{edge:?}");
        }
        for node in NODES {
            let is_incident = |edge: &Edge| edge.from == node.name || edge.to == node.name;
            assert!(edges().any(|edge| is_incident(&edge)), "{}", node.name);
        }
    }

    #[test]
    fn edges_from_one_node_differ() {
        for (place, edge) in edges().enumerate() {
            let same = |other: Edge| (other.from, other.to) == (edge.from, edge.to);
            assert!(!edges().take(place).any(same), "{edge:?} twice");
        }
    }
}
