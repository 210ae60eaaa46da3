//! Selects the next node of a valid packet.

use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use sluice_wire::{Packet, ipv4};

use crate::packet::batch::{Origin, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::snapshot::{Interface, Snapshot};

/// Selects the next node of a valid packet that was just received.
#[inline(always)]
pub(super) fn place(
    slot: BufferIndex,
    packet: &Packet<'_>,
    layers: &Layers,
    interface: &Interface,
    lists: &mut Lists,
    snapshot: &Snapshot,
) {
    if let Some(sites) = snapshot.sites.as_deref() {
        let number = interface.link.index;
        if sites.takes(number, interface.context, layers, packet.bytes()) {
            return put(&mut lists.subscriber, slot);
        }
        if sites.is_access(number) && layers.class == Class::Ipv6 {
            return lists.drop_packet(slot, EngineReason::SiteFamily);
        }
    }
    match is_tunnelled(snapshot, interface, layers, packet.bytes()) {
        true => put(&mut lists.decapsulate, slot),
        false => classify(slot, packet, layers, interface, lists),
    }
}

/// Selects the next node of a valid packet.
#[inline(always)]
pub fn classify(slot: BufferIndex, packet: &Packet<'_>, layers: &Layers, interface: &Interface, lists: &mut Lists) {
    let stateful = interface.stateful;
    match layers.class {
        Class::Ipv4 if !layers.flags.has(Flags::MULTICAST) => {
            if !stateful[0] {
                put(&mut lists.forward.v4, slot);
            } else if layers.fragment == Fragment::Whole {
                put(&mut lists.session_lookup.v4, slot);
            } else {
                put(&mut lists.virtual_reassembly, slot);
            }
        }
        Class::Ipv6 if is_discovery(packet.bytes(), layers) => put(&mut lists.neighbour_discovery, slot),
        Class::Ipv6 if !layers.flags.has(Flags::MULTICAST) => {
            if !stateful[1] {
                put(&mut lists.forward.v6, slot);
            } else if layers.fragment == Fragment::Whole {
                put(&mut lists.session_lookup.v6, slot);
            } else {
                put(&mut lists.virtual_reassembly, slot);
            }
        }
        Class::Arp => put(&mut lists.neighbour_discovery, slot),
        Class::Ipv4 | Class::Ipv6 if interface.host => put(&mut lists.punt, slot),
        Class::Ipv4 | Class::Ipv6 => lists.drop_packet(slot, EngineReason::Multicast),
        Class::Other => lists.drop_packet(slot, EngineReason::UnknownEthertype),
    }
}

/// Selects the next node of a packet that was parked after the chains of its router were executed.
pub fn again(
    slot: BufferIndex,
    packet: &Packet<'_>,
    layers: &Layers,
    (interface, origin): (&Interface, Origin),
    lists: &mut Lists,
) {
    match (origin, layers.class) {
        (Origin::Routed, Class::Ipv4) => put(&mut lists.forward.v4, slot),
        (Origin::Routed, Class::Ipv6) => put(&mut lists.forward.v6, slot),
        _ => classify(slot, packet, layers, interface, lists),
    }
}

/// Whether a packet is an outer packet to a local tunnel endpoint, or an ICMP error for an outer packet. Outer packets
/// have no session.
#[inline(always)]
pub(super) fn is_tunnelled(snapshot: &Snapshot, interface: &Interface, layers: &Layers, frame: &[u8]) -> bool {
    snapshot.tunnels.end_in(interface.router)
        && interface.bridge.is_none()
        && matches!(layers.class, Class::Ipv4 | Class::Ipv6)
        && !layers.flags.has(Flags::MULTICAST)
        && snapshot.tunnels.take(interface.router, layers, frame)
}

/// Whether a packet belongs to router or neighbour discovery (RFC 4861): ICMPv6 types 133 to 137, not fragmented.
#[inline(always)]
fn is_discovery(frame: &[u8], layers: &Layers) -> bool {
    layers.protocol == ipv4::protocol::ICMPV6
        && layers.fragment == Fragment::Whole
        && frame
            .get(layers.l4 as usize)
            .is_some_and(|kind| (133..=137).contains(kind))
}
