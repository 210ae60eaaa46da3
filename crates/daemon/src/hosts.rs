//! The routers that have host stacks, and the link states of the host stacks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sluice_config::Config;
use sluice_config::config::{RouteNextHop, RouterIndex};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::WorkerHandle;
use sluice_route::Address;

use crate::control::Control;
use crate::host::{HostError, HostInterface, HostQueues, HostRouter, Hosts};
use crate::lowering::relays;

/// Interval between checks of the link states.
const PERIOD: Duration = Duration::from_millis(100);

/// Routers that have host stacks, with interfaces and addresses, according to a configuration and its snapshot.
pub(crate) fn routers(config: &Config, policy: &Snapshot) -> Vec<HostRouter> {
    let interfaces = |number: RouterIndex| {
        let meant = move |(index, _): &(u16, _)| {
            let configured = config.interfaces.get(usize::from(*index));
            configured.is_some_and(|configured| configured.router == number)
        };
        let interfaces = (0..).zip(&policy.interfaces).filter(meant);
        // The name is empty if the interface number is unused.
        interfaces.filter(|(_, interface)| interface.host && !interface.name.is_empty())
    };
    let router = |(number, router): (RouterIndex, &sluice_config::config::Router)| HostRouter {
        name: router.name.clone(),
        interfaces: interfaces(number)
            .map(|(index, interface)| HostInterface {
                index,
                name: interface.name.clone(),
                mac: interface.mac,
                mtu: interface.mtu,
                addresses: interface
                    .link
                    .addresses
                    .iter()
                    // For addresses of relays, the DHCP relay of sites answers instead of the kernel.
                    .filter(|(own, _)| !relays(config, index).iter().any(|relay| plain(*own) == *relay))
                    .map(|&(own, length)| (plain(own), length))
                    .collect(),
            })
            .collect(),
        uplinks: [false, true].map(|v6| {
            let of_family = |own: &Address| plain(*own).is_ipv6() == v6 && !own.is_link_local();
            let first = || {
                interfaces(number)
                    .find(|(_, interface)| interface.link.addresses.iter().any(|(own, _)| of_family(own)))
                    .map(|(index, _)| index)
            };
            default_route(config, number, v6).or_else(first)
        }),
    };
    let with_hosts = (0..)
        .zip(&config.routers)
        .filter(|(_, router)| router.daemon && !router.name.is_empty());
    with_hosts.map(router).collect()
}

fn plain(address: Address) -> IpAddr {
    match address {
        Address::V4(bits) => Ipv4Addr::from_bits(bits).into(),
        Address::V6(bits) => Ipv6Addr::from_bits(bits).into(),
    }
}

/// Interface of a router's configured default route with the lowest distance.
fn default_route(config: &Config, router: RouterIndex, v6: bool) -> Option<u16> {
    let routes = config.routes.iter().filter(|route| route.router == router);
    let defaults = routes.filter(|route| {
        let net = route.to.net();
        net.prefix_len() == 0 && net.addr().is_ipv6() == v6
    });
    let next_hops = defaults.filter_map(|route| match route.next_hop {
        RouteNextHop::Gateway(_, interface) | RouteNextHop::Link(interface) => Some((route.distance, interface)),
        RouteNextHop::Recursive(_) | RouteNextHop::Discard(_) => None,
    });
    next_hops
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, interface)| interface)
}

/// Create the host stacks, and connect them with the workers by queues.
pub(crate) fn start(config: &Config, policy: &Snapshot, handles: &mut [WorkerHandle]) -> Result<Hosts, HostError> {
    let to_hosts = handles.iter_mut().filter_map(|handle| handle.to_hosts.take()).collect();
    let from_hosts = handles.iter_mut().find_map(|handle| handle.from_hosts.take());
    let queues = HostQueues { to_hosts, from_hosts };
    Hosts::start(routers(config, policy), queues)
}

impl Control {
    /// Update the host stacks according to the running configuration.
    pub(crate) async fn settle_hosts(&self) {
        let wanted = routers(&self.config(), self.plane().snapshot());
        let hosts = self.hosts.clone();
        match tokio::task::spawn_blocking(move || hosts.update(wanted)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("{error}"),
            Err(error) => tracing::error!("the hosts of routers are not updated: {error}"),
        }
    }

    /// Set the carrier of host stack interfaces according to the links of their devices; runs for the life of the
    /// process.
    pub(crate) async fn follow_hosts(&self) {
        loop {
            let links = self.hosts.links();
            for link in &links {
                self.hosts.set_link(link.index, self.has_link(link.index));
            }
            self.set_kernel_links(&links);
            tokio::time::sleep(PERIOD).await;
        }
    }
}
