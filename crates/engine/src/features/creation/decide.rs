//! Repeats the decision for a single flow with the first three steps of session creation.

use sluice_filter::{SessionApplication, Verdict};
use sluice_nat::Tuple;

use super::FlowDecision;
use super::filter::{leads_to_host, needs_filter, untracked};
use super::route::{complete, route_flow};
use crate::features::context::NodeContext;
use crate::features::filter;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::session::family::Family;

/// Matches rules and routes for a session's flow, as for a packet that arrived on the interface of `meta`. Filter rules
/// are evaluated with the application and the mark of the session; a rejection by a rule with an application condition
/// is ignored. If a rule distributes flows to several hosts, the flow stays at its present host `host`.
pub fn decide<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    (known, mark): (Option<SessionApplication>, u32),
    host: Option<F::Address>,
) -> FlowDecision<F> {
    let (rules, tuple, protocol) = (&ctx.snapshot.nat::<F>().rules, &F::tuple(key), F::protocol(key));
    let redirection = rules.match_destination(tuple, protocol, meta.interface);
    match route_flow::<F>(ctx, meta, key, redirection, host) {
        Ok(routed) => {
            let interface = routed.outgoing();
            let sourcing = rules
                .match_source(tuple, protocol, interface)
                .filter(|_| !routed.settled);
            let plan = complete::<F>(ctx, meta, key, &routed, sourcing);
            let is_local = leads_to_host(&plan);
            let filter = ctx
                .snapshot
                .filter_of(tuple.context())
                .filter(|filter| is_local || needs_filter(filter, &plan));
            let result = filter.map(|filter| {
                let tuple = routed.translated(tuple);
                let header = filter::first_header::<F>(ctx.snapshot, meta, protocol, &tuple, interface);
                let back = match &plan {
                    FlowDecision::Session(translation) => translation.hops[1],
                    _ => AdjacencyIndex::UNRESOLVED,
                };
                let header = filter::with_macs(ctx.snapshot, header.with_mark(mark), || {
                    filter::macs_from(ctx.snapshot, ctx.forwarding, meta.interface, back)
                });
                match is_local {
                    true => filter::query_gateway::<F>(filter, header),
                    false => F::filter(filter).evaluate_as(&header, known),
                }
            });
            match result {
                Some(result) if !filter::may_start(result) => FlowDecision::Drop(sluice_filter::Reason::Denied.into()),
                Some(result) if result.verdict == Verdict::AcceptUntracked => {
                    untracked::<F>(ctx, meta, key, &routed, plan)
                }
                _ => plan,
            }
        }
        Err(plan) => plan,
    }
}
