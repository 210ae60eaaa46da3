//! Fair division of a link among several interfaces. While the link is congested, each interface gets its share.

use arrayvec::ArrayVec;
use sluice_table::token_bucket::SharedTokenBucket;

use super::{State, Worker};
use crate::packet::batch::{BufferIndices, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, Handover, Packets, PortIndex};
use crate::packet::reason::{EngineReason, Reason};
use crate::snapshot::shares::Shares;
use crate::snapshot::shares::deficit::{Deficits, Demand, Distribution};
use crate::snapshot::shares::demand_history::DemandHistory;

/// Maximum number of bits that an interface may save up while it does not use its share: a burst of frames of the
/// maximum length.
const MAX_BITS: u64 = BURST_SIZE as u64 * 1_514 * 8;

/// Maximum number of packets that an interface may save up while it does not use its share. This limit applies if the
/// link has no configured rate and only the device limits it.
const MAX_PACKETS: u64 = 2 * BURST_SIZE as u64;

/// The packets of one interface in a burst to be sent.
struct Part<'s> {
    interface: u16,
    weight: u64,
    guarantee: Option<&'s SharedTokenBucket>,
    rate: Option<&'s SharedTokenBucket>,
    /// Number of bits that the interface's rate limit still permits.
    remaining: u64,
    /// Demand in bits, or in packets if the link has no configured rate.
    wants: u64,
    guaranteed: u64,
}

impl Worker<'_> {
    /// Drops packets that exceed an interface's share of the port's link, and keeps the remaining packets in `slots`.
    /// Returns whether shares are configured, so that the device's capacity was divided.
    #[inline(never)]
    pub(super) fn share_link(&mut self, port: PortIndex, slots: &mut BufferIndices, now: u64) -> bool {
        let snapshot = self.snapshot.load();
        let Some(shares) = snapshot.shares.as_deref() else {
            return false;
        };
        let Some(gate) = self.sending.gates.get_mut(usize::from(port)) else {
            return false;
        };
        let lengths = lengths(&mut *self.io);
        let state = &mut self.parts;
        let (link, mut parts) = (
            shares.link(usize::from(port)),
            ArrayVec::<Part<'_>, BURST_BUFFERS>::new(),
        );
        let mut part_of = [0u8; BURST_BUFFERS];
        let mut refused = ArrayVec::<(BufferIndex, EngineReason), BURST_BUFFERS>::new();
        let cost = |slot: BufferIndex| match link {
            Some(_) => lengths[slot as usize % BURST_BUFFERS] * 8,
            None => 1,
        };
        slots.retain(|slot| {
            let place = *slot as usize % BURST_BUFFERS;
            let number = number_of(&mut parts, shares, state.meta[place].egress, now);
            part_of[place] = number as u8;
            let Some(part) = parts.get_mut(number) else { return true };
            // Packets of the gateway itself are always sent, because they keep links up.
            let length = lengths[place] * 8;
            let fits = length <= part.remaining || state.meta[place].is_from_gateway();
            match fits {
                true => part.admit(length, cost(*slot), now),
                false => put(&mut refused, (*slot, EngineReason::RateLimited)),
            }
            fits
        });
        if link.is_some() {
            parts.iter_mut().for_each(|part| part.use_guarantee(now));
        }
        let all: u64 = parts.iter().map(|part| part.wants).sum();
        let budget = match link {
            Some(link) => link.tokens(now),
            None => gate.budget() as u64,
        };
        let mut sent = all;
        if all > budget {
            let max_saved = if link.is_some() { MAX_BITS } else { MAX_PACKETS };
            let recent = self.sending.recent.get_mut(usize::from(port));
            distribute(
                &parts,
                budget,
                recent,
                (&mut self.sending.deficits, &mut gate.distribution),
                max_saved,
            );
            sent = 0;
            slots.retain(|slot| {
                let place = *slot as usize % BURST_BUFFERS;
                let cost = cost(*slot);
                let Some(part) = parts.get_mut(usize::from(part_of[place])) else {
                    return true;
                };
                let is_guaranteed = part.guaranteed >= cost;
                part.guaranteed -= if is_guaranteed { cost } else { 0 };
                let is_sent = is_guaranteed
                    || state.meta[place].is_from_gateway()
                    || self.sending.deficits.take(part.interface, cost, &mut gate.distribution);
                sent += if is_sent { cost } else { 0 };
                if !is_sent {
                    put(&mut refused, (*slot, EngineReason::LinkOverShare));
                }
                is_sent
            });
        }
        link.into_iter().for_each(|link| link.charge(sent, now));
        for (slot, reason) in refused {
            state.recycle(slot, lengths[slot as usize % BURST_BUFFERS], reason);
        }
        link.is_none() && all > budget
    }

    /// Records how many packets a device has accepted.
    #[inline(always)]
    pub(super) fn link_sent(&mut self, port: PortIndex, slots: &[BufferIndex], taken: usize, is_distributed: bool) {
        if let Some(gate) = self.sending.gates.get_mut(usize::from(port)) {
            gate.sent(taken, slots.len());
        }
        if is_distributed && taken < slots.len() {
            self.refund(&slots[taken..]);
        }
    }

    /// Refunds the packets that the device did not accept. Without the refund, only the interface whose packets are at
    /// the end of the burst would pay for packets that were not sent.
    #[cold]
    fn refund(&mut self, slots: &[BufferIndex]) {
        for slot in slots {
            let meta = &self.parts.meta[*slot as usize % BURST_BUFFERS];
            if !meta.is_from_gateway() {
                self.sending.deficits.refund(meta.egress, 1);
            }
        }
    }
}

impl Part<'_> {
    /// Counts a packet that the interface's rate limit admits. `cost` is the packet's part of the demand.
    #[inline(always)]
    fn admit(&mut self, bits: u64, cost: u64, now: u64) {
        self.remaining = self.remaining.saturating_sub(bits);
        self.rate.into_iter().for_each(|rate| rate.charge(bits, now));
        self.wants += cost;
    }

    /// Covers as much of the demand as possible from the interface's guarantee.
    #[inline(always)]
    fn use_guarantee(&mut self, now: u64) {
        if let Some(guarantee) = self.guarantee {
            self.guaranteed = self.wants.min(guarantee.tokens(now));
            guarantee.charge(self.guaranteed, now);
        }
    }
}

impl State<'_> {
    /// Drops a packet of this length that was already counted as sent.
    fn recycle(&mut self, slot: BufferIndex, length: u64, reason: EngineReason) {
        let egress = self.meta[slot as usize % BURST_BUFFERS].egress;
        if let Some(counters) = self.counters.interfaces.get(egress as usize) {
            counters.sent.remove(1);
            counters.sent_bytes.remove(length);
        }
        self.lists.drop_packet(slot, Reason::from(reason));
    }
}

/// Lengths of all packets, by slot.
#[inline(always)]
fn lengths(io: &mut dyn Handover) -> [u64; BURST_BUFFERS] {
    let mut lengths = [0u64; BURST_BUFFERS];
    let mut allocated = Packets::new();
    io.packets(&mut allocated);
    let all = lengths.iter_mut().zip(&allocated);
    all.for_each(|(length, packet)| *length = packet.len() as u64);
    lengths
}

/// Distributes the part of the budget that is not guaranteed, in bits or packets, among the interfaces.
#[inline(always)]
fn distribute(
    parts: &ArrayVec<Part<'_>, BURST_BUFFERS>,
    budget: u64,
    recent: Option<&mut DemandHistory>,
    (deficits, distribution): (&mut Deficits, &mut Distribution),
    max_saved: u64,
) {
    let guaranteed: u64 = parts.iter().map(|part| part.guaranteed).sum();
    let claim = |part: &Part<'_>| Demand {
        number: part.interface,
        weight: part.weight,
        wants: part.wants - part.guaranteed,
    };
    let claims: ArrayVec<Demand, BURST_BUFFERS> = parts.iter().map(claim).collect();
    let mut all: ArrayVec<Demand, { 2 * BURST_BUFFERS }> = claims.iter().copied().collect();
    if let Some(recent) = recent {
        recent.observe(&claims, |absent| put(&mut all, absent));
    }
    let rest = budget.saturating_sub(guaranteed);
    deficits.distribute(&all, rest, distribution, max_saved);
}

/// Index of an interface's [`Part`], which is created if it does not exist.
fn number_of<'s>(parts: &mut ArrayVec<Part<'s>, BURST_BUFFERS>, shares: &'s Shares, interface: u16, now: u64) -> usize {
    if let Some(known) = parts.iter().position(|part| part.interface == interface) {
        return known;
    }
    let (weight, guarantee, rate) = shares.leaving(interface);
    let part = Part {
        interface,
        weight,
        guarantee,
        rate,
        remaining: rate.map_or(u64::MAX, |rate| rate.tokens(now)),
        wants: 0,
        guaranteed: 0,
    };
    put(parts, part);
    parts.len() - 1
}
