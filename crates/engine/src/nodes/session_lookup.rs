//! session-lookup: translates, counts, tracks and sends packets of known sessions (the fast path).

use sluice_wire::Direction;

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::Batch;
use crate::packet::counters::CycleStage;
use crate::packet::lists::{Leave, Lists};
use crate::session::family::{Family, Session};
use crate::snapshot::Nat;

use keys::keys;
use lookups::Lookups;
use step::step;

mod keys;
mod lookups;
mod step;
mod usable;

pub use lookups::LookupScratch;

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

/// Number of packets in a group. While a group is translated, the records of the next group and the index entries of
/// the second next group are prefetched.
const GROUP: usize = 32;

/// Prefetch distance: the session record of a packet is prefetched from the L2 into the L1 cache this number of packets
/// before the packet is processed.
const L1_PREFETCH_DISTANCE: usize = 4;

/// Prefetch distance: the cache line of a site's terminal is prefetched this number of packets before the packet is
/// processed. The terminal's number is stored in the session record, which must therefore be in the cache even earlier.
const TERMINAL: usize = 12;

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
        (true, _) => lookup_sessions::<F, true, true>(batch, lists, ctx, nat, work),
        (false, true) => lookup_sessions::<F, false, true>(batch, lists, ctx, nat, work),
        (false, false) => lookup_sessions::<F, false, false>(batch, lists, ctx, nat, work),
    }
}

/// Looks up sessions and translates packets. `SITES`: subscribers' sites exist. `SPREAD`: rules translate flows to several hosts
/// or to a router's host.
#[inline(never)]
fn lookup_sessions<F: Family, const SITES: bool, const SPREAD: bool>(
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
    // Number of packets whose keys are built, number of packets whose candidates are looked up, and number of packets
    // that are translated.
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
            let ahead = place
                + if SITES {
                    TERMINAL + L1_PREFETCH_DISTANCE
                } else {
                    L1_PREFETCH_DISTANCE
                };
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

/// Prefetches the cache line of the terminal of a packet's session, if the session probably belongs to a site.
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
