//! inter-router-link: passes packets between virtual routers. A packet leaves a router through one interface of a link
//! and is received on the peer interface, in the same buffer.

use crate::features::context::NodeContext;
use crate::nodes::chain;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::parse::{ReceiveTally, parse_other};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, NO_PORT};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::snapshot::shares::Shares;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "inter-router-link",
    help: "passes packets over an inter-router link to another router",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new("parse", "received on the peer interface", needs::LINKED),
        Exit::new("encapsulate", "into a tunnel", needs::TUNNELLED),
    ],
};

/// Maximum number of virtual routers through which a packet may pass. Each encapsulation and each decapsulation counts
/// as one pass.
pub const MAX_PASSES: u8 = 4;

/// Passes packets over inter-router links.
#[inline(never)]
pub fn inter_router_link(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    let slots = std::mem::take(&mut lists.inter_router_link);
    if let Some(observer) = &mut tools.observer {
        observer.crosses(batch, &slots, ctx);
    }
    for slot in slots {
        let Meta {
            egress, link_passes, ..
        } = *batch.meta(slot);
        if ctx
            .snapshot
            .interface(egress)
            .is_some_and(|interface| interface.tunnel.is_some())
        {
            put(&mut lists.encapsulate, slot);
            continue;
        }
        let length = batch.packets[slot as usize].len() as u64;
        let peer = ctx.snapshot.interface(egress).and_then(|interface| interface.peer);
        let interface = peer.unwrap_or(egress);
        batch.meta[slot as usize % BURST_BUFFERS].interface = interface;
        if let Some(counters) = ctx.counters.interfaces.get(interface as usize) {
            counters.received.add(1);
            counters.received_bytes.add(length);
        }
        let admits = |shares: &Shares| {
            let router = ctx.snapshot.router_of(interface);
            shares.may_cross(egress, router, length, ctx.now.nanoseconds)
        };
        match link_passes + 1 {
            _ if peer.is_none() => lists.drop_packet(slot, EngineReason::InterfaceGone),
            _ if !ctx.snapshot.shares.as_deref().is_none_or(admits) => {
                lists.drop_packet(slot, EngineReason::RateLimited)
            }
            MAX_PASSES.. => lists.drop_packet(slot, EngineReason::TooManyPasses),
            link_passes => arrive(slot, interface, link_passes, batch, lists, ctx),
        }
    }
    chain::divert_received(batch, lists, ctx, 0);
}

/// Receives a frame on `interface`, which belongs to a link or tunnel, and counts it as received there. `link_passes` is
/// the number of links, encapsulations and decapsulations that the packet has passed.
pub fn arrive(
    slot: BufferIndex,
    interface: u16,
    link_passes: u8,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    // The inspection verdict belongs to the session in the previous router. The packet may have a different session in
    // this router.
    lists.remove_verdict(slot);
    let mut counted = ReceiveTally::at(interface);
    parse_other(slot, packet, meta, lists, ctx, (NO_PORT, Some(interface)), &mut counted);
    meta.link_passes = link_passes;
    lists.fresh |= 1 << (slot as usize % BURST_BUFFERS);
}
