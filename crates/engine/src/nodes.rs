//! The nodes: one file each. A node takes the slots of its list and puts each on the list of its next.

pub mod admit;
pub mod bridge;
pub mod chain;
pub mod decapsulate;
pub mod encapsulate;
pub mod forward;
pub mod fragmentation;
pub mod hand_off;
pub mod host;
pub mod icmp_error;
pub mod identify;
pub mod inspect;
pub mod inter_router_link;
pub mod ip4_fast_forward;
pub mod local_delivery;
pub mod neighbour;
pub mod output;
pub mod parse;
pub mod punt;
pub mod revalidate;
pub mod session_lookup;
pub mod slow_path;
pub mod subscriber;
pub mod virtual_reassembly;

use sluice_wire::Packet;
use sluice_wire::ipv4::Ipv4;
use sluice_wire::ipv6;
use sluice_wire::layers::Layers;

use crate::packet::batch::{AdjacencyIndex, EntryPoint, HandOffNote, Lists, Meta};
use crate::packet::io::BufferIndex;
use crate::session::family::Family;
use output::Exit;

/// Count an IPv4 packet's TTL, an IPv6 packet's hop limit, down by one.
#[inline(always)]
pub fn decrement<F: Family>(packet: &mut Packet<'_>, layers: &Layers) {
    let datagram = layers.datagram_mut(packet.bytes_mut());
    if F::IS_V6 {
        if let Some(limit) = datagram.get_mut(ipv6::HOP_LIMIT.offset) {
            *limit = limit.saturating_sub(1);
        }
    } else if let Some(mut header) = Ipv4::new(datagram) {
        header.decrement_ttl();
    }
}

/// Whether an IPv4 packet must not be cut.
pub fn dont_fragment(frame: &[u8], layers: &Layers) -> bool {
    Ipv4::new(layers.datagram(frame)).is_none_or(|header| header.dont_fragment())
}

/// Put a packet where output decided.
#[inline(always)]
pub fn leave(slot: BufferIndex, out: Exit, meta: &mut Meta, hop: AdjacencyIndex, lists: &mut Lists) {
    meta.egress = hop.interface() as u16;
    match out {
        Exit::Transmit(port) => lists.send(port, slot),
        Exit::HandOver(worker, interface) => {
            lists.hand_over(slot, worker, HandOffNote::new(EntryPoint::Finished(interface), meta))
        }
        Exit::Drop(reason) => lists.drop_packet(slot, reason),
    }
}
