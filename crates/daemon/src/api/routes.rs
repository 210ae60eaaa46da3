//! Lists the best routes to each network. On request, also lists unused routes, with the reason why a route is not
//! used.

use std::net::IpAddr;
use std::sync::Arc;

use sluice_config::api::{Page, Position, Route, RouteFilter, operation};
use sluice_engine::snapshot::Snapshot;
use sluice_route::feed::protocol_name;
use sluice_route::rib::{ListedRoute, OfferedNextHop, Origin, Rib, UnresolvedReason, WeightedNextHop};
use sluice_route::{Balance, DropKind as RouteRefusal, InterfaceIndex, Prefix, RouterIndex, SECOND, Time};

use super::routers::numbered;
use super::sessions::router;
use super::{Refusal, Serve, ServePages};
use crate::control::Control;

/// Default and maximum number of routes examined per page.
const PAGE: (u32, u32) = (1_024, 8_192);

impl ServePages for operation::Routes {
    async fn serve(control: Arc<Control>, wanted: RouteFilter, position: Position) -> Result<Self::Answer, Refusal> {
        let now = control.started_at.elapsed().as_nanos() as Time;
        let plane = control.plane();
        let policy = plane.snapshot();
        let only = router(policy, wanted.router.as_deref())?;
        let (first, start) = position.cursor.as_deref().map_or(Ok((0, 0)), cursor)?;
        let limit = position.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
        let lister = |table: &Table| {
            Some(Lister {
                policy,
                rib: plane.ribs().get(table.number)?,
                router: policy.routers.get(usize::from(table.router))?.name.clone(),
                from: table.from,
                now,
                all: wanted.all,
                is_lookup: wanted.address.is_some(),
            })
        };
        let is_meant = |table: &Table| only.is_none_or(|only| only == table.router);
        let (mut items, mut seen) = (Vec::new(), 0);
        if let Some(address) = wanted.address {
            for own in tables(policy).filter(|table| table.from.is_none() && is_meant(table)) {
                // Tables are ordered by the length of the source prefix, longest first. The router's main table comes
                // last.
                let mut tables_of_source: Vec<_> = tables(policy).filter(|table| table.router == own.router).collect();
                tables_of_source.retain(|table| table.is_for(wanted.from));
                tables_of_source.sort_by_key(|table| table.from.map_or(u8::MAX, |network| 128 - network.length()));
                let found = tables_of_source.iter().filter_map(|table| {
                    let lister = lister(table)?;
                    let found = lister.rib.lookup(address.into());
                    let mut lines = Vec::new();
                    found.iter().for_each(|shown| lister.list(shown, &mut lines));
                    (!found.is_empty()).then_some(lines)
                });
                items.extend(found.take(1).flatten());
            }
            return Ok(Page::whole(items));
        }
        let is_listed = |table: &Table| wanted.from.is_none() || table.from.is_some() && table.is_for(wanted.from);
        for table in tables(policy).filter(|table| table.number >= first && is_meant(table) && is_listed(table)) {
            let number = table.number;
            let Some(lister) = lister(&table) else { continue };
            let rib = lister.rib;
            let mut last = if number == first { start } else { 0 };
            for (place, shown) in rib.page(last) {
                // All routes to one network are on the same page.
                if seen >= limit && place != last {
                    let next = Some(format!("{number}-{last}"));
                    return Ok(Page { items, next });
                }
                (last, seen) = (place, seen + 1);
                lister.list(&shown, &mut items);
            }
        }
        Ok(Page::whole(items))
    }
}

impl Serve for operation::Uplinks {
    async fn serve(control: Arc<Control>, _: Self::Request) -> Result<Self::Answer, Refusal> {
        let uplinks = control.uplinks();
        let items = uplinks.list(&control.plane(), control.started_at.elapsed());
        Ok(Page::whole(items))
    }
}

/// Router and position at which a page begins.
fn cursor(text: &str) -> Result<(RouterIndex, u64), Refusal> {
    let parts = text.split_once('-');
    let read = parts.and_then(|(router, place)| Some((router.parse().ok()?, place.parse().ok()?)));
    read.ok_or_else(|| Refusal::Wrong(format!("`{text}` is not a valid cursor of a list")))
}

/// A routing table: the main table of a router, or its table for a source network.
struct Table {
    number: RouterIndex,
    router: RouterIndex,
    from: Option<Prefix>,
}

impl Table {
    /// Whether lookups for this source address use the table. Without an address, only the router's main table matches.
    fn is_for(&self, source: Option<IpAddr>) -> bool {
        let contains = |network: Prefix| source.is_some_and(|source| network.contains(source.into()));
        self.from.is_none_or(contains)
    }
}

/// All tables, ordered by number.
fn tables(policy: &Snapshot) -> impl Iterator<Item = Table> + '_ {
    let own = numbered(policy).map(|(number, _)| (number, None, number));
    let by_source = policy.sources.iter();
    let by_source = by_source.map(|(router, network, number)| (router, Some(network), number));
    let all = own.chain(by_source);
    all.map(|(router, from, number)| Table { number, router, from })
}

/// Lists the routes of a table.
struct Lister<'p> {
    policy: &'p Snapshot,
    rib: &'p Rib,
    router: String,
    from: Option<Prefix>,
    now: Time,
    all: bool,
    /// Whether the request looks up a single address. A lookup of a single address shows routes of every kind.
    is_lookup: bool,
}

impl Lister<'_> {
    /// Add one line for each next hop of a route.
    fn list(&self, shown: &ListedRoute<'_>, items: &mut Vec<Route>) {
        // Connected networks are in every table, so only the main table lists them.
        if self.from.is_some() && shown.origin == Origin::Connected && !self.is_lookup {
            return;
        }
        let used = shown.resolved.filter(|_| shown.selected);
        for (next_hop, weight) in used.iter().flat_map(|set| set.members()) {
            let hop = WeightedNextHop {
                next_hop: (*next_hop).into(),
                weight: *weight,
                balance: Balance::Flow,
            };
            items.extend(self.line(shown, hop, None));
        }
        if !self.all {
            return;
        }
        for &hop in shown.hops {
            let unused = match self.rib.unresolved_reason(hop.next_hop) {
                Some(UnresolvedReason::Link) => "link-down",
                Some(UnresolvedReason::Gateway) => "gateway-unreachable",
                Some(UnresolvedReason::Uplink) => "uplink-down",
                None if shown.selected => continue,
                None => "not-preferred",
            };
            items.extend(self.line(shown, hop, Some(unused)));
        }
    }

    fn line(&self, shown: &ListedRoute<'_>, hop: WeightedNextHop, unused: Option<&str>) -> Option<Route> {
        let name = |index: InterfaceIndex| self.policy.interface(index).map(|interface| interface.name.clone());
        let (via, interface, kind) = match hop.next_hop {
            OfferedNextHop::Local(index) => (None, name(index), "local"),
            OfferedNextHop::Attached(index) if shown.origin == Origin::Connected => (None, name(index), "connected"),
            OfferedNextHop::Attached(index) => (None, name(index), "static"),
            OfferedNextHop::Gateway { interface, address } => (Some(address), name(interface), "static"),
            OfferedNextHop::Via(address) => (Some(address), None, "static"),
            // Implicit routes for the broadcast addresses of links and for link-local addresses.
            OfferedNextHop::Drop(RouteRefusal::DirectedBroadcast | RouteRefusal::LinkLocal) if !self.is_lookup => {
                return None;
            }
            OfferedNextHop::Drop(refusal) => (None, None, action(refusal)),
        };
        let action = match hop.next_hop {
            OfferedNextHop::Drop(refusal) => Some(action(refusal).into()),
            _ => None,
        };
        let by_feed = || protocol_name(shown.protocol).unwrap_or(shown.origin.name());
        let kind = if shown.origin.is_learned() { by_feed() } else { kind };
        Some(Route {
            router: self.router.clone(),
            to: shown.prefix.to_string(),
            from: self.from.map(|network| network.to_string()),
            via: via.map(IpAddr::from),
            interface,
            action,
            kind: kind.into(),
            distance: shown.distance,
            metric: shown.metric,
            weight: hop.weight,
            age: self.now.saturating_sub(shown.since) / SECOND,
            stale: shown.stale,
            used: unused.is_none(),
            unused: unused.map(Into::into),
        })
    }
}

/// Name of the action of a route that drops packets. The configuration and `ip route` use the same names.
fn action(refusal: RouteRefusal) -> &'static str {
    match refusal {
        RouteRefusal::Blackhole => "blackhole",
        RouteRefusal::Unreachable => "unreachable",
        RouteRefusal::Prohibit => "prohibit",
        RouteRefusal::NoRoute => "throw",
        RouteRefusal::DirectedBroadcast => "directed-broadcast",
        RouteRefusal::LinkLocal => "link-local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_a_router_and_a_place() {
        let six = (1_u64 << 32) + 7;
        assert_eq!(Some((3, six)), cursor(&format!("3-{six}")).ok());
        for text in ["", "3", "3-", "-3", "70000-1", "a-b"] {
            assert!(cursor(text).is_err(), "{text}");
        }
    }
}
