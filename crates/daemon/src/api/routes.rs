//! Routes: of each network what is used, and on request what is not, with the reason.

use std::net::IpAddr;

use axum::extract::{Query, State};
use sluice_config::api::{Page, Position, Route, RouteFilter};
use sluice_engine::policy::Policy;
use sluice_route::feed::protocol_name;
use sluice_route::rib::{Hop, Obstacle, Origin, Rib, Shown, Way};
use sluice_route::{InterfaceIndex, Refusal as RouteRefusal, RouterIndex, SECOND, Time};

use super::json::Json;
use super::routers::numbered;
use super::sessions::router;
use super::{Refusal, Shared};

/// Routes that are looked at for a page where no limit is given, and at most.
const PAGE: (u32, u32) = (1_024, 8_192);

/// `GET /v1/routes`
pub(super) async fn routes(
    State(control): Shared,
    Query(wanted): Query<RouteFilter>,
    Query(position): Query<Position>,
) -> Result<Json<Page<Route>>, Refusal> {
    let now = control.began.elapsed().as_nanos() as Time;
    let plane = control.plane();
    let policy = plane.policy();
    let only = router(policy, wanted.router.as_deref())?;
    let (first, begin) = position.cursor.as_deref().map_or(Ok((0, 0)), cursor)?;
    let limit = position.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let is_meant = |number: RouterIndex| number >= first && only.is_none_or(|only| only == number);
    let (mut items, mut seen) = (Vec::new(), 0);
    for (number, router) in numbered(policy).filter(|(number, _)| is_meant(*number)) {
        let Some(rib) = plane.ribs().get(number) else {
            continue;
        };
        let lister = Lister {
            policy,
            rib,
            router: &router.name,
            now,
            all: wanted.all,
            is_lookup: wanted.address.is_some(),
        };
        if let Some(address) = wanted.address {
            let found = rib.lookup(address.into());
            found.iter().for_each(|shown| lister.list(shown, &mut items));
            continue;
        }
        let mut last = if number == first { begin } else { 0 };
        for (place, shown) in rib.page(last) {
            // What is offered for one network is on one page.
            if seen >= limit && place != last {
                let next = Some(format!("{number}-{last}"));
                return Ok(Json(Page { items, next }));
            }
            (last, seen) = (place, seen + 1);
            lister.list(&shown, &mut items);
        }
    }
    Ok(Json(Page::whole(items)))
}

/// Router and place that a page begins at.
fn cursor(text: &str) -> Result<(RouterIndex, u64), Refusal> {
    let parts = text.split_once('-');
    let read = parts.and_then(|(router, place)| Some((router.parse().ok()?, place.parse().ok()?)));
    read.ok_or_else(|| Refusal::Wrong(format!("`{text}` is no cursor of a list")))
}

/// What lists the routes of a router.
struct Lister<'p> {
    policy: &'p Policy,
    rib: &'p Rib,
    router: &'p str,
    now: Time,
    all: bool,
    /// It is about an address, whatever its route is.
    is_lookup: bool,
}

impl Lister<'_> {
    /// The ways of an offer, a line each.
    fn list(&self, shown: &Shown<'_>, items: &mut Vec<Route>) {
        let used = shown.resolved.filter(|_| shown.selected);
        for (next_hop, weight) in used.iter().flat_map(|set| set.members()) {
            let hop = Hop {
                way: (*next_hop).into(),
                weight: *weight,
            };
            items.extend(self.line(shown, hop, None));
        }
        if !self.all {
            return;
        }
        for &hop in shown.hops {
            let unused = match self.rib.obstacle(hop.way) {
                Some(Obstacle::Link) => "link-down",
                Some(Obstacle::Gateway) => "gateway-unreachable",
                None if shown.selected => continue,
                None => "not-preferred",
            };
            items.extend(self.line(shown, hop, Some(unused)));
        }
    }

    fn line(&self, shown: &Shown<'_>, hop: Hop, unused: Option<&str>) -> Option<Route> {
        let name = |index: InterfaceIndex| self.policy.interface(index).map(|interface| interface.name.clone());
        let (via, interface, kind) = match hop.way {
            Way::Local(index) => (None, name(index), "local"),
            Way::Attached(index) if shown.origin == Origin::Connected => (None, name(index), "connected"),
            Way::Attached(index) => (None, name(index), "static"),
            Way::Gateway { interface, address } => (Some(address), name(interface), "static"),
            Way::Via(address) => (Some(address), None, "static"),
            // Broadcast addresses of the links and link-local ones, which nobody configured.
            Way::Drop(RouteRefusal::DirectedBroadcast | RouteRefusal::LinkLocal) if !self.is_lookup => return None,
            Way::Drop(refusal) => (None, None, action(refusal)),
        };
        let action = match hop.way {
            Way::Drop(refusal) => Some(action(refusal).into()),
            _ => None,
        };
        let told = || protocol_name(shown.protocol).unwrap_or(shown.origin.name());
        let kind = if shown.origin.is_learned() { told() } else { kind };
        Some(Route {
            router: self.router.into(),
            to: shown.prefix.to_string(),
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

/// What a route that does not forward does, in the words of the configuration and of `ip route`.
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
