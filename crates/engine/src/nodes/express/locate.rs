//! The second and third pass: hashes, shards and records. The passes process all packets: the results for packets that are not
//! plain have no meaning and no effect.

use sluice_nat::pool::Window;
use sluice_nat::sites::Sites;
use sluice_table::hash::Hasher;
use sluice_wire::Direction;

use crate::features::context::NodeContext;
use crate::packet::io::BURST_SIZE;
use crate::session::family::Session;
use crate::session::shard::Shard;
use crate::snapshot::Nat;
use crate::snapshot::steering::{Shortcut, Steering};

use super::LaneArrays;
use super::groups::Ingress;
use super::head::LaneFamily;

/// The shards by number; `None` if another worker owns the shard.
type Shards<'s, 'm> = &'s [Option<Box<Shard<'m>>>];

/// Hashes the keys of the first `count` packets.
#[inline(never)]
pub(super) fn hash<F: LaneFamily>(work: &mut LaneArrays<F>, count: usize, hasher: &Hasher) {
    let count = count.min(BURST_SIZE);
    F::hash_words(hasher, &work.keys[..count], work.high, &mut work.hashes[..count]);
}

/// Finds the shards of the first `count` packets, and prefetches buckets of their indexes.
#[inline(always)]
pub(super) fn locate<F: LaneFamily, const SITES: bool>(
    work: &mut LaneArrays<F>,
    count: usize,
    ctx: &NodeContext<'_, '_>,
    ingress: &Ingress<'_>,
) {
    let (nat, steering) = (ctx.snapshot.nat::<F>(), &ctx.start.steering);
    if SITES {
        let (number, outside) = (ingress.number, ingress.outside);
        let shard_of = |key: &F::Key| Some(steering.shard_among_sites::<F>(nat, key, number, outside));
        return locate_each(work, count, ctx.shards, shard_of, |_| 0);
    }
    let slowly = |key: &F::Key| shard_by(nat, steering, key, ingress);
    match steering.shortcut(nat, ingress.context, ingress.outside) {
        Shortcut::Source => locate_by_source(work, count, steering, ctx.shards),
        Shortcut::Units(window) => locate_by_units(work, count, (steering, &window), ctx.shards, slowly),
        Shortcut::None => locate_each(work, count, ctx.shards, |_| None, slowly),
    }
}

/// The same for packets that belong to the shards of their source addresses.
#[inline(never)]
fn locate_by_source<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    count: usize,
    steering: &Steering,
    all_shards: Shards<'_, '_>,
) {
    let shard_of = |key: &F::Key| Some(steering.of_source::<F>(key));
    locate_each(work, count, all_shards, shard_of, |_| 0);
}

/// The same for packets that belong to the shards of their destination addresses and ports, if these are in the window.
#[inline(never)]
fn locate_by_units<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    count: usize,
    (steering, window): (&Steering, &Window<F::Address>),
    all_shards: Shards<'_, '_>,
    slowly: impl Fn(&F::Key) -> u16,
) {
    let shard_of = |key: &F::Key| steering.of_window::<F>(window, key);
    locate_each(work, count, all_shards, shard_of, slowly);
}

/// The same for packets whose shards `shard_of` returns, or `slowly`, if the result is `None`.
#[inline(always)]
fn locate_each<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    count: usize,
    all_shards: Shards<'_, '_>,
    shard_of: impl Fn(&F::Key) -> Option<u16>,
    slowly: impl Fn(&F::Key) -> u16,
) {
    for i in 0..count.min(BURST_SIZE) {
        let shard = match shard_of(&F::whole_key(work.keys[i], work.high)) {
            Some(shard) => shard,
            None => slowly(&F::whole_key(work.keys[i], work.high)),
        };
        work.shards[i] = shard;
        if let Some(Some(shard)) = all_shards.get(usize::from(shard)) {
            F::table_ref(shard).prefetch(work.hashes[i]);
        }
    }
}

/// The shard of a packet to which no shortcut applies.
#[cold]
#[inline(never)]
fn shard_by<F: LaneFamily>(nat: &Nat<F>, steering: &Steering, key: &F::Key, ingress: &Ingress<'_>) -> u16 {
    steering.shard_by::<F>(nat, None, key, ingress.number, ingress.outside)
}

/// Finds the records that probably have the keys of the first `count` packets, and prefetches them.
#[inline(never)]
pub(super) fn find<F: LaneFamily>(work: &mut LaneArrays<F>, count: usize, all_shards: Shards<'_, '_>) {
    for i in 0..count.min(BURST_SIZE) {
        if let Some(Some(shard)) = all_shards.get(usize::from(work.shards[i])) {
            work.candidates[i] = F::table_ref(shard).candidate(work.hashes[i]);
        }
    }
}

/// Prefetches the terminals of the sessions of the first `count` packets, if these probably belong to sites.
#[inline(never)]
pub(super) fn prefetch_terminals<F: LaneFamily>(
    work: &LaneArrays<F>,
    count: usize,
    all_shards: Shards<'_, '_>,
    sites: &Sites,
) {
    for i in 0..count.min(BURST_SIZE) {
        let Some(Some(shard)) = all_shards.get(usize::from(work.shards[i])) else {
            continue;
        };
        if let Some(session) = F::table_ref(shard).peek(work.candidates[i]) {
            // Terminals create most sessions, so the adjacency of the reverse direction is checked first.
            let hops = [Direction::Reverse, Direction::Forward].map(|direction| session.adjacency(direction));
            let terminal = hops[0].terminal_bits().or_else(|| hops[1].terminal_bits());
            terminal.into_iter().for_each(|terminal| sites.prefetch(terminal));
        }
    }
}
