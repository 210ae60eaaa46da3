//! subscriber: queues packets for the subscriber service in the control plane. It queues DHCP messages from terminals,
//! DHCP messages for the sites' own addresses, and ARP messages by which another host claims a site's address.

use sluice_nat::sites::{RequestKind, View, site};
use sluice_wire::Packet;
use sluice_wire::layers::{self, Class};
use sluice_wire::vlan::{self, Tag};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::leave;
use crate::nodes::output::{Adjacency, output_finished};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::punt::ROUTED;
use crate::packet::reason::EngineReason;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "subscriber",
    help: "relays DHCP and ARP of subscribers' sites to the control plane",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery, Leave::Drop],
    exits: &[
        Exit::new("transmit", "from the control plane", needs::SITES),
        Exit::new("forward", "DHCP to servers", needs::SITES),
    ],
};

/// Queues whole frames, with their tags, for the control plane.
#[inline(never)]
pub fn subscriber(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.subscriber) {
        let meta = *batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let Some(sites) = ctx.snapshot.sites.as_deref() else {
            lists.drop_packet(slot, EngineReason::NoLocalService);
            continue;
        };
        if sites.is_access(meta.interface) {
            let Some(context) = sites.dhcp_client(meta.interface, &meta.layers, frame) else {
                lists.drop_packet(slot, EngineReason::SiteUnknown);
                continue;
            };
            if !sites
                .table
                .admits(site(context), RequestKind::Dhcp, ctx.now.nanoseconds)
            {
                lists.drop_packet(slot, EngineReason::SitePolicedDhcp);
                continue;
            }
        }
        // The padding of a short frame is not queued.
        let end = match meta.layers.class {
            Class::Ipv4 => usize::from(meta.layers.end),
            _ => frame.len(),
        };
        let whole = frame.get(..end).unwrap_or(frame);
        match ctx.subscribers.push(meta.interface, [whole, &[]], ctx.counters) {
            true => put(&mut lists.taken, slot),
            false => lists.drop_packet(slot, EngineReason::SubscribersQueueFull),
        }
    }
}

/// Sends packets that the control plane has made. Sends frames unchanged, and routes IP packets.
#[inline(never)]
pub fn sent(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, count: usize) {
    for slot in 0..count.min(batch.packets.len()) {
        let (packet, meta) = (&batch.packets[slot], &mut batch.meta[slot]);
        let place = slot as BufferIndex;
        let routed = meta.interface & ROUTED != 0;
        meta.interface &= !ROUTED;
        let Some(counters) = ctx.counters.interfaces.get(usize::from(meta.interface)) else {
            put(&mut lists.used, place);
            continue;
        };
        counters.originated.add(1);
        match layers::parse(packet.bytes()) {
            _ if packet.bytes().is_empty() => lists.drop_packet(place, EngineReason::NoBuffer),
            Err(fault) => lists.drop_packet(place, fault),
            Ok(layers) if routed && layers.class == Class::Ipv4 => {
                meta.layers = layers;
                put(&mut lists.forward.v4, place);
            }
            Ok(_) if routed => lists.drop_packet(place, EngineReason::UnknownEthertype),
            Ok(layers) => {
                meta.layers = layers;
                finish(place, packet, meta, lists, ctx);
            }
        }
    }
}

/// Sends an answer to the terminal of a site, in the buffer of the received packet. The answer is sent to `mac`. If
/// `tags` is given, these tags are pushed onto the untagged frame; otherwise the answer keeps the tags of the received
/// frame.
pub fn answer(
    slot: BufferIndex,
    mac: [u8; 6],
    tags: Option<[Option<Tag>; 2]>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let (packet, meta) = (
        &mut batch.packets[slot as usize],
        &mut batch.meta[slot as usize % BURST_BUFFERS],
    );
    let Some(interface) = ctx.snapshot.interface(meta.interface) else {
        return lists.drop_packet(slot, EngineReason::InterfaceGone);
    };
    if let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() {
        head[..6].copy_from_slice(&mac);
        head[6..].copy_from_slice(&interface.mac);
    }
    let tags = tags.unwrap_or_default();
    if !tags.into_iter().rev().flatten().all(|tag| vlan::push(packet, tag)) {
        return lists.drop_packet(slot, EngineReason::NoBuffer);
    }
    match layers::parse(packet.bytes()) {
        Ok(layers) => meta.layers = layers,
        Err(fault) => return lists.drop_packet(slot, fault),
    }
    finish(slot, packet, meta, lists, ctx);
}

/// Sends a finished frame through the interface of its metadata.
fn finish(slot: BufferIndex, packet: &Packet<'_>, meta: &mut Meta, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let hop = AdjacencyIndex::bridge(meta.interface);
    leave(slot, output_finished(packet, hop, &ctx.exit()), meta, hop, lists);
}

/// Sends a translated packet of a site's session, or passes it to fragmentation.
#[inline(always)]
pub fn send(
    adjacency: &mut Adjacency,
    (view, upstream): (&View, bool),
    cut: bool,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
) {
    if !adjacency.relabel_as(packet, meta.layers.tags, view, upstream, cut) {
        lists.drop_packet(slot, EngineReason::NoBuffer);
    } else if cut {
        fragment_site(slot, adjacency.hop(), packet, meta, lists);
    } else {
        leave(slot, adjacency.out(), meta, adjacency.hop(), lists);
    }
}

/// Passes a packet with a finished link header to fragmentation. Each fragment gets a copy of this link header.
#[cold]
fn fragment_site(slot: BufferIndex, hop: AdjacencyIndex, packet: &Packet<'_>, meta: &mut Meta, lists: &mut Lists) {
    match layers::parse(packet.bytes()) {
        Ok(layers) => {
            meta.layers = layers;
            lists.fragment(slot, AdjacencyIndex::bridge(hop.interface() as u16));
        }
        Err(fault) => lists.drop_packet(slot, fault),
    }
}
