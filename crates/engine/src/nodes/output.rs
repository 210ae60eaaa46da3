//! output: the link header of the next hop, and the port.

use sluice_wire::layers::{Class, Layers};
use sluice_wire::{Packet, ethernet};

use crate::batch::Hop;
use crate::context::Ctx;
use crate::io::{PortIndex, WorkerIndex};
use crate::policy::Interface;
use crate::reason::Own;

/// Where a finished packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Sent by this worker.
    Transmit(PortIndex),
    /// Sent by the worker that has the queue of the interface's port.
    HandOver(WorkerIndex, u16),
    /// Not possible.
    Drop(Own),
}

/// Write the link header for a hop whose neighbour has this MAC address.
#[inline(always)]
pub fn output(packet: &mut Packet<'_>, layers: &Layers, hop: Hop, mac: [u8; 6], ctx: &Ctx<'_, '_>) -> Out {
    let Some(interface) = ctx.policy.interfaces.get(hop.interface()) else {
        return Out::Drop(Own::InterfaceGone);
    };
    if !link_header(packet, layers, interface, mac) {
        return Out::Drop(Own::NoBuffer);
    }
    match ctx.policy.sender(ctx.setup, interface.port, ctx.own) {
        Some(sender) => Out::HandOver(sender, hop.interface() as u16),
        None => {
            if let Some(counters) = ctx.counters.interfaces.get(hop.interface()) {
                counters.sent_bytes.add(packet.len() as u64);
                counters.sent.add(1);
            }
            Out::Transmit(interface.port)
        }
    }
}

/// Write addresses, tags and type; false where the headroom is too small.
#[inline(always)]
pub fn link_header(packet: &mut Packet<'_>, layers: &Layers, interface: &Interface, mac: [u8; 6]) -> bool {
    if layers.tags != 0 || !interface.tags.is_empty() {
        return tagged_header(packet, layers, interface, mac);
    }
    // The type behind the addresses is right as it came.
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
        head[14 + 4 * place..16 + 4 * place].copy_from_slice(&tag.id().to_be_bytes());
    }
    head[length - 2..].copy_from_slice(&ethertype.to_be_bytes());
    true
}
