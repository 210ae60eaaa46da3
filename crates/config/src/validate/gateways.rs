//! Resolution of the gateways of static routes: the link of each gateway, according to connected networks and routes
//! onto links, and whether recursive gateways can be resolved.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Check;
use super::routers::{DEFAULT, Scope, of_router};
use crate::config::{Interface, InterfaceIndex, Link, Route, RouteNextHop, RouterIndex};
use crate::problem::{Problem, RouteProblem};
use crate::read::{Step, place};
use crate::schema::{self, TunnelType};
use crate::value::Prefix;

/// Maximum number of gateways between a route and its link. The daemon has the same limit.
const DEPTH: usize = 8;

/// Interface on whose link an address is. The longest matching network determines the interface. Both connected
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
pub(super) enum ResolvedHosts {
    /// A gateway.
    Gateway(IpAddr),
    /// Every destination.
    Hosts(Prefix),
}

impl Check<'_> {
    /// Whether an address is the network or broadcast address of a link.
    pub(super) fn is_broadcast(&mut self, at: &[Step<'_>], address: IpAddr, interfaces: &[Interface]) -> bool {
        let mut links = of_router(interfaces, self.scope.router);
        let found = links.find(|(_, interface)| interface.addresses.iter().any(|own| is_end(own.net(), address)));
        let Some((_, interface)) = found else { return false };
        self.report(at, RouteProblem::Broadcast(address, interface.name.clone()).into());
        true
    }

    /// Whether an address belongs to a DHCP relay, so that it is one of the router's own addresses. If so, a problem is
    /// reported.
    pub(super) fn is_relay(&mut self, at: &[Step<'_>], address: IpAddr) -> bool {
        let found = self.relay_at(address).is_some();
        if found {
            self.report(at, Problem::OwnAddress(address));
        }
        found
    }

    /// Interface of the current router on which this address belongs to a DHCP relay.
    pub(super) fn relay_at(&self, address: IpAddr) -> Option<&str> {
        let subscribers = self.document.subscribers.as_ref()?;
        let relays = |group: &&schema::SiteGroup| {
            let interface = self.document.interfaces.get(&group.interface);
            let router = interface.map(|interface| interface.router.as_deref().unwrap_or(DEFAULT));
            let server = group.dhcp.as_ref().and_then(|server| subscribers.dhcp.get(server));
            router.and_then(|router| self.router_number(router)) == Some(self.scope.router)
                && server.is_some_and(|server| server.relay == Some(address))
        };
        let mut groups = subscribers.sites.values();
        groups.find(relays).map(|group| group.interface.as_str())
    }

    /// Whether a route or uplink may use an interface. An interface in a bridge is reported.
    pub(super) fn is_routed(&mut self, at: &[Step<'_>], index: InterfaceIndex, interfaces: &[Interface]) -> bool {
        let interface = interfaces.get(usize::from(index));
        let bridged = interface.filter(|interface| interface.bridge.is_some());
        if let Some(interface) = bridged {
            self.report(at, RouteProblem::Bridged(interface.name.clone()).into());
        }
        bridged.is_none()
    }

    /// Check that the router derives no route for the destination of a route: the destination must be neither the
    /// router's own address nor the network or broadcast address of a link.
    pub(super) fn is_beyond_router(&self, to: Prefix, interfaces: &[Interface]) -> Result<(), RouteProblem> {
        let net = to.net();
        if net.prefix_len() < net.max_prefix_len() {
            return Ok(());
        }
        let address = net.addr();
        let holds = |is_such: &dyn Fn(IpNet) -> bool| {
            let has = |interface: &Interface| interface.addresses.iter().any(|own| is_such(own.net()));
            let mut links = of_router(interfaces, self.scope.router);
            links
                .find(|(_, interface)| has(interface))
                .map(|(_, interface)| interface.name.as_str())
        };
        if let Some(name) = holds(&|own| own.addr() == address).or(self.relay_at(address)) {
            return Err(RouteProblem::ToItself(to, name.to_owned()));
        }
        match holds(&|own| is_end(own, address)) {
            Some(name) => Err(RouteProblem::ToBroadcast(to, name.to_owned())),
            None => Ok(()),
        }
    }

    /// Whether the router can resolve IPv4 hosts on an interface. Resolution requires an IPv4 address on this interface
    /// or on another interface of the router.
    pub(super) fn can_resolve(
        &mut self,
        at: &[Step<'_>],
        index: InterfaceIndex,
        hosts: ResolvedHosts,
        interfaces: &[Interface],
    ) -> bool {
        let is_known = |gateway| {
            self.document
                .neighbours
                .fixed
                .iter()
                .any(|fixed| fixed.address == gateway)
        };
        let needs_resolution = match hosts {
            ResolvedHosts::Gateway(gateway) => gateway.is_ipv4() && !is_known(gateway),
            ResolvedHosts::Hosts(to) => to.ipv4().is_some(),
        };
        let Some(interface) = interfaces.get(usize::from(index)).filter(|_| needs_resolution) else {
            return true;
        };
        let mut own = of_router(interfaces, self.scope.router).flat_map(|(_, interface)| &interface.addresses);
        let has_address = own.any(|own| own.address().is_ipv4());
        if has_address || is_pair(interface) {
            return true;
        }
        self.report(at, RouteProblem::NoArpSource(interface.name.clone()).into());
        false
    }

    /// Report recursive gateways that can't be resolved. The check is only for routers that do not learn routes.
    pub(super) fn recursive(&mut self, routes: &[(usize, Route)], interfaces: &[Interface]) {
        if self.learns() {
            return;
        }
        for (k, route) in routes {
            let RouteNextHop::Recursive(gateway) = route.next_hop else {
                continue;
            };
            if !leads(gateway, routes, interfaces, self.scope.router, &mut Vec::new()) {
                self.report(place!["routes", *k, "via"], RouteProblem::Unreachable(gateway).into());
            }
        }
    }

    /// Whether the router learns routes.
    fn learns(&self) -> bool {
        let name = self.scope.table.unwrap_or(DEFAULT);
        let router = self.document.routers.get(name);
        router.is_some_and(|router| router.fpm.is_some() || router.daemon && router.kernel_routes.unwrap_or(true))
    }
}

/// Whether an address is the network or broadcast address of a link. RFC 3021: a /31 has neither.
fn is_end(net: IpNet, address: IpAddr) -> bool {
    match net {
        IpNet::V4(net) if net.prefix_len() < 31 => [net.network(), net.broadcast()].map(IpAddr::V4).contains(&address),
        _ => false,
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
        .any(|(_, route)| match route.next_hop {
            RouteNextHop::Recursive(next) => leads(next, routes, interfaces, router, path),
            RouteNextHop::Gateway(..) | RouteNextHop::Link(_) | RouteNextHop::Discard(_) => true,
        });
    path.pop();
    found
}
