//! `[subscribers]`: sites, and the sources of their private and public addresses.

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Rate;
use crate::limits::MAX_TERMINALS;
use crate::value::{MacPrefix, Period, Prefix, SiteTags};

/// Default average number of terminals per site.
const TERMINALS_EACH: u64 = 4;

/// Lower bound of the default number of terminals.
const TERMINALS: u64 = 1_024;

/// `[subscribers]`: sites. The terminals of a site get private addresses from a DHCP server, and share a public
/// address. Different sites may use the same private addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Subscribers {
    /// Maximum number of terminals of all sites together. Default: four per site, and at least 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminals: Option<u32>,
    /// Prefix of virtual MACs, one to three bytes long. The addresses of sites differ in the remaining bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_mac_prefix: Option<MacPrefix>,
    /// Whether terminals, or bridges and relays within sites, may add option 82. An added option is replaced. Otherwise
    /// messages with option 82 are dropped.
    #[serde(rename = "trust-option-82")]
    pub trust_option_82: bool,
    /// Site groups by name. The name of a site with tags consists of the group's name and the tags: `homes-100.7`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sites: IndexMap<String, SiteGroup>,
    /// DHCP servers for private addresses, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub dhcp: IndexMap<String, LeaseServer>,
    /// Interfaces on which sites get public addresses by DHCP.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub public: IndexMap<String, PublicClient>,
}

impl Subscribers {
    /// Number of sites.
    pub fn count(&self) -> u64 {
        let count = |group: &SiteGroup| group.tags.map_or(1, |tags| u64::from(tags.count()));
        self.sites.values().map(count).sum()
    }

    /// Maximum number of public addresses that sites may have.
    pub fn public_addresses(&self) -> u64 {
        let addresses = |prefix: &Prefix| match prefix.net() {
            IpNet::V4(net) => 1u64 << (32 - net.prefix_len()),
            IpNet::V6(_) => 0,
        };
        let prefixes = self.public.values().flat_map(|client| &client.prefixes);
        prefixes.map(addresses).sum()
    }

    /// Maximum number of terminals, either configured or the default.
    pub fn max_terminals(&self) -> u32 {
        let usual = self.count().saturating_mul(TERMINALS_EACH).max(TERMINALS);
        let usual = u32::try_from(usual).unwrap_or(u32::MAX).min(MAX_TERMINALS);
        self.terminals.unwrap_or(usual)
    }
}

/// `[subscribers.sites.NAME]`: sites that differ only in their tags. Without `tags`, the group is a single site. The
/// site's frames are the frames from addresses in `prefix`, or all frames on the interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteGroup {
    /// Access interface of the terminals, which is a device or a bond. The address of the interface is the gateway of
    /// all terminals.
    pub interface: String,
    /// Tags. Each pair of an S-tag and a C-tag (`"100-109.1-1000"`), or each single tag (`"7-9"`), is a site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<SiteTags>,
    /// Network of the terminals. Only without `tags`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Name of the DHCP server in `[subscribers.dhcp]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<String>,
    /// Interface in `[subscribers.public]` on which each site gets a public address. Only without `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
    /// Pool from which each site, as a subscriber, gets outside addresses and ports. Only without `public`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `[subscribers.dhcp.NAME]`: a DHCP server that leases private addresses to terminals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LeaseServer {
    /// Address to which messages from terminals are relayed.
    pub server: IpAddr,
    /// Address of the relay in the sites, with which the server selects a subnet (`giaddr`). Default: the first address
    /// of the sites' interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<IpAddr>,
    /// Path of the server's lease file, relative to the directory of the configuration.
    pub leases: String,
    /// Format of the lease file.
    pub format: LeaseFormat,
    /// Maximum message rate of a terminal.
    #[serde(default = "of_terminal")]
    pub terminal_rate: Rate,
    /// Maximum message rate of all terminals of a site together.
    #[serde(default = "of_site")]
    pub site_rate: Rate,
}

fn of_terminal() -> Rate {
    Rate { rate: 5, burst: 20 }
}

fn of_site() -> Rate {
    Rate { rate: 20, burst: 60 }
}

/// Format of a lease file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseFormat {
    /// Kea's `kea-leases4.csv`.
    Kea,
    /// ISC dhcpd's `dhcpd.leases`.
    Dhcpd,
}

/// `[subscribers.public.INTERFACE]`: DHCP clients of sites on an interface that itself has an address. Each site uses
/// its virtual MAC on this interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PublicClient {
    /// Networks of the public addresses. Leases of other addresses are rejected.
    pub prefixes: Vec<Prefix>,
    /// DHCP servers from which replies are accepted. If empty, the replies of all servers are accepted.
    pub servers: Vec<IpAddr>,
    /// Client identifier of a site (option 61).
    pub identifier: ClientIdentifier,
    /// Whether servers must broadcast replies to sites without an address.
    pub broadcast: bool,
    /// Prefix of the sites' host names (option 12). A hyphen and the digits of the MAC follow the prefix. If omitted,
    /// no host name is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Maximum number of messages per second, over all sites.
    pub rate: u32,
    /// Time for which a site without terminals keeps its address.
    pub hold: Period,
    /// Time for which offers are collected before the best is selected. With 0s, the first offer is selected.
    pub window: Period,
    /// Minimum lease time accepted.
    pub minimum_lease: Period,
    /// Whether leases from before a restart may be used before the server has confirmed them.
    pub use_while_confirming: bool,
    /// Path of a file that stores leases across restarts, relative to the directory of the configuration. If omitted,
    /// leases are not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl Default for PublicClient {
    fn default() -> Self {
        Self {
            prefixes: Vec::new(),
            servers: Vec::new(),
            identifier: ClientIdentifier::default(),
            broadcast: false,
            host_name: None,
            rate: 1_000,
            hold: Period::seconds(300),
            window: Period::seconds(0),
            minimum_lease: Period::seconds(60),
            use_while_confirming: true,
            state: None,
        }
    }
}

/// Client identifier of a site (option 61).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientIdentifier {
    /// The virtual MAC (RFC 2132, section 9.14).
    #[default]
    Mac,
    /// A node-specific identifier derived from the virtual MAC (RFC 4361).
    Node,
    /// No identifier. The server identifies the site by its hardware address.
    None,
}
