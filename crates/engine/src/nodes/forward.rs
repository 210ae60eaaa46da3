//! forward: routes packets that have no session and decrements their TTL.

use arrayvec::ArrayVec;
use sluice_filter::{Filters, SessionMarking};
use sluice_nat::Tuple;
use sluice_route::{Balance, NextHops, Reason as Route, SourceValidation};
use sluice_wire::Packet;
use sluice_wire::layers::{Fragment, Layers};
use sluice_wire::validity;

use crate::features::context::{NodeContext, OutputContext};
use crate::features::filter::{self, Exception, FilterQueries};
use crate::features::mss;
use crate::features::redirect::redirect;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::output::{AdjacencyCache, send};
use crate::nodes::{decrement, dont_fragment};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;
use crate::snapshot::marks::set_class;

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
            lists.drop_packet(slot, Own::Multicast);
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

/// Looks up source-based routes. Source-based routes take precedence over the routes of their router.
#[inline(never)]
fn look_up_by_source<F: Family>(
    batch: &Batch<'_, '_>,
    slots: &[BufferIndex],
    addresses: &[F::Address; BURST_BUFFERS],
    routes: &mut [u32; BURST_BUFFERS],
    ctx: &NodeContext<'_, '_>,
) {
    for ((&slot, &address), route) in slots.iter().zip(addresses).zip(routes) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let source = F::addresses(&meta.layers, frame).0;
        let lookup = ctx.snapshot.lookup::<F>(ctx.snapshot.router_of(meta.interface), source);
        if !lookup.is_plain() {
            *route = ctx.forwarding.route::<F>(lookup, address);
        }
    }
}

/// Selects a next hop of equal-cost multipath routes by the flow of each packet. All fragments of a datagram get the same next
/// hop.
#[inline(never)]
fn choose<F: Family>(
    batch: &Batch<'_, '_>,
    slots: &[BufferIndex],
    routes: &mut [u32; BURST_BUFFERS],
    ctx: &NodeContext<'_, '_>,
) {
    for (&slot, route) in slots.iter().zip(routes) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        *route = ctx.forwarding.next_hops.choose(*route, |balance| {
            if balance == Balance::Host {
                let source = F::addresses(&meta.layers, frame).0;
                return ctx
                    .snapshot
                    .lookup::<F>(ctx.snapshot.router_of(meta.interface), source)
                    .host_hash();
            }
            let key = F::key(&meta.layers, frame, ctx.snapshot.context(meta, frame));
            if meta.layers.fragment == Fragment::Whole {
                return F::hash_one(ctx.hasher, &key);
            }
            let tuple = F::tuple(&key);
            let addresses = F::Tuple::new(tuple.source(), tuple.destination(), 0, 0, tuple.context());
            F::hash_one(ctx.hasher, &F::make_key(addresses, F::protocol(&key)))
        });
    }
}

/// Evaluates the filter for received packets, and keeps the accepted packets on the list.
#[inline(never)]
fn screen<F: Family>(
    batch: &mut Batch<'_, '_>,
    slots: &mut ArrayVec<BufferIndex, BURST_BUFFERS>,
    (addresses, routes): (&mut [F::Address; BURST_BUFFERS], &mut [u32; BURST_BUFFERS]),
    lists: &mut Lists,
    filter: &Filters,
    ctx: &NodeContext<'_, '_>,
) {
    let mut queried = FilterQueries::<F>::default();
    for (place, &slot) in slots.iter().enumerate() {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let egress = match ctx.forwarding.destination::<F>(routes[place], addresses[place]) {
            ForwardingDecision::Hop(hop) => hop.interface() as u16,
            ForwardingDecision::Unknown(wanted) => wanted.interface,
            ForwardingDecision::Local | ForwardingDecision::Refused(_) => continue,
        };
        let context = ctx
            .snapshot
            .interface(meta.interface)
            .map_or(0, |interface| interface.context);
        if meta.is_from_gateway() || F::is_group(addresses[place]) || ctx.snapshot.filter_of(context).is_none() {
            continue;
        }
        let key = F::key(&meta.layers, frame, context);
        queried.push(
            place,
            filter::header::<F>(ctx.snapshot, meta, frame, F::tuple(&key), egress),
        );
    }
    let marked = |place: usize, marking: SessionMarking| {
        if let (false, Some(&slot)) = (marking.class.is_any(), slots.get(place)) {
            let slot = slot as usize % BURST_BUFFERS;
            set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
        }
    };
    let mut refused = [None; BURST_BUFFERS];
    for (place, exception) in queried.exceptions(filter, ctx, marked) {
        if let Exception::Refused(why) = exception {
            refused[place] = Some(why);
        }
    }
    let (mut place, mut kept) = (0, 0);
    slots.retain(|slot| {
        let refused = refused[place];
        (addresses[kept], routes[kept]) = (addresses[place], routes[place]);
        place += 1;
        match refused {
            None => kept += 1,
            Some(refused) => lists.reject(*slot, refused),
        }
        refused.is_none()
    });
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

/// Forwards a packet in the common case: to a resolved gateway, within the MTU of the link, and from an interface
/// without source validation. Returns `false` in all other cases, without changing the packet.
#[inline(always)]
fn forward_plain<F: Family>(
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    route: u32,
    lists: &mut Lists,
    adjacencies: &mut AdjacencyCache,
    exit: &OutputContext<'_>,
) -> bool {
    let layers = &meta.layers;
    let bytes = packet.len();
    let length = layers.end.saturating_sub(layers.l3);
    if !meta.is_from_gateway()
        && layers.ttl > 1
        && let Some(hop) = exit.forwarding.resolved_gateway(route)
        && let Some(way) = adjacencies.of(hop, exit)
        && length <= way.mtu
        && way.takes(layers)
        && let Some(link) = F::count_down(packet.bytes_mut(), layers)
    {
        return way.take(link, bytes, slot, meta, lists);
    }
    false
}

#[inline(always)]
fn forward_one<F: Family>(
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    destination: ForwardingDecision,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    adjacencies: &mut AdjacencyCache,
) {
    let exit = ctx.exit();
    let (layers, own) = (&meta.layers, meta.is_from_gateway());
    // The source may be forged, so it is validated before the packet causes an ICMP error or a neighbour request.
    if !own
        && destination != ForwardingDecision::Local
        && let Err(reason) = validate::<F>(ctx, meta.interface, layers, packet.bytes())
    {
        return lists.drop_packet(slot, reason);
    }
    let hop = match destination {
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return lists.wait_for_neighbour(slot, Some(wanted)),
        ForwardingDecision::Local if own => return lists.drop_packet(slot, Own::NoLocalService),
        ForwardingDecision::Local => return deliver(slot, packet, layers, lists),
        ForwardingDecision::Refused(reason) if own => return lists.drop_packet(slot, reason),
        ForwardingDecision::Refused(reason) => return refuse(slot, reason, lists),
    };
    if !own && layers.ttl <= 1 {
        return lists.icmp_error(slot, IcmpError::TimeExceeded, Route::TtlExceeded);
    }
    // The neighbour is looked up before the packet is changed, because a packet without a neighbour is parked as received.
    let Some(way) = adjacencies.of(hop, &exit) else {
        return lists.wait_for_neighbour(slot, ctx.forwarding.unresolved(hop));
    };
    let cut = layers.end.saturating_sub(layers.l3) > way.mtu;
    if cut && (F::IS_V6 || dont_fragment(packet.bytes(), layers)) {
        return lists.icmp_error(slot, IcmpError::TooBig(way.mtu), Route::TooBig);
    }
    if !own {
        if hop.interface() == usize::from(meta.interface) {
            redirect::<F>(packet, meta, hop, lists, ctx);
        }
        decrement::<F>(packet, layers);
    }
    if cut {
        return lists.fragment(slot, hop);
    }
    send(way, slot, packet, meta, lists, &exit);
}

/// Delivers a packet to the gateway itself. Local delivery reads the headers after the IP header, so this function
/// validates them.
#[inline(never)]
fn deliver(slot: BufferIndex, packet: &Packet<'_>, layers: &Layers, lists: &mut Lists) {
    match validity::validate_headers(packet.bytes(), layers) {
        Ok(()) => put(&mut lists.local_delivery, slot),
        Err(fault) => lists.drop_packet(slot, fault),
    }
}

#[cold]
fn refuse(slot: BufferIndex, reason: Route, lists: &mut Lists) {
    match IcmpError::of(reason) {
        Some(icmp_error) => lists.icmp_error(slot, icmp_error, reason),
        None => lists.drop_packet(slot, reason),
    }
}

/// Decides about a packet to a link-local address. Link-local addresses have no routes. A link-local address belongs to
/// the gateway, or to a neighbour to which the gateway sends an answer (RFC 4291, 2.5.6).
#[cold]
fn on_link<F: Family>(address: F::Address, meta: &Meta, ctx: &NodeContext<'_, '_>) -> ForwardingDecision {
    let plain = F::address(address);
    let owns = ctx
        .snapshot
        .interface(meta.interface)
        .is_some_and(|interface| interface.link.owns(plain));
    match (owns, meta.is_from_gateway()) {
        (true, _) => ForwardingDecision::Local,
        (false, true) => ctx.forwarding.neighbour(UnresolvedNeighbour {
            interface: meta.interface,
            address: plain,
        }),
        (false, false) => ForwardingDecision::Refused(Route::LinkLocal),
    }
}

#[inline(always)]
fn validate<F: Family>(ctx: &NodeContext<'_, '_>, interface: u16, layers: &Layers, frame: &[u8]) -> Result<(), Route> {
    let validation = validation(ctx, interface);
    if F::IS_V6 && F::address(F::addresses(layers, frame).0).is_link_local() {
        return Err(Route::LinkLocal);
    }
    if validation == SourceValidation::Off {
        return Ok(());
    }
    let (router, source) = (ctx.snapshot.router_of(interface), F::addresses(layers, frame).0);
    ctx.forwarding
        .validate_source::<F>(validation, router, interface, source)
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
