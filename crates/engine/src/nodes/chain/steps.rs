//! Executes the steps of a router's chains.

use arrayvec::ArrayVec;
use sluice_filter::Header;
use sluice_wire::layers::Class;
use sluice_wire::{Checksums, Fault};

use crate::features::context::NodeContext;
use crate::features::filter;
use crate::nodes::parse::classify;
use crate::packet::batch::{Batch, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::chains::{Chains, Finder, MAX_STEPS, Step, TallyIndex};

use super::{Mask, bit, slots_of};

/// Executes the steps in order. Steps only jump forward, so each step is executed once, for all packets that reach the
/// step.
pub(super) fn walk(
    chains: &Chains,
    all: Mask,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let mut come = [0; MAX_STEPS + 1];
    come[0] = all;
    for (place, step) in chains.steps().iter().enumerate().take(MAX_STEPS) {
        let here = come[place];
        if here == 0 {
            continue;
        }
        let count = |tally: TallyIndex, mask: Mask| add_tally(chains, tally, mask, batch, ctx);
        let on = match step {
            Step::Count(tally) => {
                count(*tally, here);
                here
            }
            Step::Classify(classes) => {
                let mut remaining = here;
                let mut sort = |slot: BufferIndex, class: usize| {
                    if let Some(&(to, tally)) = classes.targets.get(class) {
                        come[usize::from(to)] |= bit(slot);
                        remaining &= !bit(slot);
                        count(tally, bit(slot));
                    }
                };
                classes_of::<V4>(&classes.v4, here, Class::Ipv4, batch, ctx, &mut sort);
                classes_of::<V6>(&classes.v6, here, Class::Ipv6, batch, ctx, &mut sort);
                remaining
            }
            Step::Police { policer, tally, exceed } => {
                let above = above(chains, *policer, here, batch, ctx);
                count(*tally, above);
                match exceed {
                    Some(to) => come[usize::from(*to)] |= above,
                    None => slots_of(above).for_each(|slot| lists.drop_packet(slot, EngineReason::ChainPoliced)),
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
                slots_of(here).for_each(|slot| lists.drop_packet(slot, EngineReason::ChainDrop));
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
fn add_tally(chains: &Chains, tally: TallyIndex, mask: Mask, batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>) {
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
            filter::header::<F>(ctx.snapshot, meta, frame, &F::tuple(&key), u16::MAX),
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
        None => lists.drop_packet(slot, EngineReason::InterfaceGone),
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
