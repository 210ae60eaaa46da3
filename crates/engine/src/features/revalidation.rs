//! Whether changes of rules and routes affect a session of an older snapshot.

use sluice_nat::rule::{self, SourceAction};
use sluice_nat::sites::{is_pooled, is_site, site};
use sluice_nat::{Address, PortClass, Target, Tuple};
use sluice_route::{Lookup, RouteChanges};
use sluice_table::changes::{Accumulate, is_outdated};
use sluice_wire::Direction;

use crate::features::application_filter::is_inspected;
use crate::features::creation::needs_host_session;
use crate::features::filter;
use crate::features::source_validation;
use crate::packet::adjacency::AdjacencyIndex;
use crate::session::application::Application;
use crate::session::family::{Family, Session};
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingState;

/// Whether a session of an older snapshot is unaffected by all changes since its decision was made. Such a session gets the
/// newest generation before its own one is too old to be compared.
#[inline]
pub fn is_carried_over<F: Family>(session: &mut F::Session, snapshot: &Snapshot) -> bool {
    let is_unaffected = is_unaffected::<F>(session, snapshot);
    if is_unaffected && is_outdated(snapshot.generation.wrapping_sub(session.generation())) {
        session.set_generation(snapshot.generation);
    }
    is_unaffected
}

/// Whether none of the changes since the decision for a session was made affects the session. The result `true` is
/// exact; `false` may be wrong.
#[inline(always)]
pub fn is_unaffected<F: Family>(session: &F::Session, snapshot: &Snapshot) -> bool {
    let generations = snapshot.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, snapshot)
        && !rules_may_affect::<F>(session, snapshot, generations)
        && !routes_may_affect::<F>(session, snapshot, generations)
}

/// Whether only individual rules and routes have changed, and these still give the same result for a session as before.
/// If the result is `false`, the decision for the session must be repeated.
#[inline]
pub fn is_confirmed<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
    let generations = snapshot.generation.wrapping_sub(session.generation());
    is_of_last_commit::<F>(session, snapshot)
        && is_plain::<F>(session)
        && (!routes_may_affect::<F>(session, snapshot, generations)
            || adjacencies_match::<F>(session, snapshot, forwarding))
        && (!rules_may_affect::<F>(session, snapshot, generations)
            || matches_rules::<F>(session, snapshot, forwarding, generations))
}

/// Whether only individual rules and routes have changed since the decision for the session was made.
#[inline(always)]
pub(crate) fn is_of_last_commit<F: Family>(session: &F::Session, snapshot: &Snapshot) -> bool {
    session.generation().wrapping_sub(snapshot.committed) as i32 >= 0
}

/// Whether the rules that match a session depend only on the session's endpoints. Hairpinned sessions match more than
/// one rule, and bridged sessions are matched by their frames.
#[inline(always)]
fn is_plain<F: Family>(session: &F::Session) -> bool {
    let is_hop = |direction| {
        let hop = session.adjacency(direction);
        hop.has_neighbour() || hop.as_terminal().is_some()
    };
    is_hop(Direction::Forward) && is_hop(Direction::Reverse)
}

/// Whether individual rules that may match a session have changed within the last `generations` generations. The result
/// `false` is exact; `true` may be a false positive.
#[inline(always)]
pub(crate) fn rules_may_affect<F: Family>(session: &F::Session, snapshot: &Snapshot, generations: u32) -> bool {
    let (nat, filter) = (
        snapshot.nat::<F>().changes.since(generations),
        filter::changed::<F>(snapshot, generations),
    );
    if !is_plain::<F>(session) {
        return !nat.is_some_and(Accumulate::is_empty)
            || !filter.is_none_or(|changed| changed.is_some_and(Accumulate::is_empty));
    }
    let forward = &session.forward();
    nat.is_none_or(|changed| changed.may_affect(forward.source(), forward.destination()))
        || filter.is_some_and(|changed| filter::may_affect::<F>(changed, session))
}

/// Whether routes that may affect a session have changed within the last `generations` generations. `false` is exact;
/// `true` may be a false positive.
#[inline(always)]
fn routes_may_affect<F: Family>(session: &F::Session, snapshot: &Snapshot, generations: u32) -> bool {
    let affects = |changed: &RouteChanges| {
        let may_affect = |(hop, path): (AdjacencyIndex, [F::Address; 2])| {
            let [from, to] = path;
            let lookup = lookup::<F>(session, snapshot, from);
            hop.is_routed() && lookup.tables().any(|table| changed.may_affect(table, F::address(to)))
        };
        !changed.is_empty() && adjacencies::<F>(session).into_iter().any(may_affect)
    };
    snapshot.route_changes.since(generations).is_none_or(affects)
}

/// For each direction of a session: its adjacency, and the source and destination address with which its route is
/// looked up. These are the untranslated addresses of the two endpoints.
#[inline(always)]
pub(crate) fn adjacencies<F: Family>(session: &F::Session) -> [(AdjacencyIndex, [F::Address; 2]); 2] {
    let (client, server) = (session.forward().source(), session.reverse().source());
    [
        (session.adjacency(Direction::Forward), [client, server]),
        (session.adjacency(Direction::Reverse), [server, client]),
    ]
}

/// The context in which routes are looked up for those packets of a session that come from an address.
#[inline(always)]
pub(crate) fn lookup<'p, F: Family>(session: &F::Session, snapshot: &'p Snapshot, from: F::Address) -> Lookup<'p> {
    snapshot.lookup::<F>(snapshot.router_of(session.interface()), from)
}

/// Whether both adjacencies and the sources of a session are still valid. Each adjacency must match the routes or lead
/// to a terminal, and source validation must accept the session's packets.
fn adjacencies_match<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
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
fn matches_rules<F: Family>(
    session: &F::Session,
    snapshot: &Snapshot,
    forwarding: &ForwardingState,
    generations: u32,
) -> bool {
    let there = session.adjacency(Direction::Forward);
    let context = session.forward().context();
    if let Some(filters) = snapshot.filter_of(context)
        && filter::changed::<F>(snapshot, generations).is_some_and(|changed| filter::may_affect::<F>(changed, session))
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
    let (rules, forward, protocol) = (&snapshot.nat::<F>().rules, &session.forward(), session.protocol());
    let (nat, reverse) = (session.nat(), &session.reverse());
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
            let needs_host_session = || {
                snapshot.passes_untranslated
                    && needs_host_session::<F>(snapshot, session.interface(), forward, protocol)
            };
            (nat.translates() || snapshot.filters_sessions(context) || inspected || pending || needs_host_session())
                && !nat.translates_source()
        }
    }
}

/// Whether a session that a terminal of a site has created is still translated to the outside address of this site.
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
pub(crate) fn leads_to<F: Family>(session: &F::Session, target: &Target<F::Address>) -> bool {
    let reverse = &session.reverse();
    let query = PortClass::of(session.protocol(), <F::Address as Address>::BITS) == Some(PortClass::Query);
    session.nat().translates_destination()
        && reverse.source() == target.address
        && (query || reverse.source_port() == target.port)
}
