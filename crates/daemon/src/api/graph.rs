//! The packet graph: its nodes and edges, and the feature chains of each router with a counter for each step.

use std::sync::Arc;

use sluice_config::api::{Graph, GraphChain, GraphEdge, GraphNode, GraphStep, NodeWork, RouterFilter, operation};
use sluice_engine::control::graph::{Edge, live};
use sluice_engine::nodes::{HAS_LIST, NODES};
use sluice_engine::snapshot::chains::{Chains, ListedStep};

use super::sessions::router;
use super::{Refusal, Serve};
use crate::control::Control;

impl Serve for operation::Graph {
    async fn serve(control: Arc<Control>, wanted: RouterFilter) -> Result<Self::Answer, Refusal> {
        let plane = control.plane();
        let policy = plane.snapshot();
        let wanted = router(policy, wanted.router.as_deref())?;
        let edges = live(policy, &plane.start_parameters().stages, wanted);
        let is_there = |name: &str| edges.iter().any(|edge| edge.from == name || edge.to == name);
        let all = NODES.iter().zip(HAS_LIST).enumerate();
        let nodes = all
            .filter(|(_, (node, _))| is_there(node.name))
            .map(|(place, (node, &has_list))| GraphNode {
                name: node.name.into(),
                help: node.help.into(),
                leaves: node.leaves.iter().map(|leave| leave.name().into()).collect(),
                work: has_list.then(|| work(&control, place)),
            });
        let edge = |edge: &Edge| GraphEdge {
            from: edge.from.into(),
            to: edge.to.into(),
            why: edge.why.into(),
        };
        let mut chains = Vec::new();
        for (number, (router, own)) in (0..).zip(policy.routers.iter().zip(&policy.chains)) {
            if let Some(own) = own.as_deref().filter(|_| wanted.is_none_or(|wanted| wanted == number)) {
                chains.extend(chains_of(&router.name, own));
            }
        }
        Ok(Graph {
            nodes: nodes.collect(),
            edges: edges.iter().map(edge).collect(),
            chains,
            copies_lost: control.counters.iter().map(|worker| worker.copies_lost.get()).sum(),
        })
    }
}

/// Counters of a node, summed over all workers.
fn work(control: &Control, place: usize) -> NodeWork {
    let all = control.counters.iter().filter_map(|worker| worker.nodes.get(place));
    all.fold(NodeWork::default(), |sum, node| NodeWork {
        runs: sum.runs + node.runs.get(),
        packets: sum.packets + node.packets.get(),
        cycles: sum.cycles + node.cycles.get(),
    })
}

fn chains_of(router: &str, chains: &Chains) -> Vec<GraphChain> {
    let step = |listed: &ListedStep| {
        let total = listed
            .tally
            .and_then(|tally| chains.tally(tally))
            .map(|tally| tally.total());
        GraphStep {
            step: listed.text.clone(),
            to: listed.to.clone(),
            packets: total.map(|(packets, _)| packets),
            bytes: total.map(|(_, bytes)| bytes),
        }
    };
    let by_chain = chains.listed().chunk_by(|one, other| one.chain == other.chain);
    by_chain
        .filter_map(|steps| {
            Some(GraphChain {
                router: router.into(),
                name: steps.first()?.chain.clone(),
                steps: steps.iter().map(step).collect(),
            })
        })
        .collect()
}
