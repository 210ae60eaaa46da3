//! established: packets of known sessions: translated, counted, tracked, on their way.
//!
//! Exits: transmit, decide (no session), revise (session of an older policy), cut (too big, may be cut),
//! complain (TTL, MTU), unresolved (neighbour unknown), hand over (another worker's shard), drop.

use sluice_nat::TimeoutClass;
use sluice_nat::timeout::Schedule;
use sluice_nat::tracking::Segment;
use sluice_table::flow::{Candidate, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Flags, Fragment, Layers};

use crate::batch::{Batch, Complaint, Lists, Note, Slots, Stage, put};
use crate::context::Ctx;
use crate::family::{Family, Session};
use crate::io::{HAND, Slot};
use crate::nodes::dont_fragment;
use crate::nodes::output::{Ways, send};
use crate::policy::{self, Nat, Policy};
use crate::reason::{Own, Reason};
use crate::shard::Shard;
use crate::time::Now;

/// Keys, hashes and candidates of a batch: filled in one pass, used in the next.
pub struct Lookups<F: Family> {
    keys: [F::Key; HAND],
    hashes: [u64; HAND],
    candidates: [Candidate; HAND],
}

impl<F: Family> Default for Lookups<F> {
    fn default() -> Self {
        Self {
            keys: [F::Key::default(); HAND],
            hashes: [0; HAND],
            candidates: [Candidate::NONE; HAND],
        }
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
    let mut ways = Ways::default();
    for (place, &slot) in slots.iter().enumerate() {
        used += u64::from(step::<F>(slot, place, batch, lists, ctx, work, &mut ways));
    }
    ways.settle(&ctx.exit());
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
    // Most packets of a batch came in by one interface.
    let (mut last, mut context, mut outside) = (u16::MAX, 0, false);
    for slot in slots {
        let meta = &mut batch.meta[slot as usize % HAND];
        let frame = batch.packets[slot as usize].bytes();
        if meta.interface != last {
            last = meta.interface;
            (context, outside) = ctx
                .policy
                .interface(last)
                .map_or((0, false), |i| (i.context, i.outside));
        }
        let key = if meta.layers.flags.has(Flags::ICMP_ERROR) {
            match F::quoted(&meta.layers, frame, context) {
                Ok(key) => key,
                Err(fault) => {
                    lists.discard(slot, fault);
                    continue;
                }
            }
        } else {
            F::key(&meta.layers, frame, context)
        };
        meta.shard = policy::shard_of::<F>(nat, ctx.setup.shards, ctx.fold, &key, outside);
        let owner = ctx.setup.owners.get(meta.shard as usize).copied().unwrap_or(ctx.own);
        if owner != ctx.own {
            lists.hand_over(slot, owner, Note::new(Stage::Session, meta));
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
    ways: &mut Ways,
) -> bool {
    let exit = ctx.exit();
    let meta = &mut batch.meta[slot as usize % HAND];
    let layers = &meta.layers;
    let packet = &mut batch.packets[slot as usize];
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) else {
        lists.discard(slot, Own::Forgotten);
        return false;
    };
    let Some((index, direction)) =
        F::table_ref(shard).confirm(work.hashes[place], work.candidates[place], &work.keys[place])
    else {
        put(F::decides(lists), slot);
        return false;
    };
    let Some(session) = F::table(shard).get_mut(index) else {
        return false;
    };
    let stale = session.generation() != ctx.policy.generation;
    if stale && !layers.flags.has(Flags::ICMP_ERROR) && ctx.revisions.admit(meta.shard, index) {
        put(F::revises(lists), slot);
        return false;
    }
    let hop = session.hop(direction);
    // What stops a packet is found before anything is written: it is answered or parked as it came.
    let Some(way) = ways.of(direction, hop, &exit) else {
        lists.wait(slot, ctx.paths.wanted(hop));
        return true;
    };
    if layers.ttl <= 1 {
        lists.complain(slot, Complaint::TimeExceeded, sluice_route::Reason::TtlExceeded);
        return true;
    }
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > way.mtu;
    if cut && (F::SIX || dont_fragment(packet.bytes(), layers)) {
        lists.complain(slot, Complaint::TooBig(way.mtu), sluice_route::Reason::TooBig);
        return true;
    }
    if layers.flags.has(Flags(Flags::ICMP_ERROR.0 | Flags::ICMP_QUERY.0)) {
        if let Err(reason) = translate_icmp::<F>(packet.bytes_mut(), layers, session, direction) {
            lists.discard(slot, reason);
            return true;
        }
    } else if !F::rewrite(packet.bytes_mut(), layers, session, direction) {
        lists.discard(slot, sluice_nat::Reason::Truncated);
        return true;
    }
    let rearm = track::<F>(packet.bytes(), layers, session, direction, length, ctx.now);
    if let Some(class) = rearm {
        reschedule::<F>(shard, index, class, ctx.policy, ctx.now);
    }
    if cut {
        lists.cut(slot, hop);
    } else {
        send(way, slot, packet, meta, lists, &exit);
    }
    true
}

/// Count and track; the timeout class whose timer must begin now, where it is another than before.
#[inline(always)]
fn track<F: Family>(
    frame: &[u8],
    layers: &Layers,
    session: &mut F::Session,
    direction: Direction,
    length: u16,
    now: Now,
) -> Option<TimeoutClass> {
    let outbound = session.nat().outbound(direction);
    let refreshes = outbound | session.inbound_refresh();
    let protocol = session.protocol();
    let track = session.track_mut();
    track.packets[direction as usize] += 1;
    track.bytes[direction as usize] += u64::from(length);
    // RFC 5508 REQ-6, RFC 7857 s7.1: an error neither refreshes nor ends a session.
    if layers.flags.has(Flags::ICMP_ERROR) || layers.fragment == Fragment::Later {
        return None;
    }
    let before = track.tracking.timer();
    let class = if protocol == TCP {
        match Segment::read(layers.payload(frame)) {
            Some(segment) => track.tracking.track(direction, &segment),
            None => TimeoutClass::UNCHANGED,
        }
    } else {
        track.tracking.track_datagram(direction)
    };
    if class == TimeoutClass::UNCHANGED {
        return None;
    }
    if refreshes {
        track.last_seen = now.stamp();
    }
    (class != before).then_some(class)
}

/// Let a session's timer begin anew with another timeout.
#[cold]
fn reschedule<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, class: TimeoutClass, policy: &Policy, now: Now) {
    let (wheel, table) = F::wheel(shard);
    let Some(session) = table.get_mut(index) else { return };
    session.track_mut().last_seen = now.stamp();
    session.track_mut().tracking.set_timer(class);
    let seconds = schedule_of::<F>(policy, session).seconds(class);
    wheel.schedule(table, index, now.due(seconds));
}

/// The timeouts of a session: its pool's.
pub fn schedule_of<'p, F: Family>(policy: &'p Policy, session: &F::Session) -> &'p Schedule {
    let pool = session.nat().pool().and_then(|pool| F::nat(policy).pools.get(pool));
    pool.map_or(&policy.timeouts, |pool| pool.timeouts())
}

/// ICMP: queries by their identifier, errors with what they quote.
#[cold]
fn translate_icmp<F: Family>(
    frame: &mut [u8],
    layers: &Layers,
    session: &F::Session,
    direction: Direction,
) -> Result<(), Reason> {
    if layers.flags.has(Flags::ICMP_ERROR) {
        return F::rewrite_error(frame, layers, session, direction);
    }
    // A question against the session's direction is nobody's answer.
    if layers.flags.has(Flags::ICMP_REPLY) != (direction == Direction::Reverse) {
        return Err(sluice_nat::Reason::Unsolicited.into());
    }
    match F::rewrite(frame, layers, session, direction) {
        true => Ok(()),
        false => Err(sluice_nat::Reason::Truncated.into()),
    }
}
