//! Lists of virtual routers.

use std::sync::Arc;

use sluice_config::api::{Counter, Page, RouteFeedStatus, RouteOrigin, Router, RouterFilter, RouterHost, operation};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::InterfaceCounters;
use sluice_engine::packet::punt::PuntClass;
use sluice_engine::packet::reason::{EngineReason, Reason};
use sluice_engine::snapshot::shares::WEIGHT;
use sluice_engine::snapshot::{self, Snapshot};
use sluice_route::RouterIndex;
use sluice_route::feed::Refused;
use sluice_route::neighbour::{NeighbourIndex, State as NeighbourState};
use sluice_route::rib::{Counts, Origin, Rib};

use super::sessions::router;
use super::{Refusal, Serve};
use crate::control::Control;
use crate::host::namespace_name;
use crate::routing::{self, FeedStatus};
use crate::start::sum;

/// The configured virtual routers, by number.
pub(super) fn numbered(snapshot: &Snapshot) -> impl Iterator<Item = (RouterIndex, &snapshot::Router)> {
    let all = (0..).zip(&snapshot.routers);
    all.filter(|(_, router)| !router.name.is_empty())
}

/// Name of a router.
pub(super) fn router_name(snapshot: &Snapshot, number: RouterIndex) -> String {
    let router = snapshot.router(number.into());
    router.map_or(String::new(), |router| router.name.clone())
}

impl Serve for operation::Routers {
    async fn serve(control: Arc<Control>, wanted: RouterFilter) -> Result<Self::Answer, Refusal> {
        let config = control.config();
        let statuses = config.routers.iter().map(|router| control.statuses(&router.name));
        let statuses: Vec<_> = statuses.collect();
        let plane = control.plane();
        let snapshot = plane.snapshot();
        let wanted = router(snapshot, wanted.router.as_deref())?;
        let neighbours = neighbour_counts(&plane);
        // Packets that exceed a share or a rate are dropped before the router processes them.
        let rejected = [EngineReason::OverShare, EngineReason::RateLimited].map(Reason::from);
        let forwarded = |own: &mut dyn Iterator<Item = usize>| -> u64 {
            let all = own.map(|interface| {
                let dropped = rejected.map(|reason| total_drops(&control, interface, reason));
                sum(&control.counters, interface, |counters| counters.received.get())
                    .saturating_sub(dropped.iter().sum())
            });
            all.sum()
        };
        let of_all = forwarded(&mut (0..snapshot.interfaces.len()));
        let item = |(number, router): (RouterIndex, &snapshot::Router)| {
            let own = (0..).zip(&snapshot.interfaces);
            let own = own.filter(|(_, interface)| interface.bridge.is_none() && interface.router == number);
            let own: Vec<(usize, _)> = own.collect();
            let total = |value: fn(&InterfaceCounters) -> u64| {
                own.iter()
                    .map(|(interface, _)| sum(&control.counters, *interface, value))
                    .sum()
            };
            let counts = plane.ribs().get(number).map(Rib::counts).unwrap_or_default();
            let [fpm, kernel] = statuses.get(usize::from(number)).map_or([None, None], Clone::clone);
            let rules = config.source.iter().filter(|rule| rule.router == number).count()
                + config.destination.iter().filter(|rule| rule.router == number).count();
            let written = config.routers.get(usize::from(number));
            let pools = config.pools.iter().filter(|pool| pool.router == number);
            let meter = plane.start_parameters().meters.router(number.into());
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
                routes: counts.published.map(|published| published as u64),
                neighbours: neighbours.get(usize::from(number)).copied().unwrap_or(0),
                pools: pools.map(|pool| pool.name.clone()).collect(),
                nat_rules: rules as u64,
                filter: router.filters,
                limits: written.map_or_else(Default::default, |written| written.limits),
                weight: written.and_then(|written| match &snapshot.shares {
                    Some(shares) if shares.weighted => Some(written.weight.unwrap_or(WEIGHT)),
                    _ => None,
                }),
                limited_sessions: meter.map_or(0, |meter| meter.sessions().into()),
                received: total(|counters| counters.received.get()),
                sent: total(|counters| counters.sent.get()),
                dropped: total(|counters| counters.all_drops()),
                drops: drops.collect(),
                share: forwarded(&mut own.iter().map(|(interface, _)| *interface)) as f64 / of_all.max(1) as f64,
                waiting: total(|counters| counters.parked.get())
                    .saturating_sub(total(|counters| counters.unparked.get())),
                origins: origins(&counts),
                gateways: counts.gateways as u64,
                unreachable_gateways: counts.unreachable as u64,
                refused_routes: counts.refused_quota,
                refused_next_hops: counts.refused_hops,
                fpm: fpm.as_ref().map(feed_status),
                kernel: kernel.as_ref().map(feed_status),
                host: host(&control, snapshot, number),
            }
        };
        let is_wanted = |(number, _): &(RouterIndex, &snapshot::Router)| wanted.is_none_or(|wanted| wanted == *number);
        Ok(Page::whole(numbered(snapshot).filter(is_wanted).map(item).collect()))
    }
}

/// Number of neighbours of each router.
fn neighbour_counts(plane: &ControlPlane) -> Vec<u64> {
    let (snapshot, table) = (plane.snapshot(), plane.neighbours());
    let mut counts = vec![0; snapshot.routers.len()];
    for place in (0..table.capacity() as u32).map(NeighbourIndex) {
        let known = table
            .snapshot(place)
            .filter(|known| known.state != NeighbourState::Free);
        let router = known.map(|known| usize::from(snapshot.router_of(known.interface)));
        if let Some(count) = router.and_then(|router| counts.get_mut(router)) {
            *count += 1;
        }
    }
    counts
}

/// Number of drops for a reason at an interface, summed over all workers.
fn total_drops(control: &Control, interface: usize, reason: Reason) -> u64 {
    let own = control
        .counters
        .iter()
        .filter_map(|worker| worker.interfaces.get(interface));
    own.map(|counters| counters.drops(reason)).sum()
}

/// Host stack of a router.
fn host(control: &Control, snapshot: &Snapshot, number: RouterIndex) -> Option<RouterHost> {
    let name = &snapshot.router(number.into())?.name;
    let counts = control.hosts.counts(name)?;
    let host_counters = snapshot.hosts.get(usize::from(number))?;
    let punted = PuntClass::ALL.iter().map(|&class| Counter {
        name: class.name().into(),
        count: host_counters.passed(class),
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

/// Number of routes of each origin.
fn origins(counts: &Counts) -> Vec<RouteOrigin> {
    let all = Origin::ALL.iter().zip(counts.offers.iter().zip(&counts.stale));
    let origins = all.map(|(origin, (routes, stale))| RouteOrigin {
        name: origin.name().into(),
        routes: *routes as u64,
        stale: *stale as u64,
    });
    origins.filter(|origin| origin.routes > 0).collect()
}

/// Status of a route feed as the API shows it.
fn feed_status(status: &FeedStatus) -> RouteFeedStatus {
    let not_followed = Refused::ALL.iter().map(|&reason| Counter {
        name: reason.name().into(),
        count: status.counts.refused(reason),
    });
    let refused_by = routing::PeerRefusal::ALL
        .iter()
        .zip(status.refused)
        .map(|(reason, count)| Counter {
            name: reason.name().into(),
            count,
        });
    RouteFeedStatus {
        state: status.state.into(),
        since: status.since.map(|since| since.as_secs()),
        listens: status.listens.clone(),
        peer: status.peer.as_ref().map(ToString::to_string),
        stale_for: status.stale_for.map(|remaining| remaining.as_secs()),
        connections: status.connections,
        refused: status.refused.iter().sum(),
        refused_by: refused_by.filter(|counter| counter.count > 0).collect(),
        errors: status.broken,
        aged_out: status.swept,
        offered: status.counts.offered,
        withdrawn: status.counts.withdrawn,
        not_followed: not_followed.filter(|counter| counter.count > 0).collect(),
    }
}
