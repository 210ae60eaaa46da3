//! host: what a router's host sends: out by the interface that it was sent by, as it is; or by a session, where rules lead flows to
//! the host or are about what it sends itself.
//!
//! Exits: transmit, hand over, lookup4 and fragments (it may have a session), forward (whom it is for is on no network of
//! that interface, or it has to be cut), unresolved, drop.

use sluice_nat::rule::{self, SourceAction};
use sluice_nat::{PortClass, Tuple};
use sluice_route::Address;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ethernet::{self, multicast4, multicast6};
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Class, Flags, Fragment};

use crate::batch::{Batch, Complaint, Hop, Lists, Meta, Origin, Slots, put};
use crate::context::Ctx;
use crate::family::{Family, Session, V4, V6};
use crate::io::{HAND, Slot};
use crate::local;
use crate::nodes::decide::{self, Plan, Translation};
use crate::nodes::established::{follow, translate};
use crate::nodes::output::{Ways, output, send};
use crate::nodes::{dont_fragment, leave};
use crate::opening::{self, Openings};
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
        local::sent(ctx, &meta, packet.bytes());
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
    spread.is_some_and(|spread| spread.has_host(context))
}

/// What hosts have sent and no session knows goes out as it is, or opens a session where rules are about it: the slots of others
/// are left.
pub fn open<F: Family>(
    slots: &mut Slots,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    openings: &mut Openings<F>,
    ctx: &Ctx<'_, '_>,
) {
    slots.retain(|slot| {
        let meta = batch.meta(*slot);
        if !meta.own() {
            return true;
        }
        let frame = batch.packets[*slot as usize].bytes();
        let key = F::key(&meta.layers, frame, ctx.policy.context(meta, frame));
        match plan::<F>(ctx, meta, &key, None) {
            Plan::Session(translation) => openings.ask(*slot, key, translation),
            Plan::Wait(wanted) => lists.wait(*slot, Some(wanted)),
            Plan::Drop(reason) => lists.discard(*slot, reason),
            _ => {
                lists.sessionless |= 1 << (*slot as usize % HAND);
                put(&mut lists.host, *slot);
            }
        }
        false
    });
}

/// What rules say of a flow that a host begins; of several hosts that a rule leads to, `host` stays the one that it has.
#[cold]
pub fn plan<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key, host: Option<F::Address>) -> Plan<F> {
    let (rules, tuple, protocol) = (&F::nat(ctx.policy).rules, F::tuple(key), F::protocol(key));
    let layers = &meta.layers;
    let has_port = PortClass::of(protocol, <F::Address as sluice_nat::Address>::BITS).is_some();
    let begins = protocol != TCP || opening::begins(layers);
    if !has_port || !begins || layers.flags.has(Flags(Flags::ICMP_ERROR.0 | Flags::ICMP_REPLY.0)) {
        return Plan::Plain;
    }
    let redirection = rules.match_host_destination(tuple, protocol);
    let target = match redirection.map(|decided| decided.action) {
        Some(rule::Destination::To(target)) => Some(target),
        Some(rule::Destination::Among(set, port)) => match decide::choose::<F>(ctx, key, set, port, host) {
            Ok(target) => Some(target),
            Err(plan) => return plan,
        },
        Some(rule::Destination::Exempt) | None => None,
    };
    let router = ctx.policy.router_of(meta.interface);
    let address = target.map_or(tuple.destination(), |target| target.address);
    let lookup = ctx.policy.lookup::<F>(router, tuple.source());
    let there = match ctx.paths.find::<F>(lookup, address, || F::hash_one(ctx.hasher, key)) {
        Destination::Hop(hop) => Ok(hop),
        Destination::Unknown(wanted) => Err(wanted),
        // What it is to become of that routes say once more.
        Destination::Local | Destination::Refused(_) => return Plan::Plain,
    };
    let out = there.map_or_else(|wanted| wanted.interface, |hop| hop.interface() as u16);
    let sourcing = rules.match_host_source(tuple, protocol, out);
    let (pool, outside) = match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(pool)) => (Some(pool), None),
        Some(SourceAction::Static(address)) => (None, Some(address)),
        Some(SourceAction::Exempt) | None => (None, None),
    };
    if target.is_none() && pool.is_none() && outside.is_none() {
        return Plan::Plain;
    }
    let there = match there {
        Ok(hop) => hop,
        Err(wanted) => return Plan::Wait(wanted),
    };
    if meta.origin == Origin::Own {
        sourcing
            .into_iter()
            .for_each(|decided| rules.count_source(decided.rule, 1));
        redirection
            .into_iter()
            .for_each(|decided| rules.count_destination(decided.rule, 1));
        decide::count_host::<F>(rules, &redirection, target);
    }
    Plan::Session(Translation {
        target,
        pool,
        outside,
        mapped: None,
        hops: [there, Hop::LOCAL],
        answers: None,
    })
}

/// What a host has sent of a session: translated, and not counted down.
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
    if hop == Hop::UNROUTED && !layers.flags.has(Flags::ICMP_ERROR) {
        return put(F::revises(lists), slot);
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
