//! Forwarding of one packet whose route is known.

use sluice_route::{Reason as Route, SourceValidation};
use sluice_wire::Packet;
use sluice_wire::layers::Layers;
use sluice_wire::validity;

use crate::features::context::{NodeContext, OutputContext};
use crate::features::redirect::redirect;
use crate::nodes::output::{AdjacencyCache, send};
use crate::nodes::{decrement, dont_fragment};
use crate::packet::batch::{Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;

use super::validation;

/// Forwards a packet in the common case: to a resolved gateway, within the MTU of the link, and from an interface
/// without source validation. Returns `false` in all other cases, without changing the packet.
#[inline(always)]
pub(super) fn forward_plain<F: Family>(
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
        && let Some(adjacency) = adjacencies.of(hop, exit)
        && length <= adjacency.mtu
        && adjacency.takes(layers)
        && let Some(link) = F::count_down(packet.bytes_mut(), layers)
    {
        return adjacency.take(link, bytes, slot, meta, lists);
    }
    false
}

#[inline(always)]
pub(super) fn forward_one<F: Family>(
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
    // The source address may be forged. It is validated first, so that a forged packet causes neither an ICMP error nor
    // a neighbour request.
    if !own
        && destination != ForwardingDecision::Local
        && let Err(reason) = validate::<F>(ctx, meta.interface, layers, packet.bytes())
    {
        return lists.drop_packet(slot, reason);
    }
    let hop = match destination {
        ForwardingDecision::Hop(hop) => hop,
        ForwardingDecision::Unknown(wanted) => return lists.wait_for_neighbour(slot, Some(wanted)),
        ForwardingDecision::Local if own => return lists.drop_packet(slot, EngineReason::NoLocalService),
        ForwardingDecision::Local => return deliver(slot, packet, layers, lists),
        ForwardingDecision::Refused(reason) if own => return lists.drop_packet(slot, reason),
        ForwardingDecision::Refused(reason) => return refuse(slot, reason, lists),
    };
    if !own && layers.ttl <= 1 {
        return lists.icmp_error(slot, IcmpError::TimeExceeded, Route::TtlExceeded);
    }
    // The neighbour is looked up before the packet is changed, because a packet without a neighbour is parked as received.
    let Some(adjacency) = adjacencies.of(hop, &exit) else {
        return lists.wait_for_neighbour(slot, ctx.forwarding.unresolved(hop));
    };
    let cut = layers.end.saturating_sub(layers.l3) > adjacency.mtu;
    if cut && (F::IS_V6 || dont_fragment(packet.bytes(), layers)) {
        return lists.icmp_error(slot, IcmpError::TooBig(adjacency.mtu), Route::TooBig);
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
    send(adjacency, slot, packet, meta, lists, &exit);
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
