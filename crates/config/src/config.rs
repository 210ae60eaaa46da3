//! The configuration as the daemon uses it: references resolved, defaults filled in, nothing left to check.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::chain::RouterChains;
use crate::filter::{FilterRule, FilterSet};
use crate::memory::Table;
use crate::numbering::Numbering;
use crate::schema;
pub use crate::subscribers::{LeaseServer, PublicClient, SiteFrames, SiteGroup, SiteRow, SitesOutside, Subscribers};
use crate::value::{
    AddressRange, BitRate, Device, InterfaceAddress, Mac, MssClamp, PortRange, Prefix, TagProtocol, Tags, Transport,
    VlanPriority,
};

/// Something that was checked. Only [`crate::check`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid<T>(T);

impl<T> Valid<T> {
    pub(crate) fn checked(value: T) -> Self {
        Self(value)
    }

    /// What was checked, to be changed: it is not valid any more.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Place of an interface in [`Config::interfaces`].
pub type InterfaceIndex = u16;

/// Number of a virtual router: its place in [`Config::routers`].
pub type RouterIndex = u16;

/// The router that the top level is about.
pub const DEFAULT_ROUTER: RouterIndex = 0;

/// Place of a pool in [`Config::pools`].
pub type PoolIndex = u16;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// As it was written, with every default: for what needs no resolving, and for [`crate::difference()`].
    pub document: schema::Document,
    /// The cores of the workers, in order; each once.
    pub cores: Vec<u16>,
    /// By part of a packet's way (receive, parse, session, transmit), the workers that do it, by their place in `cores`: none
    /// where all do.
    pub stages: [Vec<u16>; 4],
    /// Tables of fixed capacity.
    pub tables: Vec<Table>,
    /// Timeouts of sessions that no pool takes part in.
    pub timeouts: Timeouts,
    /// Which number is whose.
    pub numbering: Numbering,
    /// Interfaces by number: in the order of the file, where the process has just begun.
    pub interfaces: Vec<Interface>,
    /// Virtual routers by number.
    pub routers: Vec<Router>,
    /// Static routes; those of the links follow from the addresses and are not listed.
    pub routes: Vec<Route>,
    /// Uplinks in the order of the file.
    pub uplinks: Vec<Uplink>,
    /// Neighbours that are never asked.
    pub neighbours: Vec<Neighbour>,
    /// Pools in the order of the file.
    pub pools: Vec<Pool>,
    /// Source rules in the order of the file; the most specific decides.
    pub source: Vec<SourceRule>,
    /// Destination rules in the order of the file; the most specific decides.
    pub destination: Vec<DestinationRule>,
    /// Hosts that destination rules deal flows among.
    pub host_sets: Vec<HostSet>,
    /// Rules of the packet filters, those of the default router first, each router's in the order of the file; their settings
    /// are in `document`.
    pub filter: Vec<FilterRule>,
    /// Sets of addresses that they name.
    pub filter_sets: Vec<FilterSet>,
    /// Chains of the routers that have any.
    pub chains: Vec<RouterChains>,
    /// What flows are inspected for, where any are; its settings are in `document`.
    pub inspection: Option<Inspection>,
    /// Whose applications are looked for, where any are; its settings are in `document`.
    pub applications: Option<Applications>,
    /// Sites of subscribers, where there are any.
    pub subscribers: Option<Subscribers>,
}

/// Whose applications are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applications {
    /// By interface: those of sessions that come or go by it are.
    pub interfaces: Vec<bool>,
}

/// What flows are inspected for.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// By interface: flows that come or go by it are inspected.
    pub interfaces: Vec<bool>,
    /// Files of rules.
    pub signatures: Vec<SignatureFile>,
    /// A `classification.config`.
    pub classes: Option<PathBuf>,
    /// Folder for compiled rules.
    pub cache: Option<PathBuf>,
    /// Where records are written.
    pub eve: Option<EveTarget>,
}

/// Where records are written, as lines of EVE JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EveTarget {
    /// To the end of a file.
    File(PathBuf),
    /// To a Unix socket, one after the other.
    Stream(PathBuf),
    /// To a Unix socket, a datagram each.
    Datagram(PathBuf),
}

/// A file of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureFile {
    /// Its other rules are in force even where one that lets pass is refused.
    pub partial: bool,
    /// Its path.
    pub path: PathBuf,
    /// The language of its rules.
    pub dialect: schema::SignatureDialect,
}

impl Interface {
    /// Nothing, at a number that rests.
    pub(crate) fn gone() -> Self {
        Self {
            name: String::new(),
            link: Link::Gone,
            router: DEFAULT_ROUTER,
            addresses: Vec::new(),
            mtu: 1_500,
            tag_protocol: TagProtocol::Vlan,
            vlan_priority: VlanPriority::Keep,
            mac: None,
            source_validation: schema::SourceValidation::Loose,
            proxy: [false; 2],
            announce_addresses: false,
            redirects: false,
            advertisements: None,
            left_to_offload: schema::LeftToOffload::Complete,
            mss_clamp: None,
            share: None,
            rate: None,
            bridge: None,
        }
    }

    /// Whether there is such an interface: a number may rest.
    pub fn exists(&self) -> bool {
        self.link != Link::Gone
    }
}

impl Config {
    /// What holds for the packet filters of all routers, and what becomes of the default router's packets that none of its
    /// rules decides about; none where no router has a filter.
    pub fn filter_settings(&self) -> Option<schema::Filter> {
        let mut written = self
            .document
            .routers
            .values()
            .filter_map(|router| router.filter.as_ref());
        match (&self.document.filter, written.next()) {
            (Some(settings), _) => Some(settings.clone()),
            (None, Some(settings)) => Some(schema::Filter {
                default: schema::Verdict::Accept,
                ..settings.clone()
            }),
            (None, None) => None,
        }
    }

    /// The texts of [`Config::filter`], in its order.
    pub fn filter_texts(&self) -> Vec<schema::FilterRule> {
        let rules = self.document.filter.iter().flat_map(|filter| &filter.rules);
        let mut texts: Vec<_> = rules.cloned().collect();
        for router in self.document.routers.values() {
            let Some(filter) = &router.filter else { continue };
            texts.extend(filter.rules.iter().cloned());
            texts.push(schema::FilterRule::of(filter.default.into()));
        }
        texts
    }

    /// The interface with this name.
    pub fn interface(&self, name: &str) -> Option<(InterfaceIndex, &Interface)> {
        let index = self.interfaces.iter().position(|interface| interface.name == name)?;
        Some((index as InterfaceIndex, self.interfaces.get(index)?))
    }
}

/// A virtual router.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Its name in the configuration; empty where the number rests.
    pub name: String,
    /// What it may have at most.
    pub limits: schema::RouterLimits,
    /// Its weight beside others, where it is given one.
    pub weight: Option<u8>,
    /// It has a packet filter.
    pub filters: bool,
    /// It has a network namespace for routing daemons and services.
    pub daemon: bool,
    /// What comes to that.
    pub host: schema::RouterHost,
    /// Routes of the namespace's own table are its routes.
    pub kernel_routes: bool,
    /// Where a routing daemon tells its routes.
    pub fpm: Option<schema::Fpm>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name in the configuration.
    pub name: String,
    /// What it is made of.
    pub link: Link,
    /// The virtual router that it is in.
    pub router: RouterIndex,
    /// Its addresses, each with the prefix length of the link.
    pub addresses: Vec<InterfaceAddress>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Type of its outermost tag, of a VLAN.
    pub tag_protocol: TagProtocol,
    /// Priority of its tags, of a VLAN.
    pub vlan_priority: VlanPriority,
    /// Ethernet address in place of the device's own.
    pub mac: Option<Mac>,
    /// BCP 38.
    pub source_validation: schema::SourceValidation,
    /// ARP and neighbour discovery for addresses that are reached by other interfaces are answered.
    pub proxy: [bool; 2],
    /// Its addresses are announced.
    pub announce_addresses: bool,
    /// Hosts are told of better next hops.
    pub redirects: bool,
    /// What it announces to IPv6 hosts, where it does.
    pub advertisements: Option<schema::RouterAdvertisements>,
    /// What happens to TCP and UDP whose checksum a local sender left to the device.
    pub left_to_offload: schema::LeftToOffload,
    /// Largest TCP segment that passes here, where that is limited.
    pub mss_clamp: Option<MssClamp>,
    /// Its part of the link that it leaves by.
    pub share: Option<schema::LinkShare>,
    /// Bits a second that leave.
    pub rate: Option<BitRate>,
    /// The bridge that it is in.
    pub bridge: Option<Bridged>,
}

/// An interface's place in a bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct Bridged {
    /// The bridge, by its place in the file.
    pub number: usize,
    /// The other interface.
    pub peer: InterfaceIndex,
    /// What is said of the bridge.
    pub settings: schema::Bridge,
}

/// A tunnel over another network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What it is.
    pub kind: schema::TunnelType,
    /// This end.
    pub local: IpAddr,
    /// The other end, of the same family.
    pub remote: IpAddr,
    /// VXLAN's network identifier, or GRE's key where there is one.
    pub id: Option<u32>,
    /// UDP port of VXLAN.
    pub port: u16,
    /// Time to live, or hop limit, of outer packets.
    pub ttl: u8,
    /// The interface that has `local`.
    pub underlay: InterfaceIndex,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(id) = self.id {
            write!(f, " {id}")?;
        }
        write!(f, " {} > {}", self.local, self.remote)?;
        match self.kind {
            schema::TunnelType::Vxlan => write!(f, " port {}", self.port),
            _ => Ok(()),
        }
    }
}

/// What an interface is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A device.
    Device {
        /// The device.
        device: Device,
        /// Receive queues, at most as many as workers; as many as the device allows where not given.
        queues: Option<u16>,
    },
    /// Several devices as one link.
    Bond {
        /// The devices; at least one.
        members: Vec<Device>,
        /// How they share the traffic.
        mode: schema::BondMode,
        /// As for a device.
        queues: Option<u16>,
    },
    /// An end of a virtual link.
    Virtual {
        /// The other end.
        peer: InterfaceIndex,
    },
    /// A tunnel.
    Tunnel(Tunnel),
    /// Nothing: an interface that is no longer there, whose number rests.
    Gone,
    /// Tagged frames of another interface, which has a device or is a bond.
    Vlan {
        /// The interface that carries them.
        parent: InterfaceIndex,
        /// The tags.
        tags: Tags,
    },
}

/// A way of a static route: those to one network at one distance are one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The virtual router that has it.
    pub router: RouterIndex,
    /// Destination network.
    pub to: Prefix,
    /// Network of the sources that it is for; all where there is none.
    pub from: Option<Prefix>,
    /// Where it leads.
    pub way: Way,
    /// Its part beside other ways, at least 1.
    pub weight: u8,
    /// Administrative distance, at least 1.
    pub distance: u8,
    /// What stays on one of several uplinks; none where the ways are no uplinks.
    pub balance: Option<schema::RouteBalance>,
}

/// An uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// The interface that it leaves by.
    pub interface: InterfaceIndex,
    /// Its gateways there, one of each family at most.
    pub gateways: Vec<IpAddr>,
    /// Its part beside other uplinks, at least 1.
    pub weight: u8,
    /// When it is up.
    pub health: Option<schema::UplinkHealth>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// To a gateway on the link of an interface.
    Gateway(IpAddr, InterfaceIndex),
    /// To a gateway that the router's routes lead to.
    Recursive(IpAddr),
    /// Onto the link of an interface.
    Link(InterfaceIndex),
    /// Nowhere.
    Nowhere(schema::RouteAction),
}

/// A neighbour that is never asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The interface whose link it is on.
    pub interface: InterfaceIndex,
}

/// A pool of outside addresses and ports. Pools share addresses only where their ports differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name in the configuration.
    pub name: String,
    /// The virtual router whose rules name it.
    pub router: RouterIndex,
    /// Addresses in the order of the file; no two overlap.
    pub addresses: Vec<AddressRange>,
    /// From the first to the last port and ICMP identifier that is given out.
    pub ports: PortRange,
    /// Ports between them that are not given out, in ascending order; no two overlap.
    pub reserved: Vec<PortRange>,
    /// What happens when a paired address has no port left.
    pub pairing: schema::Pairing,
    /// Mapping and filtering of TCP, UDP and ICMP queries.
    pub behaviour: [(schema::Mapping, schema::Filtering); 3],
    /// Flows to different destinations may share a port; some protocol is mapped by destination.
    pub overlap: bool,
    /// Which free port a mapping gets.
    pub selection: schema::PortSelection,
    /// Whether UDP ports keep their parity.
    pub parity: bool,
    /// Blocks of ports of a size that fits.
    pub block: Option<schema::Block>,
    /// How long ports and blocks wait after use, in whole seconds.
    pub hold: Duration,
    /// Inside addresses that are dealt their ports; they fit.
    pub deterministic: Option<schema::Deterministic>,
    /// Whether datagrams that are not atomic leave with an identification of the gateway's.
    pub rewrite_ip_id: bool,
    /// Protocols without ports that are translated by address alone.
    pub protocols: Vec<u8>,
    /// Limits of each subscriber.
    pub subscriber: schema::SubscriberLimits,
    /// Limits of the pool.
    pub limits: schema::SessionLimits,
    /// Timeouts of its sessions.
    pub timeouts: Timeouts,
}

/// How long a silent session lives, every value known.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// TCP, established.
    pub tcp_established: Duration,
    /// TCP, partially open.
    pub tcp_transitory_open: Duration,
    /// TCP, closing or reset.
    pub tcp_transitory_close: Duration,
    /// TCP, an inbound SYN that nobody has answered.
    pub tcp_incoming_syn: Duration,
    /// UDP.
    pub udp: Duration,
    /// UDP to a server's port; each port once, at most 8.
    pub udp_ports: Vec<(u16, Duration)>,
    /// ICMP queries.
    pub icmp: Duration,
    /// Any other protocol.
    pub other: Duration,
    /// Whether packets from outside keep a session alive too.
    pub inbound_refresh: bool,
}

impl Default for Timeouts {
    /// Those of RFC 5382 (REQ-4, REQ-5), 7857 (2.1), 4787 (REQ-5, REQ-6) and 5508 (REQ-2).
    fn default() -> Self {
        Self {
            tcp_established: Duration::from_secs(7440),
            tcp_transitory_open: Duration::from_secs(240),
            tcp_transitory_close: Duration::from_secs(240),
            tcp_incoming_syn: Duration::from_secs(6),
            udp: Duration::from_secs(300),
            udp_ports: Vec::new(),
            icmp: Duration::from_secs(60),
            other: Duration::from_secs(300),
            inbound_refresh: true,
        }
    }
}

/// What becomes of the source of what comes from a network and leaves by an interface.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceRule {
    /// The virtual router that has it.
    pub router: RouterIndex,
    /// It is about what the router's host sends.
    pub own: bool,
    /// Network of the inside hosts; IPv4.
    pub from: ipnet::Ipv4Net,
    /// The protocol; any where none is named.
    pub protocol: Option<Transport>,
    /// The interface by which the packets leave; any where none is named.
    pub out: Option<InterfaceIndex>,
    /// What becomes of it.
    pub action: SourceAction,
}

/// What becomes of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SourceAction {
    /// It gets an address and port of a pool.
    Pool(PoolIndex),
    /// It gets the address at the same place of a network as large.
    Static(ipnet::Ipv4Net),
    /// It stays.
    Exempt,
}

/// What becomes of the destination of what is addressed to outside addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationRule {
    /// The virtual router that has it.
    pub router: RouterIndex,
    /// It is about what the router's host sends.
    pub own: bool,
    /// TCP or UDP; any where none is named.
    pub protocol: Option<Transport>,
    /// The outside addresses.
    pub address: ipnet::Ipv4Net,
    /// The interface that they come in by; any where none is named.
    pub incoming: Option<InterfaceIndex>,
    /// The outside ports; all where none are named.
    pub ports: Option<PortRange>,
    /// What becomes of it.
    pub action: DestinationAction,
}

/// Hosts that flows are dealt among.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSet {
    /// The virtual router that has it.
    pub router: RouterIndex,
    /// What flows are dealt by.
    pub balance: schema::Balance,
    /// The hosts, each with its weight.
    pub hosts: Vec<(Ipv4Addr, u16)>,
    /// How they are checked, where they are.
    pub health: Option<HostCheck>,
}

/// How hosts are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostCheck {
    /// The port over TCP; an echo request where none is given.
    pub port: Option<u16>,
    /// Time from one check to the next.
    pub interval: Duration,
    /// What has not answered for so long has failed.
    pub timeout: Duration,
    /// Failures in a row after which a host is down.
    pub failures: u32,
    /// Answers in a row after which a host is up again.
    pub successes: u32,
}

/// What becomes of a destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DestinationAction {
    /// An inside host, and the first of its ports; the same ports where none is named.
    Host(Ipv4Addr, Option<u16>),
    /// A host of a set, by its place in [`Config::host_sets`], and the first of its ports.
    Hosts(u16, Option<u16>),
    /// The address at the same place of a network as large.
    Static(ipnet::Ipv4Net),
    /// Neither it nor the source is translated.
    Exempt,
}
