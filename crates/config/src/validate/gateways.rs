//! Gateways of static routes: the link that each is on, by attached networks and routes onto links, and whether routes
//! lead to those that are recursive.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Check;
use super::routers::{Scope, of_router};
use crate::config::{Interface, InterfaceIndex, Link, Route, RouterIndex, Way};
use crate::problem::RouteProblem;
use crate::read::{Step, place};
use crate::schema::TunnelType;
use crate::value::Prefix;

/// Most gateways from a route to the link, as the daemon follows them.
const DEPTH: usize = 8;

/// The interface whose link an address is on, by the longest network that is attached or routed onto a link.
pub(super) fn link_of(scope: &Scope<'_>, interfaces: &[Interface], address: IpAddr) -> Option<InterfaceIndex> {
    let router = scope.router;
    let attached = of_router(interfaces, router)
        .flat_map(|(index, interface)| interface.addresses.iter().map(move |own| (own.net(), index)));
    let onto = scope.routes.iter().filter_map(|route| {
        let is_onto = route.via.is_none() && route.action.is_none() && !route.recursive;
        let name = route.interface.as_ref().filter(|_| is_onto)?;
        let (index, _) = of_router(interfaces, router).find(|(_, interface)| interface.name == *name)?;
        // A default route onto a link says nothing about gateways.
        (route.to.net().prefix_len() > 0).then_some((route.to.net(), index))
    });
    let covering = attached.chain(onto).filter(|(net, _)| net.contains(&address));
    covering.max_by_key(|(net, _)| net.prefix_len()).map(|(_, index)| index)
}

/// For whom a route has the router ask on a link.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// A gateway.
    Gateway(IpAddr),
    /// Every destination.
    Hosts(Prefix),
}

impl Check<'_> {
    /// Whether an address is a network's own or its broadcast address, which nobody answers for.
    pub(super) fn is_broadcast(&mut self, at: &[Step<'_>], address: IpAddr, interfaces: &[Interface]) -> bool {
        let of_link = |net: IpNet| match net {
            IpNet::V4(net) if net.prefix_len() < 31 => {
                [net.network(), net.broadcast()].map(IpAddr::V4).contains(&address)
            }
            _ => false,
        };
        let mut links = of_router(interfaces, self.scope.router);
        let found = links.find(|(_, interface)| interface.addresses.iter().any(|own| of_link(own.net())));
        let Some((_, interface)) = found else { return false };
        self.report(at, RouteProblem::Broadcast(address, interface.name.clone()).into());
        true
    }

    /// Whether the router can ask for IPv4 hosts by an interface: it needs an IPv4 address to do it, if not there then
    /// elsewhere.
    pub(super) fn can_ask(
        &mut self,
        at: &[Step<'_>],
        index: InterfaceIndex,
        who: Asked,
        interfaces: &[Interface],
    ) -> bool {
        let is_known = |gateway| {
            self.document
                .neighbours
                .fixed
                .iter()
                .any(|fixed| fixed.address == gateway)
        };
        let is_asked = match who {
            Asked::Gateway(gateway) => gateway.is_ipv4() && !is_known(gateway),
            Asked::Hosts(to) => to.ipv4().is_some(),
        };
        let Some(interface) = interfaces.get(usize::from(index)).filter(|_| is_asked) else {
            return true;
        };
        let mut own = of_router(interfaces, self.scope.router).flat_map(|(_, interface)| &interface.addresses);
        let has_address = own.any(|own| own.address().is_ipv4());
        if has_address || is_pair(interface) {
            return true;
        }
        self.report(at, RouteProblem::NothingToAskWith(interface.name.clone()).into());
        false
    }

    /// Recursive gateways that no route of the router will ever lead to: nobody tells it any.
    pub(super) fn recursive(&mut self, routes: &[(usize, Route)], interfaces: &[Interface]) {
        if self.learns() {
            return;
        }
        for (k, route) in routes {
            let Way::Recursive(gateway) = route.way else { continue };
            if !leads(gateway, routes, interfaces, self.scope.router, &mut Vec::new()) {
                self.report(place!["routes", *k, "via"], RouteProblem::Unreachable(gateway).into());
            }
        }
    }

    /// Whether the router has routes from others.
    fn learns(&self) -> bool {
        let name = self.scope.table.unwrap_or(super::routers::DEFAULT);
        let router = self.document.routers.get(name);
        router.is_some_and(|router| router.fpm.is_some() || router.daemon && router.kernel_routes.unwrap_or(true))
    }
}

/// Whether an interface is a link of two ends, where nobody is asked for.
fn is_pair(interface: &Interface) -> bool {
    match &interface.link {
        Link::Tunnel(tunnel) => tunnel.kind != TunnelType::Vxlan,
        _ => false,
    }
}

/// Whether routes lead to a gateway, as the daemon finds them: by the longest that leads anywhere, but not by a default route.
fn leads(
    gateway: IpAddr,
    routes: &[(usize, Route)],
    interfaces: &[Interface],
    router: RouterIndex,
    path: &mut Vec<IpAddr>,
) -> bool {
    let mut attached = of_router(interfaces, router).flat_map(|(_, interface)| &interface.addresses);
    if attached.any(|own| own.net().contains(&gateway)) {
        return true;
    }
    if path.contains(&gateway) || path.len() >= DEPTH {
        return false;
    }
    path.push(gateway);
    let covering = |route: &Route| route.to.net().prefix_len() > 0 && route.to.net().contains(&gateway);
    let found = routes
        .iter()
        .filter(|(_, route)| covering(route))
        .any(|(_, route)| match route.way {
            Way::Recursive(next) => leads(next, routes, interfaces, router, path),
            Way::Gateway(..) | Way::Link(_) | Way::Nowhere(_) => true,
        });
    path.pop();
    found
}
