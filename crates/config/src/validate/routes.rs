//! Static routes and static neighbours.

use std::collections::HashSet;
use std::net::IpAddr;

use super::interfaces::attached;
use super::routers::{Scope, of_router};
use super::{Check, is_link_local};
use crate::config::{DEFAULT_ROUTER, Interface, InterfaceIndex, Neighbour, Route, RouterIndex, Way};
use crate::problem::Problem;
use crate::read::{Step, place};
use crate::schema;

impl Check<'_> {
    pub(super) fn routes(&mut self, interfaces: &[Interface]) -> Vec<Route> {
        let mut routes = Vec::new();
        for scope in self.scopes() {
            self.scope = scope;
            let router = scope.router;
            let mut seen = HashSet::new();
            for (k, written) in scope.routes.iter().enumerate() {
                if !seen.insert(written.to) {
                    self.report(place!["routes", k, "to"], Problem::DuplicateRoute(written.to));
                }
                let to = written.to;
                routes.extend(self.way(k, written, interfaces).map(|way| Route { router, to, way }));
            }
        }
        self.scope = Scope::top(self.document);
        routes
    }

    fn way(&mut self, k: usize, written: &schema::Route, interfaces: &[Interface]) -> Option<Way> {
        let named = match &written.interface {
            Some(name) => Some(self.own_interface(place!["routes", k, "interface"], name)?),
            None => None,
        };
        match (written.via, named, written.action) {
            (None, None, Some(action)) => Some(Way::Nowhere(action)),
            (_, _, Some(_)) => {
                self.report(place!["routes", k, "action"], Problem::RouteContradicts(written.to));
                None
            }
            (None, Some(interface), None) => Some(Way::Link(interface)),
            (None, None, None) => {
                self.report(place!["routes", k, "to"], Problem::RouteIncomplete(written.to));
                None
            }
            (Some(via), named, None) => {
                let at = place!["routes", k, "via"];
                if via.is_ipv4() != written.to.ipv4().is_some() {
                    self.report(at, Problem::FamiliesDiffer { via, to: written.to });
                    return None;
                }
                self.on_link(at, via, named, (self.scope.router, interfaces))
                    .map(|interface| Way::Gateway(via, interface))
            }
        }
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
            let Some(interface) = self.on_link(at, written.address, named, (router, interfaces)) else {
                continue;
            };
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

    /// The interface of a router whose link a neighbour is on; the named one must be it.
    fn on_link(
        &mut self,
        at: &[Step<'_>],
        address: IpAddr,
        named: Option<InterfaceIndex>,
        (router, interfaces): (RouterIndex, &[Interface]),
    ) -> Option<InterfaceIndex> {
        if !self.host(at, address) {
            return None;
        }
        if of_router(interfaces, router)
            .any(|(_, interface)| interface.addresses.iter().any(|own| own.address() == address))
        {
            self.report(at, Problem::OwnAddress(address));
            return None;
        }
        if address.is_ipv6() && is_link_local(address) {
            if named.is_none() {
                self.report(at, Problem::LinkLocalNeedsInterface(address));
            }
            return named;
        }
        let on = attached(interfaces, router, address);
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
