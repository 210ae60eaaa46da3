//! decapsulate: removes the outer header of packets that are addressed to an end of a tunnel. The inner packet is received on the
//! tunnel's interface, in the same buffer. ICMP errors for outer packets update the path MTU of the tunnel.

use sluice_wire::ethernet::{self, ethertype, multicast4, multicast6};
use sluice_wire::ipv4::{self, protocol};
use sluice_wire::layers::{self, Class, Flags, Fragment, Layers};
use sluice_wire::tunnel::{copy_ecn, gre, service, vxlan};
use sluice_wire::{Checksums, Packet, icmp, icmpv6, ipv6, udp, validity};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::inter_router_link::{MAX_PASSES, arrive};
use crate::nodes::{chain, hand_off};
use crate::packet::batch::{Batch, BufferIndices, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::snapshot::tunnels::{TunnelKind, TunnelTag, addresses};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "decapsulate",
    help: "removes the outer header of a tunnel",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::TakenIn, Leave::Drop],
    exits: &[
        Exit::new("parse", "inner packet", needs::TUNNELLED),
        Exit::new("forward", "keepalive reply", needs::TUNNELLED),
    ],
};

/// Position of the inner packet in the frame.
struct Inside {
    id: Option<u32>,
    /// Offset of the first byte of the inner packet, and offset of the byte after it.
    from: usize,
    to: usize,
    /// EtherType of the inner datagram.
    kind: u16,
    /// Offset of the inner datagram.
    datagram: usize,
}

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
        match meta.crossed + 1 {
            MAX_PASSES.. => lists.drop_packet(slot, Own::TooManyPasses),
            crossed => {
                arrive(slot, interface, crossed, batch, lists, ctx);
                put(&mut arrived, slot);
            }
        }
    }
    if let Some(observer) = &mut tools.observer {
        observer.arrives(batch, &arrived, ctx);
    }
    chain::divert_fresh(batch, lists, ctx, 0);
    if !ctx.role.sessions.is_empty() {
        hand_off::both(batch, lists, ctx);
    }
}

/// Replaces an outer packet by its inner frame. Returns the interface of the tunnel.
fn open(packet: &mut Packet<'_>, meta: &Meta, ctx: &NodeContext<'_, '_>) -> Result<u16, Own> {
    let (layers, frame) = (&meta.layers, packet.bytes());
    if layers.fragment != Fragment::Whole {
        return Err(Own::TunnelFragment);
    }
    let tunnels = &ctx.snapshot.tunnels;
    let (kind, local, remote) = tunnels.outer(layers, frame).ok_or(Own::Forgotten)?;
    let inside = inside(kind, layers, frame).ok_or(Own::TunnelHeader)?;
    let mark = TunnelTag {
        router: ctx.snapshot.router_of(meta.interface),
        kind,
        local,
        remote,
        id: inside.id,
    };
    let number = tunnels.find(&mark).ok_or(Own::UnknownTunnel)?;
    let interface = ctx.snapshot.interface(number).ok_or(Own::UnknownTunnel)?;
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
        return Err(Own::TunnelCongestion);
    }
    let destination = group(inside.kind, datagram).unwrap_or(interface.mac);
    let fits = packet.set_len(inside.to) && packet.trim_front(inside.from);
    // The NIC has verified only the checksums of the outer packet.
    packet.set_checksums(Checksums::Unverified);
    if fits && matches!(kind, TunnelKind::Vxlan(_)) {
        return Ok(number);
    }
    // The removed outer headers were longer than the Ethernet header that replaces them.
    let Some(head) = packet.grow_front(ethernet::LENGTH).then(|| packet.bytes_mut()) else {
        return Err(Own::TunnelHeader);
    };
    ethernet::DESTINATION.write(head, destination);
    ethernet::SOURCE.write(head, [0; 6]);
    ethernet::ETHERTYPE.write(head, inside.kind);
    Ok(number)
}

/// The layers of the inner packet, if it is a GRE keepalive, which the remote end of the tunnel expects to be returned.
fn keepalive(packet: &Packet<'_>, number: u16, ctx: &NodeContext<'_, '_>) -> Option<Layers> {
    let tunnel = ctx.snapshot.interface(number)?.tunnel?;
    if tunnel.kind != TunnelKind::Gre {
        return None;
    }
    let frame = packet.bytes();
    let layers = layers::parse(frame).ok()?;
    let is_one = matches!(layers.class, Class::Ipv4 | Class::Ipv6)
        && addresses(&layers, frame) == (tunnel.local, tunnel.remote)
        && gre::is_keepalive(frame, &layers, tunnel.id);
    let lenient = validity::Policy {
        martians: false,
        reserved: false,
        source_routes: false,
        headers: false,
    };
    let is_valid = || validity::validate(frame, Checksums::Unverified, &layers, &lenient).is_ok();
    (is_one && is_valid()).then_some(layers)
}

/// Returns a keepalive as a packet of the gateway, through the interface that has the local address of the tunnel.
#[cold]
fn answer(
    slot: BufferIndex,
    (number, layers): (u16, Layers),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let tunnel = ctx.snapshot.interface(number).and_then(|interface| interface.tunnel);
    let (underlay, crossed) = (tunnel.map_or(number, |tunnel| tunnel.underlay), meta.crossed + 1);
    *meta = Meta {
        layers,
        interface: underlay,
        origin: Origin::Own,
        crossed,
        ..Meta::default()
    };
    if let Some(counters) = ctx.counters.interfaces.get(usize::from(underlay)) {
        counters.originated.add(1);
    }
    if crossed >= MAX_PASSES {
        return lists.drop_packet(slot, Own::TooManyPasses);
    }
    if !ctx.snapshot.tunnels.admits_keepalive(number, ctx.now) {
        return lists.drop_packet(slot, Own::PolicedKeepalive);
    }
    batch.packets[slot as usize].cut_trailer(layers.end.into());
    ctx.counters.gre_keepalives_answered.add(1);
    match layers.class {
        Class::Ipv6 => put(&mut lists.forward.v6, slot),
        _ => put(&mut lists.forward.v4, slot),
    }
}

/// Finds the inner packet; `None` if headers are malformed, or if the tunnel doesn't carry this protocol.
fn inside(kind: TunnelKind, layers: &Layers, frame: &[u8]) -> Option<Inside> {
    let (l4, end) = (usize::from(layers.l4), usize::from(layers.end));
    let payload = layers.payload(frame);
    let ip = |id, from, kind| {
        matches!(kind, ethertype::IPV4 | ethertype::IPV6).then_some(Inside {
            id,
            from,
            to: end,
            kind,
            datagram: from,
        })
    };
    match kind {
        TunnelKind::Vxlan(_) => {
            let to = l4 + usize::from(udp::DATAGRAM_LENGTH.read(payload));
            // The UDP length may not have been validated, because a router that only routes does not do that.
            let id = vxlan::read(frame.get(l4 + udp::LENGTH..to).filter(|_| to <= end)?)?;
            let from = l4 + udp::LENGTH + vxlan::LENGTH;
            let inner = frame.get(from..to).filter(|inner| inner.len() >= ethernet::LENGTH)?;
            Some(Inside {
                id: Some(id),
                from,
                to,
                kind: ethernet::ETHERTYPE.read(inner),
                datagram: from + ethernet::LENGTH,
            })
        }
        TunnelKind::Gre => {
            let header = gre::read(payload)?;
            ip(header.key, l4 + header.length, header.inside)
        }
        TunnelKind::Ipip if layers.protocol == protocol::IPV6 => ip(None, l4, ethertype::IPV6),
        TunnelKind::Ipip => ip(None, l4, ethertype::IPV4),
    }
}

/// The multicast MAC that corresponds to the destination of a multicast datagram.
fn group(kind: u16, datagram: &[u8]) -> Option<[u8; 6]> {
    if kind == ethertype::IPV6 {
        let group = ipv6::DESTINATION.read(datagram);
        return (group >> 120 == 0xff).then(|| multicast6(group));
    }
    match ipv4::DESTINATION.read(datagram) {
        u32::MAX => Some(ethernet::BROADCAST),
        group => (group >> 28 == 0xe).then(|| multicast4(group)),
    }
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
