//! host: sends packets that a router's host has sent. A packet leaves unchanged through the interface that the host has
//! selected. If rules translate flows to the host or match its packets, the packet is processed as part of a session
//! instead.

use sluice_nat::rule::{self, SourceAction};
use sluice_nat::{PortClass, Tuple};
use sluice_route::Address;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ethernet::{self, multicast4, multicast6};
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Class, Flags, Fragment};

use crate::features::context::NodeContext;
use crate::features::creation::{self, FlowDecision, FlowTranslation, NewFlows};
use crate::features::input_filter;
use crate::features::mss;
use crate::features::translation::{track, translate};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::output::{AdjacencyCache, output, send};
use crate::nodes::slow_path;
use crate::nodes::{dont_fragment, leave};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, BufferIndices, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::{Family, Session, V4, V6};
use crate::snapshot::forwarding::ForwardingDecision;
use crate::snapshot::{Interface, Snapshot};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "host",
    help: "sends packets of a router's host",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("output", "to a neighbour, or a group", needs::HOSTED),
        Exit::new("forward", "to another network", needs::HOSTED),
        Exit::new("session-lookup", "may have a session", needs::STATEFUL | needs::HOSTED),
        Exit::new(
            "virtual-reassembly",
            "fragment that may have a session",
            needs::STATEFUL | needs::HOSTED,
        ),
    ],
};

/// Destination of a frame from a host.
enum FrameTarget {
    /// A multicast group or the broadcast address of the link.
    Group([u8; 6]),
    /// A neighbour on the link, which must be resolved.
    Neighbour(UnresolvedNeighbour),
    /// A destination that is not on the link. The packet is routed.
    Routed,
}

/// Sends the packets of hosts.
#[inline(never)]
pub fn host(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    let exit = ctx.exit();
    for slot in std::mem::take(&mut lists.host) {
        let meta = *batch.meta(slot);
        if meta.layers.class == Class::Ipv4
            && may_answer(ctx.snapshot, meta.interface)
            && !lists.is_sessionless(slot)
            && !meta.layers.flags.has(Flags::MULTICAST)
        {
            match meta.layers.fragment {
                Fragment::Whole => put(&mut lists.session_lookup.v4, slot),
                _ => put(&mut lists.virtual_reassembly, slot),
            }
            continue;
        }
        let packet = &mut batch.packets[slot as usize];
        input_filter::sent(ctx, &meta, packet.bytes());
        let Some(interface) = ctx
            .snapshot
            .interface(meta.interface)
            .filter(|interface| interface.host)
        else {
            lists.drop_packet(slot, Own::InterfaceGone);
            continue;
        };
        let too_long = meta.layers.end.saturating_sub(meta.layers.l3) > ctx.snapshot.mtu(meta.interface, ctx.now);
        let (hop, mac) = match frame_target(&meta, packet.bytes(), interface) {
            FrameTarget::Group(_) if too_long => {
                lists.drop_packet(slot, sluice_route::Reason::TooBig);
                continue;
            }
            FrameTarget::Group(mac) => (AdjacencyIndex::bridge(meta.interface), mac),
            FrameTarget::Neighbour(wanted) if !too_long => match ctx.forwarding.neighbour(wanted) {
                ForwardingDecision::Hop(hop) if let Some(mac) = ctx.forwarding.mac(hop) => (hop, mac),
                _ => {
                    lists.wait_for_neighbour(slot, Some(wanted));
                    continue;
                }
            },
            FrameTarget::Neighbour(_) | FrameTarget::Routed => {
                match meta.layers.class {
                    Class::Ipv6 => put(&mut lists.forward.v6, slot),
                    _ => put(&mut lists.forward.v4, slot),
                }
                continue;
            }
        };
        let out = output(packet, &meta.layers, hop, mac, &exit);
        leave(slot, out, &mut batch.meta[slot as usize], hop, lists);
    }
}

/// Whether packets that a host sends through an interface may belong to sessions.
pub fn may_answer(snapshot: &Snapshot, interface: u16) -> bool {
    let spread = snapshot.nat4.spread.as_ref();
    let context = snapshot.interface(interface).map_or(0, |interface| interface.context);
    spread.is_some_and(|spread| spread.has_host(context))
}

/// Handles packets of hosts that match no session: a packet leaves unchanged, or a session is created if a rule
/// matches. Slots with packets of another origin stay in the list.
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

/// Decides about a flow that a host starts. If a rule distributes flows to several hosts, the flow keeps its present host `host`.
#[cold]
pub fn decide<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    host: Option<F::Address>,
) -> FlowDecision<F> {
    let (rules, tuple, protocol) = (&ctx.snapshot.nat::<F>().rules, F::tuple(key), F::protocol(key));
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
    if meta.origin == Origin::Own {
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

/// Translates a packet that a host sends in a session. The TTL of the packet is not decremented.
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
        return lists.drop_packet(slot, Own::Forgotten);
    };
    let hop = session.adjacency(direction);
    if hop == AdjacencyIndex::LOCAL || hop == AdjacencyIndex::HAIRPIN {
        return lists.drop_packet(slot, Own::Loop);
    }
    if hop == AdjacencyIndex::UNRESOLVED && !layers.flags.has(Flags::ICMP_ERROR) {
        return put(lists.revalidate.of::<F>(), slot);
    }
    let Some(way) = adjacencies.of(hop, &exit) else {
        return lists.wait_for_neighbour(slot, exit.forwarding.unresolved(hop));
    };
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > way.mtu;
    if cut && (F::IS_V6 || dont_fragment(packet.bytes(), &layers)) {
        return lists.icmp_error(slot, IcmpError::TooBig(way.mtu), sluice_route::Reason::TooBig);
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
        track.packets[direction as usize] += 1;
        track.bytes[direction as usize] += u64::from(length);
    }
    track::<F>(tracked, shard, index, direction, exit.snapshot, exit.now);
    match cut {
        true => lists.fragment(slot, hop),
        false => send(way, slot, packet, meta, lists, &exit),
    }
}

fn frame_target(meta: &Meta, frame: &[u8], interface: &Interface) -> FrameTarget {
    let address = match meta.layers.class {
        Class::Ipv6 => V6::address(V6::addresses(&meta.layers, frame).1),
        _ => V4::address(V4::addresses(&meta.layers, frame).1),
    };
    match address {
        Address::V4(group) if group >> 28 == 0xe => FrameTarget::Group(multicast4(group)),
        Address::V6(group) if group >> 120 == 0xff => FrameTarget::Group(multicast6(group)),
        Address::V4(all) if all == u32::MAX || is_broadcast(all, interface) => FrameTarget::Group(ethernet::BROADCAST),
        address if interface.link.has_neighbour(address) => FrameTarget::Neighbour(UnresolvedNeighbour {
            interface: meta.interface,
            address,
        }),
        _ => FrameTarget::Routed,
    }
}

/// Whether an address is a broadcast address of the interface (RFC 919).
fn is_broadcast(address: u32, interface: &Interface) -> bool {
    interface.link.addresses.iter().any(|&(own, length)| match own {
        Address::V4(own) if (1..31).contains(&length) => address == own | u32::MAX >> length,
        _ => false,
    })
}
