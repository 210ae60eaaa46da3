//! Resolution of the gateways of static routes: the link of each gateway, according to connected networks and routes
//! onto links, and whether recursive gateways can be resolved.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Check;
use super::routers::{Scope, of_router};
use crate::config::{Interface, InterfaceIndex, Link, Route, RouterIndex, Way};
use crate::problem::RouteProblem;
use crate::read::{Step, place};
use crate::schema::TunnelType;
use crate::value::Prefix;

/// Maximum number of gateways between a route and its link. The daemon has the same limit.
const DEPTH: usize = 8;

/// Interface with the link of an address. The longest matching network determines the interface. Both connected
/// networks and networks that a route assigns to a link are considered.
pub(super) fn link_of(scope: &Scope<'_>, interfaces: &[Interface], address: IpAddr) -> Option<InterfaceIndex> {
    let router = scope.router;
    let attached = of_router(interfaces, router)
        .flat_map(|(index, interface)| interface.addresses.iter().map(move |own| (own.net(), index)));
    let onto = scope.routes.iter().filter_map(|route| {
        let is_onto = route.via.is_none() && route.action.is_none() && !route.recursive;
        let name = route.interface.as_ref().filter(|_| is_onto)?;
        let (index, _) = of_router(interfaces, router).find(|(_, interface)| interface.name == *name)?;
        // A default route onto a link does not make every address a neighbour on that link.
        (route.to.net().prefix_len() > 0).then_some((route.to.net(), index))
    });
    let covering = attached.chain(onto).filter(|(net, _)| net.contains(&address));
    covering.max_by_key(|(net, _)| net.prefix_len()).map(|(_, index)| index)
}

/// Hosts on a link that the router must resolve because of a route.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// A gateway.
    Gateway(IpAddr),
    /// Every destination.
    Hosts(Prefix),
}

impl Check<'_> {
    /// Whether an address is the network or broadcast address of a link.
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

    /// Whether the router can resolve IPv4 hosts on an interface. Resolution requires an IPv4 address on this interface
    /// or on another interface of the router.
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

    /// Report recursive gateways that can't be resolved. The check is only for routers that do not learn routes.
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

    /// Whether the router learns routes.
    fn learns(&self) -> bool {
        let name = self.scope.table.unwrap_or(super::routers::DEFAULT);
        let router = self.document.routers.get(name);
        router.is_some_and(|router| router.fpm.is_some() || router.daemon && router.kernel_routes.unwrap_or(true))
    }
}

/// Whether an interface is a point-to-point link, on which addresses need not be resolved.
fn is_pair(interface: &Interface) -> bool {
    match &interface.link {
        Link::Tunnel(tunnel) => tunnel.kind != TunnelType::Vxlan,
        _ => false,
    }
}

/// Whether routes resolve a gateway. Like the daemon, the check uses the longest usable route other than a default
/// route.
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
