//! established: packets of known sessions: translated, counted, tracked, on their way.
//!
//! Exits: transmit, decide (no session), revise (session of an older policy), cut (too big, may be cut),
//! complain (TTL, MTU), unresolved (neighbour unknown), hand over (another worker's shard), drop.

use sluice_nat::{rewrite, tracking};
use sluice_table::flow::{Candidate, RecordIndex};
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::{Direction, FlowKey4, Packet, icmp, ipv4};

use crate::batch::{Batch, Complaint, Lists, Slots, Stage, put};
use crate::context::Ctx;
use crate::family::{Family, Session};
use crate::io::{HAND, Slot};
use crate::nodes::output::{Out, output};
use crate::policy::{self, Nat};
use crate::reason::{Own, Reason};
use crate::time::Now;

/// Keys, hashes and candidates of a batch: filled in one pass, used in the next.
pub struct Lookups<F: Family> {
    keys: [F::Key; HAND],
    hashes: [u64; HAND],
    candidates: [Candidate; HAND],
}

impl<F: Family> Default for Lookups<F> {
    fn default() -> Self {
        Self { keys: [F::Key::default(); HAND], hashes: [0; HAND], candidates: [Candidate::default(); HAND] }
    }
}

impl<F: Family> Lookups<F> {
    /// The key that a slot was looked up by in this burst.
    pub fn key(&self, slot: Slot) -> F::Key {
        self.keys[slot as usize % HAND]
    }
}

/// Look up and translate.
#[inline(never)]
pub fn established<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    nat: &Nat<F>,
    work: &mut Lookups<F>,
) {
    let slots = std::mem::take(F::lookups(lists));
    let slots = keys::<F>(batch, lists, ctx, nat, work, slots);
    // Keys lie at their place in the list, so that they are hashed together.
    F::hash(ctx.hasher, &work.keys[..slots.len()], &mut work.hashes[..slots.len()]);
    for (place, &slot) in slots.iter().enumerate() {
        if let Some(shard) = ctx.shard_of(batch.meta(slot)) {
            F::table_ref(shard).prefetch(work.hashes[place]);
        }
    }
    for (place, &slot) in slots.iter().enumerate() {
        if let Some(shard) = ctx.shard_of(batch.meta(slot)) {
            work.candidates[place] = F::table_ref(shard).candidate(work.hashes[place]);
        }
    }
    let mut used = 0;
    for (place, &slot) in slots.iter().enumerate() {
        used += u64::from(step::<F>(slot, place, batch, lists, ctx, work));
    }
    ctx.counters.session_packets.add(used);
}

/// Keys of all packets that stay with this worker, hashed together afterwards; the others are handed over.
#[inline(always)]
fn keys<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    nat: &Nat<F>,
    work: &mut Lookups<F>,
    slots: Slots,
) -> Slots {
    let mut stay = Slots::new();
    for slot in slots {
        let meta = &mut batch.meta[slot as usize % HAND];
        let frame = batch.packets[slot as usize].bytes();
        let interface = ctx.policy.interface(meta.interface);
        let (context, outside) = interface.map_or((0, false), |i| (i.context, i.outside));
        let key = if meta.layers.flags.has(Flags::ICMP_ERROR) {
            match F::quoted(&meta.layers, frame, context) {
                Ok(key) => key,
                Err(fault) => {
                    lists.drop(slot, fault);
                    continue;
                }
            }
        } else {
            F::key(&meta.layers, frame, context)
        };
        meta.shard = policy::shard_of::<F>(nat, ctx.setup.shards, ctx.fold, &key, outside);
        let owner = ctx.setup.owners.get(meta.shard as usize).copied().unwrap_or(ctx.own);
        if owner != ctx.own {
            lists.hand_over(slot, owner, Stage::Arrived, meta);
            continue;
        }
        work.keys[stay.len()] = key;
        put(&mut stay, slot);
    }
    stay
}

/// One packet; whether it used a session.
#[inline(always)]
fn step<F: Family>(
    slot: Slot,
    place: usize,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    work: &Lookups<F>,
) -> bool {
    let meta = *batch.meta(slot);
    let layers = &meta.layers;
    let packet = &mut batch.packets[slot as usize];
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) else {
        lists.drop(slot, Own::Forgotten);
        return false;
    };
    let table = F::table_ref(shard);
    let Some((index, direction)) = table.confirm(work.hashes[place], work.candidates[place], &work.keys[place]) else {
        put(F::decides(lists), slot);
        return false;
    };
    let Some(session) = F::table(shard).get_mut(index) else { return false };
    if session.generation() != ctx.policy.generation && ctx.revisions > 0 {
        ctx.revisions -= 1;
        put(F::revises(lists), slot);
        return false;
    }
    let hop = session.hop(direction);
    let mtu = ctx.policy.interfaces.get(hop.interface()).map_or(0, |egress| egress.mtu);
    // What stops a packet is found before anything is written: it is answered or parked as it came.
    if layers.ttl <= 1 {
        lists.complain(slot, Complaint::TimeExceeded, sluice_route::Reason::TtlExceeded);
        return true;
    }
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > mtu;
    if cut && (F::SIX || dont_fragment(packet.bytes(), layers)) {
        lists.complain(slot, Complaint::TooBig(mtu), sluice_route::Reason::TooBig);
        return true;
    }
    let Some(mac) = ctx.paths.neighbours.mac(hop.neighbour()) else {
        lists.wait(slot, ctx.paths.wanted(hop));
        return true;
    };
    if layers.flags.has(Flags(Flags::ICMP_ERROR.0 | Flags::ICMP_QUERY.0)) {
        if let Err(reason) = icmp::<F>(packet, layers, session, direction) {
            lists.drop(slot, reason);
            return true;
        }
    } else if !F::rewrite(packet.bytes_mut(), layers, session, direction) {
        lists.drop(slot, sluice_nat::Reason::Truncated);
        return true;
    }
    let changed = track::<F>(packet.bytes(), layers, session, direction, length, ctx.now);
    if changed {
        reschedule::<F>(shard, index, ctx);
    }
    if cut {
        put(&mut lists.cut, (slot, hop));
    } else {
        leave(slot, output(packet, layers, hop, mac, ctx), lists);
    }
    true
}
