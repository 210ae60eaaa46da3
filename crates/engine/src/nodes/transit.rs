//! transit: what parse finds plain on an interface whose router has routes alone: counted down, readdressed, on its way.
//!
//! Most packets of a plain router are like that, and nothing else has to be known of them than where they go.
//! Exits: transmit, forward (whatever takes more than that).

use sluice_route::SourceValidation::Strict;
use sluice_route::{NextHops, RouterIndex, validate_way_back};
use sluice_wire::layers;
use sluice_wire::{Packet, ethernet, ipv4};

use crate::batch::{Batch, Lists, Meta, Passing, put};
use crate::context::{Ctx, Exit};
use crate::family::{Family, V4};
use crate::io::{HAND, Slot};
use crate::nodes::output::Ways;
use crate::policy::Interface;
use crate::reason::Own;

/// Whether plain IPv4 packets that come in by an interface need nothing but a route.
pub fn is_enough(ctx: &Ctx<'_, '_>, interface: &Interface) -> bool {
    !interface.stateful[0]
        && !ctx.policy.tunnels.end_in(interface.router)
        && !ctx.policy.limits_segments
        && ctx.policy.filter_of(interface.context).is_none()
        && ctx.policy.chains_of(interface.router).is_none()
        && ctx.role.sessions.is_empty()
}

/// Route packets.
#[inline(never)]
pub fn transit(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    // Its room goes back at the end.
    let mut all = std::mem::take(&mut lists.transit);
    let (mut routers, mut addresses, mut routes) = ([0; HAND], [0; HAND], [0; HAND]);
    for ((passing, router), address) in all.iter().zip(&mut routers).zip(&mut addresses) {
        (*router, *address) = (passing.router, passing.destination);
    }
    let count = all.len();
    V4::routes(ctx.paths, &routers[..count], &addresses[..count], &mut routes[..count]);
    // Which of several ways is by the flow, of which nothing is known here.
    let mut others = 0;
    if NextHops::have_sets(&routes[..count]) {
        let sets = routes.iter().map(|&route| u128::from(NextHops::have_sets(&[route])));
        others = sets.take(count).rev().fold(0, |others, set| others << 1 | set);
    }
    if all.iter().fold(false, |any, passing| any | passing.validated) {
        others |= doubtful(batch, &all, &routers, ctx);
    }
    let exit = ctx.exit();
    let mut ways = Ways::default();
    for (place, (&Passing { slot, .. }, &route)) in all.iter().zip(&routes).enumerate() {
        let meta = &mut batch.meta[slot as usize % HAND];
        let packet = &mut batch.packets[slot as usize];
        let is_other = others != 0 && others >> place & 1 != 0;
        if is_other || !pass(slot, packet, meta, route, lists, &mut ways, &exit) {
            look_again(slot, packet, meta, lists);
        }
    }
    ways.settle(&exit);
    all.clear();
    lists.transit = all;
}

/// Those whose sources may not be valid (BCP 38), a bit each by place: `forward` looks closer.
#[inline(never)]
fn doubtful(batch: &Batch<'_, '_>, all: &[Passing], routers: &[RouterIndex; HAND], ctx: &Ctx<'_, '_>) -> u128 {
    let (mut sources, mut routes) = ([0; HAND], [0; HAND]);
    for (passing, source) in all.iter().zip(&mut sources) {
        *source = source_of(&batch.packets[passing.slot as usize]);
    }
    let count = all.len();
    V4::routes(ctx.paths, &routers[..count], &sources[..count], &mut routes[..count]);
    // The ways back that were valid, most packets having the same few.
    let mut valid = [None; 4];
    let mut doubtful = 0;
    for (place, (passing, &route)) in all.iter().zip(&routes).enumerate() {
        let interface = batch.meta(passing.slot).interface;
        let way = Some((route, interface));
        let known = &mut valid[(route as usize ^ interface as usize) % 4];
        if !passing.validated || *known == way {
            continue;
        }
        let mode = ctx.policy.interface(interface).map(|interface| interface.validation);
        match validate_way_back(mode.unwrap_or(Strict), route, interface, &ctx.paths.next_hops) {
            Ok(()) => *known = way,
            Err(_) => doubtful |= 1 << place,
        }
    }
    doubtful
}

/// The source of a plain frame.
#[inline(always)]
fn source_of(packet: &Packet<'_>) -> u32 {
    const AT: usize = ethernet::LENGTH + ipv4::SOURCE.offset;
    let head: Option<&[u8; AT + 4]> = packet.bytes().first_chunk();
    let source = head.and_then(|head| head.last_chunk());
    source.map_or(0, |source| u32::from_be_bytes(*source))
}

/// Send a packet to a gateway that is known, on a link that takes it as it is. False, and nothing done, where there is none.
#[inline(always)]
fn pass(
    slot: Slot,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    route: u32,
    lists: &mut Lists,
    ways: &mut Ways,
    exit: &Exit<'_>,
) -> bool {
    let bytes = packet.len();
    let head: Option<&mut [u8; ethernet::LENGTH + ipv4::LENGTH]> = packet.bytes_mut().first_chunk_mut();
    if let Some((link, network)) = head.and_then(|head| head.split_first_chunk_mut::<{ ethernet::LENGTH }>())
        && let Some(network) = network.first_chunk_mut()
        && let Some(way) = ways.by_route(route, exit)
        && let Some(addresses) = link.first_chunk_mut()
        && way.is_direct()
        && ipv4::TOTAL_LENGTH.read(network) <= way.mtu
    {
        ipv4::count_down(network);
        way.go(addresses, bytes, slot, meta, lists);
        return true;
    }
    false
}

/// What takes more is for those who know more of it.
#[inline(never)]
fn look_again(slot: Slot, packet: &Packet<'_>, meta: &mut Meta, lists: &mut Lists) {
    let head = packet.bytes().first_chunk();
    match head.and_then(|head| layers::short(head, packet.len())) {
        Some(layers) => {
            *meta = Meta {
                layers,
                interface: meta.interface,
                ..Meta::default()
            };
            put(&mut lists.forward4, slot);
        }
        None => lists.discard(slot, Own::Forgotten),
    }
}
