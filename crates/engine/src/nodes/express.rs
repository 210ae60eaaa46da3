//! express: the express lane sends the packets of a burst that need nothing unusual, in passes over arrays.
//!
//! The lane takes plain TCP and UDP packets of sessions for which every decision is made, and plain packets of interfaces
//! without stateful services, which need only a route (module `route`). It leaves all other packets exactly as they were
//! received, and the graph processes them as if the lane did not exist. The graph also defines what the lane has to do:
//! for each packet that the lane takes, the other nodes would have had the same effect on the frame, the session and the
//! counters.
//!
//! Packets of known sessions pass through these functions, one interface after the other:
//!
//! ```text
//! classify    plain packets of this interface, and their keys
//! locate      shards, hashes; prefetches buckets of the index
//! find        records with the tag of a hash; prefetches them
//! chain       if the router has chains: executes them for packets that pass the checks of `translate`
//! translate   packets of TCP, then packets of UDP: compares the key, checks, translates, tracks, sends
//! ```
//!
//! If subscribers' sites exist, the functions are compiled with `SITES`: sites determine the contexts and the shards of packets, and
//! terminals their link headers.

use std::ops::Range;

use sluice_table::flow::Candidate;
use sluice_wire::{Packet, Window, ethernet};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::Meta;
use crate::packet::counters::CycleStage;
use crate::packet::io::{ALL_SLOTS, BURST_BUFFERS, BURST_SIZE, BufferIndex, Handover, Heads, Packets, PortIndex};
use crate::packet::lists::{Leave, Lists};
use crate::session::arrival::Arrival;
use crate::session::family::{V4, V6};
use crate::snapshot::Express;

use chain::{Arrived, Ends};
use classify::classify;
use groups::{Group, Groups, Ingress, Side, by_count_of_tags, by_interface, by_tags, list_of};
use head::LaneFamily;
use leaving::Leaving;
use locate::{find, hash, locate, prefetch_terminals};
use pause::{PORTS, Pause};
use route::{RouteArrays, run_routes};
use translate::{Output, Phase, Step, Tally};

mod chain;
mod classify;
mod groups;
mod head;
mod leaving;
mod locate;
mod pause;
mod route;
mod translate;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "express",
    help: "translates or routes packets that need nothing unusual",
    stage: None,
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("transmit", "nothing unusual", needs::EXPRESS),
        Exit::new("parse", "", needs::EXPRESS),
    ],
};

/// A set of packets of a burst, one bit for each: positions in the list of slots that the lane processes together.
type Slots = u64;

/// Temporary memory of the lane for an address family. Each array is indexed by the packet's position in the burst.
/// Elements of packets that are not plain have no meaning, except for `protocols` and `windows`.
pub struct LaneArrays<F: LaneFamily> {
    /// Positions of the frames in their buffers.
    windows: [Window; BURST_SIZE],
    /// The protocols of plain packets; 0 for other packets.
    protocols: [u8; BURST_SIZE],
    /// The keys, without the high bits of their contexts, which are equal for all plain packets.
    keys: [F::KeyWords; BURST_SIZE],
    /// The high bits of the keys' contexts.
    high: u8,
    /// Lengths of the datagrams.
    lengths: [u16; BURST_SIZE],
    hashes: [u64; BURST_SIZE],
    shards: [u16; BURST_SIZE],
    candidates: [Candidate; BURST_SIZE],
}

impl<F: LaneFamily> Default for LaneArrays<F> {
    fn default() -> Self {
        Self {
            windows: [Window::default(); BURST_SIZE],
            protocols: [0; BURST_SIZE],
            keys: [F::KeyWords::default(); BURST_SIZE],
            high: 0,
            lengths: [0; BURST_SIZE],
            hashes: [0; BURST_SIZE],
            shards: [0; BURST_SIZE],
            candidates: [Candidate::NONE; BURST_SIZE],
        }
    }
}

/// The heads before they are borrowed.
const NO_HEADS: Heads<'_> = [const { None }; BURST_SIZE];

/// The buffers of the packets.
pub enum Buffers<'b, 'p> {
    /// The buffers are not borrowed.
    Io(&'b mut dyn Handover),
    /// The buffers are borrowed as packets.
    Packets(&'b mut Packets<'p>),
}

impl Buffers<'_, '_> {
    /// See [`PacketIo::heads`](crate::packet::io::PacketIo::heads).
    #[inline(always)]
    fn heads<'a>(&'a mut self, slots: &[BufferIndex], heads: &mut Heads<'a>, windows: &mut [Window; BURST_SIZE]) {
        match self {
            Self::Io(io) => io.heads(slots, heads, windows),
            Self::Packets(packets) => {
                let (count, mut next) = (packets.len(), 0);
                let mut packets = packets.iter_mut();
                for (slot, (head, window)) in slots.iter().zip(heads.iter_mut().zip(windows)) {
                    *head = None;
                    let slot = usize::from(*slot);
                    if (next..count).contains(&slot)
                        && let Some(packet) = packets.nth(slot - next)
                    {
                        *window = packet.window();
                        *head = packet.head_mut();
                        next = slot + 1;
                    }
                }
            }
        }
    }

    /// Calls a function with all packets.
    fn with_packets<T>(&mut self, f: impl FnOnce(&mut [Packet<'_>]) -> T) -> T {
        match self {
            Self::Io(io) => {
                let mut packets = Packets::new();
                io.packets(&mut packets);
                f(&mut packets)
            }
            Self::Packets(packets) => f(packets),
        }
    }
}

/// The burst that the lane processes.
pub struct Burst<'b, 'p> {
    /// The buffers of the packets.
    pub buffers: Buffers<'b, 'p>,
    /// The metadata, by slot.
    pub meta: &'b mut [Meta; BURST_BUFFERS],
    /// The lists on which the lane puts packets.
    pub lists: &'b mut Lists,
}

/// Temporary memory of the lane.
#[derive(Default)]
pub struct Lane {
    v4: Box<LaneArrays<V4>>,
    v6: Box<LaneArrays<V6>>,
    routes4: Box<RouteArrays<V4>>,
    routes6: Box<RouteArrays<V6>>,
    leaving: Box<Leaving>,
    pauses: [Pause; PORTS],
    /// Whether most taken packets of the last burst were IPv6 packets. Then the next burst is first tried as IPv6.
    is_v6: bool,
    /// Whether the packets of the last burst needed only routes.
    is_routed: bool,
}

impl Lane {
    /// The stage to which the cycles of the last [`run`](Self::run) belong.
    #[inline(always)]
    pub fn stage(&self) -> CycleStage {
        match self.is_routed {
            true => CycleStage::Forward,
            false => CycleStage::Session,
        }
    }

    /// Translates and sends those of the slots, which were received on `port`, that need nothing unusual. Returns their
    /// slots as a bit mask.
    #[inline]
    pub fn run(
        &mut self,
        burst: &mut Burst<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        port: PortIndex,
        slots: Range<usize>,
    ) -> u128 {
        let count = slots.len().min(BURST_SIZE);
        let (first, pause) = (slots.start, usize::from(port) % PORTS);
        let slots = ALL_SLOTS.get(first..first + count).unwrap_or_default();
        if !self.pauses[pause].is_over() {
            return 0;
        }
        self.leaving.left.clear();
        let taken = if ctx.snapshot.is_tagged(port) {
            self.run_by_tags(burst, ctx, port, slots)
        } else {
            match Ingress::untagged(ctx.snapshot, port) {
                Some(ingress) if ingress.has_tags_of_sites() => {
                    let mut groups = Groups::new();
                    by_count_of_tags(ingress, slots, &mut burst.buffers, &mut groups);
                    self.run_groups(burst, ctx, &groups)
                }
                Some(ingress) => {
                    u128::from(self.run_group::<0>(burst, ctx, &ingress, slots)) << (first % BURST_BUFFERS)
                }
                None => 0,
            }
        };
        self.pauses[pause].observe(taken.count_ones() as usize, count);
        taken
    }

    /// The same for a port with VLANs.
    #[inline(never)]
    fn run_by_tags(
        &mut self,
        burst: &mut Burst<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        port: PortIndex,
        slots: &[BufferIndex],
    ) -> u128 {
        let mut groups = Groups::new();
        by_tags(ctx.snapshot, port, slots, &mut burst.buffers, &mut groups);
        self.run_groups(burst, ctx, &groups)
    }

    /// The same for groups of packets.
    #[inline(never)]
    fn run_groups(&mut self, burst: &mut Burst<'_, '_>, ctx: &mut NodeContext<'_, '_>, groups: &Groups<'_>) -> u128 {
        let mut all = 0;
        for Group { ingress, slots } in groups {
            let taken = match ingress.tags {
                0 => self.run_group::<0>(burst, ctx, ingress, slots),
                1 => self.run_group::<1>(burst, ctx, ingress, slots),
                _ => self.run_group::<2>(burst, ctx, ingress, slots),
            };
            all |= slots_at(taken, slots);
        }
        all
    }

    /// Translates and sends those packets on the lists of parsed packets that need nothing unusual, and removes them from the lists.
    /// Returns their slots as a bit mask.
    #[inline(never)]
    pub fn run_parsed(&mut self, burst: &mut Burst<'_, '_>, ctx: &mut NodeContext<'_, '_>) -> u128 {
        // Only the graph knows which of the other packets a fragment precedes.
        if !burst.lists.virtual_reassembly.is_empty() {
            return 0;
        }
        self.leaving.left.clear();
        let mut taken = 0;
        for is_v6 in [false, true] {
            for express in [Express::Translates, Express::Routes] {
                taken |= self.run_list(burst, ctx, is_v6, express);
            }
        }
        taken
    }

    /// The same for one of the lists.
    fn run_list(
        &mut self,
        burst: &mut Burst<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        is_v6: bool,
        express: Express,
    ) -> u128 {
        let mut list = std::mem::take(list_of(burst.lists, express, is_v6));
        if list.is_empty() {
            return 0;
        }
        let (mut groups, mut all) = (Groups::new(), 0);
        by_interface(ctx.snapshot, &list, burst.meta, &mut groups);
        for Group { ingress, slots } in &groups {
            if ingress.link.express[usize::from(is_v6)] != express {
                continue;
            }
            let taken = match ingress.tags {
                0 => self.run_group_of::<0>(is_v6, burst, ctx, ingress, slots),
                1 => self.run_group_of::<1>(is_v6, burst, ctx, ingress, slots),
                _ => self.run_group_of::<2>(is_v6, burst, ctx, ingress, slots),
            };
            all |= slots_at(taken, slots);
        }
        list.retain(|slot| all & 1 << (usize::from(*slot) % BURST_BUFFERS) == 0);
        *list_of(burst.lists, express, is_v6) = list;
        all
    }

    /// Translates and sends those packets of one interface that need nothing unusual. They have this number of tags. Returns their
    /// positions in `slots`.
    #[inline(always)]
    fn run_group<const TAGS: usize>(
        &mut self,
        burst: &mut Burst<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        ingress: &Ingress<'_>,
        slots: &[BufferIndex],
    ) -> Slots {
        let mut taken = self.run_group_of::<TAGS>(self.is_v6, burst, ctx, ingress, slots);
        if taken.count_ones() as usize != slots.len() {
            let others = self.run_group_of::<TAGS>(!self.is_v6, burst, ctx, ingress, slots);
            self.is_v6 ^= others.count_ones() > taken.count_ones();
            taken |= others;
        }
        taken
    }

    /// The same for the packets of one address family.
    #[inline(always)]
    fn run_group_of<const TAGS: usize>(
        &mut self,
        is_v6: bool,
        burst: &mut Burst<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        ingress: &Ingress<'_>,
        slots: &[BufferIndex],
    ) -> Slots {
        let express = ingress.link.express[usize::from(is_v6)];
        if express != Express::Nothing {
            self.is_routed = express == Express::Routes;
        }
        let leaving = &mut self.leaving;
        match (express, is_v6) {
            (Express::Nothing, _) => 0,
            (Express::Translates, false) => {
                let run = match ingress.side {
                    Side::NoSites => run_family::<V4, TAGS, false>,
                    _ => run_family::<V4, TAGS, true>,
                };
                run((&mut self.v4, leaving), burst, ctx, ingress, slots)
            }
            // Sites have only IPv4.
            (_, true) if matches!(ingress.side, Side::Access(_)) => 0,
            (Express::Translates, true) => {
                run_family::<V6, TAGS, false>((&mut self.v6, leaving), burst, ctx, ingress, slots)
            }
            (Express::Routes, false) => {
                run_routes::<V4, TAGS>((&mut self.routes4, leaving), burst, ctx, ingress, slots)
            }
            (Express::Routes, true) => run_routes::<V6, TAGS>((&mut self.routes6, leaving), burst, ctx, ingress, slots),
        }
    }
}

/// Translates and sends those packets of an address family that need nothing unusual. Returns their positions in `slots`.
#[inline(never)]
fn run_family<F: LaneFamily, const TAGS: usize, const SITES: bool>(
    (work, leaving): (&mut LaneArrays<F>, &mut Leaving),
    burst: &mut Burst<'_, '_>,
    ctx: &mut NodeContext<'_, '_>,
    ingress: &Ingress<'_>,
    slots: &[BufferIndex],
) -> Slots {
    let count = slots.len();
    let mut heads = NO_HEADS;
    burst.buffers.heads(slots, &mut heads, &mut work.windows);
    let mut plain = classify::<F, TAGS, SITES>(work, &heads, count, ingress);
    if plain.tcp | plain.udp == 0 {
        return 0;
    }
    if plain.unusual != 0 || plain.has_unverified {
        burst.buffers.with_packets(|packets| {
            plain.examine::<F>(slots, packets, (ingress, TAGS));
        });
        heads = NO_HEADS;
        burst.buffers.heads(slots, &mut heads, &mut work.windows);
    }
    hash(work, count, ctx.hasher);
    locate::<F, SITES>(work, count, ctx, ingress);
    find(work, count, ctx.shards);
    if SITES && let Some(sites) = ctx.snapshot.sites.as_deref() {
        prefetch_terminals(work, count, ctx.shards, &sites.table);
    }
    let (exit, chains) = (ctx.exit(), ingress.chains(ctx.snapshot));
    leaving.clear();
    let mut step = Step {
        shards: ctx.shards,
        out: Output {
            arrival: Arrival::in_lane(ingress.number, work.high),
            generation: ctx.snapshot.generation,
            exit: &exit,
            adjacencies: AdjacencyCache::default(),
            leaving,
            phase: Phase::CheckAndSend,
            missed: 0,
            tally: Tally::new(ctx.now.stamp()),
        },
    };
    let (mut taken, mut ends) = (0, Ends::default());
    if let Some(chains) = chains {
        step.out.phase = Phase::Check;
        taken = step.take_plain::<F, TAGS, SITES>([plain.tcp, plain.udp], &mut heads, work);
        step.out.phase = Phase::Send;
        let arrived = Arrived {
            all: taken,
            heads: &heads,
            windows: &work.windows,
            lengths: &work.lengths,
            received: chain::received(taken, &work.windows),
            has_trailers: true,
        };
        ingress.count_received(taken.count_ones().into(), arrived.received, step.out.exit.counters);
        ends = chain::run::<F, TAGS>(chains, arrived, &exit, ingress);
        (plain.tcp, plain.udp) = (plain.tcp & ends.passed, plain.udp & ends.passed);
    }
    let sent = step.take_plain::<F, TAGS, SITES>([plain.tcp, plain.udp], &mut heads, work);
    let out = &mut step.out;
    if out.tally.trailers != 0 {
        trim::<TAGS>(out.tally.trailers, &mut burst.buffers, slots, &work.lengths);
    }
    out.leaving.finish(
        sent,
        (slots, ingress.number, TAGS),
        burst,
        (&mut out.adjacencies, &exit),
    );
    match chains {
        Some(_) => ends.drop_others(sent, (slots, ingress.number), burst),
        None => {
            ingress.count_received(sent.count_ones().into(), out.tally.received, exit.counters);
            taken = sent;
        }
    }
    count_translated(work, sent, ctx);
    taken
}

/// Removes what follows the datagrams in these frames.
#[inline(never)]
fn trim<const TAGS: usize>(
    trailers: Slots,
    buffers: &mut Buffers<'_, '_>,
    slots: &[BufferIndex],
    lengths: &[u16; BURST_SIZE],
) {
    buffers.with_packets(|packets| {
        each(trailers, |i| {
            let slot = slots.get(i).copied().unwrap_or(BufferIndex::MAX);
            if let Some(packet) = packets.get_mut(usize::from(slot)) {
                packet.trim_trailer(ethernet::LENGTH + 4 * TAGS + usize::from(lengths[i]));
            }
        });
    });
}

/// The slots at these positions, as a bit mask.
fn slots_at(positions: Slots, slots: &[BufferIndex]) -> u128 {
    let mut all = 0;
    each(positions, |i| {
        all |= slots.get(i).map_or(0, |slot| 1 << (usize::from(*slot) % BURST_BUFFERS));
    });
    all
}

/// Calls a function for each slot of a set, in ascending order.
#[inline(always)]
fn each(mut slots: Slots, mut f: impl FnMut(usize)) {
    while slots != 0 {
        f(slots.trailing_zeros() as usize % BURST_SIZE);
        slots &= slots - 1;
    }
}

/// Counts the packets of sessions that the lane has taken.
#[inline(always)]
fn count_translated<F: LaneFamily>(work: &LaneArrays<F>, taken: Slots, ctx: &mut NodeContext<'_, '_>) {
    let packets = u64::from(taken.count_ones());
    if packets == 0 {
        return;
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
