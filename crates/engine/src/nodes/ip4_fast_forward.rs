//! ip4-fast-forward: forwards plain IPv4 packets (without options, not fragmented) of interfaces without stateful
//! services. The node decrements the TTL, writes the MAC addresses, and sends the packet.
//!
//! In a router without sessions, most packets are plain and need only a route lookup.

use sluice_route::SourceValidation::Strict;
use sluice_route::validate_reverse_path;
use sluice_table::prefix::NO_ROUTE;
use sluice_wire::layers;
use sluice_wire::{Packet, ethernet, ipv4};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::output::{AdjacencyCache, CACHE_SIZE};
use crate::packet::batch::{Batch, BufferIndices, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::Leave;
use crate::packet::lists::{FastForwardList, Lists};
use crate::session::family::V4;

use rewrite::{give_tags, relabel, rewrite};

mod rewrite;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "ip4-fast-forward",
    help: "routes plain IPv4 packets without a session",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new("output", "", needs::PLAIN),
        Exit::new("forward", "needs more than a route", needs::PLAIN),
        Exit::new("decapsulate", "to a tunnel endpoint", needs::PLAIN | needs::TUNNELLED),
    ],
};

/// Whether plain IPv4 packets of an interface need only a route lookup.
#[inline(always)]
pub fn is_sufficient(ctx: &NodeContext<'_, '_>, interface: u16) -> bool {
    let link = ctx.snapshot.links.get(usize::from(interface));
    link.is_some_and(|link| link.passes) && ctx.role.sessions.is_empty()
}

/// Routes packets.
pub fn ip4_fast_forward(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    if lists.ip4_fast_forward.tagged {
        route::<true>(batch, lists, ctx);
    } else {
        route::<false>(batch, lists, ctx);
    }
}

/// Routes packets that may have tags.
#[inline(never)]
fn route<const TAGGED: bool>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>) {
    let all = &lists.ip4_fast_forward;
    let mut routes = [0; BURST_BUFFERS];
    let routes = &mut routes[..all.slots().len()];
    ctx.forwarding
        .route_values::<V4>(all.routers(), all.destinations(), routes);
    if all.validated {
        drop_unverified_sources::<TAGGED>(batch, all, routes, ctx);
    }
    let exit = ctx.exit();
    // Packets with the same adjacency are sent together.
    let (mut adjacencies, mut leaving) = (
        AdjacencyCache::default(),
        [const { BufferIndices::new_const() }; CACHE_SIZE],
    );
    for (place, &route) in routes.iter().enumerate() {
        let slot = lists.ip4_fast_forward.slot(place);
        let packet = &mut batch.packets[slot as usize];
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        let together = &mut leaving[route as usize % CACHE_SIZE];
        let (mut adjacency, is_match) = adjacencies.at(route);
        if !is_match {
            leave(together, adjacency.port(), lists);
            if !adjacencies.bind(route, &exit) {
                forward_general(slot, packet, meta, lists, ctx);
                continue;
            }
            adjacency = adjacencies.at(route).0;
        }
        let passes = match TAGGED {
            true => relabel(packet, adjacency, meta.layers.tags),
            false => rewrite(packet, adjacency) || give_tags(packet, adjacency),
        };
        if !passes {
            forward_general(slot, packet, meta, lists, ctx);
            continue;
        }
        meta.egress = adjacency.egress();
        put(together, slot);
    }
    for (place, together) in leaving.iter_mut().enumerate() {
        leave(together, adjacencies.at(place as u32).0.port(), lists);
    }
    adjacencies.flush(&exit);
    lists.ip4_fast_forward.clear();
}

/// Removes the route of a packet if the quick check does not prove that its source is valid (BCP 38). `forward` then
/// validates the source of this packet completely.
#[inline(never)]
fn drop_unverified_sources<const TAGGED: bool>(
    batch: &Batch<'_, '_>,
    all: &FastForwardList,
    routes: &mut [u32],
    ctx: &NodeContext<'_, '_>,
) {
    let (mut sources, mut back) = ([0; BURST_BUFFERS], [0; BURST_BUFFERS]);
    for (&slot, source) in all.slots().iter().zip(&mut sources) {
        let tags = if TAGGED { batch.meta(slot).layers.tags } else { 0 };
        *source = source_of(&batch.packets[slot as usize], tags);
    }
    let count = all.slots().len();
    ctx.forwarding
        .route_values::<V4>(all.routers(), &sources[..count], &mut back[..count]);
    // Reverse routes that passed source validation in this burst. Most packets of a burst share a few reverse routes.
    let mut valid = [None; 4];
    for ((&slot, &back), route) in all.slots().iter().zip(&back).zip(routes) {
        let interface = batch.meta(slot).interface;
        let adjacency = Some((back, interface));
        let known = &mut valid[(back as usize ^ interface as usize) % 4];
        if *known == adjacency {
            continue;
        }
        let mode = ctx.snapshot.interface(interface).map(|interface| interface.validation);
        match validate_reverse_path(mode.unwrap_or(Strict), back, interface, &ctx.forwarding.next_hops) {
            Ok(()) => *known = adjacency,
            Err(_) => *route = NO_ROUTE,
        }
    }
}

/// The source address of a plain frame with this number of tags.
#[inline(always)]
fn source_of(packet: &Packet<'_>, tags: u8) -> u32 {
    let at = ethernet::LENGTH + 4 * usize::from(tags) + ipv4::SOURCE.offset;
    let source = packet.bytes().get(at..).and_then(|source| source.first_chunk());
    source.map_or(0, |source| u32::from_be_bytes(*source))
}

/// Sends the packets of an adjacency through the port of the adjacency.
#[inline(always)]
fn leave(together: &mut BufferIndices, port: PortIndex, lists: &mut Lists) {
    if let Some(list) = lists.to_send.get_mut(port as usize) {
        match together.as_slice() {
            // In a router with many next hops, often only a single packet of a burst goes to a next hop.
            [slot] => put(list, *slot),
            // The list has space for a whole burst, so `try_extend_from_slice` can't fail.
            _ => _ = list.try_extend_from_slice(together),
        }
    }
    together.clear();
}

/// Passes packets that need more work to the nodes for the general case.
#[inline(never)]
fn forward_general(
    slot: BufferIndex,
    packet: &Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let frame = packet.bytes();
    let layers = match layers::parse(frame) {
        Ok(layers) => layers,
        Err(fault) => return lists.drop_packet(slot, fault),
    };
    *meta = Meta {
        layers,
        interface: meta.interface,
        ..Meta::default()
    };
    let (tunnels, router) = (&ctx.snapshot.tunnels, ctx.snapshot.router_of(meta.interface));
    if tunnels.end_in(router) && tunnels.take(router, &layers, frame) {
        put(&mut lists.decapsulate, slot);
    } else {
        put(&mut lists.forward.v4, slot);
    }
}
