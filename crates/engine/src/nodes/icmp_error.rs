//! icmp-error: answers a packet with an ICMP error or a TCP reset, which is made in the buffer of that packet.

use sluice_route::Address;
use sluice_route::policer::ControlClass as Policed;
use sluice_wire::layers::{self, Class};
use sluice_wire::{Packet, icmp, icmpv6};

use crate::features::context::NodeContext;
use crate::features::sites;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::{bridge, subscriber};
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::lists::{Leave, Lists};
use crate::session::family::{Family, V4, V6};
use crate::snapshot::tunnels::addresses;

use message::make;

mod message;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "icmp-error",
    help: "makes ICMP errors and resets",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("forward", "ICMP error", needs::ROUTED),
        Exit::new("session-lookup", "hairpinned", needs::STATEFUL),
        Exit::new("transmit", "ICMP error in a site", needs::SITES),
        Exit::new("bridge", "ICMP error on a bridge", needs::BRIDGED | needs::INSPECTED),
    ],
};

/// Makes ICMP errors and TCP resets.
#[inline(never)]
pub fn icmp_error(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for (slot, icmp_error, reason) in std::mem::take(&mut lists.icmp_error) {
        let meta = *batch.meta(slot);
        if meta.is_from_gateway() {
            learn_path_mtu(&icmp_error, &meta, batch.packets[slot as usize].bytes(), ctx);
            lists.drop_packet(slot, reason);
            continue;
        }
        let Some(owner) = ctx.owner.as_deref_mut() else {
            lists.hand_over(
                slot,
                ctx.snapshot.owner,
                HandOffNote::new(EntryPoint::SendIcmpError(icmp_error, reason), &meta),
            );
            continue;
        };
        let packet = &mut batch.packets[slot as usize];
        let (tags, bridged) = (
            bridge::tags(&meta, packet.bytes()),
            ctx.snapshot.is_bridged(meta.interface),
        );
        // An answer to a terminal of a site is sent to the source MAC of the packet, because sites have no routes.
        let of_site = sites::is_from_terminal(ctx.snapshot, &meta);
        let sender = packet.bytes().get(6..12).and_then(|mac| mac.try_into().ok());
        let terminal: Option<[u8; 6]> = sender.filter(|_| of_site);
        let made = ctx.snapshot.interface(meta.interface).is_some_and(|interface| {
            may_send_error(packet, &meta, icmp_error)
                && owner
                    .policer
                    .admits(Policed::IcmpError, meta.interface, ctx.now.nanoseconds)
                && owner
                    .policer
                    .admits_error_to(sender_of(packet, &meta), ctx.now.nanoseconds)
                && make(packet, &meta, icmp_error, interface)
        });
        if !made {
            lists.drop_packet(slot, reason);
            continue;
        }
        if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
            counters.drop(reason);
            counters.originated.add(1);
        }
        match (bridged, terminal) {
            (true, _) => bridge::answer(slot, tags, batch, lists, ctx),
            (false, Some(mac)) => subscriber::answer(slot, mac, Some(tags), batch, lists, ctx),
            (false, None) => reinject(slot, batch, lists),
        }
    }
}

/// Lowers the path MTU of a tunnel if an outer packet exceeds the MTU of a link. No ICMP error is sent, because the gateway
/// itself sent the outer packet.
#[cold]
fn learn_path_mtu(icmp_error: &IcmpError, meta: &Meta, frame: &[u8], ctx: &NodeContext<'_, '_>) {
    let IcmpError::TooBig(mtu) = *icmp_error else { return };
    let router = ctx.snapshot.router_of(meta.interface);
    if ctx
        .snapshot
        .tunnels
        .lower(router, addresses(&meta.layers, frame), mtu, ctx.now)
    {
        ctx.counters.path_mtus_lowered.add(1);
    }
}

/// Sends a packet that the gateway has made in a slot: the packet is parsed again and then routed. An error for a packet between
/// two inside hosts has an outside address as its destination and is translated (RFC 5508, REQ-7).
pub fn reinject(slot: crate::packet::io::BufferIndex, batch: &mut Batch<'_, '_>, lists: &mut Lists) {
    let meta = &mut batch.meta[slot as usize % crate::packet::io::BURST_BUFFERS];
    let hairpinned = meta.origin == Origin::Hairpinned;
    if !hairpinned {
        meta.origin = Origin::Gateway;
    }
    match layers::parse(batch.packets[slot as usize].bytes()) {
        Ok(layers) => {
            meta.layers = layers;
            match (layers.class, hairpinned) {
                (Class::Ipv6, false) => put(&mut lists.forward.v6, slot),
                (_, false) => put(&mut lists.forward.v4, slot),
                (Class::Ipv6, true) => put(&mut lists.session_lookup.v6, slot),
                (_, true) => put(&mut lists.session_lookup.v4, slot),
            }
        }
        Err(fault) => lists.drop_packet(slot, fault),
    }
}

/// The address to which the error is sent.
fn sender_of(packet: &Packet<'_>, meta: &Meta) -> Address {
    match meta.layers.class {
        Class::Ipv4 => V4::address(V4::addresses(&meta.layers, packet.bytes()).0),
        _ => V6::address(V6::addresses(&meta.layers, packet.bytes()).0),
    }
}

fn may_send_error(packet: &Packet<'_>, meta: &Meta, icmp_error: IcmpError) -> bool {
    match meta.layers.class {
        Class::Ipv4 => icmp::may_send_error(packet.bytes(), &meta.layers),
        Class::Ipv6 => icmpv6::may_send_error(packet.bytes(), &meta.layers, matches!(icmp_error, IcmpError::TooBig(_))),
        _ => false,
    }
}
