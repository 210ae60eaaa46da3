//! Keepalives of GRE tunnels.

use sluice_wire::layers::{self, Class, Layers};
use sluice_wire::tunnel::gre;
use sluice_wire::{Checksums, Packet, validity};

use crate::features::context::NodeContext;
use crate::nodes::inter_router_link::MAX_PASSES;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::snapshot::tunnels::{TunnelKind, addresses};

/// The layers of the inner packet if it is a GRE keepalive. The remote tunnel endpoint expects the gateway to return a
/// keepalive.
pub(super) fn keepalive(packet: &Packet<'_>, number: u16, ctx: &NodeContext<'_, '_>) -> Option<Layers> {
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
pub(super) fn answer(
    slot: BufferIndex,
    (number, layers): (u16, Layers),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let tunnel = ctx.snapshot.interface(number).and_then(|interface| interface.tunnel);
    let (underlay, link_passes) = (tunnel.map_or(number, |tunnel| tunnel.underlay), meta.link_passes + 1);
    *meta = Meta {
        layers,
        interface: underlay,
        origin: Origin::Gateway,
        link_passes,
        ..Meta::default()
    };
    if let Some(counters) = ctx.counters.interfaces.get(usize::from(underlay)) {
        counters.originated.add(1);
    }
    if link_passes >= MAX_PASSES {
        return lists.drop_packet(slot, EngineReason::TooManyPasses);
    }
    if !ctx.snapshot.tunnels.admits_keepalive(number, ctx.now) {
        return lists.drop_packet(slot, EngineReason::PolicedKeepalive);
    }
    batch.packets[slot as usize].trim_trailer(layers.end.into());
    ctx.counters.gre_keepalives_answered.add(1);
    match layers.class {
        Class::Ipv6 => put(&mut lists.forward.v6, slot),
        _ => put(&mut lists.forward.v4, slot),
    }
}
