//! `[nat.pools.NAME]`: allocation of outside addresses and ports.

use serde::{Deserialize, Serialize};

use super::{Rate, Timeouts};
use crate::value::{AddressRange, ByProtocol, Key, Period, PortRange, PortRanges, Protocol};

/// `[nat.pools.NAME]`: outside addresses and their ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pool {
    /// Addresses, ranges and prefixes. The addresses need not be contiguous. The pool may include an address of the
    /// output interface of the pool's rules, since the gateway opens no TCP or UDP connections from it.
    pub addresses: Vec<AddressRange>,
    /// Ports and ICMP identifiers to allocate, as a range or a list of ranges. Ports that destination rules forward
    /// must be outside of `ports`, or in `reserved-ports`.
    #[serde(default = "unprivileged")]
    pub ports: PortRanges,
    /// Ports in `ports` that are not allocated.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub reserved_ports: PortRanges,
    /// What happens if the paired address of an inside host has no free port.
    #[serde(default)]
    pub pairing: Pairing,
    /// Mapping behaviour, for all protocols or for each protocol. Default: endpoint-independent.
    #[serde(default, skip_serializing_if = "ByProtocol::is_empty")]
    pub mapping: ByProtocol<Mapping>,
    /// Filtering behaviour, for all protocols or for each protocol. Default: endpoint-independent, or
    /// address-and-port-dependent if the mapping behaviour is address-and-port-dependent.
    #[serde(default, skip_serializing_if = "ByProtocol::is_empty")]
    pub filtering: ByProtocol<Filtering>,
    /// Whether flows to different destinations may share an outside port (RFC 7857, section 3), if the protocol has
    /// address-and-port-dependent mapping.
    #[serde(default)]
    pub overlap: bool,
    /// How a free port is selected for a mapping.
    #[serde(default)]
    pub port_selection: PortSelection,
    /// Whether outside UDP ports keep the parity of inside ports (RFC 4787, REQ-4).
    #[serde(default)]
    pub parity: bool,
    /// Port blocks, each of which is assigned to one subscriber. If omitted, ports are allocated individually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Time for which a port or block is in quarantine after its last mapping has ended (RFC 6888, REQ-8). TCP ports,
    /// and ports of protocols with a filtering behaviour, are not put into quarantine.
    #[serde(default = "hold")]
    pub quarantine: Period,
    /// Inside addresses with computed outside addresses and ports (RFC 7422).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<Deterministic>,
    /// Whether the gateway replaces the IP ID of IPv4 datagrams that are or may be fragmented (RFC 6864, section
    /// 5.3.1). Fragments of different hosts behind one outside address are then never reassembled together.
    #[serde(default = "yes")]
    pub rewrite_ip_id: bool,
    /// Protocols without ports, such as `["gre", "esp", "sctp"]`. In packets of these protocols, only the address is
    /// translated; packets of other protocols without ports are dropped. Two hosts that share an outside address can't
    /// use a protocol without ports to the same remote host at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
    /// Limits of each subscriber.
    #[serde(default, skip_serializing_if = "is_default")]
    pub subscriber: SubscriberLimits,
    /// Limits of all subscribers of the pool together.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: SessionLimits,
    /// Idle timeouts of the pool's sessions. Omitted timeouts have the values in `[sessions.timeouts]`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
}

impl Pool {
    /// A pool with these addresses and default settings.
    pub fn of(addresses: Vec<AddressRange>) -> Self {
        Self {
            addresses,
            ports: unprivileged(),
            reserved_ports: PortRanges::default(),
            pairing: Pairing::default(),
            mapping: ByProtocol::default(),
            filtering: ByProtocol::default(),
            overlap: false,
            port_selection: PortSelection::default(),
            parity: false,
            block: None,
            quarantine: hold(),
            deterministic: None,
            rewrite_ip_id: yes(),
            protocols: Vec::new(),
            subscriber: SubscriberLimits::default(),
            limits: SessionLimits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

fn unprivileged() -> PortRanges {
    PortRange::UNPRIVILEGED.into()
}

fn yes() -> bool {
    true
}

fn hold() -> Period {
    Period::seconds(120)
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What happens if the paired address (RFC 4787, REQ-2) of an inside host has no free port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// New sessions are rejected (RFC 7857, section 4).
    #[default]
    Hard,
    /// New sessions use another address of the pool.
    Soft,
}

/// Mapping behaviour: when flows of one inside address and port share an outside port (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Flows to all destinations share the outside port (REQ-1).
    #[default]
    EndpointIndependent,
    /// Only flows to the same address and port share the outside port.
    AddressAndPortDependent,
}

/// Filtering behaviour: which remote endpoints may send to a mapped outside port (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// All endpoints may send (REQ-8, for transparency).
    #[default]
    EndpointIndependent,
    /// Only addresses to which the inside host has sent packets from the mapped port may send (REQ-8, for strictness).
    AddressDependent,
    /// Only addresses and ports to which the inside host has sent packets from the mapped port may send.
    AddressAndPortDependent,
}

/// How a free port is selected for a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortSelection {
    /// A random port, which is hard to guess (RFC 6056; RFC 6888, REQ-15).
    #[default]
    Random,
    /// The inside port, if this port is free.
    Preserve,
}

/// `block`: port blocks, each of which is assigned to one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Block {
    /// Number of ports per block. The number must be a power of two, and at least 64.
    pub size: u16,
    /// Maximum number of blocks per subscriber.
    pub maximum: u16,
    /// Whether a subscriber keeps one unused block until its last session ends, so that its next session needs no new
    /// block.
    pub spare: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            size: 512,
            maximum: 8,
            spare: true,
        }
    }
}

/// `deterministic`: inside addresses with computed outside addresses and ports (RFC 7422).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Deterministic {
    /// Inside addresses, as a prefix or a range.
    pub inside: AddressRange,
    /// Number of inside addresses that share an outside address.
    pub compression: u16,
    /// Number of shares of each outside address that are reserved for dynamic port blocks.
    #[serde(default)]
    pub dynamic: u16,
    /// How inside addresses are assigned to outside addresses and ports.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Maximum number of ports per inside address and protocol, including ports of dynamic blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_ports: Option<u32>,
    /// Key for `algorithm = "random"`. Without the key, the assignment can't be computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
}

/// How inside addresses are assigned to outside addresses and ports (RFC 7422, section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// The first inside addresses share the first outside address. Each inside address has a contiguous range of ports,
    /// in ascending order.
    #[default]
    Sequential,
    /// The first inside addresses share the first outside address. Each inside address has every `compression`-th port.
    Staggered,
    /// Each inside address has the same ports on all outside addresses.
    RoundRobin,
    /// Each inside address has every `compression`-th port. The outside addresses alternate from port to port.
    Interlaced,
    /// The first inside addresses share the first outside address. A key determines the ports of each inside address.
    Random,
}

/// `[nat.pools.NAME.subscriber]`: limits of each subscriber (RFC 6888, REQ-4 and REQ-5). If a limit is omitted, only
/// the limits of the pool apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SubscriberLimits {
    /// Maximum number of outside ports per protocol, as one number for all protocols or one number for each.
    #[serde(skip_serializing_if = "ByProtocol::is_empty")]
    pub ports: ByProtocol<u32>,
    /// Maximum number of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions per second, and burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
}

/// `limits` of a pool or of all translation. Omitted limits do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SessionLimits {
    /// Maximum number of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions per second, and burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
}
