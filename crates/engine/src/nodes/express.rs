//! express: the express lane translates and sends the packets of a burst that need nothing unusual, in passes over arrays.
//!
//! The lane takes plain TCP and UDP packets of sessions for which every decision is made. It leaves all other packets
//! exactly as they were received, and the graph processes them as if the lane did not exist. The graph also defines what
//! the lane has to do: for each packet that the lane takes, `parse`, `session-lookup` and `output` would have had the
//! same effect on the frame, the session and the counters.
//!
//! ```text
//! classify    plain packets of this interface, and their keys
//! locate      shards, hashes; prefetches buckets of the index
//! find        records with the tag of a hash; prefetches them
//! translate   packets of TCP, then packets of UDP: compares the key, checks, translates, tracks, sends
//! ```

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_table::flow::Candidate;
use sluice_wire::field::Mac;
use sluice_wire::{Context, ethernet};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::{Batch, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::session::family::{V4, V6};
use crate::snapshot::Snapshot;
use crate::snapshot::steering::Shortcut;

use classify::classify;
use head::{LaneFamily, heads_of};
use translate::{SentPorts, Step};

mod classify;
mod head;
mod translate;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "express",
    help: "translates packets of known sessions that need nothing unusual",
    stage: None,
    leaves: &[],
    exits: &[
        Exit::new("transmit", "known session, nothing unusual", needs::EXPRESS),
        Exit::new("parse", "", needs::EXPRESS),
    ],
};

/// A set of the burst's slots, one bit for each, counted from the first slot of the burst.
type Slots = u64;

/// Temporary memory of the lane for an address family. Each array is indexed by the packet's position in the burst.
/// Except for `protocols`, elements of packets that are not plain have no meaning.
pub struct LaneArrays<F: LaneFamily> {
    /// The keys, without the high bits of their contexts, which are equal for all packets of a burst.
    keys: [F::KeyWords; BURST_SIZE],
    /// The high bits of the keys' contexts.
    high: u8,
    /// The protocols of plain packets; 0 for other packets.
    protocols: [u8; BURST_SIZE],
    /// Lengths of the frames.
    frames: [u16; BURST_SIZE],
    /// Lengths of the datagrams.
    lengths: [u16; BURST_SIZE],
    shards: [u16; BURST_SIZE],
    hashes: [u64; BURST_SIZE],
    candidates: [Candidate; BURST_SIZE],
}

impl<F: LaneFamily> Default for LaneArrays<F> {
    fn default() -> Self {
        Self {
            keys: [F::KeyWords::default(); BURST_SIZE],
            high: 0,
            protocols: [0; BURST_SIZE],
            frames: [0; BURST_SIZE],
            lengths: [0; BURST_SIZE],
            shards: [0; BURST_SIZE],
            hashes: [0; BURST_SIZE],
            candidates: [Candidate::NONE; BURST_SIZE],
        }
    }
}

impl<F: LaneFamily> LaneArrays<F> {
    /// The key of a plain packet.
    #[inline(always)]
    fn key(&self, i: usize) -> F::Key {
        F::whole_key(self.keys[i], self.high)
    }
}

/// Temporary memory of the lane.
#[derive(Default)]
pub struct Lane {
    v4: Box<LaneArrays<V4>>,
    v6: Box<LaneArrays<V6>>,
    pauses: [Pause; PORTS],
}

/// Number of ports with a pause of their own. Ports whose numbers have equal remainders share a pause.
const PORTS: usize = 16;

/// Decides whether the lane tries the packets of a port. If most packets of a burst have no session, for example in a
/// flood, the lane is not tried for some bursts: the graph would repeat its work.
#[derive(Clone, Copy, Default)]
struct Pause {
    /// Remaining bursts for which the lane is not tried.
    bursts: u8,
}

impl Pause {
    /// Number of bursts in a pause.
    const LENGTH: u8 = 7;

    /// Whether to try the next burst.
    #[inline(always)]
    fn is_over(&mut self) -> bool {
        let is_over = self.bursts == 0;
        self.bursts = self.bursts.saturating_sub(1);
        is_over
    }

    /// Starts a pause if the lane has taken less than a quarter of many packets.
    #[inline(always)]
    fn observe(&mut self, taken: usize, packets: usize) {
        if 4 * taken < packets && packets >= MANY {
            self.bursts = Self::LENGTH;
        }
    }
}

/// Number of packets in a burst from which a pause may follow.
const MANY: usize = 8;

/// The interface on which a burst was received.
#[derive(Clone, Copy, Debug)]
struct Ingress {
    number: u16,
    mac: Mac,
    context: Context,
    outside: bool,
}

impl Ingress {
    /// The interface of a port's untagged frames, if the lane may take its packets of an address family.
    #[inline(always)]
    fn of<F: LaneFamily>(snapshot: &Snapshot, port: PortIndex) -> Option<Self> {
        let number = snapshot.untagged.get(usize::from(port)).copied().flatten()?;
        let link = snapshot.links.get(usize::from(number))?;
        let interface = snapshot.interface(number)?;
        link.express[usize::from(F::IS_V6)].then_some(Self {
            number,
            mac: *link.mac(),
            context: interface.context,
            outside: interface.outside,
        })
    }
}

impl Lane {
    /// Translates and sends those of the slots, which were received on `port`, that need nothing unusual. Returns their
    /// slots as a bit mask.
    #[inline]
    pub fn run(
        &mut self,
        batch: &mut Batch<'_, '_>,
        lists: &mut Lists,
        ctx: &mut NodeContext<'_, '_>,
        port: PortIndex,
        slots: Range<usize>,
    ) -> u128 {
        let end = slots.end.min(batch.packets.len()).min(slots.start + BURST_SIZE);
        let slots = slots.start.min(end)..end;
        let (first, count, mut taken) = (slots.start, slots.len(), 0);
        let pause = &mut self.pauses[usize::from(port) % PORTS];
        if !pause.is_over() {
            return 0;
        }
        if let Some(ingress) = Ingress::of::<V4>(ctx.snapshot, port) {
            taken |= run_family::<V4>(&mut self.v4, batch, lists, ctx, &ingress, slots.clone());
        }
        if taken.count_ones() as usize != slots.len()
            && let Some(ingress) = Ingress::of::<V6>(ctx.snapshot, port)
        {
            taken |= run_family::<V6>(&mut self.v6, batch, lists, ctx, &ingress, slots);
        }
        pause.observe(taken.count_ones() as usize, count);
        u128::from(taken) << (first % BURST_BUFFERS)
    }
}

/// The same for the packets of one address family.
#[inline(never)]
fn run_family<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    ingress: &Ingress,
    slots: Range<usize>,
) -> Slots {
    let (first, count) = (slots.start, slots.len());
    let packets = &mut batch.packets[slots];
    let (mut heads, mut plain) = classify(work, packets, ingress);
    if plain.tcp | plain.udp == 0 {
        return 0;
    }
    if plain.unusual | plain.unverified != 0 {
        plain.examine::<F>(packets, ingress);
        heads = heads_of(packets);
    }
    locate(work, count, ctx, ingress);
    find(work, count, ctx);
    let exit = ctx.exit();
    let mut adjacencies = AdjacencyCache::default();
    let mut step = Step {
        ingress,
        exit: &exit,
        adjacencies: &mut adjacencies,
        meta: batch.meta,
        first,
        sent: SentPorts::new(),
        shards: ctx.shards,
        left: ArrayVec::new(),
        received: 0,
        trailers: 0,
    };
    let mut taken = 0;
    each(plain.tcp, |i| {
        taken |= Slots::from(step.take::<F, true>(i, &mut heads, work)) << i;
    });
    each(plain.udp, |i| {
        taken |= Slots::from(step.take::<F, false>(i, &mut heads, work)) << i;
    });
    let (received, sent, trailers) = (step.received, step.sent, step.trailers);
    each(trailers, |i| packets[i].trim_trailer(ethernet::LENGTH + usize::from(work.lengths[i])));
    adjacencies.flush(&exit);
    let mut leaving = ArrayVec::<BufferIndex, BURST_SIZE>::new();
    match taken & taken.wrapping_add(1) {
        // All packets are taken, or the first ones.
        0 => leaving.extend((first as BufferIndex..).take(taken.count_ones() as usize)),
        _ => each(taken, |i| put(&mut leaving, (first + i) as BufferIndex)),
    }
    sent.send(&leaving, lists);
    count_taken(work, taken, received, ctx, ingress);
    taken
}

/// Calls a function for each slot of a set, in ascending order.
#[inline(always)]
fn each(mut slots: Slots, mut f: impl FnMut(usize)) {
    while slots != 0 {
        f(slots.trailing_zeros() as usize % BURST_SIZE);
        slots &= slots - 1;
    }
}

/// Second pass: the shards of the first `count` packets, and the hashes of their keys. The elements of packets that are not
/// plain have no meaning.
#[inline(always)]
fn locate<F: LaneFamily>(work: &mut LaneArrays<F>, count: usize, ctx: &NodeContext<'_, '_>, ingress: &Ingress) {
    let (nat, steering) = (ctx.snapshot.nat::<F>(), &ctx.start.steering);
    let (keys, high) = (&work.keys[..count], work.high);
    F::hash_words(ctx.hasher, keys, high, &mut work.hashes);
    let shards = work.shards.iter_mut().zip(keys);
    match steering.shortcut(nat, ingress.context, ingress.outside) {
        Shortcut::Source => {
            for (shard, &words) in shards {
                *shard = steering.of_source::<F>(&F::whole_key(words, high));
            }
        }
        shortcut => {
            for (shard, &words) in shards {
                let key = &F::whole_key(words, high);
                *shard = steering
                    .shard_at_once::<F>(&shortcut, key)
                    .unwrap_or_else(|| steering.shard_by::<F>(nat, None, key, ingress.number, ingress.outside));
            }
        }
    }
    for (&shard, &hash) in work.shards[..count].iter().zip(&work.hashes) {
        if let Some(Some(shard)) = ctx.shards.get(usize::from(shard)) {
            F::table_ref(shard).prefetch(hash);
        }
    }
}

/// Third pass: the records that probably have the keys.
#[inline(always)]
fn find<F: LaneFamily>(work: &mut LaneArrays<F>, count: usize, ctx: &NodeContext<'_, '_>) {
    let places = work.shards[..count].iter().zip(&work.hashes).zip(&mut work.candidates);
    for ((&shard, &hash), candidate) in places {
        if let Some(Some(shard)) = ctx.shards.get(usize::from(shard)) {
            *candidate = F::table_ref(shard).candidate(hash);
        }
    }
}

/// Counts the packets that the lane has taken.
#[inline(always)]
fn count_taken<F: LaneFamily>(
    work: &LaneArrays<F>,
    taken: Slots,
    bytes: u64,
    ctx: &mut NodeContext<'_, '_>,
    ingress: &Ingress,
) {
    let packets = u64::from(taken.count_ones());
    if packets == 0 {
        return;
    }
    if let Some(counters) = ctx.counters.interfaces.get(usize::from(ingress.number)) {
        counters.received.add(packets);
        counters.received_bytes.add(bytes);
    }
    ctx.counters.session_packets.add(packets);
    let first = usize::from(work.shards[taken.trailing_zeros() as usize % BURST_SIZE]);
    if let Some(counter) = ctx.counters.shards.get(first) {
        counter.add(packets);
    }
    if !ctx.seen.is_empty() {
        each(taken, |i| {
            if let Some(seen) = ctx.seen.get_mut(usize::from(work.shards[i])) {
                *seen += 1;
            }
        });
    }
}
