//! revalidate: decides again about sessions of an older snapshot. A session keeps its translation if this is still permitted.

use sluice_filter::{SessionApplication, SessionMarking, TrafficClass};
use sluice_inspect::applications::ProtocolPair;
use sluice_nat::rule::{self, SourceAction};
use sluice_nat::sites::{is_pooled, is_site, site};
use sluice_nat::{Address, PortClass, Target, Tuple};
use sluice_route::{Lookup, RouteChanges};
use sluice_table::changes::Accumulate;
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::flag::SYN;

use crate::features::context::NodeContext;
use crate::features::creation::{FlowDecision, FlowTranslation, decide, keeps_address, refused};
use crate::features::filter;
use crate::features::inspection::InspectState;
use crate::features::pool_migration::{PortOwner, port_owner, transfer_port};
use crate::features::session_end::{SessionTools, end, uninspect};
use crate::features::source_validation;
use crate::nodes::bridge;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::host;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::{Own, Reason};
use crate::session::application::Application;
use crate::session::family::{Family, Session};
use crate::session::records::EndReason;
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::{ForwardingDecision, ForwardingState};
use crate::snapshot::marks::{class_of, of_class};

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
                // The source of answers that arrive on another interface is validated with the new routes.
                session.set_bound_interface(
                    Direction::Reverse,
                    session.adjacency(Direction::Forward).interface() as u16,
                );
                if let PortOwner::Pool(pool) = port_owner::<F>(session, ctx.snapshot, meta.shard) {
                    transfer_port::<F>(session, pool, &tools);
                }
                session.set_generation(generation);
                follow_application::<F>(shard, index, ctx.snapshot, ApplicationCheck::Again, &tools);
            }
            None => {
                if port_owner::<F>(&session, ctx.snapshot, meta.shard) == PortOwner::Nobody {
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
            Some(_) => lists.drop_packet(slot, Own::Forgotten),
        }
    }
}

/// Whether the filter was already evaluated with the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationCheck {
    /// The first evaluation. The first evaluation increments hit counters of rules.
    First,
    /// A repeated evaluation. A repeated evaluation does not increment hit counters of rules.
    Again,
}

/// Applies the filter's result for the application of a session: from now on its packets are dropped, or no longer dropped.
pub fn follow_application<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    snapshot: &Snapshot,
    queried: ApplicationCheck,
    tools: &SessionTools<'_>,
) {
    let Some(session) = F::table_ref(shard).get(index).copied() else {
        return;
    };
    let is_denied = matches!(session.inspect(), InspectState::Denied(_));
    let known = filter::known_application::<F>(&session, tools.recognition);
    let counting = (queried == ApplicationCheck::First).then_some(tools.now.nanoseconds);
    let mark = mark_of::<F>(snapshot, shard.number, index);
    let mut marking = None;
    let refuses =
        filter::rejects_application::<F>(snapshot, tools.forwarding, (&session, mark), known, counting, |set| {
            marking = Some(set)
        });
    if let Some(marking) = marking {
        mark_again::<F>(shard, index, snapshot, marking);
    }
    let now = match refuses {
        Some(with) => InspectState::Denied(with),
        None if !is_denied => return,
        // Inspection has missed the packets that were dropped in the meantime. Inspection continues midstream.
        None if is_inspected(snapshot, &session, session.adjacency(Direction::Forward)) => InspectState::Enabled,
        None if class_of_session::<F>(snapshot, shard.number, index).is_some() => InspectState::Remarked,
        None => InspectState::Nothing,
    };
    if !is_denied {
        uninspect::<F>(shard, &session, EndReason::Forced, tools);
    }
    if let Some(session) = F::table(shard).get_mut(index) {
        if let Some(SessionApplication {
            master, application, ..
        }) = known
        {
            session.set_application(Application::Known(ProtocolPair { master, application }));
        }
        session.set_inspect(now);
    }
}

fn is_inspected<F: Family>(snapshot: &Snapshot, session: &impl Session<F>, there: AdjacencyIndex) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(session.interface()) || on.is_on(there.interface() as u16))
}

/// Whether only individual rules and routes have changed since the session was decided.
#[inline(always)]
fn is_of_last_commit<F: Family>(session: &F::Session, snapshot: &Snapshot) -> bool {
    session.generation().wrapping_sub(snapshot.committed) as i32 >= 0
}

/// Whether the endpoints of the session determine the rules that match it. Hairpinned sessions match more than one rule, and
/// bridged sessions are matched by their frames.
#[inline(always)]
fn is_plain<F: Family>(session: &F::Session) -> bool {
    let hops = [Direction::Forward, Direction::Reverse].map(|direction| session.adjacency(direction));
    hops.iter()
        .all(|hop| hop.has_neighbour() || hop.as_terminal().is_some())
}

/// Whether rules that may match a session have changed individually within this number of generations. The result `false` is
/// exact; `true` may be a false positive.
#[inline(always)]
fn rules_may_concern<F: Family>(session: &F::Session, snapshot: &Snapshot, generations: u32) -> bool {
    let (nat, filter) = (
        snapshot.nat::<F>().changes.since(generations),
        filter::changed::<F>(snapshot, generations),
    );
    if !is_plain::<F>(session) {
        return !nat.is_some_and(Accumulate::is_empty)
            || !filter.is_none_or(|changed| changed.is_some_and(Accumulate::is_empty));
    }
    let forward = session.forward();
    nat.is_none_or(|changed| changed.may_concern(forward.source(), forward.destination()))
        || filter.is_some_and(|changed| filter::may_concern::<F>(changed, session))
}

/// Whether routes that may affect a session have changed within this number of generations. `false` is exact; `true` may be a false positive.
#[inline(always)]
fn routes_may_concern<F: Family>(session: &F::Session, snapshot: &Snapshot, generations: u32) -> bool {
    let concern = |changed: &RouteChanges| {
        let may_concern = |(hop, way): (AdjacencyIndex, [F::Address; 2])| {
            let [from, to] = way;
            let lookup = lookup::<F>(session, snapshot, from);
            hop.is_routed() && lookup.tables().any(|table| changed.may_affect(table, F::address(to)))
        };
        !changed.is_empty() && adjacencies::<F>(session).into_iter().any(may_concern)
    };
    snapshot.route_changes.since(generations).is_none_or(concern)
}

/// For each direction of a session: its adjacency, and the source and destination address of its route lookup, as the hosts see them.
#[inline(always)]
fn adjacencies<F: Family>(session: &F::Session) -> [(AdjacencyIndex, [F::Address; 2]); 2] {
    let (client, server) = (session.forward().source(), session.reverse().source());
    [
        (session.adjacency(Direction::Forward), [client, server]),
        (session.adjacency(Direction::Reverse), [server, client]),
    ]
}

/// The context for route lookups of a session's packets from an address.
#[inline(always)]
fn lookup<'p, F: Family>(session: &F::Session, snapshot: &'p Snapshot, from: F::Address) -> Lookup<'p> {
    snapshot.lookup::<F>(snapshot.router_of(session.interface()), from)
}

/// Whether no change since the session was decided affects it. The result `true` is exact; `false` may be a false negative.
#[inline(always)]
pub fn is_unconcerned<F: Family>(session: &F::Session, snapshot: &Snapshot) -> bool {
    let generations = snapshot.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, snapshot)
        && !rules_may_concern::<F>(session, snapshot, generations)
        && !routes_may_concern::<F>(session, snapshot, generations)
}

/// Whether the changed rules and routes give the same result for a session as before, and nothing else has changed. A session
/// for which this is false must be decided again.
#[inline]
pub fn is_confirmed<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
    let generations = snapshot.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, snapshot)
        && is_plain::<F>(session)
        && (!routes_may_concern::<F>(session, snapshot, generations)
            || is_on_its_way::<F>(session, snapshot, forwarding))
        && (!rules_may_concern::<F>(session, snapshot, generations)
            || is_as_ruled::<F>(session, snapshot, forwarding, generations))
}

/// Whether both adjacencies of a session match the routes or are terminals, and source validation still accepts its packets.
fn is_on_its_way<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
    let are_offered = adjacencies::<F>(session).into_iter().all(|(hop, [from, to])| {
        !hop.is_routed()
            || forwarding.is_offered::<F>(lookup::<F>(session, snapshot, from), to, hop)
            || hop == session.adjacency(Direction::Reverse) && is_by_uplink::<F>(session, snapshot, forwarding)
    });
    are_offered && source_validation::are_valid::<F>(session, snapshot, forwarding)
}

/// Whether the answers of a session leave through the uplink on which it was created. A route to the client through that uplink is not required.
fn is_by_uplink<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
    let wanted = forwarding.unresolved(session.adjacency(Direction::Reverse));
    session.nat().translates_destination()
        && wanted.is_some_and(|wanted| {
            wanted.interface == session.interface()
                && snapshot.uplink(wanted.interface, F::IS_V6) == Some(wanted.address)
        })
}

/// Whether the rules give the same result for a session as before.
fn is_as_ruled<F: Family>(
    session: &F::Session,
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    generations: u32,
) -> bool {
    let there = session.adjacency(Direction::Forward);
    let context = session.forward().context();
    if let Some(filters) = snapshot.filter_of(context)
        && filter::changed::<F>(snapshot, generations).is_some_and(|changed| filter::may_concern::<F>(changed, session))
        && (session.application() != Application::Nothing
            || snapshot.marks.is_some()
            || !filter::is_tracked::<F>(snapshot, forwarding, filters, session))
    {
        return false;
    }
    if is_site(context) {
        // No rule matches traffic that a site originates.
        return is_translated_as_site::<F>(session, snapshot);
    }
    let (rules, forward, protocol) = (&snapshot.nat::<F>().rules, session.forward(), session.protocol());
    let (nat, reverse) = (session.nat(), session.reverse());
    let mapped = nat.pool().is_some() && !nat.translates_source();
    let redirection = rules
        .match_destination(forward, protocol, session.interface())
        .map(|decided| decided.action);
    let same_target = match redirection {
        Some(rule::Destination::To(target)) => !mapped && leads_to::<F>(session, &target),
        Some(rule::Destination::Among(set, port)) => {
            let address = reverse.source();
            let is_one = rules.set(set).is_some_and(|set| set.host(address).is_some());
            !mapped && is_one && leads_to::<F>(session, &Target { address, port })
        }
        Some(rule::Destination::Exempt) => false,
        None => nat.translates_destination() == mapped,
    };
    if !same_target || mapped {
        return same_target;
    }
    let sourcing = rules.match_source(forward, protocol, there.interface() as u16);
    match sourcing.map(|decided| decided.action) {
        Some(SourceAction::Pool(pool)) => nat.translates_source() && nat.pool() == Some(pool),
        Some(SourceAction::Static(outside)) => {
            nat.translates_source() && nat.pool().is_none() && reverse.destination() == outside
        }
        Some(SourceAction::Exempt) | None => {
            let inspected = is_inspected(snapshot, session, there);
            let pending = snapshot.identifies([session.interface(), there.interface() as u16]);
            let keeps_address =
                || snapshot.passes_untranslated && keeps_address::<F>(snapshot, session.interface(), forward, protocol);
            (nat.translates() || snapshot.filters_sessions(context) || inspected || pending || keeps_address())
                && !nat.translates_source()
        }
    }
}

/// Sets the mark and the class that rules determine for a session whose application is now known.
fn mark_again<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, snapshot: &Snapshot, marking: SessionMarking) {
    if let Some(marks) = snapshot.marks.as_deref() {
        marks.set::<F>(shard.number, index, marking.mark);
    }
    if let (Some(code_points), false) = (snapshot.code_points.as_deref(), marking.class.is_any()) {
        let before = class_of(code_points.get::<F>(shard.number, index)).unwrap_or_default();
        code_points.set::<F>(shard.number, index, of_class(marking.class.over(before)));
        if let Some(session) = F::table(shard).get_mut(index) {
            session.remark();
        }
    }
}

/// The traffic class that rules have set for a session.
fn class_of_session<F: Family>(snapshot: &Snapshot, shard: u16, index: RecordIndex) -> Option<TrafficClass> {
    let code_points = snapshot.code_points.as_deref()?;
    class_of(code_points.get::<F>(shard, index))
}

/// The mark of a session.
fn mark_of<F: Family>(snapshot: &Snapshot, shard: u16, index: RecordIndex) -> u32 {
    snapshot
        .marks
        .as_deref()
        .map_or(0, |marks| marks.get::<F>(shard, index))
}

/// Whether a session that a site's terminal created still has the outside address of its site.
fn is_translated_as_site<F: Family>(session: &F::Session, snapshot: &Snapshot) -> bool {
    let (context, nat) = (session.forward().context(), session.nat());
    let Some(sites) = snapshot.sites.as_deref() else {
        return false;
    };
    if is_pooled(context) {
        return nat.pool().is_some() && nat.pool() == sites.table.pool(site(context));
    }
    let [_, outside] = F::words(session.reverse().destination());
    nat.pool().is_none() && sites.table.public(site(context)) == Some(outside as u32)
}

/// Whether the destination of a session is translated to a target.
fn leads_to<F: Family>(session: &F::Session, target: &Target<F::Address>) -> bool {
    let reverse = session.reverse();
    let query = PortClass::of(session.protocol(), <F::Address as Address>::BITS) == Some(PortClass::Query);
    session.nat().translates_destination()
        && reverse.source() == target.address
        && (query || reverse.source_port() == target.port)
}

/// How a session is continued.
struct Retained<F: Family> {
    hops: [AdjacencyIndex; 2],
    /// Decision for the packets of each direction that has no route at the moment.
    stopped: [Option<FlowDecision<F>>; 2],
}

/// How a session is continued under the newest snapshot; `None` if rules or pools no longer permit its translation.
fn keeps<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    (session, mark): (&F::Session, u32),
    known: Option<SessionApplication>,
) -> Option<Retained<F>> {
    let key = session.key(Direction::Forward);
    let owner = port_owner::<F>(session, ctx.snapshot, meta.shard);
    if owner == PortOwner::Nobody {
        return None;
    }
    // The metadata of the session's first packet.
    let own = session.adjacency(Direction::Reverse) == AdjacencyIndex::LOCAL;
    let first = Meta {
        interface: match own {
            true => session.adjacency(Direction::Forward).interface() as u16,
            false => session.interface(),
        },
        shard: meta.shard,
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
    };
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
            let way_back = reverse_adjacency::<F>(ctx, session);
            let back = match way_back {
                Ok(back) => keep::<F>(ctx, session, Direction::Reverse, back),
                Err(_) => AdjacencyIndex::UNRESOLVED,
            };
            // A terminal of a site is not routed.
            let there = match session.adjacency(Direction::Forward) {
                old if !old.is_routed() => old,
                _ => AdjacencyIndex::UNRESOLVED,
            };
            return may_stay::<F>(ctx, (session, mark), known).then_some(Retained {
                hops: [there, back],
                stopped: [(there == AdjacencyIndex::UNRESOLVED).then_some(plan), way_back.err()],
            });
        }
        _ => return None,
    };
    let (nat, reverse) = (session.nat(), session.reverse());
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

/// The adjacency of a session: the present one, if the route still includes it; otherwise the one that the route now selects.
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

/// The adjacency of answers according to the present routes, or the decision for answers if they have no route.
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
        ForwardingDecision::Local => Err(FlowDecision::Drop(Own::Loop.into())),
        ForwardingDecision::Refused(reason) => Err(refused(reason)),
    }
}

/// Whether the filter still permits a session that has no route. The outgoing interface of the session is known only for a
/// limited time; after that, only changed rules are evaluated.
fn may_stay<F: Family>(
    ctx: &NodeContext<'_, '_>,
    (session, mark): (&F::Session, u32),
    known: Option<SessionApplication>,
) -> bool {
    let snapshot = ctx.snapshot;
    let generations = snapshot.generation.wrapping_sub(session.generation());
    let as_before = session.adjacency(Direction::Forward) == AdjacencyIndex::UNRESOLVED
        && is_of_last_commit::<F>(session, snapshot)
        && (generations == 0 || !rules_may_concern::<F>(session, snapshot, generations));
    let filters = snapshot.filter_of(session.forward().context());
    as_before
        || filters.is_none_or(|filters| filter::passes::<F>(snapshot, ctx.forwarding, filters, (session, mark), known))
}
