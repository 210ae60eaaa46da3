//! forward: packets without a session: routed, counted down, on their way.
//!
//! Exits: transmit, gateway (an address of its own), complain (no route, TTL, MTU), cut, unresolved, hand over, drop.

use sluice_route::Reason as Route;
use sluice_wire::Packet;
use sluice_wire::layers::Layers;

use crate::batch::{Batch, Complaint, Lists, put};
use crate::context::Ctx;
use crate::family::Family;
use crate::io::{HAND, Slot};
use crate::nodes::output::{Out, output};
use crate::nodes::{decrement, dont_fragment, leave};
use crate::paths::{Destination, Wanted};
use crate::reason::Own;

/// Route packets.
#[inline(never)]
pub fn forward<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let slots = std::mem::take(F::forwards(lists));
    let mut addresses = [F::Address::default(); HAND];
    let mut routes = [0u32; HAND];
    for (place, &slot) in slots.iter().enumerate() {
        let layers = &batch.meta(slot).layers;
        addresses[place] = F::addresses(layers, batch.packets[slot as usize].bytes()).1;
    }
    ctx.paths.routes::<F>(&addresses[..slots.len()], &mut routes[..slots.len()]);
    for (place, &slot) in slots.iter().enumerate() {
        let meta = *batch.meta(slot);
        let packet = &mut batch.packets[slot as usize];
        let destination = ctx.paths.destination::<F>(routes[place], addresses[place]);
        step::<F>(slot, packet, &meta.layers, meta.interface, meta.own, destination, lists, ctx);
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one packet's part of the node, inlined into its loop")]
fn step<F: Family>(
    slot: Slot,
    packet: &mut Packet<'_>,
    layers: &Layers,
    interface: u16,
    own: bool,
    destination: Destination,
    lists: &mut Lists,
    ctx: &Ctx<'_, '_>,
) {
    let hop = match destination {
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return lists.wait(slot, wanted),
        Destination::Local if own => return lists.drop(slot, Own::NoLocalService),
        Destination::Local => return put(&mut lists.gateway, slot),
        Destination::Refused(reason) if own => return lists.drop(slot, reason),
        Destination::Refused(reason) => return lists.complain(slot, complaint(reason), reason),
    };
    if !own {
        if let Err(reason) = ctx.paths.validate_source::<F>(ctx.policy, interface, layers, packet.bytes()) {
            return lists.drop(slot, reason);
        }
        if layers.ttl <= 1 {
            return lists.complain(slot, Complaint::TimeExceeded, Route::TtlExceeded);
        }
    }
    let mtu = ctx.policy.interfaces.get(hop.interface()).map_or(0, |egress| egress.mtu);
    let length = layers.end.saturating_sub(layers.l3);
    if length > mtu {
        if F::SIX || dont_fragment(packet.bytes(), layers) {
            return lists.complain(slot, Complaint::TooBig(mtu), Route::TooBig);
        }
        if !own {
            decrement::<F>(packet, layers);
        }
        return put(&mut lists.cut, (slot, hop));
    }
    // The neighbour first: a packet that has to wait is parked as it came.
    let Some(mac) = ctx.paths.neighbours.mac(hop.neighbour()) else {
        return lists.wait(slot, ctx.paths.wanted(hop));
    };
    if !own {
        decrement::<F>(packet, layers);
    }
    leave(slot, output(packet, layers, hop, mac, ctx), lists);
}

/// What a sender is told of a refusal by the routing table (RFC 1812 s5.2.7.1).
fn complaint(reason: Route) -> Complaint {
    match reason {
        Route::Prohibited => Complaint::Prohibited,
        Route::Unreachable => Complaint::HostUnreachable,
        _ => Complaint::NoRoute,
    }
}
