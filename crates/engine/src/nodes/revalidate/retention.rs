//! How a session of an older snapshot is continued.

use sluice_filter::SessionApplication;
use sluice_nat::Tuple;
use sluice_table::flow::Record;
use sluice_wire::Direction;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::flag::SYN;

use crate::features::context::NodeContext;
use crate::features::creation::{FlowDecision, FlowTranslation, decide, refused};
use crate::features::filter;
use crate::features::pool_migration::{PortOwner, port_owner};
use crate::features::revalidation::{adjacencies, is_of_last_commit, leads_to, lookup, rules_may_affect};
use crate::nodes::bridge;
use crate::nodes::host;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, Origin};
use crate::packet::reason::{EngineReason, Reason};
use crate::session::family::{Family, Session};
use crate::snapshot::forwarding::ForwardingDecision;

/// How a session is continued.
pub(super) struct Retained<F: Family> {
    pub(super) hops: [AdjacencyIndex; 2],
    /// For each direction that has no route at the moment: the decision for the packets of this direction.
    pub(super) stopped: [Option<FlowDecision<F>>; 2],
}

/// How a session is continued under the newest snapshot; `None` if rules or pools no longer permit its translation.
pub(super) fn keeps<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    (session, mark): (&F::Session, u32),
    known: Option<SessionApplication>,
) -> Option<Retained<F>> {
    let key = session.key(Direction::Forward);
    let owner = port_owner::<F>(session, ctx.snapshot, meta.shard);
    if owner == PortOwner::Unowned {
        return None;
    }
    let own = session.adjacency(Direction::Reverse) == AdjacencyIndex::LOCAL;
    let first = first_packet::<F>(session, meta.shard, own);
    let FlowTranslation {
        target,
        pool,
        outside,
        mapped,
        hops,
        answers: _,
    } = match match own {
        true => host::decide::<F>(ctx, &first, &key, Some(session.reverse().source())),
        false => bridge::decide(ctx.snapshot, &first, F::tuple(&key).context())
            .unwrap_or_else(|| decide::<F>(ctx, &first, &key, (known, mark), Some(session.reverse().source()))),
    } {
        FlowDecision::Session(translation) => translation,
        // A route or neighbour that is temporarily missing does not end a session.
        plan @ (FlowDecision::Wait(_)
        | FlowDecision::SendIcmpError(_, Reason::Route(_))
        | FlowDecision::Drop(Reason::Route(_))) => {
            return may_stay::<F>(ctx, (session, mark), known).then(|| without_route(ctx, session, plan));
        }
        _ => return None,
    };
    let (nat, reverse) = (session.nat(), &session.reverse());
    let same_target = match target {
        Some(target) => leads_to::<F>(session, &target),
        None => !nat.translates_destination(),
    };
    let same_source = match (owner, outside) {
        (PortOwner::Pool(owner), _) => pool.or(mapped) == Some(owner),
        (_, Some(outside)) => nat.translates_source() && reverse.destination() == outside,
        (_, None) => pool.or(mapped).is_none() && !nat.translates_source(),
    };
    let [there, back] = hops;
    let hops = [
        keep::<F>(ctx, session, Direction::Forward, there),
        keep::<F>(ctx, session, Direction::Reverse, back),
    ];
    (same_target && same_source).then_some(Retained {
        hops,
        stopped: [None; 2],
    })
}

/// The metadata of the session's first packet.
fn first_packet<F: Family>(session: &F::Session, shard: u16, own: bool) -> Meta {
    Meta {
        interface: match own {
            true => session.adjacency(Direction::Forward).interface() as u16,
            false => session.interface(),
        },
        shard,
        origin: if session.adjacency(Direction::Reverse) == AdjacencyIndex::HAIRPIN {
            Origin::Hairpinned
        } else {
            Origin::Received
        },
        layers: Layers {
            tcp_flags: SYN,
            ..Layers::default()
        },
        ..Meta::default()
    }
}

/// How a session without a route is continued. `plan` is the decision for its forward packets.
fn without_route<F: Family>(ctx: &NodeContext<'_, '_>, session: &F::Session, plan: FlowDecision<F>) -> Retained<F> {
    let reverse_hop = reverse_adjacency::<F>(ctx, session);
    let back = match reverse_hop {
        Ok(back) => keep::<F>(ctx, session, Direction::Reverse, back),
        Err(_) => AdjacencyIndex::UNRESOLVED,
    };
    // A terminal of a site is not routed.
    let there = match session.adjacency(Direction::Forward) {
        old if !old.is_routed() => old,
        _ => AdjacencyIndex::UNRESOLVED,
    };
    Retained {
        hops: [there, back],
        stopped: [(there == AdjacencyIndex::UNRESOLVED).then_some(plan), reverse_hop.err()],
    }
}

/// The adjacency that a session uses from now on: its previous adjacency, if the route still includes it; otherwise the
/// adjacency that the route now selects.
fn keep<F: Family>(
    ctx: &NodeContext<'_, '_>,
    session: &F::Session,
    direction: Direction,
    hop: AdjacencyIndex,
) -> AdjacencyIndex {
    let (old, [from, to]) = adjacencies::<F>(session)[direction as usize];
    let lookup = lookup::<F>(session, ctx.snapshot, from);
    match old != hop && old.has_neighbour() && ctx.forwarding.is_offered::<F>(lookup, to, old) {
        true => old,
        false => hop,
    }
}

/// The adjacency of answers according to the present routes. If answers have no route, the result is the decision for them.
fn reverse_adjacency<F: Family>(
    ctx: &NodeContext<'_, '_>,
    session: &F::Session,
) -> Result<AdjacencyIndex, FlowDecision<F>> {
    let (old, [from, to]) = adjacencies::<F>(session)[Direction::Reverse as usize];
    if old == AdjacencyIndex::HAIRPIN || old == AdjacencyIndex::LOCAL || !old.is_routed() {
        return Ok(old);
    }
    let flow = || F::hash_one(ctx.hasher, &session.key(Direction::Forward));
    match ctx
        .forwarding
        .find::<F>(lookup::<F>(session, ctx.snapshot, from), to, flow)
    {
        ForwardingDecision::Hop(hop) => Ok(hop),
        ForwardingDecision::Unknown(wanted) => Err(FlowDecision::Wait(wanted)),
        ForwardingDecision::Local => Err(FlowDecision::Drop(EngineReason::Loop.into())),
        ForwardingDecision::Refused(reason) => Err(refused(reason)),
    }
}

/// Whether the filter still permits a session that has no route. The egress interface of the session is known only for
/// a limited time. When it is no longer known, only changed rules are evaluated.
fn may_stay<F: Family>(
    ctx: &NodeContext<'_, '_>,
    (session, mark): (&F::Session, u32),
    known: Option<SessionApplication>,
) -> bool {
    let snapshot = ctx.snapshot;
    let generations = snapshot.generation.wrapping_sub(session.generation());
    let is_unchanged = session.adjacency(Direction::Forward) == AdjacencyIndex::UNRESOLVED
        && is_of_last_commit::<F>(session, snapshot)
        && (generations == 0 || !rules_may_affect::<F>(session, snapshot, generations));
    let filters = snapshot.filter_of(session.forward().context());
    is_unchanged
        || filters.is_none_or(|filters| filter::passes::<F>(snapshot, ctx.forwarding, filters, (session, mark), known))
}
