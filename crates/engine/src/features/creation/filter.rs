//! The third step of session creation: evaluates the filter for new flows.

use sluice_filter::{Filters, Header, SessionMarking, Verdict};
use sluice_nat::Tuple;
use sluice_nat::sites::is_site;
use sluice_wire::layers::{Flags, Fragment};

use super::route::{is_examined, may_start};
use super::{FlowDecision, FlowTranslation, NewFlows, RoutedFlow, needs_host_session};
use crate::features::context::NodeContext;
use crate::features::filter::{self, Exception, FilterQueries, Rejection};
use crate::features::{input_filter, sites};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::io::BURST_BUFFERS;
use crate::session::family::Family;
use crate::snapshot::Snapshot;
use crate::snapshot::marks::set_class;

impl<F: Family> NewFlows<F> {
    /// Evaluates the filter together for all flows for which sessions may be created.
    pub fn filter(&mut self, batch: &mut Batch<'_, '_>, ctx: &NodeContext<'_, '_>) {
        let snapshot = ctx.snapshot;
        let mut queries = FilterQueries::<F>::default();
        let flows = self.flows.iter_mut().zip(&self.keys).enumerate().skip(self.classified);
        for (place, (flow, key)) in flows {
            let Some(route) = &flow.route else { continue };
            let (meta, frame) = (batch.meta(flow.slot), batch.packets[flow.slot as usize].bytes());
            let decision = match is_untracked_fragment::<F>(ctx, meta, frame, key, route, &flow.decision) {
                true => flow.decision,
                false => later_fragment::<F>(snapshot, meta, flow.decision),
            };
            let decision = sites::reject_forged::<F>(snapshot, meta, frame, key, decision);
            if let Some(header) = filter_query::<F>(ctx, meta, frame, key, route, &decision) {
                queries.push(place, header);
            }
            flow.decision = match leads_to_host(&decision) {
                true => filter_local::<F>(ctx, meta, frame, key, route, decision),
                false => decision,
            };
        }
        if let Some(filter) = snapshot.filter.as_deref() {
            self.except(&queries, filter, batch, ctx);
        }
    }

    /// Applies the filter results of flows that are rejected or accepted without a session.
    fn except(
        &mut self,
        queries: &FilterQueries<F>,
        filter: &Filters,
        batch: &mut Batch<'_, '_>,
        ctx: &NodeContext<'_, '_>,
    ) {
        let Self {
            flows, keys, markings, ..
        } = self;
        let marked = |place: usize, marking: SessionMarking| {
            let slot = flows[place].slot;
            put(markings, (slot, marking));
            if !marking.class.is_any() {
                let slot = slot as usize % BURST_BUFFERS;
                set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
            }
        };
        for (place, exception) in queries.exceptions(filter, ctx, marked) {
            let flow = &mut flows[place];
            flow.decision = match (exception, &flow.route) {
                (Exception::Refused(refused), _) => reject(refused),
                (Exception::Untracked, Some(route)) => {
                    untracked::<F>(ctx, batch.meta(flow.slot), &keys[place], route, flow.decision)
                }
                (Exception::Untracked, None) => continue,
            };
        }
    }
}

/// Whether this step evaluates the filter for a flow with this decision. If the filter is stateless, `forward`
/// evaluates it for each packet without a session.
#[inline(always)]
pub(super) fn needs_filter<F: Family>(filter: &Filters, plan: &FlowDecision<F>) -> bool {
    match plan {
        FlowDecision::Session(translation) => {
            !matches!(translation.hops[0], AdjacencyIndex::HAIRPIN | AdjacencyIndex::LOCAL)
        }
        FlowDecision::Plain | FlowDecision::Wait(_) => filter.sessions,
        _ => false,
    }
}

/// Whether the decision translates a flow to the router's own host.
#[inline(always)]
pub(super) fn leads_to_host<F: Family>(plan: &FlowDecision<F>) -> bool {
    matches!(plan, FlowDecision::Session(translation) if translation.hops[0] == AdjacencyIndex::LOCAL)
}

/// The decision for a flow that a rule translates to the router's own host. The input filter may change it to a rejection.
#[cold]
fn filter_local<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    routed: &RoutedFlow<F>,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let tuple = routed.translated(&F::tuple(key));
    let filters = ctx.snapshot.filter_of(tuple.context());
    let Some((filters, filter)) = filters.and_then(|filters| Some((filters, F::gateway_filter(filters)?))) else {
        return plan;
    };
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return plan;
    }
    let header = input_filter::header(filter::header::<F>(
        ctx.snapshot,
        meta,
        frame,
        &tuple,
        routed.outgoing(),
    ));
    match filter::query_filter::<F>((filters, filter), &header, ctx.own, ctx.now.nanoseconds) {
        Ok(()) => plan,
        Err(refused) => reject(refused),
    }
}

/// The decision for a packet that a rule accepts without tracking. The packet still creates a session if its flow needs
/// one for another reason, such as translation.
pub(super) fn untracked<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    routed: &RoutedFlow<F>,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let FlowDecision::Session(FlowTranslation {
        pool, outside, hops, ..
    }) = plan
    else {
        return plan;
    };
    let (tuple, protocol) = (&F::tuple(key), F::protocol(key));
    let translates = routed.target.is_some() || pool.is_some() || outside.is_some() || is_site(tuple.context());
    let needs = translates
        || routed.inside.is_some()
        || meta.origin != Origin::Received
        || is_examined(ctx.snapshot, meta, protocol, hops[0])
        || needs_host_session::<F>(ctx.snapshot, meta.interface, tuple, protocol) && may_start(&meta.layers);
    match needs {
        true => plan,
        false => FlowDecision::Plain,
    }
}

/// Drops a later fragment that would create a session in a filtered context. Rules can't match the ports of a later
/// fragment, and its session would permit the whole flow.
#[inline(always)]
fn later_fragment<F: Family>(snapshot: &Snapshot, meta: &Meta, plan: FlowDecision<F>) -> FlowDecision<F> {
    let opens = matches!(plan, FlowDecision::Session(_)) && meta.layers.fragment == Fragment::Later;
    let context = snapshot
        .interface(meta.interface)
        .map_or(0, |interface| interface.context);
    match opens && snapshot.filter_of(context).is_some() {
        true => FlowDecision::Drop(sluice_filter::Reason::Fragment.into()),
        false => plan,
    }
}

/// Whether a rule accepts a later fragment without tracking.
#[inline(always)]
fn is_untracked_fragment<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    routed: &RoutedFlow<F>,
    plan: &FlowDecision<F>,
) -> bool {
    meta.layers.fragment == Fragment::Later
        && filter_query::<F>(ctx, meta, frame, key, routed, plan).is_some_and(|header| {
            let filter = ctx.snapshot.filter_of(F::tuple(key).context());
            let result = filter.map(|filter| F::filter(filter).evaluate(&header));
            result.is_some_and(|result| result.verdict == Verdict::AcceptUntracked)
                && matches!(untracked::<F>(ctx, meta, key, routed, *plan), FlowDecision::Plain)
        })
}

/// The filter query of a packet; `None` if the filter is not evaluated for the packet.
#[inline(always)]
fn filter_query<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    routed: &RoutedFlow<F>,
    plan: &FlowDecision<F>,
) -> Option<Header<F::Number>> {
    let filter = ctx.snapshot.filter_of(F::tuple(key).context())?;
    let error = meta.layers.flags.has(Flags::ICMP_ERROR);
    if !needs_filter(filter, plan) || error && matches!(plan, FlowDecision::Session(_)) {
        return None;
    }
    let header = filter::header::<F>(
        ctx.snapshot,
        meta,
        frame,
        &routed.translated(&F::tuple(key)),
        routed.outgoing(),
    );
    // A packet that waits for a neighbour is filtered and counted when it is unparked. It is parked only if it would pass the filter.
    let waits = matches!(plan, FlowDecision::Wait(_)) && filter::would_pass::<F>(F::filter(filter), &header);
    (!waits).then_some(header)
}

/// The decision for a packet that the filter rejects.
#[inline(always)]
pub(super) fn reject<F: Family>((icmp_error, reason): Rejection) -> FlowDecision<F> {
    match icmp_error {
        Some(icmp_error) => FlowDecision::SendIcmpError(icmp_error, reason),
        None => FlowDecision::Drop(reason),
    }
}
