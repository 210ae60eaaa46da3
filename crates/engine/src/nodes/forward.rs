//! forward: routes packets that have no session. Decrements the TTL of these packets.

use sluice_route::{NextHops, SourceValidation};

use crate::features::context::NodeContext;
use crate::features::mss;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::Batch;
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;

use packet::{forward_one, forward_plain};
use routes::{choose, look_up_by_source, on_link};
use screen::screen;

mod packet;
mod routes;
mod screen;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "forward",
    help: "routes packets without a session",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("output", "", needs::ROUTED),
        Exit::new("local-delivery", "to the router itself", needs::ROUTED),
        Exit::new("fragmentation", "too long", needs::ROUTED),
        Exit::new("icmp-error", "no route, TTL, MTU, rejected", needs::ROUTED),
    ],
};

/// Routes packets.
#[inline(never)]
pub fn forward<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    let mut slots = std::mem::take(lists.forward.of::<F>());
    let mut addresses = [F::Address::default(); BURST_BUFFERS];
    let (mut routers, mut routes) = ([0; BURST_BUFFERS], [0u32; BURST_BUFFERS]);
    for (place, &slot) in slots.iter().enumerate() {
        let meta = batch.meta(slot);
        addresses[place] = F::destination(&meta.layers, batch.packets[slot as usize].bytes());
        routers[place] = ctx.snapshot.router_of(meta.interface);
    }
    let count = slots.len();
    ctx.forwarding
        .route_values::<F>(&routers[..count], &addresses[..count], &mut routes[..count]);
    if !ctx.snapshot.sources.is_empty() {
        look_up_by_source::<F>(batch, &slots, &addresses, &mut routes, ctx);
    }
    if NextHops::have_sets(&routes[..count]) {
        choose::<F>(batch, &slots, &mut routes, ctx);
    }
    if let Some(filter) = ctx.snapshot.filter.as_deref().filter(|filter| !filter.sessions) {
        screen::<F>(batch, &mut slots, (&mut addresses, &mut routes), lists, filter, ctx);
    }
    if ctx.snapshot.limits_segments {
        limit_segments::<F>(batch, &slots, &addresses, &routes, ctx);
    }
    let exit = ctx.exit();
    let mut adjacencies = AdjacencyCache::default();
    // Most packets of a batch arrive on the same interface, so the check results of the previous packet's interface are cached.
    let (mut last, mut unchecked) = (u16::MAX, false);
    for (place, &slot) in slots.iter().enumerate() {
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        let packet = &mut batch.packets[slot as usize];
        if F::is_group(addresses[place]) {
            lists.drop_packet(slot, EngineReason::Multicast);
            continue;
        }
        if meta.interface != last {
            last = meta.interface;
            unchecked = !F::IS_V6 && validation(ctx, last) == SourceValidation::Off && !redirects(ctx, last);
        }
        if unchecked && forward_plain::<F>(slot, packet, meta, routes[place], lists, &mut adjacencies, &exit) {
            continue;
        }
        let destination = if F::IS_V6 && F::address(addresses[place]).is_link_local() {
            on_link::<F>(addresses[place], meta, ctx)
        } else {
            ctx.forwarding.destination::<F>(routes[place], addresses[place])
        };
        forward_one::<F>(slot, packet, meta, destination, lists, ctx, &mut adjacencies);
    }
    adjacencies.flush(&exit);
}

/// Clamps the MSS option of SYN segments before their next node is selected.
#[cold]
fn limit_segments<F: Family>(
    batch: &mut Batch<'_, '_>,
    slots: &[BufferIndex],
    addresses: &[F::Address],
    routes: &[u32],
    ctx: &NodeContext<'_, '_>,
) {
    for ((&slot, &address), &route) in slots.iter().zip(addresses).zip(routes) {
        let meta = &batch.meta[slot as usize % BURST_BUFFERS];
        if !mss::has_mss(&meta.layers) {
            continue;
        }
        let egress = match ctx.forwarding.destination::<F>(route, address) {
            ForwardingDecision::Hop(hop) => hop.interface() as u16,
            ForwardingDecision::Unknown(wanted) => wanted.interface,
            ForwardingDecision::Local | ForwardingDecision::Refused(_) => continue,
        };
        let packet = &mut batch.packets[slot as usize];
        mss::clamp::<F>(packet, &meta.layers, [meta.interface, egress], ctx.snapshot);
    }
}

fn redirects(ctx: &NodeContext<'_, '_>, interface: u16) -> bool {
    let interface = ctx.snapshot.interface(interface);
    interface.is_some_and(|interface| interface.neighbours.redirects)
}

fn validation(ctx: &NodeContext<'_, '_>, interface: u16) -> SourceValidation {
    ctx.snapshot
        .interface(interface)
        .map_or(SourceValidation::Strict, |interface| interface.validation)
}
