//! Writes the link header for an interface and a MAC.

use sluice_wire::layers::{Class, Layers};
use sluice_wire::{Packet, ethernet};

use crate::snapshot::Interface;

/// Writes MAC addresses, tags and EtherType. Returns `false` if the headroom is too small.
#[inline(always)]
pub(super) fn link_header(packet: &mut Packet<'_>, layers: &Layers, interface: &Interface, mac: [u8; 6]) -> bool {
    if layers.tags != 0 || !interface.tags.is_empty() {
        return tagged_header(packet, layers, interface, mac);
    }
    // The sent frame keeps the EtherType of the received frame.
    let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() else {
        return false;
    };
    head[..6].copy_from_slice(&mac);
    head[6..].copy_from_slice(&interface.mac);
    true
}

#[cold]
fn tagged_header(packet: &mut Packet<'_>, layers: &Layers, interface: &Interface, mac: [u8; 6]) -> bool {
    let length = ethernet::LENGTH + 4 * interface.tags.len();
    let old = layers.l3 as usize;
    let kept = layers
        .tag(packet.bytes(), 0)
        .map_or(0, |tag| tag.control & u16::from(interface.priority.kept()) << 8);
    let fits = if length > old {
        packet.grow_front(length - old)
    } else {
        packet.trim_front(old - length)
    };
    let Some(head) = packet.bytes_mut().get_mut(..length).filter(|_| fits) else {
        return false;
    };
    let ethertype = match layers.class {
        Class::Ipv6 => ethernet::ethertype::IPV6,
        Class::Arp => ethernet::ethertype::ARP,
        _ => ethernet::ethertype::IPV4,
    };
    head[..6].copy_from_slice(&mac);
    head[6..12].copy_from_slice(&interface.mac);
    for (place, tag) in interface.tags.iter().enumerate() {
        head[12 + 4 * place..14 + 4 * place].copy_from_slice(&tag.protocol.to_be_bytes());
        let control = interface.priority.of(*tag).control | kept;
        head[14 + 4 * place..16 + 4 * place].copy_from_slice(&control.to_be_bytes());
    }
    head[length - 2..].copy_from_slice(&ethertype.to_be_bytes());
    true
}
