//! punt: delivers packets to the router's host, if they are addressed to the router or to a multicast group on the
//! link.

use sluice_nat::Tuple;
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{Class, Flags, Layers};

use crate::features::context::NodeContext;
use crate::features::input_filter;
use crate::features::translation::{track, translate, validated};
use crate::nodes::declaration::Node;
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::punt::{self, Host, Multicast};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session, V4, V6};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "punt",
    help: "delivers packets to a router's host",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery, Leave::Drop],
    exits: &[],
};

/// Delivers packets to hosts.
#[inline(never)]
pub fn punt(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    for slot in std::mem::take(&mut lists.punt) {
        let meta = *batch.meta(slot);
        let layers = &meta.layers;
        let frame = batch.packets[slot as usize].bytes();
        let Some(host) = ctx.snapshot.host(meta.interface) else {
            lists.drop_packet(slot, EngineReason::NoLocalService);
            continue;
        };
        if layers.flags.has(Flags::MULTICAST) && !host_receives(host, layers, frame) {
            lists.drop_packet(slot, EngineReason::Multicast);
            continue;
        }
        // Local delivery has already evaluated the input filter for packets that are addressed to the router.
        if layers.flags.has(Flags::MULTICAST)
            && let Err(refused) = input_filter::admit(ctx, &meta, frame)
        {
            lists.reject(slot, refused);
            continue;
        }
        let class = punt::PuntClass::of(layers);
        if !host.admits(meta.interface, class, ctx.now.nanoseconds) {
            lists.drop_packet(slot, class.policed());
            continue;
        }
        // Remove the tags, and the padding of a short frame.
        let start = (layers.l3 as usize).saturating_sub(2);
        let parts = (frame.get(..12), frame.get(start..layers.end as usize));
        let (Some(addresses), Some(rest)) = parts else {
            lists.drop_packet(slot, EngineReason::Forgotten);
            continue;
        };
        if ctx.punts.push(meta.interface, [addresses, rest], ctx.counters) {
            host.count(class);
            put(&mut lists.taken, slot);
        } else {
            lists.drop_packet(slot, EngineReason::PuntQueueFull);
        }
    }
}

/// Delivers a packet of a session that a rule translates to the router's host. The TTL of the packet is not
/// decremented.
#[cold]
pub fn deliver<F: Family>(
    slot: BufferIndex,
    index: RecordIndex,
    direction: Direction,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    let (layers, exit) = (meta.layers, ctx.exit());
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
    let Some((shard, session)) = shard.and_then(|shard| {
        let session = *F::table_ref(shard).get(index)?;
        Some((shard, session))
    }) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    let translated = validated::<F>(&exit, meta, packet.bytes(), &session.key(direction))
        .and_then(|()| translate::<F>(packet.bytes_mut(), &layers, &session, direction, 0));
    let tracked = match translated {
        Ok(tracked) => tracked,
        Err(reason) => return lists.drop_packet(slot, reason),
    };
    if let Some(session) = F::table(shard).get_mut(index) {
        let track = session.track_mut();
        track.count(direction, layers.end.saturating_sub(layers.l3));
    }
    track::<F>(tracked, shard, index, direction, exit.snapshot, exit.now);
    if !layers.flags.has(Flags::ICMP_ERROR) {
        // The host's policers classify packets by their translated ports.
        meta.layers.destination_port = match direction {
            Direction::Forward => session.reverse().source_port(),
            Direction::Reverse => session.forward().source_port(),
        };
    }
    put(&mut lists.punt, slot);
}

/// Whether a host receives a multicast or broadcast packet. A host receives link-local groups (RFC 5771, 4; RFC 4291,
/// 2.7), all groups if configured, and broadcast DHCP. Echo requests to a group get no answer, and neighbour discovery
/// messages never reach this node.
fn host_receives(host: &Host, layers: &Layers, frame: &[u8]) -> bool {
    let is_request = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
    if host.multicast() == Multicast::None || is_request {
        return false;
    }
    let all = host.multicast() == Multicast::All;
    match layers.class {
        Class::Ipv4 => {
            let address = V4::addresses(layers, frame).1;
            let dhcp = layers.protocol == protocol::UDP && matches!(layers.destination_port, 67 | 68);
            address >> 8 == 0xe0_00_00 || all && address >> 28 == 0xe || address == u32::MAX && dhcp
        }
        Class::Ipv6 => {
            let first = V6::addresses(layers, frame).1[0];
            first >> 48 == 0xff02 || all && first >> 56 == 0xff
        }
        _ => false,
    }
}
