//! `/v1/sites` and `/v1/leases`: sites of subscribers, and who has which private address.

use std::net::Ipv4Addr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, age, grouped, or_dash};
use super::{Counter, NetFilter};

/// Which sites: those that match all that is given.
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

/// A site, and how it stands with its public address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Site {
    /// Its name: that of its group, with its tags where it has any.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its number, which is in the context of its sessions.
    pub number: u32,
    /// The interface by which its terminals come in.
    pub interface: String,
    /// Its tags: `100.7` for an S-tag and a C-tag, `7` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<String>,
    /// Addresses of its terminals, where it is told by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Its virtual MAC, where it gets a public address by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its public address, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<Ipv4Addr>,
    /// The interface on which it gets that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_interface: Option<String>,
    /// The pool that it has ports of, where it gets no public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How it stands with DHCP: `idle`, `waiting`, `selecting`, `requesting`, `rebooting`, `bound`, `renewing`,
    /// `rebinding`, `declining` or `releasing`; none where it is on a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The server that leases its public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Ipv4Addr>,
    /// Seconds until the lease is asked for again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<u64>,
    /// Seconds until the lease ends; none where it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Its terminals.
    pub terminals: u32,
    /// What else an operator should know of it, in a word each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl Site {
    /// The outside address, or the pool that its terminals share.
    fn outside(&self) -> Option<String> {
        let address = self.public.map(|public| public.to_string());
        address.or_else(|| Some(format!("pool {}", self.pool.as_ref()?)))
    }

    /// A lease without an end has no time to show, and is told from none at all.
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

/// Which private leases: those that match all that is given.
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

/// A private address that a terminal has by a DHCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lease {
    /// The address. Terminals of several sites may have the same.
    pub address: Ipv4Addr,
    /// The terminal's Ethernet address.
    pub mac: String,
    /// What the terminal calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// The site that it is in, or would be; none where it is `outside`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The group of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Which of `[subscribers.dhcp]` leases it.
    pub server: String,
    /// The file that says so.
    pub source: String,
    /// Seconds since it was last asked for.
    pub since: u64,
    /// Seconds until it ends; none where it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// `active`: its packets are translated; `waiting`: its site has no public address yet; `outside`: it is in no site that is
    /// known; `conflict`: its site can't have this address; `full`: there are as many terminals as may be.
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

/// How DHCP goes, that of terminals and that of sites' public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DhcpStatus {
    /// Sites.
    pub sites: u64,
    /// Terminals of all sites, and most of them that there may be.
    pub terminals: [u64; 2],
    /// Private leases whose terminals are not served.
    pub left_out: u64,
    /// Servers of private addresses.
    pub servers: Vec<LeaseServerStatus>,
    /// Clients for public addresses.
    pub clients: Vec<PublicClientStatus>,
    /// What has happened to sites beside that.
    pub counters: Vec<Counter>,
}

/// A server of private addresses: its file, and what was relayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeaseServerStatus {
    /// Its name in `[subscribers.dhcp]`.
    pub name: String,
    /// Its file of leases.
    pub source: String,
    /// Whether the file is there.
    pub there: bool,
    /// Whether the kernel tells of changes to it. It is looked at each second otherwise.
    pub watched: bool,
    /// Why it can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Leases that stand there.
    pub leases: u64,
    /// What came of the file and of the relay.
    pub counters: Vec<Counter>,
}

/// The DHCP client of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PublicClientStatus {
    /// The interface.
    pub interface: String,
    /// What servers do: `answering`, `silent` or `refusing`.
    pub servers: String,
    /// Sites that have a public address.
    pub bound: u64,
    /// What was said, and what was wrong with it.
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
        let asked = |address: Option<&str>, site: Option<&str>, group: Option<&str>| LeaseFilter {
            address: address.map(|address| address.parse().unwrap()),
            site: site.map(str::to_owned),
            group: group.map(str::to_owned),
        };
        let inside = lease(Some("homes-1.2"));
        assert!(asked(None, None, None).matches(&inside));
        assert!(asked(Some("10.0.0.0/24"), Some("homes-1.2"), Some("homes")).matches(&inside));
        assert!(!asked(Some("10.0.0.3"), None, None).matches(&inside));
        assert!(!asked(None, Some("homes-1.3"), None).matches(&inside));
        assert!(!asked(None, None, Some("shops")).matches(&inside));
        assert!(asked(None, None, None).matches(&lease(None)));
        assert!(!asked(None, None, Some("homes")).matches(&lease(None)));
    }
}
