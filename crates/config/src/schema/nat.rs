//! `[nat]`: address pools and translation rules.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

use super::filter::Name;
use super::pool::{Pool, SessionLimits, is_default};
use crate::value::{OneOrMore, Period, Port, PortRange, Prefix, Target, Transport};

/// `[nat]`: address translation. Packets that match no rule are routed without translation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Nat {
    /// Number of addresses that `sluice apply` can add to pools after the start. The memory for the port allocations of
    /// these addresses, about 50 KiB each, is reserved at start. A change of pools that needs more addresses requires a
    /// restart.
    pub spare_addresses: u32,
    /// Prefix length of the inside network that counts as one subscriber. A subscriber has one paired address, its own
    /// port blocks and its own limits.
    pub subscriber_prefix: u8,
    /// Maximum number of subscribers that have sessions. Memory is reserved at start.
    pub subscribers: u32,
    /// Maximum number of port blocks, over all subscribers. Memory is reserved at start.
    pub port_blocks: u32,
    /// Maximum number of ports and port blocks in quarantine (`quarantine` of a pool). If this number is reached,
    /// released ports are free immediately; releases without quarantine are counted.
    pub quarantined_ports: u32,
    /// Reply to an inbound SYN that matches no session or mapping (RFC 5382, REQ-4).
    pub unsolicited_syn: UnsolicitedSyn,
    /// Maximum number of unsolicited SYNs that wait for their reply (see `tcp-incoming-syn`). Further SYNs are dropped.
    pub unsolicited_syns: u32,
    /// What happens to packets from outside that are addressed to an inside address for which a source rule exists.
    pub untranslated_inbound: UntranslatedInbound,
    /// Limits of all translation together.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: SessionLimits,
    /// Pools of outside addresses by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub pools: IndexMap<String, Pool>,
    /// Source rules. If several rules match, the most specific rule applies: the longest prefix, then a rule with a
    /// protocol, then a rule with an interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceRule>,
    /// Destination rules (port forwarding), evaluated before source rules. If several rules match, the most specific
    /// rule applies: first a rule with an address, then with a port, then with a protocol, then with `in`, and finally
    /// the rule with the fewest ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<DestinationRule>,
    /// Networks that are translated one to one.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<StaticRule>,
    /// Exemptions from translation (RFC 6888, REQ-6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<ExemptRule>,
}

impl Default for Nat {
    fn default() -> Self {
        Self {
            spare_addresses: 64,
            subscriber_prefix: 32,
            subscribers: 65_536,
            port_blocks: 131_072,
            quarantined_ports: 131_072,
            unsolicited_syn: UnsolicitedSyn::default(),
            unsolicited_syns: 512,
            untranslated_inbound: UntranslatedInbound::default(),
            limits: SessionLimits::default(),
            pools: IndexMap::new(),
            source: Vec::new(),
            destination: Vec::new(),
            one_to_one: Vec::new(),
            exempt: Vec::new(),
        }
    }
}

/// Reply to an inbound SYN that matches no session or mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnsolicitedSyn {
    /// ICMP port unreachable after a delay. No reply is sent if an inside host opens the connection during the delay.
    #[default]
    Unreachable,
    /// No reply.
    Drop,
}

/// What happens to packets from outside that are addressed to an inside address for which a source rule exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UntranslatedInbound {
    /// Forward the packets. A connection gets a session, and its replies keep the inside address of the host.
    #[default]
    Pass,
    /// Drop the packets with the reason `untranslated-inbound`.
    Drop,
}

/// `[[nat.source]]`: connections from a network that leave through an output interface are translated to a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceRule {
    /// Network of the inside hosts.
    pub from: Prefix,
    /// TCP or UDP. If omitted, the rule matches any protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// Output interface. If omitted, the rule applies to any interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Whether the rule applies to packets that the gateway's own host stack sends from a gateway address in `from`.
    /// Requires `out`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: bool,
    /// Pool of the outside addresses and ports.
    pub pool: String,
}

/// `[[nat.destination]]`: connections to an outside address and port are forwarded to an inside host, to one of several
/// hosts, or to the gateway itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DestinationRule {
    /// TCP or UDP. If omitted, the rule matches both if `port` is set, and otherwise any protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// Outside address. If omitted, the rule applies to any destination of packets that are received on `in`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Input interfaces. If omitted, the rule applies to any interface.
    #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
    pub incoming: OneOrMore<Name>,
    /// Whether the rule applies to packets of the gateway's own host stack. If `address` is omitted, the rule applies
    /// to any destination.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: bool,
    /// Outside port or ports. If omitted, the rule applies to all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortRange>,
    /// Inside host, or `"gateway"` for the gateway's own address on the input interface, or a list of hosts. Each host
    /// of a list is an address or `{ host = …, weight = … }`.
    pub to: Target,
    /// Inside port, or the first inside port of a range. If omitted, the outside port is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_port: Option<Port>,
    /// Only with several hosts: whether connections or source addresses are balanced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balance: Balance,
    /// Only with several hosts: health checks. If omitted, all hosts count as up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

/// Whether connections or source addresses are balanced over hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Each connection is balanced individually.
    #[default]
    Random,
    /// The source address: a client always gets the same host.
    Source,
}

/// `health` of a destination rule: the router's host stack checks the hosts. New connections are sent only to hosts
/// that are up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Health {
    /// How hosts are checked.
    pub protocol: HealthProtocol,
    /// Only with TCP: port to which checks connect. If omitted, the target port of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Interval between checks.
    pub interval: Period,
    /// Time after which a check without reply fails.
    pub timeout: Period,
    /// Number of consecutive failures after which a host counts as down.
    pub failures: u32,
    /// Number of consecutive successes after which a host counts as up again.
    pub successes: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            protocol: HealthProtocol::default(),
            port: None,
            interval: Period::milliseconds(5_000),
            timeout: Period::milliseconds(2_000),
            failures: 3,
            successes: 2,
        }
    }
}

/// How a host is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthProtocol {
    /// The host accepts a TCP connection.
    #[default]
    Tcp,
    /// The host replies to an ICMP echo request.
    Icmp,
}

/// `[[nat.static]]`: each inside address is translated to a fixed outside address, for all protocols and in both
/// directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StaticRule {
    /// Network of the inside hosts.
    pub inside: Prefix,
    /// Network of the outside addresses. Both networks have the same size.
    pub outside: Prefix,
    /// Output interface. If omitted, the rule applies to any interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}

/// `[[nat.exempt]]`: packets to a destination, or from a network, are not translated (RFC 6888, REQ-6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExemptRule {
    /// Destination network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Prefix>,
    /// Network of the inside hosts. Only without `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// TCP or UDP. If omitted, the rule matches both if `port` is set, and otherwise any protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// Destination port or ports. If omitted, the rule applies to all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortRange>,
    /// Only with `from`: the output interface. If omitted, the rule applies to any interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}
