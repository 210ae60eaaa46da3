//! chain: executes a router's chain for packets received on the router's interfaces.

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::hand_off;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::snapshot::Snapshot;

use steps::{BatchPackets, walk};

pub mod steps;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "chain",
    help: "runs the steps of a router's chains",
    stage: Some(CycleStage::Parse),
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "sessions", needs::CHAINED | needs::STATEFUL),
        Exit::new("virtual-reassembly", "a fragment", needs::CHAINED | needs::STATEFUL),
        Exit::new("forward", "no sessions", needs::CHAINED),
        Exit::new(
            "hand-off",
            "routed by another worker",
            needs::CHAINED | needs::ROUTED_ELSEWHERE,
        ),
        Exit::new("transmit", "a copy", needs::CHAINED),
    ],
};

/// A set of packets as a bit mask, with one bit per slot.
type Mask = u128;

/// Moves packets to the chain list if their router has chains: packets that were parsed in this burst, and packets that
/// came over an inter-router link.
#[inline(always)]
pub fn divert_received(batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, parsed: Mask) {
    if ctx.snapshot.is_chained() {
        let fresh = parsed | std::mem::take(&mut lists.fresh);
        divert(batch, lists, ctx.snapshot, fresh);
    }
}

/// Moves packets from the lists that `parse` selected to the chain list. A packet is moved only if it is in `wanted`
/// and its router has chains.
#[inline(never)]
fn divert(batch: &Batch<'_, '_>, lists: &mut Lists, snapshot: &Snapshot, wanted: Mask) {
    let Lists {
        session_lookup,
        forward,
        virtual_reassembly,
        chain,
        ..
    } = lists;
    for list in [
        &mut session_lookup.v4,
        &mut session_lookup.v6,
        &mut forward.v4,
        &mut forward.v6,
        virtual_reassembly,
    ] {
        list.retain(|slot| {
            let is_chained = wanted & bit(*slot) != 0 && snapshot.chains_at(batch.meta(*slot).interface).is_some();
            if is_chained {
                put(chain, *slot);
            }
            !is_chained
        });
    }
}

/// Executes the chains of the packets' routers.
#[inline(never)]
pub fn chain(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    let slots = std::mem::take(&mut lists.chain);
    let mut remaining = slots.iter().fold(0, |mask, &slot| mask | bit(slot));
    while let Some(first) = slots_of(remaining).next() {
        let router = ctx.snapshot.router_of(batch.meta(first).interface);
        let of_router = |slot: &BufferIndex| ctx.snapshot.router_of(batch.meta(*slot).interface) == router;
        let own = slots_of(remaining)
            .filter(of_router)
            .fold(0, |mask, slot| mask | bit(slot));
        remaining &= !own;
        match ctx.snapshot.chains_at(batch.meta(first).interface) {
            Some(chains) => {
                let mut packets = BatchPackets { batch, lists, ctx };
                walk(chains, own, &mut packets, ctx.own, ctx.now.nanoseconds);
            }
            None => slots_of(own).for_each(|slot| lists.drop_packet(slot, EngineReason::Forgotten)),
        }
    }
    // Packets of a flow may have gone through different steps.
    for list in lists.parsed() {
        if !list.is_sorted() {
            list.sort_unstable();
        }
    }
    if !ctx.role.sessions.is_empty() {
        hand_off::both(batch, lists, ctx);
    }
}

#[inline(always)]
fn bit(slot: BufferIndex) -> Mask {
    1 << (slot as usize % BURST_BUFFERS)
}

/// The slots of a mask in ascending order.
fn slots_of(mut mask: Mask) -> impl Iterator<Item = BufferIndex> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (slot < Mask::BITS).then_some(slot as BufferIndex)
    })
}
