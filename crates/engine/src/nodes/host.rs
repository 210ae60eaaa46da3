//! host: what a router's host sends: out by the interface that it was sent by, as it is; or as the answer of a session, where
//! rules lead flows to the host.
//!
//! Exits: transmit, hand over, lookup4 and fragments (it may be such an answer), forward (whom it is for is on no network of
//! that interface, or it has to be cut), unresolved, drop.

use sluice_route::Address;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ethernet::{self, multicast4, multicast6};
use sluice_wire::layers::{Class, Flags, Fragment};

use crate::batch::{Batch, Complaint, Hop, Lists, Meta, Slots, put};
use crate::context::Ctx;
use crate::family::{Family, Session, V4, V6};
use crate::io::{HAND, Slot};
use crate::nodes::established::{follow, translate};
use crate::nodes::output::{Ways, output, send};
use crate::nodes::{dont_fragment, leave};
use crate::paths::{Destination, Wanted};
use crate::policy::{Interface, Policy};
use crate::reason::Own;
use crate::segment_size;

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
        if meta.layers.class == Class::Ipv4
            && may_answer(ctx.policy, meta.interface)
            && !lists.is_sessionless(slot)
            && !meta.layers.flags.has(Flags::MULTICAST)
        {
            match meta.layers.fragment {
                Fragment::Whole => put(V4::lookups(lists), slot),
                _ => put(&mut lists.fragments, slot),
            }
            continue;
        }
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

/// Whether what a host sends by an interface may belong to sessions.
pub fn may_answer(policy: &Policy, interface: u16) -> bool {
    let spread = policy.nat4.spread.as_ref();
    let context = policy.interface(interface).map_or(0, |interface| interface.context);
    spread.is_some_and(|spread| spread.has_own(context))
}

/// What hosts have sent opens no sessions: it goes out as it is.
pub fn without_session(slots: &mut Slots, batch: &Batch<'_, '_>, lists: &mut Lists) {
    slots.retain(|slot| {
        let own = batch.meta(*slot).own();
        if own {
            lists.sessionless |= 1 << (*slot as usize % HAND);
            put(&mut lists.host, *slot);
        }
        !own
    });
}

/// An answer of a session that a rule has led to the host: translated, and not counted down.
#[cold]
pub fn answer<F: Family>(
    slot: Slot,
    (index, direction): (RecordIndex, Direction),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    ways: &mut Ways,
) {
    let meta = &mut batch.meta[slot as usize % HAND];
    let packet = &mut batch.packets[slot as usize];
    let (layers, exit) = (meta.layers, ctx.exit());
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
    let Some((shard, session)) = shard.and_then(|shard| {
        let session = *F::table_ref(shard).get(index)?;
        Some((shard, session))
    }) else {
        return lists.discard(slot, Own::Forgotten);
    };
    let hop = session.hop(direction);
    if hop == Hop::LOCAL || hop == Hop::HAIRPIN {
        return lists.discard(slot, Own::Loop);
    }
    let Some(way) = ways.of(hop, &exit) else {
        return lists.wait(slot, exit.paths.wanted(hop));
    };
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > way.mtu;
    if cut && (F::SIX || dont_fragment(packet.bytes(), &layers)) {
        return lists.complain(slot, Complaint::TooBig(way.mtu), sluice_route::Reason::TooBig);
    }
    let tracked = match translate::<F>(packet.bytes_mut(), &layers, &session, direction, 0) {
        Ok(tracked) => tracked,
        Err(reason) => return lists.discard(slot, reason),
    };
    if segment_size::is_offered(&layers) {
        segment_size::limit::<F>(packet, &layers, [meta.interface, hop.interface() as u16], exit.policy);
    }
    if let Some(session) = F::table(shard).get_mut(index) {
        let track = session.track_mut();
        track.packets[direction as usize] += 1;
        track.bytes[direction as usize] += u64::from(length);
    }
    follow::<F>(tracked, shard, index, direction, exit.policy, exit.now);
    match cut {
        true => lists.cut(slot, hop),
        false => send(way, slot, packet, meta, lists, &exit),
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
