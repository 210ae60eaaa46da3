//! chain: executes a router's chain for packets received on the router's interfaces.

use arrayvec::ArrayVec;
use sluice_filter::Header;
use sluice_wire::layers::Class;
use sluice_wire::{Checksums, Fault};

use crate::features::context::NodeContext;
use crate::features::filter;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::hand_off;
use crate::nodes::parse::classify;
use crate::packet::batch::{Batch, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Snapshot;
use crate::snapshot::chains::{Chains, Finder, MAX_STEPS, Step, TallyIndex};

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

/// A set of slots as a bit mask, with one bit per slot.
type Mask = u128;

/// Moves packets to the chain list if their router has chains: packets that were parsed in this burst, and packets that
/// came over an inter-router link.
#[inline(always)]
pub fn divert_fresh(batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, parsed: Mask) {
    if ctx.snapshot.is_chained() {
        let fresh = parsed | std::mem::take(&mut lists.fresh);
        divert(batch, lists, ctx.snapshot, fresh);
    }
}

/// Moves packets from the lists that `parse` selected to the chain list. Only packets in `wanted` with chains in their
/// router are moved.
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
    let mut left = slots.iter().fold(0, |mask, &slot| mask | bit(slot));
    while let Some(first) = slots_of(left).next() {
        let router = ctx.snapshot.router_of(batch.meta(first).interface);
        let of_router = |slot: &BufferIndex| ctx.snapshot.router_of(batch.meta(*slot).interface) == router;
        let own = slots_of(left).filter(of_router).fold(0, |mask, slot| mask | bit(slot));
        left &= !own;
        match ctx.snapshot.chains_at(batch.meta(first).interface) {
            Some(chains) => walk(chains, own, batch, lists, ctx),
            None => slots_of(own).for_each(|slot| lists.drop_packet(slot, Own::Forgotten)),
        }
    }
    if !ctx.role.sessions.is_empty() {
        hand_off::both(batch, lists, ctx);
    }
}

/// Executes the steps in order. Steps only jump forward, so each step is executed once, for all packets that reach the
/// step.
fn walk(chains: &Chains, all: Mask, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>) {
    let mut come = [0; MAX_STEPS + 1];
    come[0] = all;
    for (place, step) in chains.steps().iter().enumerate().take(MAX_STEPS) {
        let here = come[place];
        if here == 0 {
            continue;
        }
        let count = |tally: TallyIndex, mask: Mask| tally_up(chains, tally, mask, batch, ctx);
        let on = match step {
            Step::Count(tally) => {
                count(*tally, here);
                here
            }
            Step::Classify(classes) => {
                let mut left = here;
                let mut sort = |slot: BufferIndex, class: usize| {
                    if let Some(&(to, tally)) = classes.targets.get(class) {
                        come[usize::from(to)] |= bit(slot);
                        left &= !bit(slot);
                        count(tally, bit(slot));
                    }
                };
                classes_of::<V4>(&classes.four, here, Class::Ipv4, batch, ctx, &mut sort);
                classes_of::<V6>(&classes.six, here, Class::Ipv6, batch, ctx, &mut sort);
                left
            }
            Step::Police { policer, tally, exceed } => {
                let above = above(chains, *policer, here, batch, ctx);
                count(*tally, above);
                match exceed {
                    Some(to) => come[usize::from(*to)] |= above,
                    None => slots_of(above).for_each(|slot| lists.drop_packet(slot, Own::ChainPoliced)),
                }
                here & !above
            }
            Step::Mirror { interface, tally } => {
                count(*tally, copied(*interface, here, batch, lists, ctx));
                here
            }
            Step::Jump(to) => {
                come[usize::from(*to)] |= here;
                0
            }
            Step::Drop(tally) => {
                count(*tally, here);
                slots_of(here).for_each(|slot| lists.drop_packet(slot, Own::ChainDrop));
                0
            }
            Step::Sessions(tally) => {
                count(*tally, here);
                slots_of(here).for_each(|slot| sessions(slot, batch, lists, ctx));
                0
            }
            Step::Forward(tally) => {
                count(*tally, here);
                slots_of(here).for_each(|slot| routes(slot, batch, lists, ctx));
                0
            }
        };
        come[place + 1] |= on;
    }
}

/// Counts packets and the bytes of their frames.
fn tally_up(chains: &Chains, tally: TallyIndex, mask: Mask, batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>) {
    if mask != 0
        && let Some(tally) = chains.tally(tally)
    {
        let bytes = slots_of(mask).map(|slot| batch.packets[slot as usize].len() as u64);
        tally.add(ctx.own, mask.count_ones().into(), bytes.sum());
    }
}

/// Mask of the packets that exceed the rate limit of a policer.
fn above(chains: &Chains, policer: u16, mask: Mask, batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>) -> Mask {
    let Some(policer) = chains.policer(policer) else {
        return 0;
    };
    let admits = |slot: &BufferIndex| policer.admits(batch.packets[*slot as usize].len() as u64, ctx.now.nanoseconds);
    let above = slots_of(mask).filter(|slot| !admits(slot));
    above.fold(0, |mask, slot| mask | bit(slot))
}

/// Mirrors packets to an interface. Returns the mask of the copied packets.
fn copied(interface: u16, mask: Mask, batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) -> Mask {
    let mut copied = 0;
    // A packet that was received on the mirror interface itself is not copied, because the copy would return to its sender.
    for slot in slots_of(mask).filter(|&slot| batch.meta(slot).interface != interface) {
        match lists.copies.take(interface, batch.packets[slot as usize].bytes()) {
            true => copied |= bit(slot),
            false => ctx.counters.copies_lost.add(1),
        }
    }
    copied
}

/// Determines the class of each packet of one address family.
fn classes_of<F: Family>(
    finder: &Finder<F::Number>,
    mask: Mask,
    class: Class,
    batch: &Batch<'_, '_>,
    ctx: &NodeContext<'_, '_>,
    found: &mut impl FnMut(BufferIndex, usize),
) {
    let mut headers = ArrayVec::<Header<F::Number>, BURST_BUFFERS>::new();
    let mut slots = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
    for slot in slots_of(mask).filter(|&slot| batch.meta(slot).layers.class == class) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let key = F::key(&meta.layers, frame, ctx.snapshot.context(meta, frame));
        // The outgoing interface is unknown before routing.
        put(
            &mut headers,
            filter::header::<F>(ctx.snapshot, meta, frame, F::tuple(&key), u16::MAX),
        );
        put(&mut slots, slot);
    }
    let mut classes = [None; BURST_BUFFERS];
    finder.find(&headers, &mut classes);
    for (slot, class) in slots.into_iter().zip(classes) {
        class.into_iter().for_each(|class| found(slot, class as usize));
    }
}

/// Passes a packet to the node that `parse` would have chosen.
fn sessions(slot: BufferIndex, batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let meta = batch.meta(slot);
    match ctx.snapshot.interface(meta.interface) {
        Some(interface) => classify(slot, &batch.packets[slot as usize], &meta.layers, interface, lists),
        None => lists.drop_packet(slot, Own::InterfaceGone),
    }
}

/// Forwards a packet without a session. If the filter of its context is stateful, session lookup processes the packet
/// instead, so that the packet can't bypass the filter.
fn routes(slot: BufferIndex, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let interface = batch.meta(slot).interface;
    let context = ctx
        .snapshot
        .interface(interface)
        .map_or(0, |interface| interface.context);
    if ctx.snapshot.filters_sessions(context) {
        return sessions(slot, batch, lists, ctx);
    }
    // A packet with a bad transport checksum reaches this node only if inspection has a policy for such packets. This
    // packet will not be inspected, so that policy does not apply.
    if batch.packets[slot as usize].checksums() == Checksums::BadL4 {
        return lists.drop_packet(slot, Fault::BadTransportChecksum);
    }
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    meta.origin = Origin::Routed;
    match meta.layers.class {
        Class::Ipv6 => put(&mut lists.forward.v6, slot),
        _ => put(&mut lists.forward.v4, slot),
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
