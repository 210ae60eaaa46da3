//! The second and third pass: hashes, shards and records. The passes process all packets: the results for packets that are not
//! plain have no meaning and no effect.

use sluice_table::hash::Hasher;

use crate::features::context::NodeContext;
use crate::packet::io::BURST_SIZE;
use crate::session::shard::Shard;
use crate::snapshot::Nat;
use crate::snapshot::steering::{Shortcut, Steering};

use super::head::LaneFamily;
use super::{Ingress, LaneArrays};

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
pub(super) fn locate<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    count: usize,
    ctx: &NodeContext<'_, '_>,
    ingress: &Ingress,
) {
    let (nat, steering) = (ctx.snapshot.nat::<F>(), &ctx.start.steering);
    match steering.shortcut(nat, ingress.context, ingress.outside) {
        Shortcut::Source => locate_by_source(work, count, steering, ctx.shards),
        shortcut => {
            shards_by_all(work, count, &shortcut, (nat, steering), ingress);
            prefetch(work, count, ctx.shards);
        }
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
    for i in 0..count.min(BURST_SIZE) {
        let shard = steering.of_source::<F>(&F::whole_key(work.keys[i], work.high));
        work.shards[i] = shard;
        if let Some(Some(shard)) = all_shards.get(usize::from(shard)) {
            F::table_ref(shard).prefetch(work.hashes[i]);
        }
    }
}

/// Finds the shards of packets by the shortcut, if it applies, or else by all rules.
#[inline(never)]
fn shards_by_all<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    count: usize,
    shortcut: &Shortcut<F::Address>,
    (nat, steering): (&Nat<F>, &Steering),
    ingress: &Ingress,
) {
    for i in 0..count.min(BURST_SIZE) {
        let key = &F::whole_key(work.keys[i], work.high);
        work.shards[i] = steering
            .shard_at_once::<F>(shortcut, key)
            .unwrap_or_else(|| shard_by(nat, steering, key, ingress));
    }
}

/// The shard of a packet to which no shortcut applies.
#[cold]
#[inline(never)]
fn shard_by<F: LaneFamily>(nat: &Nat<F>, steering: &Steering, key: &F::Key, ingress: &Ingress) -> u16 {
    steering.shard_by::<F>(nat, None, key, ingress.number, ingress.outside)
}

/// Prefetches buckets of the indexes.
#[inline(never)]
fn prefetch<F: LaneFamily>(work: &LaneArrays<F>, count: usize, all_shards: Shards<'_, '_>) {
    for i in 0..count.min(BURST_SIZE) {
        if let Some(Some(shard)) = all_shards.get(usize::from(work.shards[i])) {
            F::table_ref(shard).prefetch(work.hashes[i]);
        }
    }
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
