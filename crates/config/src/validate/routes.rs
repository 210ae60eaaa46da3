//! Validation of static routes and static neighbours.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::gateways::{ResolvedHosts, link_of};
use super::interfaces::attached;
use super::routers::{Scope, of_router};
use super::{Check, is_link_local};
use crate::config::{DEFAULT_ROUTER, Interface, InterfaceIndex, Neighbour, Route, RouteNextHop, RouterIndex, Uplink};
use crate::limits::MAX_ROUTERS;
use crate::problem::{Problem, RouteProblem, UplinkProblem};
use crate::read::{Step, place};
use crate::schema;
use crate::value::{Prefix, ScopedAddress};

/// Maximum number of next hops per route.
const MAX_NEXT_HOPS: usize = 64;

/// Maximum number of different sources in the routes of a router.
const MAX_SOURCES: usize = 64;

/// Default distance of a route.
const DISTANCE: u8 = 1;

impl Check<'_> {
    pub(super) fn routes(&mut self, interfaces: &[Interface], uplinks: &[Uplink]) -> Vec<Route> {
        let (mut routes, mut tables) = (Vec::new(), 0);
        for scope in self.scopes() {
            self.scope = scope;
            let router = scope.router;
            let mut known: HashMap<(Prefix, Option<Prefix>), Vec<Route>> = HashMap::new();
            let mut of_scope = Vec::new();
            for (k, written) in scope.routes.iter().enumerate() {
                let is_by_uplinks = !written.uplinks.is_empty();
                if written.balance.is_some() && !is_by_uplinks {
                    self.report(place!["routes", k, "balance"], UplinkProblem::Balance.into());
                }
                let next_hops: Vec<_> = match is_by_uplinks {
                    true => self.by_uplinks(k, written, uplinks),
                    false => {
                        let next_hop = self.next_hop(k, written, interfaces);
                        next_hop
                            .into_iter()
                            .map(|next_hop| (next_hop, written.weight.unwrap_or(1)))
                            .collect()
                    }
                };
                if !self.source(k, written) {
                    continue;
                }
                if let Err(problem) = self.is_beyond_router(written.to, interfaces) {
                    self.report(place!["routes", k, "to"], problem.into());
                    continue;
                }
                let route = |(next_hop, weight)| Route {
                    router,
                    to: written.to,
                    from: written.from,
                    next_hop,
                    weight,
                    distance: written.distance.unwrap_or(DISTANCE),
                    balance: is_by_uplinks.then(|| written.balance.unwrap_or_default()),
                };
                let next_hops: Vec<_> = next_hops.into_iter().map(route).collect();
                let beside = known.entry((written.to, written.from)).or_default();
                let problem = next_hops
                    .iter()
                    .find_map(|next_hop| contradiction(next_hop, beside, interfaces));
                if let Some(problem) = problem {
                    self.report(place!["routes", k, "to"], problem);
                }
                beside.extend(next_hops.iter().cloned());
                of_scope.extend(next_hops.into_iter().map(|next_hop| (k, next_hop)));
            }
            self.recursive(&of_scope, interfaces);
            tables += self.sources(&of_scope);
            routes.extend(of_scope.into_iter().map(|(_, route)| route));
        }
        self.scope = Scope::top(self.document);
        if tables > 0 && tables + self.document.routers.len() >= MAX_ROUTERS {
            self.report(place!["routes"], RouteProblem::TooManyTables(MAX_ROUTERS).into());
        }
        routes
    }

    /// Check the source network of a route. Returns whether the network is valid.
    fn source(&mut self, k: usize, written: &schema::Route) -> bool {
        let Some(from) = written.from else { return true };
        let to = written.to;
        let problem = match () {
            () if from.ipv4().is_some() != to.ipv4().is_some() => RouteProblem::SourceFamily { to, from },
            () if from.net().prefix_len() == 0 => RouteProblem::FromEverywhere(to),
            () if written.recursive => RouteProblem::RecursiveFrom(to),
            () => return true,
        };
        self.report(place!["routes", k, "from"], problem.into());
        false
    }

    /// Number of different sources in a router's routes. A number above the maximum is reported.
    fn sources(&mut self, routes: &[(usize, Route)]) -> usize {
        let mut known: HashSet<Prefix> = HashSet::new();
        for (k, route) in routes {
            if let Some(from) = route.from
                && known.insert(from)
                && known.len() == MAX_SOURCES + 1
            {
                self.report(
                    place!["routes", *k, "from"],
                    RouteProblem::TooManySources(MAX_SOURCES).into(),
                );
            }
        }
        known.len()
    }

    fn next_hop(&mut self, k: usize, written: &schema::Route, interfaces: &[Interface]) -> Option<RouteNextHop> {
        for (key, description, value) in [
            ("weight", "a weight", written.weight),
            ("distance", "a distance", written.distance),
        ] {
            if let Some(value) = value {
                self.in_range(place!["routes", k, key], description, value, 1..=255);
            }
        }
        if written.recursive && (written.via.is_none() || written.interface.is_some()) {
            let problem = RouteProblem::Recursive(written.to);
            self.report(place!["routes", k, "recursive"], problem.into());
            return None;
        }
        let zone = written.via.as_ref().and_then(ScopedAddress::zone);
        if written.recursive && zone.is_some() {
            let problem = RouteProblem::Recursive(written.to);
            self.report(place!["routes", k, "recursive"], problem.into());
            return None;
        }
        if written.onlink && (written.via.is_none() || written.interface.is_none() && zone.is_none()) {
            let problem = RouteProblem::Onlink(written.to);
            self.report(place!["routes", k, "onlink"], problem.into());
            return None;
        }
        let named = match (&written.interface, zone) {
            (Some(name), Some(zone)) if name != zone => {
                let (zone, interface) = (zone.to_owned(), name.clone());
                self.report(
                    place!["routes", k, "interface"],
                    RouteProblem::ZoneElsewhere { zone, interface }.into(),
                );
                return None;
            }
            (Some(name), _) => Some(self.own_interface(place!["routes", k, "interface"], name)?),
            (None, Some(zone)) => Some(self.own_interface(place!["routes", k, "via"], zone)?),
            (None, None) => None,
        };
        if let Some(interface) = named
            && !self.is_routed(place!["routes", k, "interface"], interface, interfaces)
        {
            return None;
        }
        let via = written.via.as_ref().map(ScopedAddress::address);
        match (via, named, written.action) {
            (None, None, Some(action)) => Some(RouteNextHop::Discard(action)),
            (_, _, Some(_)) => {
                self.report(
                    place!["routes", k, "action"],
                    RouteProblem::Contradicts(written.to).into(),
                );
                None
            }
            (None, Some(interface), None) => {
                let at = place!["routes", k, "interface"];
                self.can_resolve(at, interface, ResolvedHosts::Hosts(written.to), interfaces)
                    .then_some(RouteNextHop::Link(interface))
            }
            (None, None, None) => {
                self.report(place!["routes", k, "to"], RouteProblem::Incomplete(written.to).into());
                None
            }
            (Some(via), named, None) => {
                self.way_by_gateway(place!["routes", k, "via"], written, via, named, interfaces)
            }
        }
    }

    fn way_by_gateway(
        &mut self,
        at: &[Step<'_>],
        written: &schema::Route,
        via: IpAddr,
        named: Option<InterfaceIndex>,
        interfaces: &[Interface],
    ) -> Option<RouteNextHop> {
        // IPv4 routes may have IPv6 gateways (RFC 8950).
        if via.is_ipv4() && written.to.ipv4().is_none() {
            self.report(at, Problem::FamiliesDiffer { via, to: written.to });
            return None;
        }
        if self.is_broadcast(at, via, interfaces) || self.is_relay(at, via) {
            return None;
        }
        let of_router = (self.scope.router, interfaces);
        if written.recursive {
            return self
                .other_host(at, via, named, of_router)
                .then_some(RouteNextHop::Recursive(via));
        }
        let interface = match named.filter(|_| written.onlink) {
            Some(named) => self.other_host(at, via, Some(named), of_router).then_some(named)?,
            None => self.on_link(at, via, named, of_router)?,
        };
        self.can_resolve(at, interface, ResolvedHosts::Gateway(via), interfaces)
            .then_some(RouteNextHop::Gateway(via, interface))
    }

    pub(super) fn neighbours(&mut self, interfaces: &[Interface]) -> Vec<Neighbour> {
        let document = self.document;
        let mut made: Vec<Neighbour> = Vec::new();
        for (k, written) in document.neighbours.fixed.iter().enumerate() {
            let named = match &written.interface {
                Some(name) => match self.interface_index(place!["neighbours", "static", k, "interface"], name) {
                    Some(index) => Some(index),
                    None => continue,
                },
                None => None,
            };
            let at = place!["neighbours", "static", k, "address"];
            let router = named.and_then(|named| interfaces.get(usize::from(named)));
            let router = router.map_or(DEFAULT_ROUTER, |interface| interface.router);
            // The neighbour may be an on-link gateway that is not in the interface's networks.
            let is_beyond = attached(interfaces, router, written.address).is_none();
            let interface = match named.filter(|_| is_beyond) {
                Some(_) => {
                    let is_other = self.other_host(at, written.address, named, (router, interfaces));
                    named.filter(|_| is_other)
                }
                None => self.on_link(at, written.address, named, (router, interfaces)),
            };
            let Some(interface) = interface else { continue };
            if made
                .iter()
                .any(|other| other.address == written.address && other.interface == interface)
            {
                self.report(at, Problem::DuplicateNeighbour(written.address));
            }
            made.push(Neighbour {
                address: written.address,
                mac: written.mac,
                interface,
            });
        }
        made
    }

    /// Whether an address is valid for another host. A link-local address requires an interface.
    fn other_host(
        &mut self,
        at: &[Step<'_>],
        address: IpAddr,
        named: Option<InterfaceIndex>,
        (router, interfaces): (RouterIndex, &[Interface]),
    ) -> bool {
        if !self.host(at, address) {
            return false;
        }
        if of_router(interfaces, router)
            .any(|(_, interface)| interface.addresses.iter().any(|own| own.address() == address))
        {
            self.report(at, Problem::OwnAddress(address));
            return false;
        }
        if address.is_ipv6() && is_link_local(address) && named.is_none() {
            self.report(at, Problem::LinkLocalNeedsInterface(address));
            return false;
        }
        true
    }

    /// Interface on whose link a neighbour is. If the neighbour specifies an interface, both interfaces must be equal.
    pub(super) fn on_link(
        &mut self,
        at: &[Step<'_>],
        address: IpAddr,
        named: Option<InterfaceIndex>,
        (router, interfaces): (RouterIndex, &[Interface]),
    ) -> Option<InterfaceIndex> {
        if !self.other_host(at, address, named, (router, interfaces)) {
            return None;
        }
        if address.is_ipv6() && is_link_local(address) {
            return named;
        }
        let on = match self.scope.router == router {
            true => link_of(&self.scope, interfaces, address),
            false => attached(interfaces, router, address),
        };
        match (on, named) {
            (Some(on), None) => Some(on),
            (Some(on), Some(named)) if on == named => Some(on),
            (Some(on), Some(named)) => {
                let name = |index: InterfaceIndex| {
                    interfaces
                        .get(usize::from(index))
                        .map(|interface| interface.name.clone())
                        .unwrap_or_default()
                };
                self.report(
                    at,
                    Problem::AttachedElsewhere {
                        address,
                        on: name(on),
                        interface: name(named),
                    },
                );
                None
            }
            (None, _) => {
                let links = of_router(interfaces, router).flat_map(|(_, interface)| {
                    let family = interface
                        .addresses
                        .iter()
                        .filter(|own| own.address().is_ipv4() == address.is_ipv4());
                    family.map(|own| format!("{} ({})", own.network(), interface.name))
                });
                self.report(
                    at,
                    Problem::NotAttached {
                        address,
                        links: links.collect(),
                    },
                );
                None
            }
        }
    }
}

/// Check a next hop against the other next hops for the same network. Returns the problem of the next hop, if there is
/// one.
fn contradiction(route: &Route, beside: &[Route], interfaces: &[Interface]) -> Option<Problem> {
    let to = route.to;
    if beside.iter().any(|other| other.next_hop == route.next_hop) {
        return Some(RouteProblem::Twice(to).into());
    }
    let mut links = of_router(interfaces, route.router);
    let link = links.find(|(_, interface)| interface.addresses.iter().any(|own| own.net().trunc() == to.net()));
    if let Some((_, link)) = link.filter(|_| route.distance == DISTANCE) {
        return Some(RouteProblem::OnLink(to, link.name.clone()).into());
    }
    let mut next_hops = beside.iter().filter(|other| other.distance == route.distance);
    if next_hops
        .clone()
        .any(|other| other.balance.is_some() || route.balance.is_some())
    {
        return Some(UplinkProblem::NotAlone(to).into());
    }
    let is_discard = |next_hop: RouteNextHop| matches!(next_hop, RouteNextHop::Discard(_));
    if next_hops
        .clone()
        .any(|other| is_discard(other.next_hop) || is_discard(route.next_hop))
    {
        return Some(RouteProblem::NotAlone(to).into());
    }
    next_hops
        .nth(MAX_NEXT_HOPS - 1)
        .map(|_| RouteProblem::TooManyWays(to, MAX_NEXT_HOPS).into())
}
