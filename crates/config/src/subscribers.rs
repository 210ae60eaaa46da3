//! Subscribers as the daemon uses them: sites by number, references resolved, nothing left to check.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::config::{InterfaceIndex, PoolIndex, RouterIndex};
use crate::schema;
use crate::value::{SiteTags, Tags};

/// Sites, and where the addresses of their terminals and their own come from. Sites are numbered from 0 in the order of
/// the file: group after group, S-tag after S-tag, C-tag after C-tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribers {
    /// Most terminals of all sites together.
    pub terminals: u32,
    /// What virtual MACs begin with: at most three bytes, none where nothing is said.
    pub virtual_mac_prefix: Vec<u8>,
    /// The terminals' side may bring option 82 itself: it is replaced.
    pub trust_option_82: bool,
    /// Groups in the order of the file, each with at least one site.
    pub groups: Vec<SiteGroup>,
    /// Rows of sites by number, each with at least one. No two claim the same frame.
    pub rows: Vec<SiteRow>,
    /// DHCP servers of terminals.
    pub servers: Vec<LeaseServer>,
    /// DHCP clients of sites, each on an interface.
    pub public: Vec<PublicClient>,
}

/// Sites that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteGroup {
    /// Its name in the configuration.
    pub name: String,
    /// The interface by which terminals come in: a device or a bond with an IPv4 address.
    pub interface: InterfaceIndex,
    /// The virtual router that it is in.
    pub router: RouterIndex,
    /// Number of its first site.
    pub first: u32,
    /// How many sites it has.
    pub count: u32,
    /// The tags of its sites; it is one site without such otherwise.
    pub tags: Option<SiteTags>,
    /// The terminals' addresses, of a site that is told by them.
    pub prefix: Option<Ipv4Net>,
    /// Who leases addresses to the terminals, by its place in [`Subscribers::servers`].
    pub server: usize,
    /// The relay's address in the sites: in a network of the interface.
    pub relay: Ipv4Addr,
    /// What its sites are outside.
    pub outside: SitesOutside,
}

/// What the sites of a group are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SitesOutside {
    /// Each has a public address by DHCP: the client's place in [`Subscribers::public`].
    Public(usize),
    /// Each is a subscriber of a pool, which is the router's and not deterministic.
    Pool(PoolIndex),
}

/// Sites with consecutive numbers whose frames are told apart by their last tag alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRow {
    /// The group, by its place in [`Subscribers::groups`].
    pub group: usize,
    /// The interface by which terminals come in.
    pub interface: InterfaceIndex,
    /// Number of the first site.
    pub first: u32,
    /// How many sites: 1 where they have no tags.
    pub count: u32,
    /// What tells the first site's frames; each further one has the next last tag.
    pub frames: SiteFrames,
}

/// What tells the frames of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteFrames {
    /// They come in by the interface, which has no other site.
    All,
    /// They are untagged, and from an address of this network.
    Prefix(Ipv4Net),
    /// They have this tag alone (802.1Q).
    Tag(u16),
    /// They have an S-tag (802.1ad) and a C-tag (802.1Q).
    Tags(u16, u16),
}

/// A DHCP server that leases addresses to terminals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseServer {
    /// Its name in the configuration.
    pub name: String,
    /// Where messages are relayed to.
    pub server: Ipv4Addr,
    /// Its file of leases, which no other entry has.
    pub leases: PathBuf,
    /// Whose file it is.
    pub format: schema::LeaseFormat,
    /// Messages a second, and at once, of a terminal.
    pub terminal_rate: schema::Rate,
    /// The same of all terminals of a site.
    pub site_rate: schema::Rate,
}

/// A DHCP client for sites, on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicClient {
    /// The interface: a device or a bond with an IPv4 address, by which no terminals come in.
    pub interface: InterfaceIndex,
    /// Where public addresses come from: at least one network.
    pub prefixes: Vec<Ipv4Net>,
    /// DHCP servers that are listened to; all where there is none.
    pub servers: Vec<Ipv4Addr>,
    /// What a site calls itself.
    pub identifier: schema::ClientIdentifier,
    /// Servers are to broadcast their answers to sites without an address.
    pub broadcast: bool,
    /// What host names begin with, where sites have such: 1 to 200 bytes.
    pub host_name: Option<String>,
    /// Messages a second, of all sites together: at least 1.
    pub rate: u32,
    /// How long a site without terminals keeps its address.
    pub hold: Duration,
    /// How long offers are compared.
    pub window: Duration,
    /// Shortest lease that is taken, in seconds: at least 1.
    pub shortest_lease: u32,
    /// Leases of before a restart are used while the server is asked whether they hold.
    pub use_while_confirming: bool,
    /// Where leases outlive a restart: a file that no other client has.
    pub state: Option<PathBuf>,
}

impl Subscribers {
    /// How many sites there are.
    pub fn sites(&self) -> u32 {
        self.groups.last().map_or(0, |group| group.first + group.count)
    }

    /// The group that a site is of.
    pub fn group_of(&self, site: u32) -> Option<&SiteGroup> {
        let behind = self.groups.partition_point(|group| group.first <= site);
        let group = self.groups.get(behind.checked_sub(1)?)?;
        (site - group.first < group.count).then_some(group)
    }

    /// The tags of a site, where it has any.
    pub fn tags(&self, site: u32) -> Option<Tags> {
        let group = self.group_of(site)?;
        group.tags?.at(site - group.first)
    }

    /// The name of a site, which no other has: that of its group, with its tags where it has any. Empty where there is
    /// no such site.
    pub fn name(&self, site: u32) -> String {
        match (self.group_of(site), self.tags(site)) {
            (None, _) => String::new(),
            (Some(group), None) => group.name.clone(),
            (Some(group), Some(tags)) => format!("{}-{tags}", group.name),
        }
    }

    /// The site with a name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let untagged = |group: &&SiteGroup| group.tags.is_none() && group.name == name;
        if let Some(group) = self.groups.iter().find(untagged) {
            return Some(group.first);
        }
        let (group, tags) = name.rsplit_once('-')?;
        let group = self.group(group)?;
        let written: Tags = tags.parse().ok()?;
        // A name is written in one way alone: not with a blank or a zero before a tag.
        let place = group.tags?.place(written).filter(|_| written.to_string() == tags)?;
        Some(group.first + place)
    }

    /// The group with a name.
    pub fn group(&self, name: &str) -> Option<&SiteGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// How many sites get public addresses by a client, by its place.
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
