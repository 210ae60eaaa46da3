//! neighbour-discovery: processes ARP and neighbour discovery messages.

use sluice_nat::sites::{RequestKind, site};
use sluice_route::neighbour::{Advertisement, Conflict, Heard, NeighbourWriter, State};
use sluice_route::policer::ControlClass as Policed;
use sluice_route::{Address, NextHop};
use sluice_wire::ethernet::Link;
use sluice_wire::layers::Class;
use sluice_wire::ndp::{self, Message};
use sluice_wire::{Packet, arp};

use crate::features::announcements::stands_in_for;
use crate::features::context::{NodeContext, OwnerState};
use crate::features::sites;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::{bridge, subscriber};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Leave, Lists};
use crate::packet::punt;
use crate::packet::reason::{Own, Reason};
use crate::session::family::{Family, V4, V6};
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::{Interface, SiteClassifier, Snapshot};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "neighbour-discovery",
    help: "answers ARP and neighbour discovery",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::TakenIn, Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("transmit", "answer", needs::ROUTED),
        Exit::new("punt", "router discovery", needs::HOSTED),
        Exit::new("subscriber", "ARP conflict about a site's address", needs::SITES),
    ],
};

/// Result of a neighbour discovery message.
enum Outcome {
    /// The packet has been replaced by an answer of the gateway.
    Answer,
    /// The packet has been replaced by a proxy answer for another host.
    Proxied,
    /// The message was processed and needs no answer.
    Taken,
    /// The message is invalid or not for the gateway, and is dropped.
    Drop(Reason),
    /// The message is a router solicitation of a host.
    Advertise,
    /// The message is part of router discovery, and is delivered to the routing daemons.
    Punt,
}

/// Processes ARP and neighbour discovery messages.
#[inline(never)]
pub fn neighbour_discovery(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.neighbour_discovery) {
        let meta = *batch.meta(slot);
        let now = ctx.now.nanoseconds;
        let snapshot = ctx.snapshot;
        let Some(owner) = ctx.owner.as_deref_mut() else {
            lists.hand_over(slot, snapshot.owner, HandOffNote::new(EntryPoint::Gateway, &meta));
            continue;
        };
        // The answer to a pending request is not policed, so that a flood can't displace it.
        let is_awaited = is_awaited(batch.packets[slot as usize].bytes(), &meta, ctx.forwarding);
        if !is_awaited && !owner.policer.admits(Policed::Neighbour, meta.interface, now) {
            lists.drop_packet(slot, Own::PolicedNeighbour);
            continue;
        }
        let Some(interface) = snapshot.interface(meta.interface) else {
            lists.drop_packet(slot, Own::InterfaceGone);
            continue;
        };
        if meta.layers.class == Class::Arp
            && let Some(host) = snapshot.host(meta.interface)
        {
            host.count(punt::PuntClass::Arp);
        }
        if meta.layers.class == Class::Arp
            && let Some(sites) = snapshot.sites.as_deref()
            && sites.is_access(meta.interface)
        {
            receive_terminal_arp(slot, &meta, sites, batch, lists, ctx);
            continue;
        }
        let packet = &mut batch.packets[slot as usize];
        if meta.layers.class == Class::Arp && is_conflict(packet.bytes(), &meta, snapshot) {
            put(&mut lists.subscriber, slot);
            continue;
        }
        let outcome = match meta.layers.class {
            Class::Arp => receive_arp(packet, &meta, (interface, snapshot, ctx.forwarding), owner, now),
            _ => receive_discovery(packet, &meta, (interface, ctx.forwarding), owner, now),
        };
        let outcome = match outcome {
            Outcome::Proxied => {
                ctx.counters.answered_as_proxy.add(1);
                Outcome::Answer
            }
            outcome => outcome,
        };
        let counters = ctx.counters.interfaces.get(meta.interface as usize);
        match outcome {
            Outcome::Answer | Outcome::Proxied => {
                if let Some(counters) = counters {
                    counters.to_host.add(1);
                    counters.originated.add(1);
                    counters.sent.add(1);
                    counters.sent_bytes.add(packet.len() as u64);
                }
                batch.meta[slot as usize].egress = meta.interface;
                match snapshot.sender(interface.port, ctx.own) {
                    None => lists.send(interface.port, slot),
                    Some(sender) => {
                        if let Some(counters) = counters {
                            counters.sent.add(1u64.wrapping_neg());
                            counters.sent_bytes.add((packet.len() as u64).wrapping_neg());
                        }
                        lists.hand_over(
                            slot,
                            sender,
                            HandOffNote::new(EntryPoint::Finished(meta.interface), &meta),
                        );
                    }
                }
            }
            Outcome::Taken => put(&mut lists.taken, slot),
            Outcome::Advertise => {
                put(&mut lists.taken, slot);
                owner.advertise_soon(meta.interface, now);
            }
            Outcome::Punt => put(&mut lists.punt, slot),
            Outcome::Drop(reason) => lists.drop_packet(slot, reason),
        }
    }
}

/// Whether a message answers a pending request of the gateway. If answers are forged, the first one completes the request.
fn is_awaited(frame: &[u8], meta: &Meta, forwarding: &ForwardingState) -> bool {
    let sender = match meta.layers.class {
        Class::Arp => arp::Arp::new(meta.layers.datagram(frame))
            .filter(|message| message.operation() != arp::REQUEST)
            .map(|message| Address::V4(message.sender())),
        _ => match ndp::read(frame, &meta.layers) {
            Ok(Some(Message::NeighbourAdvertisement { target, .. })) => Some(Address::V6(target)),
            _ => None,
        },
    };
    sender
        .and_then(|address| forwarding.neighbours.find(meta.interface, address))
        .is_some_and(|index| matches!(forwarding.neighbours.state(index), State::Incomplete | State::Probe))
}

/// Whether the gateway answers requests for an address on a link: for its own addresses, and for outside addresses of translation on that link.
fn answers_for(interface: &Interface, snapshot: &Snapshot, address: u32) -> bool {
    let plain = Address::V4(address);
    let own = || sites::is_own::<V4>(snapshot, interface.context, address);
    interface.link.owns(plain)
        || interface.outside
            && interface.link.is_on_link(plain)
            && (stands_in_for(interface, snapshot, address) || own())
}

/// Whether the gateway answers as a proxy for an address. The condition is that every next hop of the address's route is on another interface.
fn answers_as_proxy<F: Family>(interface: &Interface, forwarding: &ForwardingState, address: F::Address) -> bool {
    if !interface.neighbours.proxy[usize::from(F::IS_V6)] || !F::address(address).is_host() {
        return false;
    }
    let route = forwarding.route_value::<F>(interface.router, address);
    let leads_elsewhere = |member| match forwarding.next_hops.get(member) {
        NextHop::Attached(other) | NextHop::Gateway { interface: other, .. } => other != interface.link.index,
        NextHop::Local(_) | NextHop::Drop(_) => false,
    };
    forwarding.next_hops.members(route).all(leads_elsewhere)
}

fn receive_arp(
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
    let asks = message.operation() == arp::REQUEST;
    let ours = answers_for(interface, snapshot, target);
    // An ARP probe, which checks whether an address is in use, has no sender address (RFC 5227). No proxy answer is sent to an ARP probe.
    let proxied =
        !ours && asks && sender != 0 && sender != target && answers_as_proxy::<V4>(interface, forwarding, target);
    let for_us = ours || proxied;
    let on_link = interface.link.has_neighbour(Address::V4(sender));
    let heard = match (asks && for_us, for_us) {
        (true, _) => Heard::Solicitation,
        (false, for_us) => Heard::Advertisement(Advertisement {
            // An interface without addresses sends requests from an address of another interface.
            solicited: for_us || !asks && snapshot.owns(interface, Address::V4(target)),
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
        heard,
        on_link,
        now,
        &mut |action| put(actions, action),
    );
    if !(asks && for_us) {
        return if for_us || on_link {
            Outcome::Taken
        } else {
            Outcome::Drop(Own::NotForUs.into())
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
        Outcome::Drop(Own::NoBuffer.into())
    }
}

/// Records that another host claims an address of the gateway.
fn claimed(writer: &NeighbourWriter, interface: &Interface, address: Address, mac: [u8; 6]) {
    writer.conflicts().add(Conflict {
        interface: interface.link.index,
        address,
        mac,
        of: None,
    });
}

/// The virtual MAC of the site that has the requested public address.
fn own_mac(snapshot: &Snapshot, meta: &Meta, interface: &Interface, address: u32) -> Option<[u8; 6]> {
    let sites = snapshot
        .sites
        .as_deref()
        .filter(|sites| sites.is_public(meta.interface))?;
    sites.table.mac(sites.table.owner(interface.router, address)?)
}

/// Whether another host claims the public address of a site with an ARP message. The subscriber service is informed.
fn is_conflict(frame: &[u8], meta: &Meta, snapshot: &Snapshot) -> bool {
    let (Some(sites), Some(interface)) = (snapshot.sites.as_deref(), snapshot.interface(meta.interface)) else {
        return false;
    };
    let Some(message) = arp::Arp::new(meta.layers.datagram(frame)).filter(|_| sites.is_public(meta.interface)) else {
        return false;
    };
    let owner = sites.table.owner(interface.router, message.sender());
    owner.is_some_and(|site| sites.table.mac(site) != Some(message.sender_mac()))
}

/// Processes an ARP message in which a terminal of a site requests the gateway's MAC. The gateway learns nothing from it, because
/// the terminal's lease determines its location.
fn receive_terminal_arp(
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
    let asks = message.operation() == arp::REQUEST;
    let Some(context) = sites.context_of_sender(meta.interface, &meta.layers, packet.bytes(), sender) else {
        return lists.drop_packet(slot, Own::SiteUnknown);
    };
    if !sites.table.admits(site(context), RequestKind::Arp, ctx.now.nanoseconds) {
        return lists.drop_packet(slot, Own::SitePolicedArp);
    }
    let Some(interface) = ctx.snapshot.interface(meta.interface) else {
        return lists.drop_packet(slot, Own::InterfaceGone);
    };
    // Terminals of a site resolve each other without the gateway.
    if !asks || !interface.link.owns(Address::V4(target)) {
        return put(&mut lists.taken, slot);
    }
    let tags = bridge::tags(meta, packet.bytes());
    let link = Link {
        source: interface.mac,
        destination: mac,
    };
    if !arp::emit_reply(packet, link, target, sender) {
        return lists.drop_packet(slot, Own::NoBuffer);
    }
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.to_host.add(1);
        counters.originated.add(1);
    }
    subscriber::answer(slot, mac, Some(tags), batch, lists, ctx);
}

fn receive_discovery(
    packet: &mut Packet<'_>,
    meta: &Meta,
    (interface, forwarding): (&Interface, &ForwardingState),
    owner: &mut OwnerState,
    now: u64,
) -> Outcome {
    let message = match ndp::read(packet.bytes(), &meta.layers) {
        Ok(Some(message)) => message,
        Ok(None) => return Outcome::Taken,
        Err(fault) => return Outcome::Drop(fault.into()),
    };
    let frame = packet.bytes();
    let source = sluice_wire::ipv6::SOURCE.read(meta.layers.datagram(frame));
    let to_daemons = match interface.host {
        true => Outcome::Punt,
        false => Outcome::Taken,
    };
    let OwnerState { writer, actions, .. } = owner;
    let mut hear = |address: u128, mac, heard| {
        let address = Address::V6(address);
        let on_link = interface.link.has_neighbour(address);
        writer.receive(meta.interface, address, mac, heard, on_link, now, &mut |action| {
            put(actions, action)
        });
    };
    match message {
        Message::NeighbourSolicitation { target, source_link } => {
            let detection = source == 0;
            let ours = interface.link.owns(Address::V6(target));
            let words = [(target >> 64) as u64, target as u64];
            if !ours && (detection || source == target || !answers_as_proxy::<V6>(interface, forwarding, words)) {
                return Outcome::Drop(Own::NotForUs.into());
            }
            if !detection {
                hear(source, source_link, Heard::Solicitation);
            }
            let destination = if detection { ndp::ALL_NODES } else { source };
            let mac = match source_link {
                Some(mac) => mac,
                None if detection => sluice_wire::ethernet::multicast6(ndp::ALL_NODES),
                None => frame.get(6..12).and_then(|mac| mac.try_into().ok()).unwrap_or_default(),
            };
            let link = Link {
                source: interface.mac,
                destination: mac,
            };
            let flags = ndp::Advertised {
                router: true,
                solicited: !detection,
                // A proxy advertisement must not override an advertisement of the target, because the target may return to the link.
                overriding: ours,
            };
            if ndp::emit_advertisement(packet, link, (target, destination), target, flags)
                && interface.push_tags(packet)
            {
                if ours { Outcome::Answer } else { Outcome::Proxied }
            } else {
                Outcome::Drop(Own::NoBuffer.into())
            }
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
            hear(target, target_link, Heard::Advertisement(flags));
            let mac = target_link.filter(|mac| *mac != interface.mac);
            if let Some(mac) = mac.filter(|_| interface.link.owns(Address::V6(target))) {
                claimed(writer, interface, Address::V6(target), mac);
            }
            Outcome::Taken
        }
        Message::RouterSolicitation { source_link } => {
            if source != 0 {
                hear(source, source_link, Heard::Solicitation);
            }
            if interface.advertise.is_some() {
                Outcome::Advertise
            } else {
                to_daemons
            }
        }
        // BGP unnumbered discovers its peers by router advertisements.
        Message::RouterAdvertisement { .. } => to_daemons,
    }
}
