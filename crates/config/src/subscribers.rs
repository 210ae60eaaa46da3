//! Subscribers as the daemon uses them: sites are numbered, references are resolved, and all values are validated.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::config::{InterfaceIndex, PoolIndex, RouterIndex};
use crate::schema;
use crate::value::{SiteTags, Tags};

/// Sites, and the sources of their private and public addresses. Sites are numbered from 0 in the order of the file: by
/// group, then by S-tag, then by C-tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribers {
    /// Maximum number of terminals of all sites together.
    pub terminals: u32,
    /// Prefix of virtual MACs, with at most three bytes. Empty if not configured.
    pub virtual_mac_prefix: Vec<u8>,
    /// Whether messages from terminals may contain option 82, which is then replaced.
    pub trust_option_82: bool,
    /// Groups in the order of the file, each with at least one site.
    pub groups: Vec<SiteGroup>,
    /// Rows of consecutive sites, each with at least one site. A frame matches at most one row.
    pub rows: Vec<SiteRow>,
    /// DHCP servers of terminals.
    pub servers: Vec<LeaseServer>,
    /// DHCP clients of sites, one per interface.
    pub public: Vec<PublicClient>,
}

/// A group of sites with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteGroup {
    /// Name in the configuration.
    pub name: String,
    /// Access interface of the terminals. The interface is a device or a bond with an IPv4 address.
    pub interface: InterfaceIndex,
    /// Virtual router of the interface.
    pub router: RouterIndex,
    /// Number of the first site.
    pub first: u32,
    /// Number of sites.
    pub count: u32,
    /// Tags of the sites. `None` if the group is a single site without tags.
    pub tags: Option<SiteTags>,
    /// Network of the terminals, if the network identifies the site.
    pub prefix: Option<Ipv4Net>,
    /// DHCP server of the terminals, as index in [`Subscribers::servers`].
    pub server: usize,
    /// Address of the DHCP relay in the sites. The address is in a network of the interface.
    pub relay: Ipv4Addr,
    /// Outside addresses of the sites.
    pub outside: SitesOutside,
}

/// Source of the sites' outside addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SitesOutside {
    /// Each site gets a public address by DHCP. The value is the index of the client in [`Subscribers::public`].
    Public(usize),
    /// Each site is a subscriber of this pool. The pool belongs to the router and is not deterministic.
    Pool(PoolIndex),
}

/// Consecutive sites whose frames differ only in the last tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRow {
    /// Group, as index in [`Subscribers::groups`].
    pub group: usize,
    /// Access interface of the terminals.
    pub interface: InterfaceIndex,
    /// Number of the first site.
    pub first: u32,
    /// Number of sites; 1 for a site without tags.
    pub count: u32,
    /// Frames of the first site. The last tag increases by one from site to site.
    pub frames: SiteFrames,
}

/// Frames that belong to a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteFrames {
    /// All frames on the interface. No other site is on this interface.
    All,
    /// Untagged frames whose source address is in this network.
    Prefix(Ipv4Net),
    /// Frames with only this tag (802.1Q).
    Tag(u16),
    /// Frames with an S-tag (802.1ad) and a C-tag (802.1Q).
    Tags(u16, u16),
}

/// A DHCP server that leases addresses to terminals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseServer {
    /// Name in the configuration.
    pub name: String,
    /// Address to which messages are relayed.
    pub server: Ipv4Addr,
    /// Path of the server's lease file. No two servers have the same file.
    pub leases: PathBuf,
    /// Format of the lease file.
    pub format: schema::LeaseFormat,
    /// Maximum message rate of a terminal.
    pub terminal_rate: schema::Rate,
    /// Maximum message rate of all terminals of a site together.
    pub site_rate: schema::Rate,
}

/// A DHCP client for sites, on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicClient {
    /// Interface of the client. The interface is a device or a bond with an IPv4 address, and not an access interface
    /// of terminals.
    pub interface: InterfaceIndex,
    /// Networks of the public addresses, at least one.
    pub prefixes: Vec<Ipv4Net>,
    /// DHCP servers from which replies are accepted. If empty, the replies of all servers are accepted.
    pub servers: Vec<Ipv4Addr>,
    /// Client identifier of the sites.
    pub identifier: schema::ClientIdentifier,
    /// Whether servers must broadcast replies to sites without an address.
    pub broadcast: bool,
    /// Prefix of the sites' host names, 1 to 200 bytes. `None` if sites send no host name.
    pub host_name: Option<String>,
    /// Maximum number of messages per second, over all sites; at least 1.
    pub rate: u32,
    /// Time for which a site without terminals keeps its address.
    pub hold: Duration,
    /// Time for which offers are collected before the best is selected.
    pub window: Duration,
    /// Minimum lease time accepted, in seconds; at least 1.
    pub shortest_lease: u32,
    /// Whether leases from before a restart may be used before the server has confirmed them.
    pub use_while_confirming: bool,
    /// Path of the file that stores leases across restarts. No two clients have the same file.
    pub state: Option<PathBuf>,
}

impl Subscribers {
    /// Number of sites.
    pub fn sites(&self) -> u32 {
        self.groups.last().map_or(0, |group| group.first + group.count)
    }

    /// Group of a site.
    pub fn group_of(&self, site: u32) -> Option<&SiteGroup> {
        let behind = self.groups.partition_point(|group| group.first <= site);
        let group = self.groups.get(behind.checked_sub(1)?)?;
        (site - group.first < group.count).then_some(group)
    }

    /// Tags of a site, if it has any.
    pub fn tags(&self, site: u32) -> Option<Tags> {
        let group = self.group_of(site)?;
        group.tags?.at(site - group.first)
    }

    /// Unique name of a site: the name of its group, followed by its tags if it has any. Empty if the site does not
    /// exist.
    pub fn name(&self, site: u32) -> String {
        match (self.group_of(site), self.tags(site)) {
            (None, _) => String::new(),
            (Some(group), None) => group.name.clone(),
            (Some(group), Some(tags)) => format!("{}-{tags}", group.name),
        }
    }

    /// The site with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let untagged = |group: &&SiteGroup| group.tags.is_none() && group.name == name;
        if let Some(group) = self.groups.iter().find(untagged) {
            return Some(group.first);
        }
        let (group, tags) = name.rsplit_once('-')?;
        let group = self.group(group)?;
        let written: Tags = tags.parse().ok()?;
        // A name has only one valid form, so blanks and leading zeros are rejected.
        let place = group.tags?.place(written).filter(|_| written.to_string() == tags)?;
        Some(group.first + place)
    }

    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&SiteGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Number of sites that use the client with this index.
    pub fn clients(&self, public: usize) -> u32 {
        let of = |group: &&SiteGroup| group.outside == SitesOutside::Public(public);
        self.groups.iter().filter(of).map(|group| group.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::EntryBytes;
    use crate::{Machine, check};

    const TEXT: &str = r#"
[interfaces.access]
device = "null:"
addresses = ["2001:db8::1/64", "10.0.0.1/16", "10.9.0.1/16"]
[interfaces.flat]
device = "null:"
addresses = ["10.1.0.1/16"]
[interfaces.outside]
device = "null:"
addresses = ["198.51.100.1/22"]
[nat.pools.shared]
addresses = ["203.0.113.0/28"]
[subscribers]
virtual-mac-prefix = "02:5e"
[subscribers.sites.homes]
interface = "access"
tags = "100-101.5-7"
dhcp = "inside"
public = "outside"
[subscribers.sites.shops-100]
interface = "access"
tags = "8-9"
dhcp = "inside"
pool = "shared"
[subscribers.sites.hall]
interface = "flat"
prefix = "10.1.7.0/24"
dhcp = "flat"
public = "outside"
[subscribers.sites.homes-100]
interface = "flat"
prefix = "10.1.8.0/24"
dhcp = "flat"
public = "outside"
[subscribers.dhcp.inside]
server = "192.0.2.10"
relay = "10.9.0.7"
leases = "kea-leases4.csv"
format = "kea"
[subscribers.dhcp.flat]
server = "192.0.2.10"
leases = "/var/lib/dhcp/dhcpd.leases"
format = "dhcpd"
terminal-rate = { rate = 1, burst = 2 }
[subscribers.public.outside]
prefixes = ["198.51.100.0/22"]
state = "leases"
"#;

    fn subscribers() -> Subscribers {
        let machine = Machine {
            cores: vec![0],
            memory: 1 << 40,
            entry: EntryBytes::default(),
        };
        let checked = check("/etc/sluice/gateway.toml", TEXT, &machine).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!("", checked.advice.to_string());
        checked.config.subscribers.clone().expect("subscribers")
    }

    #[test]
    fn sites_are_numbered_and_named_by_group_s_tag_and_c_tag() {
        let subscribers = subscribers();
        let names: Vec<_> = (0..11).map(|site| subscribers.name(site)).collect();
        let expected = [
            "homes-100.5",
            "homes-100.6",
            "homes-100.7",
            "homes-101.5",
            "homes-101.6",
            "homes-101.7",
            "shops-100-8",
            "shops-100-9",
            "hall",
            "homes-100",
            "",
        ];
        assert_eq!(expected.map(String::from).to_vec(), names);
        assert_eq!(10, subscribers.sites());
        for site in 0..10 {
            assert_eq!(Some(site), subscribers.find(&subscribers.name(site)));
        }
        for name in [
            "",
            "homes",
            "homes-100.8",
            "homes-100.05",
            "homes- 100.5",
            "shops-8",
            "hall-1",
            "none",
        ] {
            assert_eq!(None, subscribers.find(name), "{name}");
        }
    }

    #[test]
    fn site_is_of_the_group_that_counts_it() {
        let subscribers = subscribers();
        let group = |site| subscribers.group_of(site).map(|group| group.name.as_str());
        assert_eq!(
            [
                Some("homes"),
                Some("homes"),
                Some("shops-100"),
                Some("shops-100"),
                Some("hall"),
                None
            ],
            [0, 5, 6, 7, 8, 10].map(group)
        );
        assert_eq!(8, subscribers.clients(0));
        assert_eq!(SitesOutside::Pool(0), subscribers.groups[1].outside);
    }

    #[test]
    fn rows_of_sites_are_one_for_each_s_tag() {
        let row = |group, interface, first, count, frames| SiteRow {
            group,
            interface,
            first,
            count,
            frames,
        };
        let net = |text: &str| SiteFrames::Prefix(text.parse().expect("a network"));
        let expected = vec![
            row(0, 0, 0, 3, SiteFrames::Tags(100, 5)),
            row(0, 0, 3, 3, SiteFrames::Tags(101, 5)),
            row(1, 0, 6, 2, SiteFrames::Tag(8)),
            row(2, 1, 8, 1, net("10.1.7.0/24")),
            row(3, 1, 9, 1, net("10.1.8.0/24")),
        ];
        assert_eq!(expected, subscribers().rows);
    }

    #[test]
    fn what_is_not_said_of_subscribers_is_the_usual() {
        let subscribers = subscribers();
        assert_eq!(1_024, subscribers.terminals);
        assert_eq!(vec![0x02, 0x5e], subscribers.virtual_mac_prefix);
        let relays: Vec<_> = subscribers.groups.iter().map(|group| group.relay.to_string()).collect();
        assert_eq!(["10.9.0.7", "10.9.0.7", "10.1.0.1", "10.1.0.1"], relays[..]);
        assert_eq!(
            PathBuf::from("/etc/sluice/kea-leases4.csv"),
            subscribers.servers[0].leases
        );
        assert_eq!(schema::Rate { rate: 20, burst: 60 }, subscribers.servers[1].site_rate);
        let expected = PublicClient {
            interface: 2,
            prefixes: vec!["198.51.100.0/22".parse().expect("a network")],
            servers: Vec::new(),
            identifier: schema::ClientIdentifier::Mac,
            broadcast: false,
            host_name: None,
            rate: 1_000,
            hold: Duration::from_secs(300),
            window: Duration::ZERO,
            shortest_lease: 60,
            use_while_confirming: true,
            state: Some("/etc/sluice/leases".into()),
        };
        assert_eq!(vec![expected], subscribers.public);
    }
}
