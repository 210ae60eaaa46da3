//! `[subscribers]`: sites, and where the addresses of their terminals and their own come from.

use std::net::IpAddr;

use indexmap::IndexMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Rate;
use crate::limits::MOST_TERMINALS;
use crate::value::{MacPrefix, Period, Prefix, SiteTags};

/// Terminals of a site that there is room for, on average, where nobody says otherwise.
const TERMINALS_EACH: u64 = 4;

/// Least room for terminals, where nobody says otherwise.
const TERMINALS: u64 = 1_024;

/// `[subscribers]`: sites of subscribers, whose terminals have private addresses by a DHCP server, the same in many
/// sites, and a public address for each site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Subscribers {
    /// Most terminals of all sites together; four for each site, and at least 1024, where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminals: Option<u32>,
    /// What virtual MACs begin with: one to three bytes. Sites differ in all other bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_mac_prefix: Option<MacPrefix>,
    /// Terminals, or bridges and relays before them, may bring option 82 themselves: it is replaced. Otherwise they are
    /// refused.
    #[serde(rename = "trust-option-82")]
    pub trust_option_82: bool,
    /// Groups of sites by name; a site with tags is called by both: `homes-100.7`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sites: IndexMap<String, SiteGroup>,
    /// DHCP servers that lease private addresses to terminals, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub dhcp: IndexMap<String, LeaseServer>,
    /// Interfaces on which sites get public addresses by DHCP.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub public: IndexMap<String, PublicClient>,
}

impl Subscribers {
    /// How many sites there are.
    pub fn count(&self) -> u64 {
        let count = |group: &SiteGroup| group.tags.map_or(1, |tags| u64::from(tags.count()));
        self.sites.values().map(count).sum()
    }

    /// How many public addresses sites may have.
    pub fn public_addresses(&self) -> u64 {
        let addresses = |prefix: &Prefix| match prefix.net() {
            IpNet::V4(net) => 1u64 << (32 - net.prefix_len()),
            IpNet::V6(_) => 0,
        };
        let prefixes = self.public.values().flat_map(|client| &client.prefixes);
        prefixes.map(addresses).sum()
    }

    /// Most terminals, as it is written or by default.
    pub fn most_terminals(&self) -> u32 {
        let usual = self.count().saturating_mul(TERMINALS_EACH).max(TERMINALS);
        let usual = u32::try_from(usual).unwrap_or(u32::MAX).min(MOST_TERMINALS);
        self.terminals.unwrap_or(usual)
    }
}

/// `[subscribers.sites.NAME]`: sites that are alike but for their tags. Without `tags`, it is one site: what comes from
/// the addresses of `prefix`, or all that comes in by the interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteGroup {
    /// The interface by which terminals come in: a device or a bond. Its address is the gateway of them all.
    pub interface: String,
    /// A site for each pair of an S-tag and a C-tag (`"100-109.1-1000"`), or for each single tag (`"7-9"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<SiteTags>,
    /// Addresses of the terminals, instead of tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Which of `[subscribers.dhcp]` leases addresses to the terminals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<String>,
    /// Which of `[subscribers.public]` is the interface on which each site gets a public address; or `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
    /// The pool that each site has outside addresses and ports of, as one of its subscribers; or `public`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// `[subscribers.dhcp.NAME]`: a DHCP server that leases private addresses to terminals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LeaseServer {
    /// Where terminals' messages are relayed to.
    pub server: IpAddr,
    /// The relay's address in the sites, by which the server chooses a subnet (`giaddr`): the first address of their
    /// interface where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<IpAddr>,
    /// The server's file of leases; where it is relative, from the folder of the configuration.
    pub leases: String,
    /// Whose file it is.
    pub format: LeaseFormat,
    /// Messages a second, and at once, of a terminal.
    #[serde(default = "of_terminal")]
    pub terminal_rate: Rate,
    /// The same of all terminals of a site.
    #[serde(default = "of_site")]
    pub site_rate: Rate,
}

fn of_terminal() -> Rate {
    Rate { rate: 5, burst: 20 }
}

fn of_site() -> Rate {
    Rate { rate: 20, burst: 60 }
}

/// Whose file of leases it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseFormat {
    /// Kea's `kea-leases4.csv`.
    Kea,
    /// `dhcpd.leases` of ISC.
    Dhcpd,
}

/// `[subscribers.public.INTERFACE]`: a DHCP client for each site, on an interface that has an address of its own, seen
/// there by the site's virtual MAC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PublicClient {
    /// Where public addresses come from: a lease of any other address is refused.
    pub prefixes: Vec<Prefix>,
    /// DHCP servers that are listened to; all where there is none.
    pub servers: Vec<IpAddr>,
    /// What a site calls itself (option 61).
    pub identifier: ClientIdentifier,
    /// Ask servers to broadcast their answers to sites without an address.
    pub broadcast: bool,
    /// Host name of each site (option 12): this, a hyphen and the digits of its MAC. None is sent where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Messages a second, of all sites together.
    pub rate: u32,
    /// How long a site without terminals keeps its address.
    pub hold: Period,
    /// How long offers are compared; the first is taken where it is 0s.
    pub window: Period,
    /// Shortest lease that is taken.
    pub minimum_lease: Period,
    /// Use leases of before a restart while the server is asked whether they hold.
    pub use_while_confirming: bool,
    /// File in which leases outlive a restart; where it is relative, from the folder of the configuration. They don't
    /// where it is not given.
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

/// What a site calls itself when it asks for a public address (option 61).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientIdentifier {
    /// Its virtual MAC (RFC 2132, 9.14).
    #[default]
    Mac,
    /// A node of its own, made of its virtual MAC (RFC 4361).
    Node,
    /// Nothing: its hardware address alone counts.
    None,
}
