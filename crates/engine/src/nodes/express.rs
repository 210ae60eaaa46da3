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
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::{Checksums, Class, Context, Fragment, Packet, layers};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::{Batch, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Snapshot;

use head::LaneFamily;
use translate::{Found, SentPorts, Step};

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
pub struct LaneArrays<F: Family> {
    keys: [F::Key; BURST_SIZE],
    lengths: [u16; BURST_SIZE],
    shards: [u16; BURST_SIZE],
    hashes: [u64; BURST_SIZE],
    candidates: [Candidate; BURST_SIZE],
}

impl<F: Family> Default for LaneArrays<F> {
    fn default() -> Self {
        Self {
            keys: [F::Key::default(); BURST_SIZE],
            lengths: [0; BURST_SIZE],
            shards: [0; BURST_SIZE],
            hashes: [0; BURST_SIZE],
            candidates: [Candidate::NONE; BURST_SIZE],
        }
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
    let first = slots.start;
    let [mut tcp, mut udp, unusual] = classify(work, batch, ingress, slots);
    if tcp | udp == 0 {
        return 0;
    }
    if unusual != 0 {
        let later = followers::<F>(unusual, tcp | udp, &batch.packets[first..]);
        (tcp, udp) = (tcp & !later, udp & !later);
    }
    let [tcp, udp] = locate(work, [tcp, udp], ctx, ingress);
    find(work, tcp | udp, ctx);
    let exit = ctx.exit();
    let mut adjacencies = AdjacencyCache::default();
    let mut step = Step {
        ingress,
        exit: &exit,
        adjacencies: &mut adjacencies,
        sent: SentPorts::new(),
        shards: ctx.shards,
        left: ArrayVec::new(),
        received: 0,
    };
    let mut taken = 0;
    each(tcp, |i| {
        taken |= Slots::from(step.take::<F, true>(first + i, batch, &Found::of(work, i))) << i;
    });
    each(udp, |i| {
        taken |= Slots::from(step.take::<F, false>(first + i, batch, &Found::of(work, i))) << i;
    });
    let (received, sent) = (step.received, step.sent);
    adjacencies.flush(&exit);
    let mut leaving = ArrayVec::<BufferIndex, BURST_SIZE>::new();
    match taken & taken.wrapping_add(1) {
        // All packets are taken, or the first ones.
        0 => leaving.extend((first as BufferIndex..).take(taken.count_ones() as usize)),
        _ => each(taken, |i| put(&mut leaving, (first + i) as BufferIndex)),
    }
    sent.send(&leaving, lists);
    count(work, taken, received, ctx, ingress);
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

/// First pass: the slots of plain TCP packets and of plain UDP packets, with their keys and L3 lengths, and the slots of
/// all other packets that may be of this address family.
#[inline(always)]
fn classify<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    batch: &Batch<'_, '_>,
    ingress: &Ingress,
    slots: Range<usize>,
) -> [Slots; 3] {
    let [mut tcp, mut udp, mut unusual] = [0; 3];
    let packets = batch.packets[slots].iter();
    for (i, ((packet, key), length)) in packets.zip(&mut work.keys).zip(&mut work.lengths).enumerate() {
        let Some(head) = packet.head() else {
            unusual |= 1 << i;
            continue;
        };
        let plain = F::protocol_of_plain(head, packet.len(), &ingress.mac);
        let is_verified = |_: &u8| packet.checksums() == Checksums::Vouched || F::is_verified(packet, &ingress.mac);
        let Some(protocol) = plain.filter(is_verified) else {
            unusual |= Slots::from(!F::is_of_other_family(head)) << i;
            continue;
        };
        (*key, *length) = F::key_of(head, ingress.context);
        tcp |= Slots::from(protocol == TCP) << i;
        udp |= Slots::from(protocol == UDP) << i;
    }
    [tcp, udp, unusual]
}

/// The slots of those packets that follow an unusual packet of their flow, or a fragment between their hosts. The graph
/// processes them, too, so that it tracks the packets of a flow in the order in which they arrived.
#[cold]
#[inline(never)]
fn followers<F: Family>(unusual: Slots, plain: Slots, packets: &[Packet<'_>]) -> Slots {
    let parse = |i: usize| {
        let frame = packets.get(i)?.bytes();
        let layers = layers::parse(frame).ok()?;
        let is_of_family = layers.class == if F::IS_V6 { Class::Ipv6 } else { Class::Ipv4 };
        is_of_family.then_some((frame, layers))
    };
    let mut all = 0;
    each(unusual, |i| {
        let later = plain & (Slots::MAX << i) & !all;
        let Some((frame, layers)) = parse(i).filter(|_| later != 0) else {
            return;
        };
        each(later, |j| {
            let is_follower = parse(j).is_some_and(|(other, of_other)| match layers.fragment {
                Fragment::Whole => F::key(&layers, frame, 0) == F::key(&of_other, other, 0),
                _ => F::addresses(&layers, frame) == F::addresses(&of_other, other),
            });
            all |= Slots::from(is_follower) << j;
        });
    });
    all
}

/// Second pass: the shards of this worker to which the packets belong, and the hashes of their keys. Returns the slots
/// without those of other workers' shards.
#[inline(always)]
fn locate<F: LaneFamily>(
    work: &mut LaneArrays<F>,
    [mut tcp, mut udp]: [Slots; 2],
    ctx: &NodeContext<'_, '_>,
    ingress: &Ingress,
) -> [Slots; 2] {
    let (nat, steering) = (ctx.snapshot.nat::<F>(), &ctx.start.steering);
    let end = BURST_SIZE - (tcp | udp).leading_zeros() as usize;
    F::hash(ctx.hasher, &work.keys[..end], &mut work.hashes[..end]);
    let shortcut = steering.shortcut(nat, ingress.context, ingress.outside);
    each(tcp | udp, |i| {
        let shard = match steering.shard_at_once::<F>(&shortcut, &work.keys[i]) {
            Some(shard) => shard,
            None => steering.shard_by::<F>(nat, None, &work.keys[i], ingress.number, ingress.outside),
        };
        work.shards[i] = shard;
        match ctx.shards.get(usize::from(shard)) {
            Some(Some(shard)) => F::table_ref(shard).prefetch(work.hashes[i]),
            _ => (tcp, udp) = (tcp & !(1 << i), udp & !(1 << i)),
        }
    });
    [tcp, udp]
}

/// Third pass: the records that probably have the keys.
#[inline(always)]
fn find<F: LaneFamily>(work: &mut LaneArrays<F>, slots: Slots, ctx: &NodeContext<'_, '_>) {
    each(slots, |i| {
        if let Some(Some(shard)) = ctx.shards.get(usize::from(work.shards[i])) {
            work.candidates[i] = F::table_ref(shard).candidate(work.hashes[i]);
        }
    });
}

/// Counts the packets that the lane has taken.
#[inline(always)]
fn count<F: LaneFamily>(
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
