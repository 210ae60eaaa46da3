//! Parameters of the subscriber service: the validated configuration, supplemented with data of the data plane.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use sluice_config::config::{SiteFrames, SiteGroup, SitesOutside, Subscribers};
use sluice_nat::Secret;
use sluice_nat::sites::context;
use sluice_wire::vlan::Tag;
use sluice_wire::{Context, Mac};

use crate::subscribers::Site;

/// Properties of an interface that the service needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// MAC address.
    pub mac: Mac,
    /// Number of the interface's virtual router.
    pub router: u16,
    /// IPv4 addresses with their networks.
    pub addresses: Vec<Ipv4Net>,
    /// Whether the interface's router has a host stack. The host stack also has the interface's addresses.
    pub host: bool,
}

/// Parameters of the subscriber service.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Configured sites, servers and clients.
    pub subscribers: Subscribers,
    /// Interfaces by number.
    pub interfaces: Vec<Interface>,
    /// Virtual MAC of each site.
    pub macs: Vec<Mac>,
    /// The engine's pool index for each pool of the configuration.
    pub pools: Vec<u16>,
    /// Secret of DHCP transaction IDs.
    pub secret: Secret,
    /// Assigns frames to sites.
    pub finder: Finder,
}

impl Parameters {
    /// Index and configuration of a site's group. `None` if the site does not exist.
    pub fn group_of(&self, site: Site) -> Option<(usize, &SiteGroup)> {
        let behind = self.subscribers.groups.partition_point(|group| group.first <= site.0);
        let place = behind.checked_sub(1)?;
        let group = self.subscribers.groups.get(place)?;
        (site.0 - group.first < group.count).then_some((place, group))
    }

    /// Site that a circuit ID identifies, if the site's leases come from this server.
    pub fn site_of_circuit(&self, server: usize, circuit: &[u8]) -> Option<Site> {
        let name = std::str::from_utf8(circuit).ok()?;
        let site = Site(self.subscribers.find(name)?);
        let (_, group) = self.group_of(site)?;
        (group.server == server).then_some(site)
    }

    /// Context of a site.
    pub fn context(&self, site: Site, group: &SiteGroup) -> Context {
        context(site.0, group.router, matches!(group.outside, SitesOutside::Pool(_)))
    }

    /// VLAN tags of a site.
    pub fn tags(&self, site: Site) -> [Option<Tag>; 2] {
        match self.subscribers.tags(site.0).map(|tags| (tags.outer(), tags.inner())) {
            Some((outer, Some(inner))) => [Some(Tag::service(outer)), Some(Tag::vlan(inner))],
            Some((tag, None)) => [Some(Tag::vlan(tag)), None],
            None => [None, None],
        }
    }

    /// Virtual MAC of a site. All zeros if the site has no virtual MAC.
    pub fn mac(&self, site: Site) -> Mac {
        self.macs.get(site.0 as usize).copied().unwrap_or_default()
    }

    /// MAC of an interface.
    pub fn mac_of(&self, interface: u16) -> Mac {
        self.interfaces
            .get(usize::from(interface))
            .map_or([0; 6], |interface| interface.mac)
    }

    /// Virtual router of an interface.
    pub fn router_of(&self, interface: u16) -> Option<u16> {
        self.interfaces
            .get(usize::from(interface))
            .map(|interface| interface.router)
    }

    /// Whether an address belongs to a router's host stack. Packets to an address of a host stack are sent through the
    /// kernel.
    pub fn is_of_host(&self, router: u16, address: Ipv4Addr) -> bool {
        let own = |interface: &&Interface| interface.host && interface.router == router;
        let mut interfaces = self.interfaces.iter().filter(own);
        interfaces.any(|interface| interface.addresses.iter().any(|net| net.addr() == address))
    }

    /// Whether a terminal of a group may have an address. The address must be a host address in the interface's
    /// networks and in the group's prefix, and not one of the gateway's addresses.
    pub fn allows(&self, group: &SiteGroup, address: Ipv4Addr) -> bool {
        let interface = self.interfaces.get(usize::from(group.interface));
        let addresses = interface.map_or(&[][..], |interface| &interface.addresses);
        let own = address == group.relay || addresses.iter().any(|net| net.addr() == address);
        let hosts = |net: &Ipv4Net| {
            let edge = net.prefix_len() < 31 && (address == net.network() || address == net.broadcast());
            net.contains(&address) && !edge
        };
        !own && addresses.iter().any(hosts) && group.prefix.is_none_or(|prefix| prefix.contains(&address))
    }
}

/// Assigns frames to sites.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    /// Sites identified by tags. Key: interface, outer tag or 0, and first inner tag. Value: number of sites, and the
    /// first site.
    tagged: BTreeMap<(u16, u16, u16), (u16, u32)>,
    /// Sites identified by prefix. Key: interface and first address. Value: network and site.
    prefixes: BTreeMap<(u16, Ipv4Addr), (Ipv4Net, u32)>,
    /// Interfaces to which a single site is connected, with that site.
    whole: BTreeMap<u16, u32>,
}

impl Finder {
    /// Create a classifier for the sites of a configuration.
    pub fn new(subscribers: &Subscribers) -> Self {
        let mut finder = Self::default();
        for row in &subscribers.rows {
            let count = u16::try_from(row.count).unwrap_or(u16::MAX);
            match row.frames {
                SiteFrames::All => drop(finder.whole.insert(row.interface, row.first)),
                SiteFrames::Prefix(net) => {
                    finder.prefixes.insert((row.interface, net.network()), (net, row.first));
                }
                SiteFrames::Tag(first) => drop(finder.tagged.insert((row.interface, 0, first), (count, row.first))),
                SiteFrames::Tags(outer, first) => {
                    finder.tagged.insert((row.interface, outer, first), (count, row.first));
                }
            }
        }
        finder
    }

    /// Find the site of a frame, given its VLAN IDs (the outermost first) and its source address. If the source address
    /// is 0.0.0.0, the frame belongs to the interface's only site.
    pub fn find(&self, interface: u16, tags: &[u16], source: Ipv4Addr) -> Option<Site> {
        let (outer, last) = match *tags {
            [] => return self.untagged(interface, source),
            [last] => (0, last),
            [outer, last] => (outer, last),
            _ => return None,
        };
        let mut before = self.tagged.range(..=(interface, outer, last));
        let (&(row, tag, first), &(count, site)) = before.next_back()?;
        let within = (row, tag) == (interface, outer) && last - first < count;
        within.then(|| Site(site + u32::from(last - first)))
    }

    fn untagged(&self, interface: u16, source: Ipv4Addr) -> Option<Site> {
        if let Some(&site) = self.whole.get(&interface) {
            return Some(Site(site));
        }
        if !source.is_unspecified() {
            let (&(of, _), &(net, site)) = self.prefixes.range(..=(interface, source)).next_back()?;
            return (of == interface && net.contains(&source)).then_some(Site(site));
        }
        let mut all = self
            .prefixes
            .range((interface, Ipv4Addr::UNSPECIFIED)..=(interface, Ipv4Addr::BROADCAST));
        let (_, &(_, site)) = all.next()?;
        all.next().is_none().then_some(Site(site))
    }

    /// Whether terminals are connected to an interface.
    pub fn serves(&self, interface: u16) -> bool {
        let tags = (interface, 0, 0)..=(interface, u16::MAX, u16::MAX);
        let prefixes = (interface, Ipv4Addr::UNSPECIFIED)..=(interface, Ipv4Addr::BROADCAST);
        self.whole.contains_key(&interface)
            || self.tagged.range(tags).next().is_some()
            || self.prefixes.range(prefixes).next().is_some()
    }
}
