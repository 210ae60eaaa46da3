//! Validation of subscribers: DHCP servers of terminals, DHCP clients of sites, and their limits.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net};

use super::Check;
use super::sites::Named;
use crate::config::{Interface, InterfaceIndex, LeaseServer, Link, Pool, PublicClient, Subscribers};
use crate::limits::MAX_TERMINALS;
use crate::problem::{Problem, SubscribersProblem};
use crate::read::{Step, place};
use crate::schema;
use crate::value::{AddressRange, Prefix};

/// Maximum message rate and burst.
const MAX_MESSAGE_RATE: u32 = 1_000_000;

/// Maximum length of a host name without the digits of the site.
const LONGEST_NAME: usize = 200;

impl Check<'_> {
    /// Settings of subscribers, with interfaces and pools by index. `None` if subscribers are not configured.
    pub(super) fn subscribers(&mut self, interfaces: &[Interface], pools: &[Pool]) -> Option<Subscribers> {
        let document = self.document;
        let written = document.subscribers.as_ref()?;
        let max = written.max_terminals();
        if written.terminals.is_some() {
            let at = place!["subscribers", "terminals"];
            self.in_range(at, "a number of terminals", max, 1..=MAX_TERMINALS);
        }
        let servers = self.lease_servers(written);
        let public = self.public_clients(written, interfaces);
        let (groups, rows) = self.sites(Named {
            written,
            interfaces,
            pools,
        })?;
        let sites = written.sites.values();
        let named = sites.clone().filter_map(|group| group.dhcp.as_deref()).collect();
        self.unused("dhcp", written.dhcp.keys(), named);
        let named = sites.filter_map(|group| group.public.as_deref()).collect();
        self.unused("public", written.public.keys(), named);
        self.prefixes_beside_pools(written, interfaces, pools);
        Some(Subscribers {
            terminals: max,
            virtual_mac_prefix: (written.virtual_mac_prefix.as_ref())
                .map_or(Vec::new(), |prefix| prefix.bytes().to_vec()),
            trust_option_82: written.trust_option_82,
            groups,
            rows,
            servers: servers?,
            public: public?,
        })
    }

    /// Report tables that no group uses.
    fn unused<'k>(&mut self, table: &'static str, all: impl Iterator<Item = &'k String>, named: HashSet<&str>) {
        for name in all.filter(|name| !named.contains(name.as_str())) {
            let (at, name) = (place!["subscribers", table, name], name.clone());
            self.advise(at, SubscribersProblem::Unused { table, name }.into());
        }
    }

    /// DHCP servers. `None` only if a problem was reported.
    fn lease_servers(&mut self, written: &schema::Subscribers) -> Option<Vec<LeaseServer>> {
        let mut files: Vec<(PathBuf, &String)> = Vec::new();
        let mut servers = Vec::new();
        for (name, entry) in &written.dhcp {
            let at = |key| place!["subscribers", "dhcp", name, key].to_vec();
            self.name(place!["subscribers", "dhcp", name], name);
            let server = self.host_ipv4(&at("server"), entry.server);
            if let Some(relay) = entry.relay {
                self.host_ipv4(&at("relay"), relay);
            }
            self.message_rate(&at("terminal-rate"), entry.terminal_rate);
            self.message_rate(&at("site-rate"), entry.site_rate);
            let leases = self.beside(&entry.leases);
            self.file_alone(&at("leases"), "dhcp", (&leases, &entry.leases), &files);
            files.push((leases.clone(), name));
            servers.push(server.map(|server| LeaseServer {
                name: name.clone(),
                server,
                leases,
                format: entry.format,
                terminal_rate: entry.terminal_rate,
                site_rate: entry.site_rate,
            }));
        }
        servers.into_iter().collect()
    }

    /// DHCP clients. `None` only if a problem was reported.
    fn public_clients(&mut self, written: &schema::Subscribers, interfaces: &[Interface]) -> Option<Vec<PublicClient>> {
        let mut files: Vec<(PathBuf, &String)> = Vec::new();
        let mut clients = Vec::new();
        for (name, entry) in &written.public {
            let at = |key| place!["subscribers", "public", name, key].to_vec();
            let table = place!["subscribers", "public", name];
            let interface = self.interface_of_sites(table, name, interfaces);
            if let Some(index) = interface {
                let interface = &interfaces[usize::from(index)];
                if first_ipv4(interface).is_none() {
                    self.report(table, SubscribersProblem::NoOwnAddress(name.clone()).into());
                }
                let inside = |(_, group): &(&String, &schema::SiteGroup)| group.interface == *name;
                if let Some((group, _)) = written.sites.iter().find(inside) {
                    let (group, interface) = (group.clone(), name.clone());
                    let problem = SubscribersProblem::TerminalsOutside { group, interface };
                    self.report(table, problem.into());
                }
            }
            if entry.prefixes.is_empty() {
                self.report(table, SubscribersProblem::NoPrefixes(name.clone()).into());
            }
            let prefixes: Vec<_> = (entry.prefixes.iter().enumerate())
                .filter_map(|(k, &prefix)| self.network_ipv4(&[&at("prefixes"), place![k]].concat(), prefix))
                .collect();
            let servers: Vec<_> = (entry.servers.iter().enumerate())
                .filter_map(|(k, &server)| self.host_ipv4(&[&at("servers"), place![k]].concat(), server))
                .collect();
            self.in_range(&at("rate"), "messages a second", entry.rate, 1..=MAX_MESSAGE_RATE);
            self.whole_seconds(&at("minimum-lease"), "a lease", entry.minimum_lease);
            if let Some(host_name) = &entry.host_name {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
                let fits = (1..=LONGEST_NAME).contains(&host_name.len());
                if !fits || !host_name.bytes().all(plain) {
                    let problem = SubscribersProblem::HostName(host_name.clone());
                    self.report(&at("host-name"), problem.into());
                }
            }
            let state = entry.state.as_deref().map(|file| self.beside(file));
            if let (Some(path), Some(file)) = (&state, &entry.state) {
                self.file_alone(&at("state"), "public", (path, file), &files);
                files.push((path.clone(), name));
            }
            clients.push(interface.map(|interface| PublicClient {
                interface,
                prefixes,
                servers,
                identifier: entry.identifier,
                broadcast: entry.broadcast,
                host_name: entry.host_name.clone(),
                rate: entry.rate,
                hold: entry.hold.duration(),
                window: entry.window.duration(),
                shortest_lease: u32::try_from(entry.minimum_lease.duration().as_secs()).unwrap_or(u32::MAX),
                use_while_confirming: entry.use_while_confirming,
                state,
            }));
        }
        clients.into_iter().collect()
    }

    /// Index of an interface for sites. The interface must be a device or a bond that is in no bridge.
    pub(super) fn interface_of_sites(
        &mut self,
        at: &[Step<'_>],
        name: &str,
        interfaces: &[Interface],
    ) -> Option<InterfaceIndex> {
        let index = self.interface_index(at, name)?;
        let interface = interfaces.get(usize::from(index))?;
        let description = match &interface.link {
            _ if interface.bridge.is_some() => "in a bridge",
            Link::Virtual { .. } => "an end of an inter-router link",
            Link::Tunnel(_) => "a tunnel",
            Link::Vlan { .. } => "a VLAN of another interface",
            Link::Device { .. } | Link::Bond { .. } | Link::Removed => return Some(index),
        };
        let interface = name.to_owned();
        self.report(at, SubscribersProblem::Link { interface, description }.into());
        None
    }

    /// IPv4 address of a host. An invalid address is reported.
    fn host_ipv4(&mut self, at: &[Step<'_>], address: IpAddr) -> Option<Ipv4Addr> {
        match address {
            IpAddr::V4(v4) => self.host(at, address).then_some(v4),
            IpAddr::V6(_) => {
                self.report(at, SubscribersProblem::NotIpv4(address.to_string()).into());
                None
            }
        }
    }

    /// IPv4 network of hosts. An invalid network is reported.
    pub(super) fn network_ipv4(&mut self, at: &[Step<'_>], written: Prefix) -> Option<Ipv4Net> {
        let Some(net) = written.ipv4() else {
            self.report(at, SubscribersProblem::NotIpv4(written.to_string()).into());
            return None;
        };
        let last = net.broadcast();
        let address = [net.network(), last].map(IpAddr::V4);
        match address
            .into_iter()
            .find_map(|address| Some((address, self.unusable(address)?)))
        {
            Some((address, reason)) => {
                self.report(at, Problem::UnusableAddress { address, reason });
                None
            }
            None => Some(net),
        }
    }

    fn message_rate(&mut self, at: &[Step<'_>], written: schema::Rate) {
        let schema::Rate { rate, burst } = written;
        self.in_range(
            &[at, place!["rate"]].concat(),
            "messages a second",
            rate,
            1..=MAX_MESSAGE_RATE,
        );
        self.in_range(
            &[at, place!["burst"]].concat(),
            "messages at once",
            burst,
            1..=MAX_MESSAGE_RATE,
        );
    }

    /// Path of a file, which is relative to the directory of the configuration.
    fn beside(&self, file: &str) -> PathBuf {
        let folder = Path::new(self.name).parent().unwrap_or(Path::new(""));
        folder.join(file)
    }

    /// Path of a file. Two entries must not have the same file.
    fn file_alone(
        &mut self,
        at: &[Step<'_>],
        table: &'static str,
        (path, written): (&Path, &str),
        before: &[(PathBuf, &String)],
    ) {
        if let Some((_, other)) = before.iter().find(|(other, _)| other == path) {
            let (file, other) = (written.to_owned(), (*other).clone());
            self.report(at, SubscribersProblem::SameFile { file, table, other }.into());
        }
    }

    /// Check that DHCP servers can't lease addresses of a pool in the same router.
    fn prefixes_beside_pools(&mut self, written: &schema::Subscribers, interfaces: &[Interface], pools: &[Pool]) {
        for (name, entry) in &written.public {
            let Some(interface) = interfaces.iter().find(|interface| interface.name == *name) else {
                continue;
            };
            for (k, prefix) in entry.prefixes.iter().enumerate() {
                let range = prefix
                    .ipv4()
                    .and_then(|net| AddressRange::new(net.network(), net.broadcast()));
                let overlap = |pool: &Pool| {
                    let mut addresses = pool.addresses.iter();
                    let overlap = addresses.find_map(|addresses| addresses.overlap(&range?))?;
                    Some((overlap, pool.name.clone()))
                };
                let mut own = pools.iter().filter(|pool| pool.router == interface.router);
                if let Some((overlap, pool)) = own.find_map(overlap) {
                    let prefix = *prefix;
                    self.advise(
                        place!["subscribers", "public", name, "prefixes", k],
                        SubscribersProblem::PoolInPrefix { prefix, overlap, pool }.into(),
                    );
                }
            }
        }
    }
}

/// First IPv4 address of an interface.
pub(super) fn first_ipv4(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|own| match own.address() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

/// Whether an address is a valid host address in a network of an interface.
pub(super) fn is_host_of(interface: &Interface, address: Ipv4Addr) -> bool {
    interface.addresses.iter().any(|own| match own.net() {
        IpNet::V4(net) => {
            // RFC 3021: both addresses of a /31 are host addresses.
            let ends = [net.network(), net.broadcast()];
            net.contains(&address) && (net.prefix_len() >= 31 || !ends.contains(&address))
        }
        IpNet::V6(_) => false,
    })
}
