//! ARP messages.

use sluice_nat::sites::{RequestKind, site};
use sluice_route::Address;
use sluice_route::neighbour::{Advertisement, NeighbourMessage};
use sluice_wire::ethernet::Link;
use sluice_wire::{Packet, arp};

use crate::features::announcements::proxies_for;
use crate::features::context::{NodeContext, OwnerState};
use crate::features::sites;
use crate::nodes::{bridge, subscriber};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::V4;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::{Interface, SiteClassifier, Snapshot};

use super::{Outcome, answers_as_proxy, claimed};

pub(super) fn receive_arp(
    packet: &mut Packet<'_>,
    meta: &Meta,
    (interface, snapshot, forwarding): (&Interface, &Snapshot, &ForwardingState),
    owner: &mut OwnerState,
    now: u64,
) -> Outcome {
    let Some(message) = arp::Arp::new(meta.layers.datagram(packet.bytes())) else {
        return Outcome::Drop(sluice_wire::Fault::BadArp.into());
    };
    let (sender, mac, target) = (message.sender(), message.sender_mac(), message.target());
    let is_request = message.operation() == arp::REQUEST;
    let is_local = answers_for(interface, snapshot, target);
    // An ARP probe, which checks whether an address is in use, has no sender address (RFC 5227). No proxy answer is sent to an ARP probe.
    let proxied = !is_local
        && is_request
        && sender != 0
        && sender != target
        && answers_as_proxy::<V4>(interface, forwarding, target);
    let for_us = is_local || proxied;
    let on_link = interface.link.has_neighbour(Address::V4(sender));
    let observed = match (is_request && for_us, for_us) {
        (true, _) => NeighbourMessage::Solicitation,
        (false, for_us) => NeighbourMessage::Advertisement(Advertisement {
            // If an interface has no addresses, the gateway sends requests on it from an address of another interface.
            solicited: for_us || !is_request && snapshot.owns(interface, Address::V4(target)),
            overrides: true,
        }),
    };
    let OwnerState { writer, actions, .. } = owner;
    if mac != interface.mac && interface.link.owns(Address::V4(sender)) {
        claimed(writer, interface, Address::V4(sender), mac);
    }
    writer.receive(
        meta.interface,
        Address::V4(sender),
        Some(mac),
        observed,
        on_link,
        now,
        &mut |action| put(actions, action),
    );
    if !(is_request && for_us) {
        return if for_us || on_link {
            Outcome::Consumed
        } else {
            Outcome::Drop(EngineReason::NotForUs.into())
        };
    }
    // Requests for the public address of a site are answered with the site's virtual MAC.
    let own = own_mac(snapshot, meta, interface, target);
    let link = Link {
        source: own.unwrap_or(interface.mac),
        destination: mac,
    };
    if arp::emit_reply(packet, link, target, sender) && interface.push_tags(packet) {
        if proxied { Outcome::Proxied } else { Outcome::Answer }
    } else {
        Outcome::Drop(EngineReason::NoBuffer.into())
    }
}

/// Processes an ARP message in which a terminal of a site requests the gateway's MAC. The neighbour table is not
/// changed by the message: the MAC of a terminal is taken from its lease.
pub(super) fn receive_terminal_arp(
    slot: BufferIndex,
    meta: &Meta,
    sites: &SiteClassifier,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let packet = &mut batch.packets[slot as usize];
    let Some(message) = arp::Arp::new(meta.layers.datagram(packet.bytes())) else {
        return lists.drop_packet(slot, sluice_wire::Fault::BadArp);
    };
    let (sender, mac, target) = (message.sender(), message.sender_mac(), message.target());
    let is_request = message.operation() == arp::REQUEST;
    let Some(context) = sites.context_of_sender(meta.interface, &meta.layers, packet.bytes(), sender) else {
        return lists.drop_packet(slot, EngineReason::SiteUnknown);
    };
    if !sites.table.admits(site(context), RequestKind::Arp, ctx.now.nanoseconds) {
        return lists.drop_packet(slot, EngineReason::SitePolicedArp);
    }
    let Some(interface) = ctx.snapshot.interface(meta.interface) else {
        return lists.drop_packet(slot, EngineReason::InterfaceGone);
    };
    // Terminals of a site resolve each other directly, so the gateway answers only for its own addresses.
    if !is_request || !interface.link.owns(Address::V4(target)) {
        return put(&mut lists.taken, slot);
    }
    let tags = bridge::tags(meta, packet.bytes());
    let link = Link {
        source: interface.mac,
        destination: mac,
    };
    if !arp::emit_reply(packet, link, target, sender) {
        return lists.drop_packet(slot, EngineReason::NoBuffer);
    }
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.to_host.add(1);
        counters.originated.add(1);
    }
    subscriber::answer(slot, mac, Some(tags), batch, lists, ctx);
}

/// Whether another host claims the public address of a site by this ARP message. The caller passes such messages to the
/// subscriber service.
pub(super) fn is_conflict(frame: &[u8], meta: &Meta, snapshot: &Snapshot) -> bool {
    let (Some(sites), Some(interface)) = (snapshot.sites.as_deref(), snapshot.interface(meta.interface)) else {
        return false;
    };
    let Some(message) = arp::Arp::new(meta.layers.datagram(frame)).filter(|_| sites.is_public(meta.interface)) else {
        return false;
    };
    let owner = sites.table.owner(interface.router, message.sender());
    owner.is_some_and(|site| sites.table.mac(site) != Some(message.sender_mac()))
}

/// Whether the gateway answers requests for an address on a link. The gateway answers for its own addresses, and for
/// outside addresses of NAT that lie in a network of this link.
fn answers_for(interface: &Interface, snapshot: &Snapshot, address: u32) -> bool {
    let plain = Address::V4(address);
    let own = || sites::is_own::<V4>(snapshot, interface.context, address);
    interface.link.owns(plain)
        || interface.outside && interface.link.is_on_link(plain) && (proxies_for(interface, snapshot, address) || own())
}

/// The virtual MAC of the site that has the requested public address.
fn own_mac(snapshot: &Snapshot, meta: &Meta, interface: &Interface, address: u32) -> Option<[u8; 6]> {
    let sites = snapshot
        .sites
        .as_deref()
        .filter(|sites| sites.is_public(meta.interface))?;
    sites.table.mac(sites.table.owner(interface.router, address)?)
}
