//! Routes that depend on more than the destination.

use sluice_nat::Tuple;
use sluice_route::{Balance, Reason as Route};
use sluice_wire::layers::Fragment;

use crate::features::context::NodeContext;
use crate::packet::batch::{Batch, Meta};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;

/// Looks up source-based routes. Source-based routes take precedence over the routes of their router.
#[inline(never)]
pub(super) fn look_up_by_source<F: Family>(
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
pub(super) fn choose<F: Family>(
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
            let tuple = &F::tuple(&key);
            let addresses = F::Tuple::new(tuple.source(), tuple.destination(), 0, 0, tuple.context());
            F::hash_one(ctx.hasher, &F::make_key(addresses, F::protocol(&key)))
        });
    }
}

/// Decides about a packet to a link-local address. Link-local addresses have no routes. A packet to a link-local
/// address is accepted if the address belongs to the gateway, or if the gateway itself answers a neighbour (RFC 4291,
/// 2.5.6).
#[cold]
pub(super) fn on_link<F: Family>(address: F::Address, meta: &Meta, ctx: &NodeContext<'_, '_>) -> ForwardingDecision {
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
