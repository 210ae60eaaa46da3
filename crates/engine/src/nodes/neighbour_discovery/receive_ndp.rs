//! Messages of neighbour discovery and router discovery (RFC 4861).

use sluice_route::Address;
use sluice_route::neighbour::{Advertisement, NeighbourMessage};
use sluice_wire::Packet;
use sluice_wire::ethernet::Link;
use sluice_wire::ndp::{self, Message};

use crate::features::context::OwnerState;
use crate::packet::batch::{Meta, put};
use crate::packet::reason::EngineReason;
use crate::session::family::V6;
use crate::snapshot::Interface;
use crate::snapshot::forwarding::ForwardingState;

use super::{Outcome, answers_as_proxy, claimed};

pub(super) fn receive_discovery(
    packet: &mut Packet<'_>,
    meta: &Meta,
    (interface, forwarding): (&Interface, &ForwardingState),
    owner: &mut OwnerState,
    now: u64,
) -> Outcome {
    let message = match ndp::read(packet.bytes(), &meta.layers) {
        Ok(Some(message)) => message,
        Ok(None) => return Outcome::Consumed,
        Err(fault) => return Outcome::Drop(fault.into()),
    };
    let source = sluice_wire::ipv6::SOURCE.read(meta.layers.datagram(packet.bytes()));
    let to_daemons = match interface.host {
        true => Outcome::Punt,
        false => Outcome::Consumed,
    };
    let OwnerState { writer, actions, .. } = owner;
    let mut receive = |address: u128, mac, observed| {
        let address = Address::V6(address);
        let on_link = interface.link.has_neighbour(address);
        writer.receive(meta.interface, address, mac, observed, on_link, now, &mut |action| {
            put(actions, action)
        });
    };
    match message {
        Message::NeighbourSolicitation { target, source_link } => {
            let detection = source == 0;
            let is_local = interface.link.owns(Address::V6(target));
            let words = [(target >> 64) as u64, target as u64];
            if !is_local && (detection || source == target || !answers_as_proxy::<V6>(interface, forwarding, words)) {
                return Outcome::Drop(EngineReason::NotForUs.into());
            }
            if !detection {
                receive(source, source_link, NeighbourMessage::Solicitation);
            }
            answer_solicitation(packet, interface, (source, source_link), target, is_local)
        }
        Message::NeighbourAdvertisement {
            target,
            flags,
            target_link,
        } => {
            let flags = Advertisement {
                solicited: flags.solicited,
                overrides: flags.overriding,
            };
            receive(target, target_link, NeighbourMessage::Advertisement(flags));
            let mac = target_link.filter(|mac| *mac != interface.mac);
            if let Some(mac) = mac.filter(|_| interface.link.owns(Address::V6(target))) {
                claimed(writer, interface, Address::V6(target), mac);
            }
            Outcome::Consumed
        }
        Message::RouterSolicitation { source_link } => {
            if source != 0 {
                receive(source, source_link, NeighbourMessage::Solicitation);
            }
            if interface.advertise.is_some() {
                Outcome::Advertise
            } else {
                to_daemons
            }
        }
        // BGP unnumbered discovers its peers by router advertisements, so the routing daemons receive router advertisements.
        Message::RouterAdvertisement { .. } => to_daemons,
    }
}

/// Replaces a neighbour solicitation by the advertisement of its target. `is_local`: the target is an address of the interface.
fn answer_solicitation(
    packet: &mut Packet<'_>,
    interface: &Interface,
    (source, source_link): (u128, Option<[u8; 6]>),
    target: u128,
    is_local: bool,
) -> Outcome {
    let detection = source == 0;
    let destination = if detection { ndp::ALL_NODES } else { source };
    let mac = match source_link {
        Some(mac) => mac,
        None if detection => sluice_wire::ethernet::multicast6(ndp::ALL_NODES),
        None => packet
            .bytes()
            .get(6..12)
            .and_then(|mac| mac.try_into().ok())
            .unwrap_or_default(),
    };
    let link = Link {
        source: interface.mac,
        destination: mac,
    };
    let flags = ndp::Advertised {
        router: true,
        solicited: !detection,
        // The target may return to the link. A proxy advertisement must therefore not override the target's own
        // advertisement.
        overriding: is_local,
    };
    if ndp::emit_advertisement(packet, link, (target, destination), target, flags) && interface.push_tags(packet) {
        if is_local { Outcome::Answer } else { Outcome::Proxied }
    } else {
        Outcome::Drop(EngineReason::NoBuffer.into())
    }
}
