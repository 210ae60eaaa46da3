//! Validation of uplinks, and of routes that refer to them.

use std::net::IpAddr;

use super::Check;
use super::gateways::ResolvedHosts;
use super::routers::Scope;
use crate::config::{Interface, Link, RouteNextHop, Uplink};
use crate::problem::{RouteProblem, UplinkProblem};
use crate::read::place;
use crate::schema;
use crate::value::{Period, ScopedAddress};

/// Maximum number of probed hosts per uplink.
const MAX_TARGETS: usize = 8;

/// Maximum number of uplinks. Each uplink may be checked ten times per second.
const MAX_UPLINKS: usize = 64;

impl Check<'_> {
    pub(super) fn uplinks(&mut self, interfaces: &[Interface]) -> Vec<Uplink> {
        let document = self.document;
        let mut uplinks: Vec<Uplink> = Vec::new();
        let count = document.uplinks.len();
        if count > MAX_UPLINKS {
            self.report(place!["uplinks"], UplinkProblem::TooMany(count, MAX_UPLINKS).into());
        }
        for (name, written) in &document.uplinks {
            self.name(place!["uplinks", name], name);
            self.in_range(place!["uplinks", name, "weight"], "a weight", written.weight, 1..=255);
            if let Some(uplink) = self.uplink(name, written, interfaces) {
                let of_other = |gateway: &IpAddr| {
                    let same = uplinks
                        .iter()
                        .find(|other| other.interface == uplink.interface && other.gateways.contains(gateway));
                    same.map(|other| (*gateway, other.name.clone()))
                };
                if let Some((gateway, other)) = uplink.gateways.iter().find_map(of_other) {
                    self.report(
                        place!["uplinks", name, "via"],
                        UplinkProblem::Shared { gateway, other }.into(),
                    );
                }
                uplinks.push(uplink);
            }
        }
        self.scope = Scope::top(document);
        uplinks
    }

    fn uplink(&mut self, name: &str, written: &schema::Uplink, interfaces: &[Interface]) -> Option<Uplink> {
        let index = self.interface_index(place!["uplinks", name, "interface"], &written.interface)?;
        let interface = interfaces.get(usize::from(index))?;
        let scope = self
            .scopes()
            .into_iter()
            .find(|scope| scope.router == interface.router)?;
        // Gateways are resolved in the uplink's router, but problems are reported at the top level of the file, where
        // uplinks are configured.
        self.scope = Scope { table: None, ..scope };
        if !self.is_routed(place!["uplinks", name, "interface"], index, interfaces) {
            return None;
        }
        let via = place!["uplinks", name, "via"];
        let gateways: Vec<_> = written.via.iter().map(ScopedAddress::address).collect();
        let is_one = |v6: bool| gateways.iter().filter(|gateway| gateway.is_ipv6() == v6).count() < 2;
        if written.via.is_empty() || !is_one(false) || !is_one(true) {
            self.report(via, UplinkProblem::Gateways.into());
            return None;
        }
        let mut zones = written.via.iter().filter_map(ScopedAddress::zone);
        if let Some(zone) = zones.find(|zone| **zone != *written.interface) {
            let (zone, interface) = (zone.to_owned(), written.interface.clone());
            self.report(via, RouteProblem::ZoneElsewhere { zone, interface }.into());
            return None;
        }
        for &gateway in &gateways {
            let is_gateway = !self.is_broadcast(via, gateway, interfaces)
                && !self.is_relay(via, gateway)
                && self
                    .on_link(via, gateway, Some(index), (interface.router, interfaces))
                    .is_some()
                && self.can_resolve(via, index, ResolvedHosts::Gateway(gateway), interfaces);
            if !is_gateway {
                return None;
            }
        }
        if let Some(health) = &written.health {
            self.health(name, written, health, interface);
        }
        Some(Uplink {
            name: name.to_owned(),
            interface: index,
            gateways,
            weight: written.weight.max(1),
            health: written.health.clone(),
        })
    }

    fn health(&mut self, name: &str, written: &schema::Uplink, health: &schema::UplinkHealth, interface: &Interface) {
        let place = |key| [place!["uplinks", name, "health"], place![key]].concat();
        if health.ping.is_empty() && health.route.is_none() {
            self.report(place!["uplinks", name, "health"], UplinkProblem::NothingToCheck.into());
        }
        let (min, max) = (Period::milliseconds(100), Period::seconds(3600));
        self.in_range(&place("interval"), "an interval", health.interval, min..=max);
        if health.timeout > health.interval || health.timeout < Period::milliseconds(10) {
            self.report(&place("timeout"), UplinkProblem::Timeout(health.interval).into());
        }
        self.in_range(&place("failures"), "a number of failures", health.failures, 1..=100);
        self.in_range(&place("successes"), "a number of successes", health.successes, 1..=100);
        if health.ping.len() > MAX_TARGETS {
            self.report(&place("ping"), UplinkProblem::TooManyTargets(MAX_TARGETS).into());
        }
        if !health.ping.is_empty() && !has_frames(&interface.link) {
            self.report(
                &place("ping"),
                UplinkProblem::NoEthernet(written.interface.clone()).into(),
            );
        }
        for &target in &health.ping {
            let reached = |gateway: &IpAddr| gateway.is_ipv4() == target.is_ipv4();
            if self.host(&place("ping"), target)
                && !written
                    .via
                    .iter()
                    .map(ScopedAddress::address)
                    .any(|gateway| reached(&gateway))
            {
                self.report(&place("ping"), UplinkProblem::TargetFamily(target).into());
            }
            let has_source = |own: &crate::value::InterfaceAddress| own.address().is_ipv4() == target.is_ipv4();
            if !interface.addresses.iter().any(has_source) {
                self.report(
                    &place("ping"),
                    UplinkProblem::NoSource(target, written.interface.clone()).into(),
                );
            }
        }
    }

    /// Next hops of a route that uses uplinks, with their weights. Empty if a problem was reported.
    pub(super) fn by_uplinks(
        &mut self,
        k: usize,
        written: &schema::Route,
        uplinks: &[Uplink],
    ) -> Vec<(RouteNextHop, u8)> {
        let others = written.via.is_some() || written.interface.is_some() || written.action.is_some();
        if others || written.recursive || written.onlink || written.weight.is_some() {
            self.report(
                place!["routes", k, "uplinks"],
                UplinkProblem::Contradicts(written.to).into(),
            );
            return Vec::new();
        }
        if let Some(distance) = written.distance {
            self.in_range(place!["routes", k, "distance"], "a distance", distance, 1..=255);
        }
        let (mut next_hops, mut is_right) = (Vec::new(), true);
        for (place, name) in written.uplinks.iter().enumerate() {
            let at = place!["routes", k, "uplinks"];
            let is_again = written.uplinks.iter().take(place).any(|other| other == name);
            let Some(uplink) = uplinks.iter().find(|uplink| uplink.name == *name) else {
                // If the uplink is configured but invalid, its problem has already been reported.
                if !self.document.uplinks.contains_key(name) {
                    let known = self.document.uplinks.keys().cloned().collect();
                    let name = name.clone();
                    self.report(at, UplinkProblem::Unknown { name, known }.into());
                }
                is_right = false;
                continue;
            };
            if is_again {
                self.report(at, UplinkProblem::Twice(name.clone()).into());
                is_right = false;
                continue;
            }
            let interface = self.document.uplinks.get(name).map(|uplink| uplink.interface.clone());
            if let Some(interface) = interface
                && self.own_interface(at, &interface).is_none()
            {
                is_right = false;
                continue;
            }
            let family = |gateway: &&IpAddr| gateway.is_ipv4() == written.to.ipv4().is_some();
            let gateway = uplink.gateways.iter().find(family);
            next_hops.extend(gateway.map(|&gateway| (RouteNextHop::Gateway(gateway, uplink.interface), uplink.weight)));
        }
        if is_right && next_hops.is_empty() {
            self.report(
                place!["routes", k, "uplinks"],
                UplinkProblem::NoGateway(written.to).into(),
            );
        }
        if is_right { next_hops } else { Vec::new() }
    }
}

/// Whether a link carries Ethernet frames, which is required for echo requests.
fn has_frames(link: &Link) -> bool {
    !matches!(link, Link::Virtual { .. } | Link::Tunnel(_) | Link::Removed)
}
