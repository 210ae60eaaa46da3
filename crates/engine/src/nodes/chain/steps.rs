//! Executes the steps of a router's chains.

use arrayvec::ArrayVec;
use sluice_filter::Header;
use sluice_wire::layers::Class;
use sluice_wire::{Checksums, Fault};

use crate::features::context::NodeContext;
use crate::features::filter;
use crate::nodes::parse::classify;
use crate::packet::batch::{Batch, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, WorkerIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::chains::{Chains, Classify, Finder, MAX_STEPS, Step, TallyIndex};

use super::{Mask, bit, slots_of};

/// Number of the output interface of packets that are not routed yet.
pub const BEFORE_ROUTING: u16 = u16::MAX;

/// The packets that go through a chain.
pub trait ChainPackets {
    /// Number of bytes of a packet's frame.
    fn length(&self, packet: usize) -> u64;

    /// Number of bytes in the frames of these packets.
    fn bytes(&self, packets: Mask) -> u64 {
        each_of(packets).map(|packet| self.length(packet)).sum()
    }

    /// Calls `found` with the packets of each class and the number of the class. A packet has at most one class.
    fn sort(&mut self, classes: &Classify, packets: Mask, found: &mut impl FnMut(Mask, usize, &Self));

    /// Sends copies of packets through an interface. Returns the packets that were copied.
    fn copy(&mut self, interface: u16, packets: Mask) -> Mask;

    /// Drops packets.
    fn drop(&mut self, packets: Mask, reason: EngineReason);

    /// Passes packets to session lookup, or to routing if their interface has no sessions.
    fn sessions(&mut self, packets: Mask);

    /// Routes packets without sessions.
    fn routes(&mut self, packets: Mask);
}

/// Executes the steps in order. Steps only jump forward, so each step is executed once, for all packets that reach the
/// step. `own` is the number of the worker, and `now` the time in nanoseconds.
#[inline(always)]
pub fn walk(chains: &Chains, all: Mask, packets: &mut impl ChainPackets, own: WorkerIndex, now: u64) {
    let mut come = ArrayVec::<Mask, { MAX_STEPS + 1 }>::new();
    come.extend(std::iter::repeat_n(0, chains.steps().len().min(MAX_STEPS) + 1));
    come[0] = all;
    for (place, step) in chains.steps().iter().enumerate().take(MAX_STEPS) {
        let here = come[place];
        if here == 0 {
            continue;
        }
        let on = match step {
            Step::Count(tally) => {
                add_tally(chains, *tally, here, own, packets);
                here
            }
            Step::Classify(classes) => {
                let mut remaining = here;
                packets.sort(classes, here, &mut |members, class, packets| {
                    if let Some(&(to, tally)) = classes.targets.get(class) {
                        come[usize::from(to)] |= members;
                        remaining &= !members;
                        add_tally(chains, tally, members, own, packets);
                    }
                });
                remaining
            }
            Step::Police { policer, tally, exceed } => {
                let above = above(chains, *policer, here, packets, now);
                add_tally(chains, *tally, above, own, packets);
                match exceed {
                    Some(to) => come[usize::from(*to)] |= above,
                    None => packets.drop(above, EngineReason::ChainPoliced),
                }
                here & !above
            }
            Step::Mirror { interface, tally } => {
                let copied = packets.copy(*interface, here);
                add_tally(chains, *tally, copied, own, packets);
                here
            }
            Step::Jump(to) => {
                come[usize::from(*to)] |= here;
                0
            }
            Step::Drop(tally) => {
                add_tally(chains, *tally, here, own, packets);
                packets.drop(here, EngineReason::ChainDrop);
                0
            }
            Step::Sessions(tally) => {
                add_tally(chains, *tally, here, own, packets);
                packets.sessions(here);
                0
            }
            Step::Forward(tally) => {
                add_tally(chains, *tally, here, own, packets);
                packets.routes(here);
                0
            }
        };
        come[place + 1] |= on;
    }
}

/// Counts packets and the bytes of their frames.
#[inline(always)]
fn add_tally(chains: &Chains, tally: TallyIndex, mask: Mask, own: WorkerIndex, packets: &impl ChainPackets) {
    if mask != 0
        && let Some(tally) = chains.tally(tally)
    {
        tally.add(own, mask.count_ones().into(), packets.bytes(mask));
    }
}

/// Mask of the packets that exceed the rate limit of a policer.
#[inline(always)]
fn above(chains: &Chains, policer: u16, mask: Mask, packets: &impl ChainPackets, now: u64) -> Mask {
    let Some(policer) = chains.policer(policer) else {
        return 0;
    };
    if policer.admits_all(mask.count_ones().into(), packets.bytes(mask), now) {
        return 0;
    }
    let above = each_of(mask).filter(|&packet| !policer.admits(packets.length(packet), now));
    above.fold(0, |mask, packet| mask | 1 << packet)
}

/// The numbers of the packets of a mask, in ascending order.
#[inline(always)]
fn each_of(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let packet = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (packet < Mask::BITS).then_some(packet as usize)
    })
}

/// The packets of a batch. The masks contain slots.
pub(super) struct BatchPackets<'b, 'd, 'p, 'c, 'm> {
    pub(super) batch: &'b mut Batch<'d, 'p>,
    pub(super) lists: &'b mut Lists,
    pub(super) ctx: &'b NodeContext<'c, 'm>,
}

impl ChainPackets for BatchPackets<'_, '_, '_, '_, '_> {
    fn length(&self, packet: usize) -> u64 {
        self.batch.packets.get(packet).map_or(0, |packet| packet.len() as u64)
    }

    fn sort(&mut self, classes: &Classify, packets: Mask, found: &mut impl FnMut(Mask, usize, &Self)) {
        self.classes_of::<V4>(&classes.v4, packets, Class::Ipv4, found);
        self.classes_of::<V6>(&classes.v6, packets, Class::Ipv6, found);
    }

    fn copy(&mut self, interface: u16, packets: Mask) -> Mask {
        let (batch, copies) = (&*self.batch, &mut self.lists.copies);
        let mut copied = 0;
        // A packet that was received on the mirror interface itself is not copied, because the copy would return to its sender.
        for slot in slots_of(packets).filter(|&slot| batch.meta(slot).interface != interface) {
            match copies.take(interface, batch.packets[slot as usize].bytes()) {
                true => copied |= bit(slot),
                false => self.ctx.counters.copies_lost.add(1),
            }
        }
        copied
    }

    fn drop(&mut self, packets: Mask, reason: EngineReason) {
        slots_of(packets).for_each(|slot| self.lists.drop_packet(slot, reason));
    }

    fn sessions(&mut self, packets: Mask) {
        slots_of(packets).for_each(|slot| self.classify(slot));
    }

    fn routes(&mut self, packets: Mask) {
        slots_of(packets).for_each(|slot| self.route(slot));
    }
}

impl BatchPackets<'_, '_, '_, '_, '_> {
    /// Determines the class of each packet of one address family.
    fn classes_of<F: Family>(
        &self,
        finder: &Finder<F::Number>,
        mask: Mask,
        class: Class,
        found: &mut impl FnMut(Mask, usize, &Self),
    ) {
        let (batch, ctx) = (&*self.batch, self.ctx);
        let mut headers = ArrayVec::<Header<F::Number>, BURST_BUFFERS>::new();
        let mut slots = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
        for slot in slots_of(mask).filter(|&slot| batch.meta(slot).layers.class == class) {
            let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
            let key = F::key(&meta.layers, frame, ctx.snapshot.context(meta, frame));
            // The outgoing interface is unknown before routing.
            put(
                &mut headers,
                filter::header::<F>(ctx.snapshot, meta, frame, &F::tuple(&key), BEFORE_ROUTING),
            );
            put(&mut slots, slot);
        }
        let mut classes = [None; BURST_BUFFERS];
        finder.find(&headers, &mut classes);
        for (slot, class) in slots.into_iter().zip(classes) {
            class
                .into_iter()
                .for_each(|class| found(bit(slot), class as usize, self));
        }
    }

    /// Passes a packet to the node that `parse` would have chosen.
    fn classify(&mut self, slot: BufferIndex) {
        let meta = self.batch.meta(slot);
        match self.ctx.snapshot.interface(meta.interface) {
            Some(interface) => classify(
                slot,
                &self.batch.packets[slot as usize],
                &meta.layers,
                interface,
                self.lists,
            ),
            None => self.lists.drop_packet(slot, EngineReason::InterfaceGone),
        }
    }

    /// Forwards a packet without a session. If the filter of its context is stateful, session lookup processes the packet
    /// instead, so that the packet can't bypass the filter.
    fn route(&mut self, slot: BufferIndex) {
        let snapshot = self.ctx.snapshot;
        let interface = snapshot.interface(self.batch.meta(slot).interface);
        if snapshot.filters_sessions(interface.map_or(0, |interface| interface.context)) {
            return self.classify(slot);
        }
        // A packet with a bad transport checksum reaches this node only if inspection has a policy for such packets. This
        // packet will not be inspected, so that policy does not apply.
        if self.batch.packets[slot as usize].checksums() == Checksums::BadL4 {
            return self.lists.drop_packet(slot, Fault::BadTransportChecksum);
        }
        let meta = &mut self.batch.meta[slot as usize % BURST_BUFFERS];
        meta.origin = Origin::Routed;
        match meta.layers.class {
            Class::Ipv6 => put(&mut self.lists.forward.v6, slot),
            _ => put(&mut self.lists.forward.v4, slot),
        }
    }
}
