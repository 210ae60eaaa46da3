//! The nodes: one file each. A node takes the slots of its list and puts each on the list of its next.

pub mod admit;
pub mod bridge;
pub mod chain;
pub mod complain;
pub mod cross;
pub mod cut;
pub mod decapsulate;
pub mod decide;
pub mod encapsulate;
pub mod established;
pub mod forward;
pub mod fragments;
pub mod gateway;
pub mod host;
pub mod inspect;
pub mod neighbour;
pub mod output;
pub mod parse;
pub mod pass;
pub mod punt;
pub mod recognise;
pub mod revise;
pub mod subscriber;
pub mod transit;

use sluice_wire::Packet;
use sluice_wire::ipv4::Ipv4;
use sluice_wire::ipv6;
use sluice_wire::layers::Layers;

use crate::batch::{Hop, Lists, Meta, Note, Stage};
use crate::family::Family;
use crate::io::Slot;
use output::Out;

/// Count an IPv4 packet's TTL, an IPv6 packet's hop limit, down by one.
#[inline(always)]
pub fn decrement<F: Family>(packet: &mut Packet<'_>, layers: &Layers) {
    let datagram = layers.datagram_mut(packet.bytes_mut());
    if F::SIX {
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
pub fn leave(slot: Slot, out: Out, meta: &mut Meta, hop: Hop, lists: &mut Lists) {
    meta.egress = hop.interface() as u16;
    match out {
        Out::Transmit(port) => lists.send(port, slot),
        Out::HandOver(worker, interface) => lists.hand_over(slot, worker, Note::new(Stage::Finished(interface), meta)),
        Out::Drop(reason) => lists.discard(slot, reason),
    }
}
