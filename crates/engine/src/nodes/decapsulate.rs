//! decapsulate: removes the outer header of packets that are addressed to a local tunnel endpoint. The inner packet is
//! received on the tunnel's interface, in the same buffer. ICMP errors for outer packets update the path MTU of the
//! tunnel.

use sluice_wire::ethernet::{self, ethertype};
use sluice_wire::layers::{Class, Flags, Fragment};
use sluice_wire::tunnel::{copy_ecn, service};
use sluice_wire::{Checksums, Packet, icmp, icmpv6};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::inter_router_link::{MAX_PASSES, arrive};
use crate::nodes::{chain, hand_off};
use crate::packet::batch::{Batch, BufferIndices, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::snapshot::tunnels::{TunnelKind, TunnelTag};

use inner::{group, inside};
use keepalive::{answer, keepalive};

mod inner;
mod keepalive;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "decapsulate",
    help: "removes the outer header of a tunnel",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery, Leave::Drop],
    exits: &[
        Exit::new("parse", "inner packet", needs::TUNNELLED),
        Exit::new("forward", "keepalive reply", needs::TUNNELLED),
    ],
};

/// Decapsulates packets and receives the inner packets. Returns the slots of the received inner packets.
#[inline(never)]
pub fn decapsulate(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    let mut arrived = BufferIndices::new();
    for slot in std::mem::take(&mut lists.decapsulate) {
        let meta = *batch.meta(slot);
        let packet = &mut batch.packets[slot as usize];
        if meta.layers.flags.has(Flags::ICMP_ERROR) {
            update_path_mtu(packet.bytes(), &meta, ctx);
            put(&mut lists.taken, slot);
            continue;
        }
        let interface = match open(packet, &meta, ctx) {
            Ok(interface) => interface,
            Err(reason) => {
                lists.drop_packet(slot, reason);
                continue;
            }
        };
        if let Some(counters) = ctx.counters.interfaces.get(usize::from(meta.interface)) {
            counters.to_host.add(1);
        }
        if let Some(layers) = keepalive(packet, interface, ctx) {
            answer(slot, (interface, layers), batch, lists, ctx);
            continue;
        }
        if let Some(counters) = ctx.counters.interfaces.get(usize::from(interface)) {
            counters.received.add(1);
            counters.received_bytes.add(packet.len() as u64);
        }
        batch.meta[slot as usize % BURST_BUFFERS].interface = interface;
        match meta.link_passes + 1 {
            MAX_PASSES.. => lists.drop_packet(slot, EngineReason::TooManyPasses),
            link_passes => {
                arrive(slot, interface, link_passes, batch, lists, ctx);
                put(&mut arrived, slot);
            }
        }
    }
    if let Some(observer) = &mut tools.observer {
        observer.arrives(batch, &arrived, ctx);
    }
    chain::divert_received(batch, lists, ctx, 0);
    if !ctx.role.sessions.is_empty() {
        hand_off::both(batch, lists, ctx);
    }
}

/// Replaces an outer packet by its inner frame. Returns the interface of the tunnel.
fn open(packet: &mut Packet<'_>, meta: &Meta, ctx: &NodeContext<'_, '_>) -> Result<u16, EngineReason> {
    let (layers, frame) = (&meta.layers, packet.bytes());
    if layers.fragment != Fragment::Whole {
        return Err(EngineReason::TunnelFragment);
    }
    let tunnels = &ctx.snapshot.tunnels;
    let (kind, local, remote) = tunnels.outer(layers, frame).ok_or(EngineReason::Forgotten)?;
    let inside = inside(kind, layers, frame).ok_or(EngineReason::TunnelHeader)?;
    let mark = TunnelTag {
        router: ctx.snapshot.router_of(meta.interface),
        kind,
        local,
        remote,
        id: inside.id,
    };
    let number = tunnels.find(&mark).ok_or(EngineReason::UnknownTunnel)?;
    let interface = ctx.snapshot.interface(number).ok_or(EngineReason::UnknownTunnel)?;
    let class = match layers.class {
        Class::Ipv6 => ethertype::IPV6,
        _ => ethertype::IPV4,
    };
    let outer = service(class, layers.datagram(frame));
    let datagram = packet
        .bytes_mut()
        .get_mut(inside.datagram..inside.to)
        .unwrap_or_default();
    if !copy_ecn(inside.kind, datagram, outer) {
        return Err(EngineReason::TunnelCongestion);
    }
    let destination = group(inside.kind, datagram).unwrap_or(interface.mac);
    let fits = packet.set_len(inside.to) && packet.trim_front(inside.from);
    // The NIC has verified the checksums of the outer packet only.
    packet.set_checksums(Checksums::Unverified);
    if fits && matches!(kind, TunnelKind::Vxlan(_)) {
        return Ok(number);
    }
    // The removed outer headers were longer than the Ethernet header that replaces them.
    let Some(head) = packet.grow_front(ethernet::LENGTH).then(|| packet.bytes_mut()) else {
        return Err(EngineReason::TunnelHeader);
    };
    ethernet::DESTINATION.write(head, destination);
    ethernet::SOURCE.write(head, [0; 6]);
    ethernet::ETHERTYPE.write(head, inside.kind);
    Ok(number)
}

/// Updates the path MTU of a tunnel from an ICMP error for an outer packet (RFC 1191, RFC 8201).
#[cold]
fn update_path_mtu(frame: &[u8], meta: &Meta, ctx: &NodeContext<'_, '_>) {
    let (layers, router) = (&meta.layers, ctx.snapshot.router_of(meta.interface));
    let message = layers.payload(frame);
    let (kind, code) = (icmp::KIND.read(message), icmp::CODE.read(message));
    let mtu = match layers.class {
        Class::Ipv4 if (kind, code) == (icmp::kind::UNREACHABLE, icmp::unreachable::FRAGMENTATION_NEEDED) => {
            icmp::SEQUENCE.read(message).into()
        }
        Class::Ipv6 if kind == icmpv6::kind::PACKET_TOO_BIG => icmpv6::PARAMETER.read(message),
        _ => return,
    };
    if let Some(ends) = ctx.snapshot.tunnels.quoted_ends(router, layers, frame) {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        if ctx.snapshot.tunnels.lower(router, ends, mtu, ctx.now) {
            ctx.counters.path_mtus_lowered.add(1);
        }
    }
}
