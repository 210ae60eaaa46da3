//! revalidate: repeats the decision for sessions of an older snapshot. A session keeps its translation if the new
//! snapshot permits it.

use sluice_wire::Direction;

use crate::features::application_filter::{ApplicationCheck, apply_application, mark_of};
use crate::features::context::NodeContext;
use crate::features::creation::FlowDecision;
use crate::features::filter;
use crate::features::pool_migration::{PortOwner, port_owner, transfer_port};
use crate::features::session_end::end;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session};

use retention::{Retained, keeps};

mod retention;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "revalidate",
    help: "decides sessions of an older snapshot again",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "", needs::FLOWS),
        Exit::new("neighbour-resolution", "neighbour unknown", needs::STATEFUL),
        Exit::new("icmp-error", "no route", needs::STATEFUL),
    ],
};

/// Revalidates sessions.
#[inline(never)]
pub fn revalidate<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(lists.revalidate.of::<F>()) {
        let meta = *batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.snapshot.context(&meta, frame);
        let key = F::key(&meta.layers, frame, context);
        let hash = F::hash_one(ctx.hasher, &key);
        let found = ctx.shard_of(&meta).and_then(|shard| {
            let (index, direction) = F::table_ref(shard).find(hash, &key)?;
            Some((index, direction, *F::table_ref(shard).get(index)?))
        });
        let Some((index, direction, session)) = found else {
            // An earlier packet of this burst has ended the session.
            put(lists.session_lookup.of::<F>(), slot);
            continue;
        };
        let is_old = session.generation() != ctx.snapshot.generation;
        if !is_old && session.adjacency(direction) != AdjacencyIndex::UNRESOLVED {
            put(lists.session_lookup.of::<F>(), slot);
            continue;
        }
        ctx.counters.sessions_revalidated.add(is_old.into());
        let tools = ctx.tools();
        let known = filter::known_application::<F>(&session, ctx.recognition);
        let mark = mark_of::<F>(ctx.snapshot, meta.shard, index);
        let kept = keeps::<F>(ctx, &meta, (&session, mark), known);
        let mut stays = None;
        let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
        let Some(shard) = shard else { continue };
        match kept {
            Some(Retained { hops, stopped }) => {
                stays = stopped[direction as usize];
                let generation = ctx.snapshot.generation;
                let Some(session) = F::table(shard).get_mut(index) else {
                    continue;
                };
                for (direction, hop) in [Direction::Forward, Direction::Reverse].into_iter().zip(hops) {
                    let old = session.adjacency(direction);
                    if old != hop {
                        tools.forwarding.acquire(hop);
                        tools.forwarding.release(old);
                        session.set_adjacency(direction, hop);
                    }
                }
                // If answers arrive on a different interface, their source is validated with the new routes.
                session.set_bound_interface(
                    Direction::Reverse,
                    session.adjacency(Direction::Forward).interface() as u16,
                );
                if let PortOwner::Pool(pool) = port_owner::<F>(session, ctx.snapshot, meta.shard) {
                    transfer_port::<F>(session, pool, &tools);
                }
                session.set_generation(generation);
                apply_application::<F>(shard, index, ctx.snapshot, ApplicationCheck::Again, &tools);
            }
            None => {
                if port_owner::<F>(&session, ctx.snapshot, meta.shard) == PortOwner::Unowned {
                    ctx.counters.sessions_withdrawn.add(1);
                }
                end::<F>(shard, index, &tools);
            }
        }
        match stays {
            None => put(lists.session_lookup.of::<F>(), slot),
            Some(FlowDecision::Wait(wanted)) => lists.wait_for_neighbour(slot, Some(wanted)),
            Some(FlowDecision::SendIcmpError(icmp_error, reason)) => lists.icmp_error(slot, icmp_error, reason),
            Some(FlowDecision::Drop(reason)) => lists.drop_packet(slot, reason),
            Some(_) => lists.drop_packet(slot, EngineReason::Forgotten),
        }
    }
}
