//! session-lookup: translates, counts, tracks and sends packets of known sessions (the fast path).

use core::hint::select_unpredictable;

use sluice_nat::Resources;
use sluice_nat::Tuple;
use sluice_table::changes::is_long_ago;
use sluice_table::flow::{Candidate, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::layers::{Flags, Fragment};

use crate::features::context::{NodeContext, OutputContext};
use crate::features::creation::is_first_segment;
use crate::features::hairpinning::hairpin;
use crate::features::inspection::divert;
use crate::features::mss;
use crate::features::sites;
use crate::features::source_validation;
use crate::features::translation::{reschedule, shares_address, track_further, translate, validated};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::dont_fragment;
use crate::nodes::output::{AdjacencyCache, send_by_parts};
use crate::nodes::revalidate::{is_confirmed, is_unconcerned};
use crate::nodes::{bridge, host, punt, subscriber};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::counters::HandOffCause;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::session::family::{Family, PerFamily, Session, Tracked, V4, V6};
use crate::snapshot::Nat;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "session-lookup",
    help: "finds the session of a packet and translates it",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::HandOver, Leave::Hold, Leave::Queue, Leave::Drop],
    exits: &[
        Exit::new("slow-path", "no session", needs::FLOWS),
        Exit::new("revalidate", "older snapshot", needs::FLOWS),
        Exit::new("inspect", "inspected", needs::INSPECTED),
        Exit::new("identify", "application not identified yet", needs::IDENTIFIED),
        Exit::new("session-lookup", "hairpinned", needs::STATEFUL),
        Exit::new("bridge", "session of a bridge", needs::BRIDGED | needs::INSPECTED),
        Exit::new("output", "", needs::STATEFUL),
        Exit::new("fragmentation", "too long", needs::STATEFUL),
        Exit::new("icmp-error", "TTL, MTU, rejected", needs::FLOWS),
        Exit::new("punt", "session of the router's host", needs::STATEFUL | needs::HOSTED),
    ],
};

/// Number of packets in a group. While a group is translated, the records of the next group and the index entries of the group
/// after it are prefetched.
const GROUP: usize = 32;

/// Number of packets by which the prefetch of a record from the second-level cache into the first is ahead.
const NEAR: usize = 4;

/// Number of packets by which the prefetch of a site terminal's cache line is ahead. The session record contains the terminal's
/// number, so the record is prefetched earlier by the same number of packets.
const TERMINAL: usize = 12;

/// Temporary memory of the lookup passes, indexed by the packet's position in the list.
pub struct Lookups<F: Family> {
    slots: [BufferIndex; BURST_BUFFERS],
    keys: [F::Key; BURST_BUFFERS],
    hashes: [u64; BURST_BUFFERS],
    candidates: [Candidate; BURST_BUFFERS],
}

impl<F: Family> Default for Lookups<F> {
    fn default() -> Self {
        Self {
            slots: [0; BURST_BUFFERS],
            keys: [F::Key::default(); BURST_BUFFERS],
            hashes: [0; BURST_BUFFERS],
            candidates: [Candidate::NONE; BURST_BUFFERS],
        }
    }
}

/// Temporary memory for both address families.
#[derive(Default)]
pub struct LookupScratch {
    v4: Box<Lookups<V4>>,
    v6: Box<Lookups<V6>>,
}

/// Selects the [`Lookups`] of an address family.
struct EachLookups;

impl PerFamily for EachLookups {
    type Of<F: Family> = Lookups<F>;
}

impl LookupScratch {
    #[inline(always)]
    fn of<F: Family>(&mut self) -> &mut Lookups<F> {
        F::select_mut::<EachLookups>(&mut self.v4, &mut self.v6)
    }
}

/// Looks up sessions and translates packets.
pub fn session_lookup<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    let (nat, work) = (ctx.snapshot.nat::<F>(), tools.lookups.of::<F>());
    // Subscribers' sites have only IPv4. Specialised copies of the code avoid the cost of features that are not configured.
    match (!F::IS_V6 && ctx.snapshot.sites.is_some(), nat.spread.is_some()) {
        (true, _) => look_up::<F, true, true>(batch, lists, ctx, nat, work),
        (false, true) => look_up::<F, false, true>(batch, lists, ctx, nat, work),
        (false, false) => look_up::<F, false, false>(batch, lists, ctx, nat, work),
    }
}

/// Looks up sessions and translates packets. `SITES`: subscribers' sites exist. `SPREAD`: rules translate flows to several hosts
/// or to a router's host.
#[inline(never)]
fn look_up<F: Family, const SITES: bool, const SPREAD: bool>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    nat: &Nat<F>,
    work: &mut Lookups<F>,
) {
    let slots = std::mem::take(lists.session_lookup.of::<F>());
    let mut rest = slots.as_slice();
    let exit = ctx.exit();
    let mut adjacencies = AdjacencyCache::default();
    let mut used = 0;
    // Numbers of packets for which keys were built, candidates were looked up, and translation was done.
    let (mut made, mut pending, mut done) = (0, 0, 0);
    while !rest.is_empty() || done < made {
        let group;
        (group, rest) = rest.split_at(rest.len().min(GROUP));
        let last = (made, pending);
        made = keys::<F, SITES, SPREAD>(group, made, batch, lists, ctx, nat, work);
        // The keys are contiguous, so that they are hashed together.
        F::hash(ctx.hasher, &work.keys[last.0..made], &mut work.hashes[last.0..made]);
        for place in last.0..made {
            if let Some(shard) = ctx.shard_of(batch.meta(work.slots[place])) {
                F::table_ref(shard).prefetch(work.hashes[place]);
            }
        }
        for place in last.1..last.0 {
            if let Some(shard) = ctx.shard_of(batch.meta(work.slots[place])) {
                work.candidates[place] = F::table_ref(shard).candidate(work.hashes[place]);
            }
        }
        pending = last.0;
        if SITES {
            for place in done..last.1.min(done + TERMINAL) {
                prefetch_terminal::<F>(place, batch, ctx, work);
            }
        }
        for place in done..last.1 {
            if SITES && place + TERMINAL < last.1 {
                prefetch_terminal::<F>(place + TERMINAL, batch, ctx, work);
            }
            let ahead = place + if SITES { TERMINAL + NEAR } else { NEAR };
            if ahead < last.1
                && let Some(shard) = ctx.shard_of(batch.meta(work.slots[ahead]))
            {
                F::table_ref(shard).prefetch_candidate(work.candidates[ahead]);
            }
            used += u64::from(step::<F, SITES, SPREAD>(
                place,
                batch,
                lists,
                ctx,
                &exit,
                work,
                &mut adjacencies,
            ));
        }
        done = last.1;
    }
    adjacencies.flush(&exit);
    ctx.counters.session_packets.add(used);
    if made > 0
        && let Some(counter) = ctx.counters.shards.get(batch.meta(work.slots[0]).shard as usize)
    {
        counter.add(made as u64);
    }
}

/// Prefetches the line of the terminal to which a packet's session belongs, if the session probably belongs to a site.
#[inline(always)]
fn prefetch_terminal<F: Family>(place: usize, batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>, work: &Lookups<F>) {
    let shard = ctx.shard_of(batch.meta(work.slots[place]));
    let session = shard.and_then(|shard| F::table_ref(shard).peek(work.candidates[place]));
    if let (Some(session), Some(sites)) = (session, &ctx.snapshot.sites) {
        // Terminals create most sessions, so the adjacency of the reverse direction is checked first.
        let terminal = session.adjacency(Direction::Reverse).terminal_bits();
        if let Some(terminal) = terminal.or_else(|| session.adjacency(Direction::Forward).terminal_bits()) {
            sites.table.prefetch(terminal);
        }
    }
}

/// Builds the keys of those packets in a group that this worker processes, from position `made` on. Packets for shards of other
/// workers are handed off. Returns the position after the last key.
#[inline(always)]
fn keys<F: Family, const SITES: bool, const SPREAD: bool>(
    group: &[BufferIndex],
    mut made: usize,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    nat: &Nat<F>,
    work: &mut Lookups<F>,
) -> usize {
    // Most packets of a group arrive on the same interface.
    let (mut last, mut context, mut outside, mut bridged) = (u16::MAX, 0, false, false);
    let (mut access, mut own) = (None, 0);
    for &slot in group {
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        let frame = batch.packets[slot as usize].bytes();
        if meta.interface != last {
            last = meta.interface;
            (context, outside, bridged) = ctx
                .snapshot
                .interface(last)
                .map_or((0, false, false), |i| (i.context, i.outside, i.bridge.is_some()));
            if SITES {
                access = ctx
                    .snapshot
                    .sites
                    .as_deref()
                    .and_then(|sites| sites.access_interface(last));
                own = context;
            }
        }
        if bridged {
            context = ctx.snapshot.context(meta, frame);
        } else if SITES && let Some(access) = access {
            // A hairpinned packet is processed as one from outside.
            let site = match meta.origin {
                Origin::Hairpinned => None,
                _ => access.context(&meta.layers, frame),
            };
            context = site.unwrap_or(own);
        }
        let key = if meta.layers.flags.has(Flags::ICMP_ERROR) {
            match F::quoted(&meta.layers, frame, context, bridged) {
                Ok(key) => key,
                Err(fault) => {
                    bridge::unattributed_error(slot, fault, batch, lists, ctx);
                    continue;
                }
            }
        } else {
            F::key(&meta.layers, frame, context)
        };
        let outside = outside | (meta.origin == Origin::Hairpinned);
        meta.shard = match bridged {
            false if SPREAD && meta.is_from_gateway() => ctx.start.steering.of_host_flow::<F>(nat, &key),
            false if SITES => ctx
                .start
                .steering
                .shard_among_sites::<F>(nat, &key, meta.interface, outside),
            false => {
                let spread = nat.spread.as_ref().filter(|_| SPREAD);
                ctx.start
                    .steering
                    .shard_by::<F>(nat, spread, &key, meta.interface, outside)
            }
            true => ctx.start.steering.of_bridged::<F>(&key),
        };
        if let Some(seen) = ctx.seen.get_mut(meta.shard as usize) {
            *seen += 1;
        }
        if ctx.shards.get(meta.shard as usize).is_none_or(Option::is_none) {
            let owner = ctx.start.owners.of(meta.shard).unwrap_or(ctx.own);
            if owner == ctx.own {
                put(&mut lists.hold, slot);
                continue;
            }
            let cause = match ctx.role.sessions.is_empty() {
                true => cause::<F>(nat, meta, &key, outside),
                false => HandOffCause::Stage,
            };
            lists.hand_over_for(cause, slot, owner, HandOffNote::new(EntryPoint::Session, meta));
            continue;
        }
        if ctx.defers {
            put(&mut lists.queue, slot);
            continue;
        }
        if let (Some(place), Some(of)) = (work.keys.get_mut(made), work.slots.get_mut(made)) {
            (*place, *of) = (key, slot);
            made += 1;
        }
    }
    made
}

/// The reason for which a packet did not arrive at the worker that owns its session.
fn cause<F: Family>(nat: &Nat<F>, meta: &Meta, key: &F::Key, outside: bool) -> HandOffCause {
    let tuple = F::tuple(key);
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        HandOffCause::IcmpError
    } else if meta.layers.fragment != Fragment::Whole {
        HandOffCause::Fragment
    } else if outside
        && nat
            .pools
            .preserves(tuple.context(), tuple.destination(), tuple.destination_port())
    {
        HandOffCause::KeptPort
    } else {
        HandOffCause::Session
    }
}

/// Processes one packet. Returns whether it used a session.
#[inline(always)]
fn step<F: Family, const SITES: bool, const SPREAD: bool>(
    place: usize,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    exit: &OutputContext<'_>,
    work: &Lookups<F>,
    adjacencies: &mut AdjacencyCache,
) -> bool {
    let slot = work.slots[place];
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let layers = &meta.layers;
    let packet = &mut batch.packets[slot as usize];
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) else {
        lists.drop_packet(slot, Own::Forgotten);
        return false;
    };
    let Some((index, direction)) =
        F::table_ref(shard).confirm(work.hashes[place], work.candidates[place], &work.keys[place])
    else {
        put(lists.slow_path.of::<F>(), slot);
        return false;
    };
    let Some(session) = F::table(shard).get_mut(index) else {
        return false;
    };
    let mut own = false;
    if session.bound_interface(direction) != meta.interface {
        if let Err(reason) = source_validation::rebind::<F>(exit, meta, F::tuple(&work.keys[place]), session, direction)
        {
            lists.drop_packet(slot, reason);
            return false;
        }
        own = SPREAD && meta.is_from_gateway();
    }
    let generation = session.generation();
    let stale = generation != ctx.snapshot.generation;
    if stale && !layers.flags.has(Flags::ICMP_ERROR) {
        if is_unconcerned::<F>(session, ctx.snapshot) {
            if is_long_ago(ctx.snapshot.generation.wrapping_sub(generation)) {
                session.set_generation(ctx.snapshot.generation);
            }
        } else if ctx.revisions.admit(meta.shard, index, generation) {
            if !is_confirmed::<F>(session, ctx.snapshot, ctx.forwarding) {
                put(lists.revalidate.of::<F>(), slot);
                return false;
            }
            session.set_generation(ctx.snapshot.generation);
            ctx.counters.sessions_revalidated.add(1);
        }
    }
    if is_first_segment(layers) && session.track().tracking.has_ended() && !is_let_in::<F>(session, direction) {
        // The packet takes the slow path as the first of a flow, and its session replaces this one. The packet waits until no
        // node of this burst has packets of the replaced session.
        let waits = session.diverts() && needs_session_pass::<F>(lists, index);
        put(
            if waits {
                lists.session_lookup.of::<F>()
            } else {
                lists.slow_path.of::<F>()
            },
            slot,
        );
        return false;
    }
    if session.diverts()
        && divert::<F>(
            slot,
            layers,
            (index, direction),
            session,
            lists,
            (ctx.now, ctx.counters),
            (packet, ctx.snapshot.code_points.as_deref(), meta.shard),
        )
    {
        return false;
    }
    if own {
        host::answer::<F>(slot, (index, direction), batch, lists, ctx, adjacencies);
        return true;
    }
    let hop = session.adjacency(direction);
    let terminal = match SITES {
        true => match sites::terminal::<F>(session, direction, &work.keys[place], meta, packet.bytes(), exit) {
            Ok(terminal) => terminal,
            Err(fault) => {
                let meta = *meta;
                sites::refuse::<F>(fault, slot, index, &meta, lists, ctx);
                return true;
            }
        },
        false => None,
    };
    // Checks that may stop the packet come before any change, because a stopped packet is answered or parked as received.
    let next = if SITES { hop.without_terminal() } else { hop };
    let Some(way) = adjacencies.of(next, exit) else {
        if hop.is_bridge() {
            bridge::forward_session::<F>(slot, (index, direction), batch, lists, ctx);
        } else if hop == AdjacencyIndex::HAIRPIN {
            hairpin::<F>(slot, index, direction, batch, lists, ctx);
        } else if hop == AdjacencyIndex::LOCAL {
            punt::deliver::<F>(slot, index, direction, batch, lists, ctx);
        } else if hop == AdjacencyIndex::UNRESOLVED && !layers.flags.has(Flags::ICMP_ERROR) {
            put(lists.revalidate.of::<F>(), slot);
            return false;
        } else {
            lists.wait_for_neighbour(slot, ctx.forwarding.unresolved(hop));
        }
        return true;
    };
    if layers.ttl <= 1 {
        lists.icmp_error(slot, IcmpError::TimeExceeded, sluice_route::Reason::TtlExceeded);
        return true;
    }
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > way.mtu;
    if cut && (F::IS_V6 || dont_fragment(packet.bytes(), layers)) {
        lists.icmp_error(slot, IcmpError::TooBig(way.mtu), sluice_route::Reason::TooBig);
        return true;
    }
    let bytes = packet.len();
    let (tracked, link) = match F::plain(packet.bytes_mut(), layers, session, direction) {
        Some((tracked, link)) => (tracked, link),
        None => match validated::<F>(exit, meta, packet.bytes(), &work.keys[place])
            .and_then(|()| translate::<F>(packet.bytes_mut(), layers, session, direction, 1))
        {
            Ok(tracked) => (tracked, packet.bytes_mut()),
            Err(reason) => {
                lists.drop_packet(slot, reason);
                return true;
            }
        },
    };
    let sent = !cut && terminal.is_none() && way.take(link, bytes, slot, meta, lists);
    let refreshes = session.refreshes(direction);
    let track = session.track_mut();
    track.packets[direction as usize] += 1;
    track.bytes[direction as usize] += u64::from(length);
    if matches!(tracked, Tracked::Known) {
        track.last_seen = select_unpredictable(refreshes, ctx.now.stamp(), track.last_seen);
    } else {
        if mss::has_mss(&meta.layers) {
            let interfaces = [meta.interface, hop.interface() as u16];
            mss::clamp::<F>(packet, &meta.layers, interfaces, ctx.snapshot);
        }
        let shares = !F::IS_V6 && shares_address::<F>(session, direction, ctx.snapshot);
        let class = track_further::<F>(tracked, session, direction, ctx.now);
        if shares {
            let datagram = meta.layers.datagram_mut(packet.bytes_mut());
            shard.numbers.number(datagram, meta.identification, ctx.hasher, ctx.now);
        }
        if let Some(class) = class {
            reschedule::<F>(shard, index, class, ctx.snapshot, ctx.now);
        }
    }
    if let Some((view, upstream)) = terminal {
        subscriber::send(way, (&view, upstream), cut, slot, packet, meta, lists);
    } else if cut {
        lists.fragment(slot, hop);
    } else if !sent {
        send_by_parts(way, slot, packet, meta, lists, exit);
    }
    true
}

/// Whether the remote endpoint may open the next connection through a session that has its own port. No other remote endpoint
/// uses the port, and no other session uses the mapping.
fn is_let_in<F: Family>(session: &F::Session, direction: Direction) -> bool {
    direction == Direction::Reverse && session.nat().resources().has(Resources::PORT)
}

/// Whether packets of a session wait for inspection or identification in this burst. A session of another shard with the same
/// index counts as well.
fn needs_session_pass<F: Family>(lists: &mut Lists, index: RecordIndex) -> bool {
    let is_of = |(_, of, _): &(BufferIndex, RecordIndex, Direction)| *of == index;
    lists.inspect.of::<F>().iter().any(is_of) || lists.identify.of::<F>().iter().any(is_of)
}
