//! `[nat.pools.NAME]`: how outside addresses and ports are lent.

use serde::{Deserialize, Serialize};

use super::{Rate, Timeouts};
use crate::value::{AddressRange, ByProtocol, Key, Period, PortRange, PortRanges, Protocol};

/// `[nat.pools.NAME]`: outside addresses and their ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pool {
    /// Addresses, ranges and prefixes; they need not be contiguous. May hold an address of the interface that its
    /// rules lead out by: the gateway opens no TCP or UDP connections of its own there.
    pub addresses: Vec<AddressRange>,
    /// Ports and ICMP identifiers that are given out, as a range or a list of ranges. Ports that destination rules
    /// forward must lie outside, or be reserved.
    #[serde(default = "unprivileged")]
    pub ports: PortRanges,
    /// Ports among them that are not given out.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub reserved_ports: PortRanges,
    /// What happens when the address that an inside host is paired with has no port left.
    #[serde(default)]
    pub pairing: Pairing,
    /// When two flows of one inside address and port share an outside port, for all protocols or for each:
    /// endpoint-independent where not given.
    #[serde(default, skip_serializing_if = "ByProtocol::is_empty")]
    pub mapping: ByProtocol<Mapping>,
    /// Who may send to a mapped outside port, for all protocols or for each: everybody where not given; who was sent
    /// to from there alone where the mapping is address-and-port-dependent.
    #[serde(default, skip_serializing_if = "ByProtocol::is_empty")]
    pub filtering: ByProtocol<Filtering>,
    /// Flows to different destinations may share an outside port (RFC 7857, 3), of the protocols that are mapped by
    /// address and port.
    #[serde(default)]
    pub overlap: bool,
    /// Which free port a mapping gets.
    #[serde(default)]
    pub port_selection: PortSelection,
    /// UDP: even inside ports get even outside ports, odd ones odd (RFC 4787, REQ-4).
    #[serde(default)]
    pub parity: bool,
    /// Blocks of ports that belong to one subscriber at a time; port by port where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// How long a port, or a block, stays unused after its last mapping (RFC 6888, REQ-8); TCP ports and those of
    /// filtered protocols don't wait.
    #[serde(default = "hold")]
    pub quarantine: Period,
    /// Inside addresses whose outside address and ports are computed (RFC 7422).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<Deterministic>,
    /// IPv4 datagrams that are fragments or may become such leave with an identification of the gateway's, so that
    /// those of hosts that share an address are never put together (RFC 6864, 5.3.1).
    #[serde(default = "yes")]
    pub rewrite_ip_id: bool,
    /// Protocols without ports that are translated by address alone, such as `["gre", "esp", "sctp"]`; other ones are
    /// dropped. Two hosts behind one outside address cannot use one to the same remote at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
    /// Limits of each subscriber.
    #[serde(default, skip_serializing_if = "is_default")]
    pub subscriber: SubscriberLimits,
    /// Limits of the pool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: SessionLimits,
    /// How long a silent session of this pool lives; what is not given comes from `[sessions.timeouts]`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
}

impl Pool {
    /// A pool of some addresses, all else as where nothing is written.
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

/// What happens when the address that an inside host is paired with (RFC 4787, REQ-2) has no port left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Its new sessions are refused (RFC 7857, 4).
    #[default]
    Hard,
    /// They get another address of the pool.
    Soft,
}

/// When two flows of one inside address and port share an outside port (RFC 4787, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// Always (REQ-1).
    #[default]
    EndpointIndependent,
    /// Only if they lead to the same address and port.
    AddressAndPortDependent,
}

/// Who may send to a mapped outside port (RFC 4787, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// Everybody (REQ-8, for transparency).
    #[default]
    EndpointIndependent,
    /// Addresses that the inside host has sent to from there (REQ-8, for strictness).
    AddressDependent,
    /// Addresses and ports that it has sent to.
    AddressAndPortDependent,
}

/// Which free port a mapping gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortSelection {
    /// One that is hard to guess (RFC 6056; RFC 6888, REQ-15).
    #[default]
    Random,
    /// The inside port as long as it is free.
    Preserve,
}

/// `block`: blocks of ports that belong to one subscriber at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Block {
    /// Ports of a block: a power of two from 64 on.
    pub size: u16,
    /// Most blocks of a subscriber.
    pub maximum: u16,
    /// Whether a subscriber keeps one block that has run empty until its last session ends, so that its next session
    /// does not take a new one.
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

/// `deterministic`: inside addresses whose outside address and ports are computed (RFC 7422).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Deterministic {
    /// Inside addresses: a prefix or a range.
    pub inside: AddressRange,
    /// Inside addresses per outside address.
    pub compression: u16,
    /// Shares of each outside address that are kept for blocks on demand.
    #[serde(default)]
    pub dynamic: u16,
    /// How inside addresses are dealt to outside addresses and ports.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Most ports of an inside address and protocol, those of blocks on demand included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_ports: Option<u32>,
    /// The key of `algorithm = "random"`. Who has it can compute who had which port; without it nobody can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
}

/// How inside addresses are dealt to outside addresses and ports (RFC 7422, 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// The first inside addresses share the first outside address, in ascending ranges.
    #[default]
    Sequential,
    /// The first inside addresses share the first outside address; each has every `compression`-th port.
    Staggered,
    /// An inside address has the same ports of all outside addresses.
    RoundRobin,
    /// An inside address has every `compression`-th port, each of another outside address in turn.
    Interlaced,
    /// The first inside addresses share the first outside address; a key says which ports each of them has.
    Random,
}

/// `[nat.pools.NAME.subscriber]`: limits of each subscriber (RFC 6888, REQ-4 and REQ-5). What is not given is not
/// limited, but by the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SubscriberLimits {
    /// Outside ports of each protocol, one number for all or one for each.
    #[serde(skip_serializing_if = "ByProtocol::is_empty")]
    pub ports: ByProtocol<u32>,
    /// Sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions a second, and at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
}

/// `limits` of a pool or of all translation. What is not given is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SessionLimits {
    /// Sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions a second, and at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
}
