//! cross: a packet leaves a virtual router by its end of a virtual link, and comes in at the other end, in the same buffer.
//!
//! Exits: those of parse, encapsulate (it is no link, but a tunnel), drop (above a rate, as many routers as a packet may pass, or
//! the other end is gone).

use crate::batch::{Batch, Lists, Meta, put};
use crate::context::Ctx;
use crate::io::{HAND, NO_PORT, Slot};
use crate::nodes::parse::{Tally, unlike};
use crate::reason::Own;
use crate::shares::Shares;

/// Most virtual routers that a packet passes, ends of tunnels counted as ends of links.
pub const MOST_PASSES: u8 = 4;

/// Let packets cross.
#[inline(never)]
pub fn cross(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    for slot in std::mem::take(&mut lists.cross) {
        let Meta { egress, crossed, .. } = *batch.meta(slot);
        if ctx
            .policy
            .interface(egress)
            .is_some_and(|interface| interface.tunnel.is_some())
        {
            put(&mut lists.encapsulate, slot);
            continue;
        }
        let length = batch.packets[slot as usize].len() as u64;
        let peer = ctx.policy.interface(egress).and_then(|interface| interface.peer);
        let interface = peer.unwrap_or(egress);
        batch.meta[slot as usize % HAND].interface = interface;
        if let Some(counters) = ctx.counters.interfaces.get(interface as usize) {
            counters.received.add(1);
            counters.received_bytes.add(length);
        }
        let admits = |shares: &Shares| {
            let router = ctx.policy.router_of(interface);
            shares.may_cross(egress, router, length, ctx.now.nanoseconds)
        };
        match crossed + 1 {
            _ if peer.is_none() => lists.discard(slot, Own::InterfaceGone),
            _ if !ctx.policy.shares.as_deref().is_none_or(admits) => lists.discard(slot, Own::RateLimited),
            MOST_PASSES.. => lists.discard(slot, Own::TooManyPasses),
            crossed => arrive(slot, interface, crossed, batch, lists, ctx),
        }
    }
}

/// A frame has arrived at the end `interface` of a link, or of a tunnel, the `crossed`-th on its way, and is counted as received there.
pub fn arrive(
    slot: Slot,
    interface: u16,
    crossed: u8,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % HAND];
    let packet = &mut batch.packets[slot as usize];
    // What was found out about the session that it had is not about the one that it has here.
    lists.forget(slot);
    let mut counted = Tally::at(interface);
    unlike(slot, packet, meta, lists, ctx, (NO_PORT, Some(interface)), &mut counted);
    meta.crossed = crossed;
    lists.fresh |= 1 << (slot as usize % HAND);
}
