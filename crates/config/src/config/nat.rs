//! Translation: pools, rules for sources and for destinations.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{InterfaceIndex, PoolIndex, RouterIndex};
use crate::schema;
use crate::value::{AddressRange, PortRange, Transport};

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
    /// A host of a set, by its place in [`Config::host_sets`](super::Config::host_sets), and the first of its ports.
    Hosts(u16, Option<u16>),
    /// The address at the same place of a network as large.
    Static(ipnet::Ipv4Net),
    /// Neither it nor the source is translated.
    Exempt,
}
