//! host: what a router's host sends: out by the interface that it was sent by, as it is.
//!
//! Exits: transmit, hand over, forward (whom it is for is on no network of that interface, or it has to be cut), unresolved,
//! drop.

use sluice_route::Address;
use sluice_wire::ethernet::{self, multicast4, multicast6};
use sluice_wire::layers::Class;

use crate::batch::{Batch, Hop, Lists, Meta, put};
use crate::context::Ctx;
use crate::family::{Family, V4, V6};
use crate::nodes::leave;
use crate::nodes::output::output;
use crate::paths::{Destination, Wanted};
use crate::policy::Interface;
use crate::reason::Own;

/// Whom a frame is for.
enum To {
    /// A group, or everybody, on the link.
    Group([u8; 6]),
    /// A neighbour on the link.
    Neighbour(Wanted),
    /// Somebody elsewhere: routes say.
    Routed,
}

/// Send what hosts send.
#[inline(never)]
pub fn host(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let exit = ctx.exit();
    for slot in std::mem::take(&mut lists.host) {
        let meta = *batch.meta(slot);
        let packet = &mut batch.packets[slot as usize];
        let Some(interface) = ctx.policy.interface(meta.interface).filter(|interface| interface.host) else {
            lists.discard(slot, Own::InterfaceGone);
            continue;
        };
        let too_long = meta.layers.end.saturating_sub(meta.layers.l3) > ctx.policy.mtu(meta.interface, ctx.now);
        let (hop, mac) = match whom(&meta, packet.bytes(), interface) {
            To::Group(_) if too_long => {
                lists.discard(slot, sluice_route::Reason::TooBig);
                continue;
            }
            To::Group(mac) => (Hop::bridge(meta.interface), mac),
            To::Neighbour(wanted) if !too_long => match ctx.paths.neighbour(wanted) {
                Destination::Hop(hop) if let Some(mac) = ctx.paths.mac(hop) => (hop, mac),
                _ => {
                    lists.wait(slot, Some(wanted));
                    continue;
                }
            },
            To::Neighbour(_) | To::Routed => {
                match meta.layers.class {
                    Class::Ipv6 => put(V6::forwards(lists), slot),
                    _ => put(V4::forwards(lists), slot),
                }
                continue;
            }
        };
        let out = output(packet, &meta.layers, hop, mac, &exit);
        leave(slot, out, &mut batch.meta[slot as usize], hop, lists);
    }
}

fn whom(meta: &Meta, frame: &[u8], interface: &Interface) -> To {
    let address = match meta.layers.class {
        Class::Ipv6 => V6::address(V6::addresses(&meta.layers, frame).1),
        _ => V4::address(V4::addresses(&meta.layers, frame).1),
    };
    match address {
        Address::V4(group) if group >> 28 == 0xe => To::Group(multicast4(group)),
        Address::V6(group) if group >> 120 == 0xff => To::Group(multicast6(group)),
        Address::V4(all) if all == u32::MAX || is_broadcast(all, interface) => To::Group(ethernet::BROADCAST),
        address if interface.link.has_neighbour(address) => To::Neighbour(Wanted {
            interface: meta.interface,
            address,
        }),
        _ => To::Routed,
    }
}

/// Whether an address is everybody's on a network of the interface (RFC 919).
fn is_broadcast(address: u32, interface: &Interface) -> bool {
    interface.link.addresses.iter().any(|&(own, length)| match own {
        Address::V4(own) if (1..31).contains(&length) => address == own | u32::MAX >> length,
        _ => false,
    })
}
