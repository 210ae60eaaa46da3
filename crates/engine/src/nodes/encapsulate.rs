//! encapsulate: writes the outer header of a tunnel in front of a packet. The underlay router routes the outer packet
//! like a packet that the gateway itself sends.

use sluice_route::Address;
use sluice_wire::checksum;
use sluice_wire::ethernet::{self, ethertype};
use sluice_wire::ipv4::{self, protocol};
use sluice_wire::layers::{self, Class, Fragment, Layers};
use sluice_wire::tunnel::{gre, service, vxlan};
use sluice_wire::{Checksums, Packet, ipv6, udp};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::inter_router_link::MAX_PASSES;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::{EngineReason, Reason};
use crate::session::family::{Family, V4, V6};
use crate::snapshot::tunnels::{Tunnel, TunnelKind};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "encapsulate",
    help: "writes the outer header of a tunnel",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::Drop],
    exits: &[Exit::new("forward", "the outer packet", needs::TUNNELLED)],
};

/// Encapsulates packets.
#[inline(never)]
pub fn encapsulate(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.encapsulate) {
        let Meta {
            egress, link_passes, ..
        } = *batch.meta(slot);
        let tunnel = ctx.snapshot.interface(egress).and_then(|interface| interface.tunnel);
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        meta.interface = tunnel.map_or(egress, |tunnel| tunnel.underlay);
        // The interface of the tunnel has already counted the inner packet. The outer packet counts as a new packet of the gateway.
        if let Some(counters) = ctx.counters.interfaces.get(usize::from(meta.interface)) {
            counters.originated.add(1);
        }
        let packet = &mut batch.packets[slot as usize];
        let wrapped = match tunnel {
            None => Err(EngineReason::InterfaceGone.into()),
            Some(_) if link_passes + 1 >= MAX_PASSES => Err(EngineReason::TooManyPasses.into()),
            Some(tunnel) => wrap(packet, &tunnel, ctx),
        };
        match wrapped {
            Err(reason) => lists.drop_packet(slot, reason),
            Ok(layers) => {
                *meta = Meta {
                    layers,
                    interface: meta.interface,
                    origin: Origin::Gateway,
                    link_passes: link_passes + 1,
                    ..Meta::default()
                };
                lists.remove_verdict(slot);
                match layers.class {
                    Class::Ipv6 => put(&mut lists.forward.v6, slot),
                    _ => put(&mut lists.forward.v4, slot),
                }
            }
        }
    }
}

/// Encapsulates a frame and returns the layers of the outer packet. The source port of the outer packet depends on the
/// flow, so that equal-cost multipath routing distributes the flows of the tunnel.
fn wrap(packet: &mut Packet<'_>, tunnel: &Tunnel, ctx: &NodeContext<'_, '_>) -> Result<Layers, Reason> {
    let inner = layers::parse(packet.bytes())?;
    let kind = match inner.class {
        Class::Ipv4 => ethertype::IPV4,
        Class::Ipv6 => ethertype::IPV6,
        Class::Arp if tunnel.carries_frames() => ethertype::ARP,
        _ => return Err(EngineReason::UnknownEthertype.into()),
    };
    let flow = flow(&inner, packet.bytes(), ctx);
    let service = service(kind, inner.datagram(packet.bytes()));
    let cut = if tunnel.carries_frames() { 0 } else { inner.l3.into() };
    let v6 = matches!(tunnel.local, Address::V6(_));
    let network = if v6 { ipv6::LENGTH } else { ipv4::LENGTH };
    let front = ethernet::LENGTH + network + tunnel.shim();
    // Remove the padding of a short frame.
    if !(packet.set_len(inner.end.into()) && packet.trim_front(cut) && packet.grow_front(front)) {
        return Err(EngineReason::TunnelHeadroom.into());
    }
    packet.set_checksums(Checksums::Unverified);
    let frame = packet.bytes_mut();
    let Some((link, datagram)) = frame.split_first_chunk_mut::<{ ethernet::LENGTH }>() else {
        return Err(EngineReason::Forgotten.into());
    };
    // `output` writes the MAC addresses when the next hop is known.
    *link = [0; ethernet::LENGTH];
    ethernet::ETHERTYPE.write(link, if v6 { ethertype::IPV6 } else { ethertype::IPV4 });
    let (header, payload) = datagram.split_at_mut_checked(network).unwrap_or_default();
    let (protocol, source_port) = shim(payload, tunnel, kind, flow);
    let length = payload.len() as u16;
    match (tunnel.local, tunnel.remote) {
        (Address::V6(local), Address::V6(remote)) => {
            // The flow label depends on the flow, for equal-cost multipath routing (RFC 6438).
            let label = flow & 0x000f_ffff;
            ipv6::VERSION_CLASS_FLOW.write(header, 6 << 28 | u32::from(service) << 20 | label);
            ipv6::PAYLOAD_LENGTH.write(header, length);
            ipv6::NEXT_HEADER.write(header, protocol);
            ipv6::HOP_LIMIT.write(header, tunnel.ttl);
            ipv6::SOURCE.write(header, local);
            ipv6::DESTINATION.write(header, remote);
            if tunnel.carries_frames() {
                // Most receivers require a UDP checksum over IPv6, although RFC 6935 permits a checksum of zero.
                let pseudo = checksum::pseudo6(local, remote, protocol, length);
                let sum = !checksum::add(checksum::sum(payload), pseudo);
                udp::CHECKSUM.write(payload, if sum == 0 { 0xffff } else { sum });
            }
        }
        (local, remote) => {
            ipv4::VERSION_LENGTH.write(header, 0x45);
            ipv4::SERVICE.write(header, service);
            ipv4::TOTAL_LENGTH.write(header, network as u16 + length);
            ipv4::IDENTIFICATION.write(header, 0);
            // A packet that exceeds the tunnel's MTU is fragmented, or answered with an ICMP error, before
            // encapsulation (RFC 4459, 3.2, 3.4). If the outer packet were fragmented, the remote tunnel endpoint would
            // have to reassemble it.
            ipv4::FRAGMENT.write(header, ipv4::DONT_FRAGMENT);
            ipv4::TTL.write(header, tunnel.ttl);
            ipv4::PROTOCOL.write(header, protocol);
            ipv4::CHECKSUM.write(header, 0);
            ipv4::SOURCE.write(header, local.number() as u32);
            ipv4::DESTINATION.write(header, remote.number() as u32);
            ipv4::CHECKSUM.write(header, checksum::checksum(header));
        }
    }
    let mut outer = layers::parse(packet.bytes())?;
    outer.source_port = source_port;
    Ok(outer)
}

/// Writes the headers between the outer IP header and the inner packet. Returns the IP protocol, and a port that depends on the
/// flow.
fn shim(payload: &mut [u8], tunnel: &Tunnel, kind: u16, flow: u32) -> (u8, u16) {
    match tunnel.kind {
        TunnelKind::Vxlan(port) => {
            // Source ports are in the range of dynamic ports (RFC 7348, 5).
            let source = 0xc000 | (flow >> 16) as u16 & 0x3fff;
            let length = payload.len() as u16;
            udp::SOURCE_PORT.write(payload, source);
            udp::DESTINATION_PORT.write(payload, port);
            udp::DATAGRAM_LENGTH.write(payload, length);
            udp::CHECKSUM.write(payload, 0);
            let header = payload.get_mut(udp::LENGTH..).unwrap_or_default();
            vxlan::write(header, tunnel.id.unwrap_or_default());
            (protocol::UDP, source)
        }
        TunnelKind::Gre => {
            gre::write(payload, kind, tunnel.id);
            (protocol::GRE, (flow >> 16) as u16)
        }
        TunnelKind::Ipip if kind == ethertype::IPV6 => (protocol::IPV6, (flow >> 16) as u16),
        TunnelKind::Ipip => (protocol::IPV4, (flow >> 16) as u16),
    }
}

/// A hash of a packet's flow. All fragments of a datagram have the same hash.
fn flow(layers: &Layers, frame: &[u8], ctx: &NodeContext<'_, '_>) -> u32 {
    let mut layers = *layers;
    if layers.fragment != Fragment::Whole {
        (layers.source_port, layers.destination_port) = (0, 0);
    }
    let hash = match layers.class {
        Class::Ipv4 => V4::hash_one(ctx.hasher, &V4::key(&layers, frame, 0)),
        Class::Ipv6 => V6::hash_one(ctx.hasher, &V6::key(&layers, frame, 0)),
        _ => 0,
    };
    hash as u32
}
