//! forward: packets without a session: routed, counted down, on their way.
//!
//! Exits: transmit, gateway (an address of its own), complain (no route, TTL, MTU, the filter), cut, unresolved, hand over,
//! drop.

use arrayvec::ArrayVec;
use sluice_filter::{Filters, Marking};
use sluice_nat::Tuple;
use sluice_route::{Balance, NextHops, Reason as Route, SourceValidation};
use sluice_wire::Packet;
use sluice_wire::layers::{Fragment, Layers};
use sluice_wire::validity;

use crate::batch::{Batch, Complaint, Lists, Meta, put};
use crate::context::{Ctx, Exit};
use crate::family::Family;
use crate::filter::{self, Asked, Exception};
use crate::io::{HAND, Slot};
use crate::marks::set_class;
use crate::nodes::output::{Ways, send};
use crate::nodes::{decrement, dont_fragment};
use crate::paths::{Destination, Wanted};
use crate::reason::Own;
use crate::redirect::redirect;
use crate::segment_size;

/// Route packets.
#[inline(never)]
pub fn forward<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let mut slots = std::mem::take(F::forwards(lists));
    let mut addresses = [F::Address::default(); HAND];
    let (mut routers, mut routes) = ([0; HAND], [0u32; HAND]);
    for (place, &slot) in slots.iter().enumerate() {
        let meta = batch.meta(slot);
        addresses[place] = F::destination(&meta.layers, batch.packets[slot as usize].bytes());
        routers[place] = ctx.policy.router_of(meta.interface);
    }
    let count = slots.len();
    F::routes(ctx.paths, &routers[..count], &addresses[..count], &mut routes[..count]);
    if !ctx.policy.sources.is_empty() {
        look_up_by_source::<F>(batch, &slots, &addresses, &mut routes, ctx);
    }
    if NextHops::have_sets(&routes[..count]) {
        choose::<F>(batch, &slots, &mut routes, ctx);
    }
    if let Some(filter) = ctx.policy.filter.as_deref().filter(|filter| !filter.sessions) {
        screen::<F>(batch, &mut slots, (&mut addresses, &mut routes), lists, filter, ctx);
    }
    if ctx.policy.limits_segments {
        limit_segments::<F>(batch, &slots, &addresses, &routes, ctx);
    }
    let exit = ctx.exit();
    let mut ways = Ways::default();
    // Most packets of a batch came in by one interface.
    let (mut last, mut unchecked) = (u16::MAX, false);
    for (place, &slot) in slots.iter().enumerate() {
        let meta = &mut batch.meta[slot as usize % HAND];
        let packet = &mut batch.packets[slot as usize];
        if F::is_group(addresses[place]) {
            lists.discard(slot, Own::Multicast);
            continue;
        }
        if meta.interface != last {
            last = meta.interface;
            unchecked = !F::SIX && validation(ctx, last) == SourceValidation::Off && !redirects(ctx, last);
        }
        if unchecked && quick::<F>(slot, packet, meta, routes[place], lists, &mut ways, &exit) {
            continue;
        }
        let destination = if F::SIX && F::address(addresses[place]).is_link_local() {
            on_link::<F>(addresses[place], meta, ctx)
        } else {
            ctx.paths.destination::<F>(routes[place], addresses[place])
        };
        step::<F>(slot, packet, meta, destination, lists, ctx, &mut ways);
    }
    ways.settle(&exit);
}

/// Routes by source come before those of their router.
#[inline(never)]
fn look_up_by_source<F: Family>(
    batch: &Batch<'_, '_>,
    slots: &[Slot],
    addresses: &[F::Address; HAND],
    routes: &mut [u32; HAND],
    ctx: &Ctx<'_, '_>,
) {
    for ((&slot, &address), route) in slots.iter().zip(addresses).zip(routes) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let source = F::addresses(&meta.layers, frame).0;
        let lookup = ctx.policy.lookup::<F>(ctx.policy.router_of(meta.interface), source);
        if !lookup.is_plain() {
            *route = ctx.paths.route::<F>(lookup, address);
        }
    }
}

/// Of routes with several ways, the one that each packet's flow takes. All fragments of a datagram take the same.
#[inline(never)]
fn choose<F: Family>(batch: &Batch<'_, '_>, slots: &[Slot], routes: &mut [u32; HAND], ctx: &Ctx<'_, '_>) {
    for (&slot, route) in slots.iter().zip(routes) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        *route = ctx.paths.next_hops.choose(*route, |balance| {
            if balance == Balance::Host {
                let source = F::addresses(&meta.layers, frame).0;
                return ctx
                    .policy
                    .lookup::<F>(ctx.policy.router_of(meta.interface), source)
                    .host_hash();
            }
            let key = F::key(&meta.layers, frame, ctx.policy.context(meta, frame));
            if meta.layers.fragment == Fragment::Whole {
                return F::hash_one(ctx.hasher, &key);
            }
            let tuple = F::tuple(&key);
            let addresses = F::Tuple::new(tuple.source(), tuple.destination(), 0, 0, tuple.context());
            F::hash_one(ctx.hasher, &F::make_key(addresses, F::protocol(&key)))
        });
    }
}

/// Ask the filter about each packet that was received, and leave those that pass.
#[inline(never)]
fn screen<F: Family>(
    batch: &mut Batch<'_, '_>,
    slots: &mut ArrayVec<Slot, HAND>,
    (addresses, routes): (&mut [F::Address; HAND], &mut [u32; HAND]),
    lists: &mut Lists,
    filter: &Filters,
    ctx: &Ctx<'_, '_>,
) {
    let mut asked = Asked::<F>::default();
    for (place, &slot) in slots.iter().enumerate() {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let egress = match ctx.paths.destination::<F>(routes[place], addresses[place]) {
            Destination::Hop(hop) => hop.interface() as u16,
            Destination::Unknown(wanted) => wanted.interface,
            Destination::Local | Destination::Refused(_) => continue,
        };
        let context = ctx
            .policy
            .interface(meta.interface)
            .map_or(0, |interface| interface.context);
        if meta.own() || F::is_group(addresses[place]) || ctx.policy.filter_of(context).is_none() {
            continue;
        }
        let key = F::key(&meta.layers, frame, context);
        asked.ask(
            place,
            filter::header::<F>(ctx.policy, meta, frame, F::tuple(&key), egress),
        );
    }
    let marked = |place: usize, marking: Marking| {
        if let (false, Some(&slot)) = (marking.class.is_any(), slots.get(place)) {
            let slot = slot as usize % HAND;
            set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
        }
    };
    let mut refused = [None; HAND];
    for (place, exception) in asked.exceptions(filter, ctx, marked) {
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
            Some(refused) => lists.refuse(*slot, refused),
        }
        refused.is_none()
    });
}

/// Lower the segment sizes that SYNs offer, wherever they go on from here.
#[cold]
fn limit_segments<F: Family>(
    batch: &mut Batch<'_, '_>,
    slots: &[Slot],
    addresses: &[F::Address],
    routes: &[u32],
    ctx: &Ctx<'_, '_>,
) {
    for ((&slot, &address), &route) in slots.iter().zip(addresses).zip(routes) {
        let meta = &batch.meta[slot as usize % HAND];
        if !segment_size::is_offered(&meta.layers) {
            continue;
        }
        let egress = match ctx.paths.destination::<F>(route, address) {
            Destination::Hop(hop) => hop.interface() as u16,
            Destination::Unknown(wanted) => wanted.interface,
            Destination::Local | Destination::Refused(_) => continue,
        };
        let packet = &mut batch.packets[slot as usize];
        segment_size::limit::<F>(packet, &meta.layers, [meta.interface, egress], ctx.policy);
    }
}

/// What most packets are: plain, to a gateway that is known, on a link that takes them as they are, by an interface
/// that asks for no check of the source. False, and nothing done, where it is another.
#[inline(always)]
fn quick<F: Family>(
    slot: Slot,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    route: u32,
    lists: &mut Lists,
    ways: &mut Ways,
    exit: &Exit<'_>,
) -> bool {
    let layers = &meta.layers;
    let bytes = packet.len();
    let length = layers.end.saturating_sub(layers.l3);
    if !meta.own()
        && layers.ttl > 1
        && let Some(hop) = exit.paths.bound(route)
        && let Some(way) = ways.of(hop, exit)
        && length <= way.mtu
        && way.takes(layers)
        && let Some(link) = F::count_down(packet.bytes_mut(), layers)
    {
        return way.take(link, bytes, slot, meta, lists);
    }
    false
}

#[inline(always)]
fn step<F: Family>(
    slot: Slot,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    destination: Destination,
    lists: &mut Lists,
    ctx: &Ctx<'_, '_>,
    ways: &mut Ways,
) {
    let exit = ctx.exit();
    let (layers, own) = (&meta.layers, meta.own());
    // Before anything is asked or answered for a source that may be forged.
    if !own
        && destination != Destination::Local
        && let Err(reason) = validate::<F>(ctx, meta.interface, layers, packet.bytes())
    {
        return lists.discard(slot, reason);
    }
    let hop = match destination {
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return lists.wait(slot, Some(wanted)),
        Destination::Local if own => return lists.discard(slot, Own::NoLocalService),
        Destination::Local => return deliver(slot, packet, layers, lists),
        Destination::Refused(reason) if own => return lists.discard(slot, reason),
        Destination::Refused(reason) => return refuse(slot, reason, lists),
    };
    if !own && layers.ttl <= 1 {
        return lists.complain(slot, Complaint::TimeExceeded, Route::TtlExceeded);
    }
    // The neighbour first: a packet that has to wait is parked as it came.
    let Some(way) = ways.of(hop, &exit) else {
        return lists.wait(slot, ctx.paths.wanted(hop));
    };
    let cut = layers.end.saturating_sub(layers.l3) > way.mtu;
    if cut && (F::SIX || dont_fragment(packet.bytes(), layers)) {
        return lists.complain(slot, Complaint::TooBig(way.mtu), Route::TooBig);
    }
    if !own {
        if hop.interface() == usize::from(meta.interface) {
            redirect::<F>(packet, meta, hop, lists, ctx);
        }
        decrement::<F>(packet, layers);
    }
    if cut {
        return lists.cut(slot, hop);
    }
    send(way, slot, packet, meta, lists, &exit);
}

/// For the gateway itself, which looks at headers behind those of IP, as nobody before may have.
#[inline(never)]
fn deliver(slot: Slot, packet: &Packet<'_>, layers: &Layers, lists: &mut Lists) {
    match validity::validate_headers(packet.bytes(), layers) {
        Ok(()) => put(&mut lists.gateway, slot),
        Err(fault) => lists.discard(slot, fault),
    }
}

#[cold]
fn refuse(slot: Slot, reason: Route, lists: &mut Lists) {
    match Complaint::of(reason) {
        Some(complaint) => lists.complain(slot, complaint, reason),
        None => lists.discard(slot, reason),
    }
}

/// Link-local addresses have no route: they are the gateway's own, or a neighbour's that it answers (RFC 4291, 2.5.6).
#[cold]
fn on_link<F: Family>(address: F::Address, meta: &Meta, ctx: &Ctx<'_, '_>) -> Destination {
    let plain = F::address(address);
    let owns = ctx
        .policy
        .interface(meta.interface)
        .is_some_and(|interface| interface.link.owns(plain));
    match (owns, meta.own()) {
        (true, _) => Destination::Local,
        (false, true) => ctx.paths.neighbour(Wanted {
            interface: meta.interface,
            address: plain,
        }),
        (false, false) => Destination::Refused(Route::LinkLocal),
    }
}

#[inline(always)]
fn validate<F: Family>(ctx: &Ctx<'_, '_>, interface: u16, layers: &Layers, frame: &[u8]) -> Result<(), Route> {
    let validation = validation(ctx, interface);
    if F::SIX && F::address(F::addresses(layers, frame).0).is_link_local() {
        return Err(Route::LinkLocal);
    }
    if validation == SourceValidation::Off {
        return Ok(());
    }
    let (router, source) = (ctx.policy.router_of(interface), F::addresses(layers, frame).0);
    ctx.paths.validate_source::<F>(validation, router, interface, source)
}

fn redirects(ctx: &Ctx<'_, '_>, interface: u16) -> bool {
    let interface = ctx.policy.interface(interface);
    interface.is_some_and(|interface| interface.neighbours.redirects)
}

fn validation(ctx: &Ctx<'_, '_>, interface: u16) -> SourceValidation {
    ctx.policy
        .interface(interface)
        .map_or(SourceValidation::Strict, |interface| interface.validation)
}
