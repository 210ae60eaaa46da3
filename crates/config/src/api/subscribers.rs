//! `/v1/sites` and `/v1/leases`: subscribers' sites, and private leases of their terminals.

use std::net::Ipv4Addr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, age, grouped, or_dash};
use super::{Counter, NetFilter};

/// Selection of sites that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SiteFilter {
    /// Name of the site, as homes-100.7.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Group of sites.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl SiteFilter {
    /// Whether a site matches.
    pub fn matches(&self, site: &Site) -> bool {
        self.site.as_ref().is_none_or(|name| *name == site.name)
            && self.group.as_ref().is_none_or(|name| *name == site.group)
    }
}

/// A site with the state of its public address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Site {
    /// Name of the site: the name of its group, followed by its tags if it has any.
    pub name: String,
    /// Name of the group.
    pub group: String,
    /// Number of the site. The contexts of the site's sessions contain this number.
    pub number: u32,
    /// Access interface of the terminals.
    pub interface: String,
    /// Tags, such as `100.7` for an S-tag and a C-tag, or `7` for a single tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<String>,
    /// Network of the terminals, if the site is identified by a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Virtual MAC, if the site gets a public address by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Public address, if the site has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<Ipv4Addr>,
    /// Interface on which the site gets its public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_interface: Option<String>,
    /// Pool of the site's ports, if the site has no public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// State of the DHCP client: `idle`, `waiting`, `selecting`, `requesting`, `rebooting`, `bound`, `renewing`,
    /// `rebinding`, `declining` or `releasing`. Absent if the site uses a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Server that leases the public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Ipv4Addr>,
    /// Seconds until the lease is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<u64>,
    /// Seconds until the lease ends. Absent if the lease is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Number of terminals.
    pub terminals: u32,
    /// Further conditions of interest to the operator, one word each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl Site {
    /// The outside address of the site, or the pool that its terminals share.
    fn outside(&self) -> Option<String> {
        let address = self.public.map(|public| public.to_string());
        address.or_else(|| Some(format!("pool {}", self.pool.as_ref()?)))
    }

    /// Expiry as text. An infinite lease and a missing lease have different texts.
    fn expiry(&self) -> Option<String> {
        match (self.public, self.expires) {
            (Some(_), None) => Some("never".into()),
            (_, expires) => expires.map(age),
        }
    }
}

impl Row for Site {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("SITE", |row| row.name.clone()),
        Column::text("OUTSIDE", |row| or_dash(row.outside())),
        Column::text("STATE", |row| or_dash(row.state.as_ref())),
        Column::number("RENEWS", |row| or_dash(row.renews.map(age))),
        Column::number("EXPIRES", |row| or_dash(row.expiry())),
        Column::text("SERVER", |row| or_dash(row.server)),
        Column::text("VIRTUAL MAC", |row| or_dash(row.mac.as_ref())),
        Column::number("TERMINALS", |row| grouped(row.terminals.into())),
        Column::text("INTERFACE", |row| row.interface.clone()),
        Column::text("NOTES", |row| row.flags.join(" ")),
    ];
}

/// Selection of private leases that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LeaseFilter {
    /// Address or network.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NetFilter>,
    /// Name of the site, as homes-100.7.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Group of sites.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl LeaseFilter {
    /// Whether a lease matches.
    pub fn matches(&self, lease: &Lease) -> bool {
        self.address.is_none_or(|net| net.matches(lease.address.into()))
            && self.site.as_ref().is_none_or(|name| lease.site.as_ref() == Some(name))
            && self
                .group
                .as_ref()
                .is_none_or(|name| lease.group.as_ref() == Some(name))
    }
}

/// A private address that a DHCP server has leased to a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lease {
    /// The leased address. Terminals of several sites may have the same address.
    pub address: Ipv4Addr,
    /// Ethernet address of the terminal.
    pub mac: String,
    /// Host name of the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// Site of the lease. The site is present even if the terminal is not served, and absent in state `outside`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Group of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of the DHCP server in `[subscribers.dhcp]`.
    pub server: String,
    /// Path of the lease file.
    pub source: String,
    /// Seconds since the last renewal.
    pub since: u64,
    /// Seconds until the lease ends. Absent if the lease is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// State of the terminal. `active`: its packets are translated; `waiting`: the site has no public address yet;
    /// `outside`: the lease belongs to no known site; `conflict`: the address is not in the site's network; `full`: the
    /// table of terminals is full.
    pub state: String,
}

impl Row for Lease {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("ADDRESS", |row| row.address.to_string()),
        Column::text("MAC", |row| row.mac.clone()),
        Column::text("SITE", |row| or_dash(row.site.as_ref())),
        Column::text("STATE", |row| row.state.clone()),
        Column::number("SINCE", |row| age(row.since)),
        Column::number("EXPIRES", |row| row.expires.map_or_else(|| "never".into(), age)),
        Column::text("HOST NAME", |row| or_dash(row.host_name.as_ref())),
        Column::text("SOURCE", |row| row.source.clone()),
    ];
}

/// Status of DHCP for terminals and for public addresses of sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DhcpStatus {
    /// Number of sites.
    pub sites: u64,
    /// Number of terminals of all sites, and the maximum number.
    pub terminals: [u64; 2],
    /// Number of private leases for terminals that are not served.
    pub left_out: u64,
    /// DHCP servers of private addresses.
    pub servers: Vec<LeaseServerStatus>,
    /// DHCP clients of public addresses.
    pub clients: Vec<PublicClientStatus>,
    /// Other counters of the subscriber service.
    pub counters: Vec<Counter>,
}

/// A DHCP server of private addresses, with counters of its lease file and of the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeaseServerStatus {
    /// Name in `[subscribers.dhcp]`.
    pub name: String,
    /// Path of the server's lease file.
    pub source: String,
    /// Whether the file exists.
    pub there: bool,
    /// Whether inotify reports changes of the file. Otherwise the file is checked every second.
    pub watched: bool,
    /// Why the file can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of leases in the file.
    pub leases: u64,
    /// Counters of the file and of the relay.
    pub counters: Vec<Counter>,
}

/// DHCP client of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PublicClientStatus {
    /// Name of the interface.
    pub interface: String,
    /// How the servers respond: `answering`, `silent` or `refusing`.
    pub servers: String,
    /// Number of sites with a public address.
    pub bound: u64,
    /// Counters of messages and faults.
    pub counters: Vec<Counter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(site: Option<&str>) -> Lease {
        Lease {
            address: Ipv4Addr::new(10, 0, 0, 2),
            mac: "00:00:5e:00:53:01".into(),
            host_name: None,
            site: site.map(str::to_owned),
            group: site.map(|_| "homes".to_owned()),
            server: "inside".into(),
            source: "leases".into(),
            since: 1,
            expires: None,
            state: if site.is_some() { "active" } else { "outside" }.into(),
        }
    }

    #[test]
    fn lease_matches_what_is_asked_of_address_site_and_group() {
        let filter = |address: Option<&str>, site: Option<&str>, group: Option<&str>| LeaseFilter {
            address: address.map(|address| address.parse().unwrap()),
            site: site.map(str::to_owned),
            group: group.map(str::to_owned),
        };
        let inside = lease(Some("homes-1.2"));
        assert!(filter(None, None, None).matches(&inside));
        assert!(filter(Some("10.0.0.0/24"), Some("homes-1.2"), Some("homes")).matches(&inside));
        assert!(!filter(Some("10.0.0.3"), None, None).matches(&inside));
        assert!(!filter(None, Some("homes-1.3"), None).matches(&inside));
        assert!(!filter(None, None, Some("shops")).matches(&inside));
        assert!(filter(None, None, None).matches(&lease(None)));
        assert!(!filter(None, None, Some("homes")).matches(&lease(None)));
    }
}
