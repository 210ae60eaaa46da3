//! revise: sessions of an older policy are decided again, and keep their translation where it is still allowed.
//!
//! Exits: established again (kept, or to be opened anew), unresolved (neighbour unknown), complain (no route), drop.

use sluice_filter::{Known, Marking, TrafficClass};
use sluice_inspect::applications::Pair;
use sluice_nat::rule::{self, SourceAction};
use sluice_nat::sites::{is_pooled, is_site, site};
use sluice_nat::{Address, PortClass, Target, Tuple};
use sluice_route::{Changed, Lookup};
use sluice_table::changes::Sum;
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::flag::SYN;

use crate::applications::Application;
use crate::arrivals;
use crate::batch::{Batch, Hop, Lists, Meta, Origin, put};
use crate::context::Ctx;
use crate::family::{Family, Session};
use crate::filter;
use crate::inspection::Inspect;
use crate::leases::{Lessor, lessor, move_to};
use crate::marks::{class_of, of_class};
use crate::nodes::decide::{Plan, Translation, keeps_address, plan, refused};
use crate::nodes::host;
use crate::paths::{Destination, Paths};
use crate::policy::Policy;
use crate::reason::{Own, Reason};
use crate::records::Ending;
use crate::shard::{Shard, Tools, end, uninspect};

/// Decide again.
#[inline(never)]
pub fn revise<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    for slot in std::mem::take(F::revises(lists)) {
        let meta = *batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.policy.context(&meta, frame);
        let key = F::key(&meta.layers, frame, context);
        let hash = F::hash_one(ctx.hasher, &key);
        let found = ctx.shard_of(&meta).and_then(|shard| {
            let (index, direction) = F::table_ref(shard).find(hash, &key)?;
            Some((index, direction, *F::table_ref(shard).get(index)?))
        });
        let Some((index, direction, session)) = found else {
            // Ended by another packet of this burst.
            put(F::lookups(lists), slot);
            continue;
        };
        let is_old = session.generation() != ctx.policy.generation;
        if !is_old && session.hop(direction) != Hop::UNROUTED {
            put(F::lookups(lists), slot);
            continue;
        }
        ctx.counters.sessions_revised.add(is_old.into());
        let tools = ctx.tools();
        let known = filter::known::<F>(&session, ctx.recognition);
        let mark = mark_of::<F>(ctx.policy, meta.shard, index);
        let kept = keeps::<F>(ctx, &meta, (&session, mark), known);
        let mut stays = None;
        let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
        let Some(shard) = shard else { continue };
        match kept {
            Some(Stay { hops, stopped }) => {
                stays = stopped[direction as usize];
                let generation = ctx.policy.generation;
                let Some(session) = F::table(shard).get_mut(index) else {
                    continue;
                };
                for (direction, hop) in [Direction::Forward, Direction::Reverse].into_iter().zip(hops) {
                    let old = session.hop(direction);
                    if old != hop {
                        tools.paths.hold(hop);
                        tools.paths.let_go(old);
                        session.set_hop(direction, hop);
                    }
                }
                // Answers that come by another way are validated by the new routes.
                session.set_arrival(Direction::Reverse, session.hop(Direction::Forward).interface() as u16);
                if let Lessor::Pool(pool) = lessor::<F>(session, ctx.policy, meta.shard) {
                    move_to::<F>(session, pool, &tools);
                }
                session.set_generation(generation);
                follow_application::<F>(shard, index, ctx.policy, Asked::Again, &tools);
            }
            None => {
                if lessor::<F>(&session, ctx.policy, meta.shard) == Lessor::Nobody {
                    ctx.counters.sessions_withdrawn.add(1);
                }
                end::<F>(shard, index, &tools);
            }
        }
        match stays {
            None => put(F::lookups(lists), slot),
            Some(Plan::Wait(wanted)) => lists.wait(slot, Some(wanted)),
            Some(Plan::Complain(complaint, reason)) => lists.complain(slot, complaint, reason),
            Some(Plan::Drop(reason)) => lists.discard(slot, reason),
            Some(_) => lists.discard(slot, Own::Forgotten),
        }
    }
}

/// How often rules have been asked about what is known of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// They are asked for the first time, and count.
    First,
    /// They were asked before.
    Again,
}

/// What rules of the filter say about a session's application holds: it is dropped from now on, or no longer.
pub fn follow_application<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    policy: &Policy,
    asked: Asked,
    tools: &Tools<'_>,
) {
    let Some(session) = F::table_ref(shard).get(index).copied() else {
        return;
    };
    let is_denied = matches!(session.inspect(), Inspect::Denied(_));
    let known = filter::known::<F>(&session, tools.recognition);
    let counting = (asked == Asked::First).then_some(tools.now.nanoseconds);
    let mark = mark_of::<F>(policy, shard.number, index);
    let mut marking = None;
    let refuses = filter::refuses::<F>(policy, tools.paths, (&session, mark), known, counting, |set| {
        marking = Some(set)
    });
    if let Some(marking) = marking {
        mark_again::<F>(shard, index, policy, marking);
    }
    let now = match refuses {
        Some(with) => Inspect::Denied(with),
        None if !is_denied => return,
        // What it said meanwhile nobody has heard: inspection goes on in its midst.
        None if is_inspected(policy, &session, session.hop(Direction::Forward)) => Inspect::Wanted,
        None if class_of_session::<F>(policy, shard.number, index).is_some() => Inspect::Remarked,
        None => Inspect::Nothing,
    };
    if !is_denied {
        uninspect::<F>(shard, &session, Ending::Forced, tools);
    }
    if let Some(session) = F::table(shard).get_mut(index) {
        if let Some(Known {
            master, application, ..
        }) = known
        {
            session.set_application(Application::Known(Pair { master, application }));
        }
        session.set_inspect(now);
    }
}

fn is_inspected<F: Family>(policy: &Policy, session: &impl Session<F>, there: Hop) -> bool {
    let inspection = policy.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(session.interface()) || on.is_on(there.interface() as u16))
}

/// Whether nothing but single rules and routes has changed since a session was decided.
#[inline(always)]
fn is_of_last_commit<F: Family>(session: &F::Session, policy: &Policy) -> bool {
    session.generation().wrapping_sub(policy.committed) as i32 >= 0
}

/// Whether a session is what its own ends say of it. What comes back is asked about more than once, and what crosses a bridge is
/// asked about by its frame.
#[inline(always)]
fn is_plain<F: Family>(session: &F::Session) -> bool {
    let hops = [Direction::Forward, Direction::Reverse].map(|direction| session.hop(direction));
    hops.iter()
        .all(|hop| hop.has_neighbour() || hop.as_terminal().is_some())
}

/// Whether single rules have changed for a session in so many generations. A no is certain.
#[inline(always)]
fn rules_may_concern<F: Family>(session: &F::Session, policy: &Policy, generations: u32) -> bool {
    let (nat, filter) = (
        F::nat(policy).changes.since(generations),
        filter::changed::<F>(policy, generations),
    );
    if !is_plain::<F>(session) {
        return !nat.is_some_and(Sum::is_empty) || !filter.is_none_or(|changed| changed.is_some_and(Sum::is_empty));
    }
    let forward = session.forward();
    nat.is_none_or(|changed| changed.may_concern(forward.source(), forward.destination()))
        || filter.is_some_and(|changed| filter::may_concern::<F>(changed, session))
}

/// Whether routes have changed for a session in so many generations. A no is certain.
#[inline(always)]
fn routes_may_concern<F: Family>(session: &F::Session, policy: &Policy, generations: u32) -> bool {
    let concern = |changed: &Changed| {
        let may_concern = |(hop, way): (Hop, [F::Address; 2])| {
            let [from, to] = way;
            let lookup = lookup::<F>(session, policy, from);
            hop.is_routed() && lookup.tables().any(|table| changed.may_concern(table, F::address(to)))
        };
        !changed.is_empty() && ways::<F>(session).into_iter().any(may_concern)
    };
    policy.route_changes.since(generations).is_none_or(concern)
}

/// The hops of a session, and the addresses that it has them for: from where and to where, each as its host has it.
#[inline(always)]
fn ways<F: Family>(session: &F::Session) -> [(Hop, [F::Address; 2]); 2] {
    let (client, server) = (session.forward().source(), session.reverse().source());
    [
        (session.hop(Direction::Forward), [client, server]),
        (session.hop(Direction::Reverse), [server, client]),
    ]
}

/// What the routes of a session's packets from an address are looked up by.
#[inline(always)]
fn lookup<'p, F: Family>(session: &F::Session, policy: &'p Policy, from: F::Address) -> Lookup<'p> {
    policy.lookup::<F>(policy.router_of(session.interface()), from)
}

/// Whether what has changed since a session was decided does not concern it. A no means nothing.
#[inline(always)]
pub fn is_unconcerned<F: Family>(session: &F::Session, policy: &Policy) -> bool {
    let generations = policy.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, policy)
        && !rules_may_concern::<F>(session, policy, generations)
        && !routes_may_concern::<F>(session, policy, generations)
}

/// Whether rules and routes still say of a session what they said, where nothing else has changed since. A no means that it has
/// to be decided again.
#[inline]
pub fn is_confirmed<F: Family>(session: &F::Session, policy: &Policy, paths: &Paths) -> bool {
    let generations = policy.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, policy)
        && is_plain::<F>(session)
        && (!routes_may_concern::<F>(session, policy, generations) || is_on_its_way::<F>(session, policy, paths))
        && (!rules_may_concern::<F>(session, policy, generations)
            || is_as_ruled::<F>(session, policy, paths, generations))
}

/// Whether both hops of a session are still those of routes, or of terminals, and its packets may come in as they do.
fn is_on_its_way<F: Family>(session: &F::Session, policy: &Policy, paths: &Paths) -> bool {
    let are_offered = ways::<F>(session).into_iter().all(|(hop, [from, to])| {
        !hop.is_routed()
            || paths.offers::<F>(lookup::<F>(session, policy, from), to, hop)
            || hop == session.hop(Direction::Reverse) && is_by_uplink::<F>(session, policy, paths)
    });
    are_offered && arrivals::are_valid::<F>(session, policy, paths)
}

/// Whether the answers of a session go back by the uplink that it came in by, which no route to its client need lead by.
fn is_by_uplink<F: Family>(session: &F::Session, policy: &Policy, paths: &Paths) -> bool {
    let wanted = paths.wanted(session.hop(Direction::Reverse));
    session.nat().translates_destination()
        && wanted.is_some_and(|wanted| {
            wanted.interface == session.interface() && policy.uplink(wanted.interface, F::SIX) == Some(wanted.address)
        })
}

/// Whether rules still say of a session what they said.
fn is_as_ruled<F: Family>(session: &F::Session, policy: &Policy, paths: &Paths, generations: u32) -> bool {
    let there = session.hop(Direction::Forward);
    let context = session.forward().context();
    if let Some(filters) = policy.filter_of(context)
        && filter::changed::<F>(policy, generations).is_some_and(|changed| filter::may_concern::<F>(changed, session))
        && (session.application() != Application::Nothing
            || policy.marks.is_some()
            || !filter::is_tracked::<F>(policy, paths, filters, session))
    {
        return false;
    }
    if is_site(context) {
        // No rule is asked about what comes from a site.
        return is_translated_as_site::<F>(session, policy);
    }
    let (rules, forward, protocol) = (&F::nat(policy).rules, session.forward(), session.protocol());
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
            let inspected = is_inspected(policy, session, there);
            let sought = policy.seeks([session.interface(), there.interface() as u16]);
            let keeps_address =
                || policy.passes_untranslated && keeps_address::<F>(policy, session.interface(), forward, protocol);
            (nat.translates() || policy.filters_sessions(context) || inspected || sought || keeps_address())
                && !nat.translates_source()
        }
    }
}

/// A session whose application is known now gets what rules have set.
fn mark_again<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, policy: &Policy, marking: Marking) {
    if let Some(marks) = policy.marks.as_deref() {
        marks.set::<F>(shard.number, index, marking.mark);
    }
    if let (Some(code_points), false) = (policy.code_points.as_deref(), marking.class.is_any()) {
        let before = class_of(code_points.get::<F>(shard.number, index)).unwrap_or_default();
        code_points.set::<F>(shard.number, index, of_class(marking.class.over(before)));
        if let Some(session) = F::table(shard).get_mut(index) {
            session.remark();
        }
    }
}

/// The traffic class that rules have given to a session.
fn class_of_session<F: Family>(policy: &Policy, shard: u16, index: RecordIndex) -> Option<TrafficClass> {
    let code_points = policy.code_points.as_deref()?;
    class_of(code_points.get::<F>(shard, index))
}

/// The mark of a session.
fn mark_of<F: Family>(policy: &Policy, shard: u16, index: RecordIndex) -> u32 {
    policy.marks.as_deref().map_or(0, |marks| marks.get::<F>(shard, index))
}

/// Whether a session that a site's terminal opened has still the outside address that its site has.
fn is_translated_as_site<F: Family>(session: &F::Session, policy: &Policy) -> bool {
    let (context, nat) = (session.forward().context(), session.nat());
    let Some(sites) = policy.sites.as_deref() else {
        return false;
    };
    if is_pooled(context) {
        return nat.pool().is_some() && nat.pool() == sites.table.pool(site(context));
    }
    let [_, outside] = F::wide(session.reverse().destination());
    nat.pool().is_none() && sites.table.public(site(context)) == Some(outside as u32)
}

/// Whether a session's destination is translated to a target.
fn leads_to<F: Family>(session: &F::Session, target: &Target<F::Address>) -> bool {
    let reverse = session.reverse();
    let query = PortClass::of(session.protocol(), <F::Address as Address>::BITS) == Some(PortClass::Query);
    session.nat().translates_destination()
        && reverse.source() == target.address
        && (query || reverse.source_port() == target.port)
}

/// How a session goes on.
struct Stay<F: Family> {
    hops: [Hop; 2],
    /// What becomes of packets in a direction that routes lead nowhere for the moment.
    stopped: [Option<Plan<F>>; 2],
}

/// How a session goes on by the newest policy; none where its translation is no longer what rules and pools say.
fn keeps<F: Family>(
    ctx: &Ctx<'_, '_>,
    meta: &Meta,
    (session, mark): (&F::Session, u32),
    known: Option<Known>,
) -> Option<Stay<F>> {
    let key = session.key(Direction::Forward);
    let lessor = lessor::<F>(session, ctx.policy, meta.shard);
    if lessor == Lessor::Nobody {
        return None;
    }
    // As its first packet came.
    let own = session.hop(Direction::Reverse) == Hop::LOCAL;
    let first = Meta {
        interface: match own {
            true => session.hop(Direction::Forward).interface() as u16,
            false => session.interface(),
        },
        shard: meta.shard,
        origin: if session.hop(Direction::Reverse) == Hop::HAIRPIN {
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
    let Translation {
        target,
        pool,
        outside,
        mapped,
        hops,
        answers: _,
    } = match match own {
        true => host::plan::<F>(ctx, &first, &key, Some(session.reverse().source())),
        false => plan::<F>(ctx, &first, &key, (known, mark), Some(session.reverse().source())),
    } {
        Plan::Session(translation) => translation,
        // A route or a neighbour that is away for the moment does not end a session.
        plan @ (Plan::Wait(_) | Plan::Complain(_, Reason::Route(_)) | Plan::Drop(Reason::Route(_))) => {
            let way_back = way_back::<F>(ctx, session);
            let back = match way_back {
                Ok(back) => keep::<F>(ctx, session, Direction::Reverse, back),
                Err(_) => Hop::UNROUTED,
            };
            // No route says where a terminal is.
            let there = match session.hop(Direction::Forward) {
                old if !old.is_routed() => old,
                _ => Hop::UNROUTED,
            };
            return may_stay::<F>(ctx, (session, mark), known).then_some(Stay {
                hops: [there, back],
                stopped: [(there == Hop::UNROUTED).then_some(plan), way_back.err()],
            });
        }
        _ => return None,
    };
    let (nat, reverse) = (session.nat(), session.reverse());
    let same_target = match target {
        Some(target) => leads_to::<F>(session, &target),
        None => !nat.translates_destination(),
    };
    let same_source = match (lessor, outside) {
        (Lessor::Pool(lessor), _) => pool.or(mapped) == Some(lessor),
        (_, Some(outside)) => nat.translates_source() && reverse.destination() == outside,
        (_, None) => pool.or(mapped).is_none() && !nat.translates_source(),
    };
    let [there, back] = hops;
    let hops = [
        keep::<F>(ctx, session, Direction::Forward, there),
        keep::<F>(ctx, session, Direction::Reverse, back),
    ];
    (same_target && same_source).then_some(Stay {
        hops,
        stopped: [None; 2],
    })
}

/// The hop that a session takes of that which routes say now and its own: a flow stays on its way as long as that is one of its
/// route's.
fn keep<F: Family>(ctx: &Ctx<'_, '_>, session: &F::Session, direction: Direction, hop: Hop) -> Hop {
    let (old, [from, to]) = ways::<F>(session)[direction as usize];
    let lookup = lookup::<F>(session, ctx.policy, from);
    match old != hop && old.has_neighbour() && ctx.paths.offers::<F>(lookup, to, old) {
        true => old,
        false => hop,
    }
}

/// Where answers go by the routes, of a session that nothing else is known of; what becomes of them where these lead nowhere.
fn way_back<F: Family>(ctx: &Ctx<'_, '_>, session: &F::Session) -> Result<Hop, Plan<F>> {
    let (old, [from, to]) = ways::<F>(session)[Direction::Reverse as usize];
    if old == Hop::HAIRPIN || old == Hop::LOCAL || !old.is_routed() {
        return Ok(old);
    }
    let flow = || F::hash_one(ctx.hasher, &session.key(Direction::Forward));
    match ctx.paths.find::<F>(lookup::<F>(session, ctx.policy, from), to, flow) {
        Destination::Hop(hop) => Ok(hop),
        Destination::Unknown(wanted) => Err(Plan::Wait(wanted)),
        Destination::Local => Err(Plan::Drop(Own::Loop.into())),
        Destination::Refused(reason) => Err(refused(reason)),
    }
}

/// Whether the filter lets a session stay that routes lead nowhere. By which interface it leaves is not known any more once it has
/// been so for a while: only rules that have changed are asked then.
fn may_stay<F: Family>(ctx: &Ctx<'_, '_>, (session, mark): (&F::Session, u32), known: Option<Known>) -> bool {
    let policy = ctx.policy;
    let generations = policy.generation.wrapping_sub(session.generation());
    let as_before = session.hop(Direction::Forward) == Hop::UNROUTED
        && is_of_last_commit::<F>(session, policy)
        && (generations == 0 || !rules_may_concern::<F>(session, policy, generations));
    let filters = policy.filter_of(session.forward().context());
    as_before || filters.is_none_or(|filters| filter::passes::<F>(policy, ctx.paths, filters, (session, mark), known))
}
