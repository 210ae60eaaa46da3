//! slow-path: passes packets without a session through the five steps of session creation ([`crate::features::creation`]).

use sluice_wire::layers::Flags;

use crate::features::context::NodeContext;
use crate::features::creation::{self, CreationState, FlowDecision, NewFlows};
use crate::features::session_end::end;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::{bridge, host};
use crate::packet::batch::{Batch, BufferIndices, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Reason;
use crate::session::family::Family;

use rule_hits::RuleHits;
use unsolicited::unsolicited;

mod rule_hits;
mod unsolicited;

pub(super) use rule_hits::count_host;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "slow-path",
    help: "decides the first packet of a flow",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::Park, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "session created", needs::FLOWS),
        Exit::new("host", "from the host, no session", needs::STATEFUL | needs::HOSTED),
        Exit::new("forward", "nothing to translate", needs::STATEFUL),
        Exit::new("local-delivery", "to the router itself", needs::STATEFUL),
        Exit::new("neighbour-resolution", "neighbour unknown", needs::STATEFUL),
        Exit::new("icmp-error", "no route, rejected", needs::STATEFUL),
    ],
};

/// Passes packets without a session through the steps.
#[inline(never)]
pub fn slow_path<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    let mut slots = std::mem::take(lists.slow_path.of::<F>());
    if ctx.snapshot.bridges {
        slots = bridge::create_sessions::<F>(slots, batch, lists, ctx);
    }
    let mut flows = NewFlows::<F>::default();
    if ctx.snapshot.hosted {
        host::create_sessions::<F>(&mut slots, batch, lists, &mut flows, ctx);
    }
    flows.classify(&slots, batch, ctx);
    flows.route(batch, ctx);
    flows.filter(batch, ctx);
    let fragments = send_on(&mut flows, batch, lists, ctx);
    create(&mut flows, batch, lists, ctx);
    for slot in fragments {
        put(lists.session_lookup.of::<F>(), slot);
    }
}

/// The last two steps: creates sessions for the permitted flows. The packets of these flows return to session lookup;
/// other packets are dropped.
pub(super) fn create<F: Family>(
    flows: &mut NewFlows<F>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let hashes = flows.allocate(batch, ctx);
    flows.insert(batch, ctx, &hashes);
    for flow in &flows.flows {
        let state = match flow.state {
            CreationState::SameFlow(leader) => flows.flows[leader as usize].state,
            state => state,
        };
        match (state, flow.decision) {
            (CreationState::Decided, _) => {}
            (CreationState::Refused((_, reason)), FlowDecision::Session(translation))
                if translation.hops[0].is_bridge() =>
            {
                bridge::fail(flow.slot, reason, batch, lists, ctx);
            }
            (CreationState::Refused(refusal), _) => lists.reject(flow.slot, refusal),
            (CreationState::Stale, _) => put(lists.slow_path.of::<F>(), flow.slot),
            _ => put(lists.session_lookup.of::<F>(), flow.slot),
        }
    }
}

/// Forwards, answers or drops the packets of flows that get no session. Returns the later fragments of datagrams if the
/// first fragment creates a session in this pass.
fn send_on<F: Family>(
    flows: &mut NewFlows<F>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) -> BufferIndices {
    let rules = &ctx.snapshot.nat::<F>().rules;
    let (mut sources, mut destinations) = (RuleHits::default(), RuleHits::default());
    let mut fragments = BufferIndices::new();
    for place in flows.classified..flows.flows.len() {
        let (flow, key) = (flows.flows[place], flows.keys[place]);
        let slot = flow.slot;
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        if matches!(flow.decision, FlowDecision::Session(_) | FlowDecision::Plain) {
            sources.note(flow.source_rule, |rule, flows| rules.count_source(rule, flows));
            let rule = flow.destination.map(|decided| decided.rule);
            destinations.note(rule, |rule, flows| rules.count_destination(rule, flows));
        }
        let error = meta.layers.flags.has(Flags::ICMP_ERROR);
        if let FlowDecision::Session(translation) = flow.decision
            && !error
        {
            count_host::<F>(rules, &flow.destination, translation.target);
            continue;
        }
        flows.flows[place].state = CreationState::Decided;
        match flow.decision {
            // The ICMP error would need a translation, but no session exists for the quoted packet (RFC 5508, REQ-4 and REQ-5).
            FlowDecision::Session(_) => lists.drop_packet(slot, sluice_nat::Reason::IcmpErrorWithoutSession),
            FlowDecision::Drop(Reason::Nat(sluice_nat::Reason::Unsolicited)) if error => {
                lists.drop_packet(slot, sluice_nat::Reason::IcmpErrorWithoutSession);
            }
            FlowDecision::Plain => {
                end_reusable::<F>(meta, &key, ctx);
                put(lists.forward.of::<F>(), slot);
            }
            FlowDecision::Gateway => put(&mut lists.local_delivery, slot),
            FlowDecision::Hairpin => {
                meta.origin = Origin::Hairpinned;
                put(lists.session_lookup.of::<F>(), slot);
            }
            FlowDecision::Wait(wanted) => lists.wait_for_neighbour(slot, Some(wanted)),
            FlowDecision::SendIcmpError(error, reason) => lists.icmp_error(slot, error, reason),
            FlowDecision::Drop(Reason::Filter(sluice_filter::Reason::Fragment))
                if is_with_first_fragment::<F>(place, flows) =>
            {
                put(&mut fragments, slot);
            }
            FlowDecision::Drop(reason) => match unsolicited::<F>(ctx, slot, meta, &key, reason) {
                Some(syn) => put(&mut lists.park_syn, syn),
                None => lists.drop_packet(slot, reason),
            },
        }
    }
    sources.flush(|rule, flows| rules.count_source(rule, flows));
    destinations.flush(|rule, flows| rules.count_destination(rule, flows));
    fragments
}

/// Ends the session of a closed connection that a SYN would reopen, because no session is created for the SYN.
#[inline(always)]
fn end_reusable<F: Family>(meta: &Meta, key: &F::Key, ctx: &mut NodeContext<'_, '_>) {
    let tools = ctx.tools();
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
    if let Some(shard) = shard.filter(|_| creation::is_first_segment(&meta.layers)) {
        let hash = F::hash_one(ctx.hasher, key);
        if let Some(index) = creation::reusable_session::<F>(shard, hash, key, &meta.layers) {
            end::<F>(shard, index, &tools);
        }
    }
}

/// Whether a later fragment arrived in the same burst as the first fragment of its datagram. Only the first fragment
/// can create a session.
#[cold]
fn is_with_first_fragment<F: Family>(place: usize, flows: &NewFlows<F>) -> bool {
    let before = flows.keys.iter().zip(&flows.flows).take(place);
    let key = flows.keys.get(place);
    before
        .filter(|(_, flow)| matches!(flow.decision, FlowDecision::Session(_)))
        .any(|(other, _)| Some(other) == key)
}
