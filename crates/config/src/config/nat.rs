//! Translation: pools, source rules and destination rules.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{InterfaceIndex, PoolIndex, RouterIndex};
use crate::schema;
use crate::value::{AddressRange, PortRange, Transport};

/// A pool of outside addresses and ports. Pools may share addresses only if their ports differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name in the configuration.
    pub name: String,
    /// Virtual router of the pool's rules.
    pub router: RouterIndex,
    /// Addresses in the order of the file, without overlaps.
    pub addresses: Vec<AddressRange>,
    /// Range from the lowest to the highest port or ICMP identifier that is allocated.
    pub ports: PortRange,
    /// Ports within `ports` that are not allocated, as ascending ranges without overlaps.
    pub reserved: Vec<PortRange>,
    /// What happens if the paired address has no free port.
    pub pairing: schema::Pairing,
    /// Mapping and filtering behaviour of TCP, UDP and ICMP queries.
    pub behaviour: [(schema::Mapping, schema::Filtering); 3],
    /// Whether flows to different destinations may share a port. If flows may share a port, at least one protocol has
    /// address-and-port-dependent mapping.
    pub overlap: bool,
    /// How a free port is selected for a mapping.
    pub selection: schema::PortSelection,
    /// Whether UDP ports keep their parity.
    pub parity: bool,
    /// Settings of port blocks. The block size has been validated for the pool.
    pub block: Option<schema::Block>,
    /// Time for which released ports and blocks are in quarantine, in whole seconds.
    pub hold: Duration,
    /// Settings of deterministic NAT, which have been validated for the pool.
    pub deterministic: Option<schema::Deterministic>,
    /// Whether the gateway replaces the IP ID of datagrams that are not atomic (RFC 6864).
    pub rewrite_ip_id: bool,
    /// Protocols without ports. In packets of protocols without ports, only the address is translated.
    pub protocols: Vec<u8>,
    /// Limits of each subscriber.
    pub subscriber: schema::SubscriberLimits,
    /// Limits of all subscribers of the pool together.
    pub limits: schema::SessionLimits,
    /// Idle timeouts of the pool's sessions.
    pub timeouts: Timeouts,
}

/// Idle timeouts of sessions, with all defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// Timeout of an established TCP connection.
    pub tcp_established: Duration,
    /// Timeout of a partially open TCP connection.
    pub tcp_transitory_open: Duration,
    /// Timeout of a closing or reset TCP connection.
    pub tcp_transitory_close: Duration,
    /// Timeout of an inbound TCP SYN that is not answered.
    pub tcp_incoming_syn: Duration,
    /// Timeout of a UDP session.
    pub udp: Duration,
    /// UDP timeouts by server port, for at most 8 different ports.
    pub udp_ports: Vec<(u16, Duration)>,
    /// Timeout of an ICMP query session.
    pub icmp: Duration,
    /// Timeout of sessions of other protocols.
    pub other: Duration,
    /// Whether inbound packets also refresh a session.
    pub inbound_refresh: bool,
}

impl Default for Timeouts {
    /// Defaults of RFC 5382 (REQ-4, REQ-5), RFC 7857 (section 2.1), RFC 4787 (REQ-5, REQ-6) and RFC 5508 (REQ-2).
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

/// Rule that translates the source of packets. The packets come from a network and are sent on an output interface.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceRule {
    /// Virtual router of the rule.
    pub router: RouterIndex,
    /// Whether the rule applies to packets that the router's host stack sends.
    pub own: bool,
    /// IPv4 network of the inside hosts.
    pub from: ipnet::Ipv4Net,
    /// Protocol. `None` for any protocol.
    pub protocol: Option<Transport>,
    /// Output interface. `None` for any interface.
    pub out: Option<InterfaceIndex>,
    /// Action of the rule.
    pub action: SourceAction,
}

/// Action on a source address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SourceAction {
    /// Translate to an address and port of a pool.
    Pool(PoolIndex),
    /// Translate to the address with the same offset in a network of equal size.
    Static(ipnet::Ipv4Net),
    /// Do not translate.
    Exempt,
}

/// Rule that translates the destination of packets to outside addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationRule {
    /// Virtual router of the rule.
    pub router: RouterIndex,
    /// Whether the rule applies to packets that the router's host stack sends.
    pub own: bool,
    /// TCP or UDP. `None` for any protocol.
    pub protocol: Option<Transport>,
    /// Outside addresses.
    pub address: ipnet::Ipv4Net,
    /// Input interface. `None` for any interface.
    pub incoming: Option<InterfaceIndex>,
    /// Outside ports. `None` for all ports.
    pub ports: Option<PortRange>,
    /// Action of the rule.
    pub action: DestinationAction,
}

/// Set of hosts over which flows are balanced.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSet {
    /// Virtual router of the set.
    pub router: RouterIndex,
    /// Whether connections or source addresses are balanced.
    pub balance: schema::Balance,
    /// Hosts with their weights.
    pub hosts: Vec<(Ipv4Addr, u16)>,
    /// Health checks, if configured.
    pub health: Option<HostCheck>,
}

/// Health check of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostCheck {
    /// TCP port to which checks connect. `None` for ICMP echo requests.
    pub port: Option<u16>,
    /// Interval between checks.
    pub interval: Duration,
    /// Time after which a check without reply fails.
    pub timeout: Duration,
    /// Number of consecutive failures after which a host counts as down.
    pub failures: u32,
    /// Number of consecutive successes after which a host counts as up again.
    pub successes: u32,
}

/// Action on a destination address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DestinationAction {
    /// Translate to an inside host, and to the ports from the given port on. `None` keeps the ports.
    Host(Ipv4Addr, Option<u16>),
    /// Translate to a host of the set with this index in [`Config::host_sets`](super::Config::host_sets), and to the
    /// ports from the given port on. `None` keeps the ports.
    Hosts(u16, Option<u16>),
    /// Translate to the address with the same offset in a network of equal size.
    Static(ipnet::Ipv4Net),
    /// Translate neither the destination nor the source.
    Exempt,
}
