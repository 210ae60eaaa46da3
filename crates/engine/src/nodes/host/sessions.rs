//! Sessions of a router's host.

use sluice_nat::rule::{self, SourceAction};
use sluice_nat::{PortClass, Tuple};
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::Flags;

use crate::features::context::NodeContext;
use crate::features::creation::{self, FlowDecision, FlowTranslation, NewFlows};
use crate::features::mss;
use crate::features::translation::{track, translate};
use crate::nodes::dont_fragment;
use crate::nodes::output::{AdjacencyCache, send};
use crate::nodes::slow_path;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, BufferIndices, Meta, Origin, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session};
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingDecision;

/// Whether packets that a host sends through an interface may belong to sessions.
pub fn may_answer(snapshot: &Snapshot, interface: u16) -> bool {
    let spread = snapshot.nat4.spread.as_ref();
    let context = snapshot.interface(interface).map_or(0, |interface| interface.context);
    spread.is_some_and(|spread| spread.has_host(context))
}

/// Handles packets of hosts that match no session: a packet leaves unchanged, or a session is created if a rule
/// matches. Slots with packets of a different origin stay in the list.
pub fn create_sessions<F: Family>(
    slots: &mut BufferIndices,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    flows: &mut NewFlows<F>,
    ctx: &NodeContext<'_, '_>,
) {
    slots.retain(|slot| {
        let meta = batch.meta(*slot);
        if !meta.is_from_gateway() {
            return true;
        }
        let frame = batch.packets[*slot as usize].bytes();
        let key = F::key(&meta.layers, frame, ctx.snapshot.context(meta, frame));
        match decide::<F>(ctx, meta, &key, None) {
            FlowDecision::Session(translation) => flows.push(*slot, key, translation),
            FlowDecision::Wait(wanted) => lists.wait_for_neighbour(*slot, Some(wanted)),
            FlowDecision::Drop(reason) => lists.drop_packet(*slot, reason),
            _ => {
                lists.sessionless |= 1 << (*slot as usize % BURST_BUFFERS);
                put(&mut lists.host, *slot);
            }
        }
        false
    });
}

/// Decides about a flow that a host starts. If a rule distributes flows to several hosts, the flow stays at its present
/// host `host`.
#[cold]
pub fn decide<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    host: Option<F::Address>,
) -> FlowDecision<F> {
    let (rules, tuple, protocol) = (&ctx.snapshot.nat::<F>().rules, &F::tuple(key), F::protocol(key));
    let layers = &meta.layers;
    let has_port = PortClass::of(protocol, <F::Address as sluice_nat::Address>::BITS).is_some();
    let begins = protocol != TCP || creation::is_first_segment(layers);
    if !has_port || !begins || layers.flags.has(Flags(Flags::ICMP_ERROR.0 | Flags::ICMP_REPLY.0)) {
        return FlowDecision::Plain;
    }
    let redirection = rules.match_host_destination(tuple, protocol);
    let target = match redirection.map(|decided| decided.action) {
        Some(rule::Destination::To(target)) => Some(target),
        Some(rule::Destination::Among(set, port)) => match creation::choose_host::<F>(ctx, key, set, port, host) {
            Ok(target) => Some(target),
            Err(plan) => return plan,
        },
        Some(rule::Destination::Exempt) | None => None,
    };
    let router = ctx.snapshot.router_of(meta.interface);
    let address = target.map_or(tuple.destination(), |target| target.address);
    let lookup = ctx.snapshot.lookup::<F>(router, tuple.source());
    let there = match ctx
        .forwarding
        .find::<F>(lookup, address, || F::hash_one(ctx.hasher, key))
    {
        ForwardingDecision::Hop(hop) => Ok(hop),
        ForwardingDecision::Unknown(wanted) => Err(wanted),
        // `forward` makes this decision when the packet is sent.
        ForwardingDecision::Local | ForwardingDecision::Refused(_) => return FlowDecision::Plain,
    };
    let out = there.map_or_else(|wanted| wanted.interface, |hop| hop.interface() as u16);
    let sourcing = rules.match_host_source(tuple, protocol, out);
    let (pool, outside) = match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(pool)) => (Some(pool), None),
        Some(SourceAction::Static(address)) => (None, Some(address)),
        Some(SourceAction::Exempt) | None => (None, None),
    };
    if target.is_none() && pool.is_none() && outside.is_none() {
        return FlowDecision::Plain;
    }
    let there = match there {
        Ok(hop) => hop,
        Err(wanted) => return FlowDecision::Wait(wanted),
    };
    if meta.origin == Origin::Gateway {
        sourcing
            .into_iter()
            .for_each(|decided| rules.count_source(decided.rule, 1));
        redirection
            .into_iter()
            .for_each(|decided| rules.count_destination(decided.rule, 1));
        slow_path::count_host::<F>(rules, &redirection, target);
    }
    FlowDecision::Session(FlowTranslation {
        target,
        pool,
        outside,
        mapped: None,
        hops: [there, AdjacencyIndex::LOCAL],
        answers: None,
    })
}

/// Translates a packet of a session that a host sends. The TTL of the packet is not decremented.
#[cold]
pub fn answer<F: Family>(
    slot: BufferIndex,
    (index, direction): (RecordIndex, Direction),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    adjacencies: &mut AdjacencyCache,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    let (layers, exit) = (meta.layers, ctx.exit());
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
    let Some((shard, session)) = shard.and_then(|shard| {
        let session = *F::table_ref(shard).get(index)?;
        Some((shard, session))
    }) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    let hop = session.adjacency(direction);
    if hop == AdjacencyIndex::LOCAL || hop == AdjacencyIndex::HAIRPIN {
        return lists.drop_packet(slot, EngineReason::Loop);
    }
    if hop == AdjacencyIndex::UNRESOLVED && !layers.flags.has(Flags::ICMP_ERROR) {
        return put(lists.revalidate.of::<F>(), slot);
    }
    let Some(adjacency) = adjacencies.of(hop, &exit) else {
        return lists.wait_for_neighbour(slot, exit.forwarding.unresolved(hop));
    };
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > adjacency.mtu;
    if cut && (F::IS_V6 || dont_fragment(packet.bytes(), &layers)) {
        return lists.icmp_error(slot, IcmpError::TooBig(adjacency.mtu), sluice_route::Reason::TooBig);
    }
    let tracked = match translate::<F>(packet.bytes_mut(), &layers, &session, direction, 0) {
        Ok(tracked) => tracked,
        Err(reason) => return lists.drop_packet(slot, reason),
    };
    if mss::has_mss(&layers) {
        mss::clamp::<F>(packet, &layers, [meta.interface, hop.interface() as u16], exit.snapshot);
    }
    if let Some(session) = F::table(shard).get_mut(index) {
        let track = session.track_mut();
        track.count(direction, length);
    }
    track::<F>(tracked, shard, index, direction, exit.snapshot, exit.now);
    match cut {
        true => lists.fragment(slot, hop),
        false => send(adjacency, slot, packet, meta, lists, &exit),
    }
}
