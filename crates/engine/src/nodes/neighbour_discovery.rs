//! neighbour-discovery: processes ARP and neighbour discovery messages.

use sluice_route::neighbour::{Conflict, NeighbourWriter, State};
use sluice_route::policer::ControlClass as Policed;
use sluice_route::{Address, NextHop};
use sluice_wire::arp;
use sluice_wire::layers::Class;
use sluice_wire::ndp::{self, Message};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Leave, Lists};
use crate::packet::punt;
use crate::packet::reason::{EngineReason, Reason};
use crate::session::family::Family;
use crate::snapshot::Interface;
use crate::snapshot::forwarding::ForwardingState;

use receive_arp::{is_conflict, receive_arp, receive_terminal_arp};
use receive_ndp::receive_discovery;

mod receive_arp;
mod receive_ndp;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "neighbour-discovery",
    help: "answers ARP and neighbour discovery",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery, Leave::HandOver, Leave::Drop],
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
    Consumed,
    /// The message is invalid or not for the gateway, and is dropped.
    Drop(Reason),
    /// The message is a router solicitation of a host.
    Advertise,
    /// The message is a router discovery message for the routing daemons.
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
        // The policer does not apply to the answer to a pending request, so a flood of other messages can't suppress
        // the answer.
        let is_expected_reply = is_expected_reply(batch.packets[slot as usize].bytes(), &meta, ctx.forwarding);
        if !is_expected_reply && !owner.policer.admits(Policed::Neighbour, meta.interface, now) {
            lists.drop_packet(slot, EngineReason::PolicedNeighbour);
            continue;
        }
        let Some(interface) = snapshot.interface(meta.interface) else {
            lists.drop_packet(slot, EngineReason::InterfaceGone);
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
        match outcome {
            Outcome::Answer | Outcome::Proxied => transmit(slot, &meta, interface, batch, lists, ctx),
            Outcome::Consumed => put(&mut lists.taken, slot),
            Outcome::Advertise => {
                put(&mut lists.taken, slot);
                owner.schedule_advertisement(meta.interface, now);
            }
            Outcome::Punt => put(&mut lists.punt, slot),
            Outcome::Drop(reason) => lists.drop_packet(slot, reason),
        }
    }
}

/// Transmits an answer through the interface on which the request arrived. The answer was made in the buffer of the
/// request.
#[inline(always)]
fn transmit(
    slot: BufferIndex,
    meta: &Meta,
    interface: &Interface,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let packet = &batch.packets[slot as usize];
    let counters = ctx.counters.interfaces.get(meta.interface as usize);
    if let Some(counters) = counters {
        counters.to_host.add(1);
        counters.originated.add(1);
        counters.sent.add(1);
        counters.sent_bytes.add(packet.len() as u64);
    }
    batch.meta[slot as usize].egress = meta.interface;
    match ctx.snapshot.sender(interface.port, ctx.own) {
        None => lists.send(interface.port, slot),
        Some(sender) => {
            if let Some(counters) = counters {
                counters.sent.add(1u64.wrapping_neg());
                counters.sent_bytes.add((packet.len() as u64).wrapping_neg());
            }
            lists.hand_over(
                slot,
                sender,
                HandOffNote::new(EntryPoint::Finished(meta.interface), meta),
            );
        }
    }
}

/// Whether a message answers a pending request of the gateway. The first answer completes the request, even if the
/// answer is forged.
fn is_expected_reply(frame: &[u8], meta: &Meta, forwarding: &ForwardingState) -> bool {
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

/// Whether the gateway answers as a proxy for an address. It does so if every next hop of the route to the address is
/// on another interface.
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

/// Records that another host claims an address of the gateway.
fn claimed(writer: &NeighbourWriter, interface: &Interface, address: Address, mac: [u8; 6]) {
    writer.conflicts().add(Conflict {
        interface: interface.link.index,
        address,
        mac,
        of: None,
    });
}
