//! Derives from the configuration the hosts between which generated traffic flows.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use sluice_config::Config;
use sluice_config::config::{DEFAULT_ROUTER, InterfaceIndex, RouteNextHop, RouterIndex, SourceAction, SourceRule};

/// Network of the remote hosts behind a default route. The network consists of publicly assigned addresses.
const REMOTES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(8, 8, 0, 0), 16);

/// The two sides of the gateway for the generated traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Interface of the inside hosts.
    pub inside: InterfaceIndex,
    /// Network of the inside hosts.
    pub hosts: Ipv4Net,
    /// Whether the inside hosts are directly connected to their interface.
    pub hosts_on_link: bool,
    /// Interface of the remote hosts.
    pub outside: InterfaceIndex,
    /// Network of the remote hosts.
    pub remotes: Ipv4Net,
    /// Whether the remote hosts are directly connected to their interface.
    pub remotes_on_link: bool,
}

/// A network behind an interface, and whether it is directly connected.
type Behind = (InterfaceIndex, Ipv4Net, bool);

/// Path of the packets that the first translating source rule matches. Without a translating rule, the path between the
/// first two interfaces. `None` if IPv4 packets can't be forwarded.
pub fn path(config: &Config) -> Option<Path> {
    let translates = |rule: &&SourceRule| !matches!(rule.action, SourceAction::Exempt);
    let rule = config.source.iter().find(translates);
    // Without translation, use the first router with an address.
    let with_address = config
        .interfaces
        .iter()
        .find(|interface| !interface.addresses.is_empty());
    let router = rule
        .map(|rule| rule.router)
        .or(with_address.map(|interface| interface.router));
    let networks = networks(config, router.unwrap_or(DEFAULT_ROUTER));
    let default = networks.iter().find(|(_, network, _)| network.prefix_len() == 0);
    let outside = rule.and_then(|rule| rule.out).or(default.map(|&(outside, ..)| outside));
    let outside = outside.or(networks.last().map(|&(outside, ..)| outside))?;
    let from = rule.map(|rule| rule.from);
    let inside = networks
        .iter()
        .filter(|&&(inside, network, _)| inside != outside && network.prefix_len() > 0);
    let (inside, hosts, hosts_on_link) = inside
        .filter_map(|&(inside, network, on_link)| match from {
            None => Some((inside, network, on_link)),
            Some(from) => Some((inside, both(network, from)?, on_link)),
        })
        .next()?;
    let mut remotes = networks.iter().filter(|&&(remote, ..)| remote == outside);
    let routed = remotes.clone().find(|(.., on_link)| !on_link);
    let &(_, remotes, remotes_on_link) = routed.or_else(|| remotes.next())?;
    Some(Path {
        inside,
        hosts,
        hosts_on_link,
        outside,
        remotes: if remotes.prefix_len() == 0 { REMOTES } else { remotes },
        remotes_on_link,
    })
}

/// IPv4 networks behind a router's interfaces. Directly connected networks come first.
fn networks(config: &Config, router: RouterIndex) -> Vec<Behind> {
    let interfaces = (0..)
        .zip(&config.interfaces)
        .filter(|(_, interface)| interface.router == router);
    let links = interfaces.flat_map(|(index, interface)| {
        let nets = interface.addresses.iter().map(|address| address.net());
        nets.filter_map(move |net| Some((index, v4(net)?, true)))
    });
    let routes = config.routes.iter().filter(|route| route.router == router);
    let routes = routes.filter_map(|route| {
        let (index, on_link) = match route.next_hop {
            RouteNextHop::Gateway(_, index) => (index, false),
            RouteNextHop::Link(index) => (index, true),
            _ => return None,
        };
        Some((index, v4(route.to.net())?, on_link))
    });
    links.chain(routes).collect()
}

fn v4(net: IpNet) -> Option<Ipv4Net> {
    match net {
        IpNet::V4(net) => Some(net.trunc()),
        IpNet::V6(_) => None,
    }
}

/// Intersection of two networks.
fn both(one: Ipv4Net, other: Ipv4Net) -> Option<Ipv4Net> {
    match (one.contains(&other), other.contains(&one)) {
        (true, _) => Some(other),
        (_, true) => Some(one),
        _ => None,
    }
}

impl Path {
    /// Inside host with this number, modulo the number of hosts.
    pub fn host(&self, number: u32) -> Ipv4Addr {
        nth(self.hosts, number)
    }

    /// Remote host with this number, modulo the number of hosts. Consecutive numbers are multiplied by an odd number,
    /// so that each host is used once and the hosts are spread over the network.
    pub fn remote(&self, number: u32) -> Ipv4Addr {
        nth(self.remotes, number)
    }

    /// Number of inside hosts.
    pub fn host_count(&self) -> u32 {
        count(self.hosts)
    }

    /// Number of remote hosts.
    pub fn remote_count(&self) -> u32 {
        count(self.remotes)
    }
}

/// Number of hosts in a network, excluding the network address, the usual gateway address and the broadcast address.
fn count(network: Ipv4Net) -> u32 {
    (1u32 << (32 - network.prefix_len()).min(16)).saturating_sub(3).max(1)
}

fn nth(network: Ipv4Net, number: u32) -> Ipv4Addr {
    let first = u32::from(network.network());
    let skipped = if network.prefix_len() > 29 { 0 } else { 2 };
    Ipv4Addr::from(first.wrapping_add(skipped + number % count(network)))
}

#[cfg(test)]
mod tests {
    use sluice_config::{Machine, check};

    use super::*;

    const INTERFACES: &str = "[interfaces.in]\ndevice = \"null:\"\naddresses = [\"10.0.0.1/24\"]\n\
                              [interfaces.out]\ndevice = \"null:\"\naddresses = [\"198.51.100.1/24\"]\n";
    const DEFAULT: &str = "[[routes]]\nto = \"0.0.0.0/0\"\nvia = \"198.51.100.254\"\n";

    fn found(text: &str) -> Option<Path> {
        let machine = Machine {
            cores: vec![0],
            memory: 1 << 40,
            entry: Default::default(),
        };
        path(&check("test", text, &machine).unwrap_or_else(|e| panic!("{e}")).config)
    }

    #[test]
    fn path_leads_from_the_link_to_the_default_route() {
        let path = found(&format!("{INTERFACES}{DEFAULT}")).unwrap();
        assert_eq!((0, 1), (path.inside, path.outside));
        assert!(path.hosts_on_link && !path.remotes_on_link);
        assert_eq!([2, 254, 2], [0, 252, 253].map(|k| path.host(k).octets()[3]));
        assert_eq!(REMOTES, path.remotes);
    }

    #[test]
    fn path_follows_the_first_source_rule_behind_a_router() {
        let text = format!(
            "{INTERFACES}{DEFAULT}[[routes]]\nto = \"100.64.0.0/10\"\nvia = \"10.0.0.2\"\n\
             [nat.pools.p]\naddresses = [\"198.51.100.10\"]\n\
             [[nat.source]]\nfrom = \"100.64.0.0/16\"\nout = \"out\"\npool = \"p\"\n"
        );
        let path = found(&text).unwrap();
        assert!(!path.hosts_on_link);
        assert_eq!("100.64.0.0/16".parse(), Ok(path.hosts));
    }

    #[test]
    fn path_without_a_default_route_leads_to_the_other_link() {
        let path = found(INTERFACES).unwrap();
        assert!(path.remotes_on_link);
        assert_eq!("198.51.100.0/24".parse(), Ok(path.remotes));
        assert_eq!(
            None,
            found("[interfaces.six]\ndevice = \"null:\"\naddresses = [\"2001:db8::1/64\"]\n")
        );
    }
}
