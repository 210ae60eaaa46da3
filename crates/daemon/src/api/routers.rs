//! Virtual routers, and their routes.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use sluice_config::api::{Counter, Page, Route, Router, RouterFilter, RouterHost};
use sluice_engine::counters::InterfaceCounters;
use sluice_engine::policy::{self, Policy};
use sluice_engine::punt::Class;
use sluice_engine::reason::{Own, Reason};
use sluice_engine::shares::WEIGHT;
use sluice_route::feed::protocol_name;
use sluice_route::neighbour::{NeighbourIndex, State as NeighbourState};
use sluice_route::{Address, NextHop, Prefix, Refusal as RouteRefusal, RouterIndex};

use super::sessions::router;
use super::{Refusal, Shared};
use crate::control::Control;
use crate::host::namespace_name;
use crate::start::sum;

/// The virtual routers that there are, by number.
fn numbered(policy: &Policy) -> impl Iterator<Item = (RouterIndex, &policy::Router)> {
    let all = (0..).zip(&policy.routers);
    all.filter(|(_, router)| !router.name.is_empty())
}

/// The name of a router.
pub(super) fn router_name(policy: &Policy, number: RouterIndex) -> String {
    let router = policy.router(number.into());
    router.map_or(String::new(), |router| router.name.clone())
}

/// `GET /v1/routers`
pub(super) async fn routers(
    State(control): Shared,
    Query(wanted): Query<RouterFilter>,
) -> Result<Json<Page<Router>>, Refusal> {
    let config = control.config();
    let plane = control.plane();
    let policy = plane.policy();
    let wanted = router(policy, wanted.router.as_deref())?;
    let mut neighbours = vec![0; policy.routers.len()];
    let table = plane.neighbours();
    for place in (0..table.capacity() as u32).map(NeighbourIndex) {
        let known = table
            .snapshot(place)
            .filter(|known| known.state != NeighbourState::Free);
        let router = known.map(|known| usize::from(policy.router_of(known.interface)));
        if let Some(count) = router.and_then(|router| neighbours.get_mut(router)) {
            *count += 1;
        }
    }
    // Reasons that keep packets out, rather than drop them on their way.
    let kept_out = [Own::OverShare, Own::RateLimited].map(Reason::from);
    let gone_on = |own: &mut dyn Iterator<Item = usize>| -> u64 {
        let all = own.map(|interface| {
            let dropped = kept_out.map(|reason| total_drops(&control, interface, reason));
            sum(&control.counters, interface, |counters| counters.received.get()).saturating_sub(dropped.iter().sum())
        });
        all.sum()
    };
    let of_all = gone_on(&mut (0..policy.interfaces.len()));
    let item = |(number, router): (RouterIndex, &policy::Router)| {
        let own = (0..).zip(&policy.interfaces);
        let own = own.filter(|(_, interface)| interface.bridge.is_none() && interface.router == number);
        let own: Vec<(usize, _)> = own.collect();
        let total = |value: fn(&InterfaceCounters) -> u64| {
            own.iter()
                .map(|(interface, _)| sum(&control.counters, *interface, value))
                .sum()
        };
        let mut routes = [0; 2];
        for (prefix, _) in plane.fib().iter(number) {
            routes[usize::from(matches!(prefix.address(), Address::V6(_)))] += 1;
        }
        let rules = config.source.iter().filter(|rule| rule.router == number).count()
            + config.destination.iter().filter(|rule| rule.router == number).count();
        let written = config.routers.get(usize::from(number));
        let pools = config.pools.iter().filter(|pool| pool.router == number);
        let meter = plane.setup().meters.router(number.into());
        let drops = Reason::all().map(|reason| Counter {
            name: reason.name().into(),
            count: own
                .iter()
                .map(|(interface, _)| total_drops(&control, *interface, reason))
                .sum(),
        });
        let drops = drops.filter(|drops| drops.count > 0);
        Router {
            name: router.name.clone(),
            interfaces: own.iter().map(|(_, interface)| interface.name.clone()).collect(),
            routes,
            neighbours: neighbours.get(usize::from(number)).copied().unwrap_or(0),
            pools: pools.map(|pool| pool.name.clone()).collect(),
            nat_rules: rules as u64,
            filter: router.filters,
            limits: written.map_or_else(Default::default, |written| written.limits),
            weight: written.and_then(|written| match &policy.shares {
                Some(shares) if shares.weighted => Some(written.weight.unwrap_or(WEIGHT)),
                _ => None,
            }),
            limited_sessions: meter.map_or(0, |meter| meter.sessions().into()),
            received: total(|counters| counters.received.get()),
            sent: total(|counters| counters.sent.get()),
            dropped: total(|counters| counters.all_drops()),
            drops: drops.collect(),
            share: gone_on(&mut own.iter().map(|(interface, _)| *interface)) as f64 / of_all.max(1) as f64,
            waiting: total(|counters| counters.parked.get()).saturating_sub(total(|counters| counters.unparked.get())),
            refused_routes: plane.ribs().get(number).map_or(0, |rib| rib.counts().refused_quota),
            host: host(&control, policy, number),
        }
    };
    let is_wanted = |(number, _): &(RouterIndex, &policy::Router)| wanted.is_none_or(|wanted| wanted == *number);
    Ok(Json(Page::whole(
        numbered(policy).filter(is_wanted).map(item).collect(),
    )))
}

/// Drops for a reason at an interface, of all workers.
fn total_drops(control: &Control, interface: usize, reason: Reason) -> u64 {
    let own = control
        .counters
        .iter()
        .filter_map(|worker| worker.interfaces.get(interface));
    own.map(|counters| counters.drops(reason)).sum()
}

/// The host of a router.
fn host(control: &Control, policy: &Policy, number: RouterIndex) -> Option<RouterHost> {
    let name = &policy.router(number.into())?.name;
    let counts = control.hosts.counts(name)?;
    let given = policy.hosts.get(usize::from(number))?;
    let punted = Class::ALL.iter().map(|&class| Counter {
        name: class.name().into(),
        count: given.passed(class),
    });
    Some(RouterHost {
        namespace: namespace_name(name),
        punted: punted.collect(),
        delivered: counts.delivered,
        undelivered: counts.undelivered,
        sent: counts.sent,
        lost: counts.lost,
    })
}

/// `GET /v1/routes`
pub(super) async fn routes(
    State(control): Shared,
    Query(wanted): Query<RouterFilter>,
) -> Result<Json<Page<Route>>, Refusal> {
    let plane = control.plane();
    let policy = plane.policy();
    let table = plane.next_hops().table();
    let name = |index: u16| policy.interface(index).map(|interface| interface.name.clone());
    let connected = |prefix: Prefix, index: u16| {
        policy.interface(index).is_some_and(|interface| {
            let networks = interface.link.addresses.iter();
            networks
                .map(|&(own, length)| Prefix::new(own, length))
                .any(|network| network == prefix)
        })
    };
    // What told a route that was learned, and is used.
    let told = |number: RouterIndex, prefix: Prefix| {
        let shown = plane.ribs().get(number)?.get(prefix).into_iter().next()?;
        let name = protocol_name(shown.protocol).unwrap_or(shown.origin.name());
        shown.origin.is_learned().then_some(name)
    };
    let wanted = router(policy, wanted.router.as_deref())?;
    let mut items = Vec::new();
    for (number, router) in numbered(policy).filter(|(number, _)| wanted.is_none_or(|wanted| wanted == *number)) {
        let routes = plane.fib().iter(number);
        for (prefix, index) in routes {
            // Of a set of next hops one line each.
            let mut members: Vec<u32> = table.members(index).collect();
            members.sort_unstable();
            members.dedup();
            items.extend(members.into_iter().filter_map(|member| {
                let (via, interface, kind) = match table.get(member) {
                    NextHop::Local(index) => (None, name(index), "local"),
                    NextHop::Attached(index) if connected(prefix, index) => (None, name(index), "connected"),
                    NextHop::Attached(index) => (None, name(index), "static"),
                    NextHop::Gateway { interface, address } => (Some(IpAddr::from(address)), name(interface), "static"),
                    NextHop::Drop(RouteRefusal::Blackhole) => (None, None, "blackhole"),
                    NextHop::Drop(RouteRefusal::Unreachable) => (None, None, "unreachable"),
                    NextHop::Drop(RouteRefusal::Prohibit) => (None, None, "prohibit"),
                    // Broadcast addresses of the links and link-local ones, which nobody configured.
                    NextHop::Drop(_) => return None,
                };
                Some(Route {
                    router: router.name.clone(),
                    to: prefix.to_string(),
                    via,
                    interface,
                    kind: told(number, prefix).unwrap_or(kind).into(),
                })
            }));
        }
    }
    Ok(Json(Page::whole(items)))
}
