//! `[nat]`: pools of addresses and the rules that use them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

use super::filter::Name;
use super::pool::{Pool, SessionLimits, is_default};
use crate::value::{OneOrMore, Period, Port, PortRange, Prefix, Target, Transport};

/// `[nat]`: address translation. A packet that no rule names is routed as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Nat {
    /// Addresses that pools may gain by `sluice apply`, beyond those of the start: the memory of their port leases is
    /// taken at start, about 50 KiB for each. A change of pools that needs more is refused until a restart.
    pub spare_addresses: u32,
    /// Length of the inside prefix that is one subscriber, with one paired address, its blocks and its limits.
    pub subscriber_prefix: u8,
    /// Subscribers that have sessions at once. Their memory is taken at start.
    pub subscribers: u32,
    /// Port blocks that all subscribers have at once. Their memory is taken at start.
    pub port_blocks: u32,
    /// Ports and blocks that wait at once before they are given out again (`quarantine` of a pool); what is more is free at
    /// once, and counted.
    pub quarantined_ports: u32,
    /// What the sender of a SYN is told that nobody inside expects (RFC 5382, REQ-4).
    pub unsolicited_syn: UnsolicitedSyn,
    /// Such SYNs that wait for their answer at once (`tcp-incoming-syn` says how long); further ones are dropped.
    pub unsolicited_syns: u32,
    /// What becomes of packets from outside to the own address of an inside host that source rules translate.
    pub untranslated_inbound: UntranslatedInbound,
    /// Limits of all translation together.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: SessionLimits,
    /// Pools of outside addresses by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub pools: IndexMap<String, Pool>,
    /// Source rules; the most specific that matches decides: the longest prefix, then a named protocol before any, then a
    /// named interface before any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceRule>,
    /// Destination rules (port forwarding); asked before source rules. The one with an address decides before one without, one
    /// with a port before one without, one with a protocol before one without, one with `in` before one without, and then the
    /// one with the fewest ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<DestinationRule>,
    /// Networks whose addresses are translated one to one.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<StaticRule>,
    /// What is not translated (RFC 6888, REQ-6).
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

/// What the sender of a SYN is told that nobody inside expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnsolicitedSyn {
    /// After a while, that the port is unreachable, unless an inside host has opened the connection itself.
    #[default]
    Unreachable,
    /// Nothing.
    Drop,
}

/// What becomes of packets from outside to the own address of an inside host that source rules translate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UntranslatedInbound {
    /// They pass. A connection that begins so has a session, and its answers keep the host's own address.
    #[default]
    Pass,
    /// They are dropped, as `untranslated-inbound`.
    Drop,
}

/// `[[nat.source]]`: connections from a network out by an interface get an address of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceRule {
    /// Network of the inside hosts.
    pub from: Prefix,
    /// TCP or UDP; any protocol where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// The interface by which the packets leave; any where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// It is about what the gateway's own host sends, with one of its own addresses in `from`; needs `out`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: bool,
    /// The pool that their addresses and ports come from.
    pub pool: String,
}

/// `[[nat.destination]]`: connections to an address and port go to an inside host, to one of several, or to the gateway's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DestinationRule {
    /// TCP or UDP; where not given both, and without a port any protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// The address that they are to; any where not given, of what comes in by `in`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Interfaces by which they come in; any where not given.
    #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
    pub incoming: OneOrMore<Name>,
    /// It is about what the gateway's own host sends; any address where `address` is not given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: bool,
    /// The outside port or ports; all where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortRange>,
    /// The inside host; or `"gateway"`: the gateway's own address of the interface that they come in by; or a list of hosts,
    /// each an address or `{ host = …, weight = … }`.
    pub to: Target,
    /// Its port, or the first of as many; the same as outside where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_port: Option<Port>,
    /// With several hosts: what connections are dealt by.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balance: Balance,
    /// With several hosts: how each is checked. None is where not given, and all count as up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
}

/// What connections are dealt among hosts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Each for itself.
    #[default]
    Random,
    /// Their source address: a client keeps its host.
    Source,
}

/// `health` of a destination rule: the host of the router checks the hosts, and new connections go to those that answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Health {
    /// How a host is checked.
    pub protocol: HealthProtocol,
    /// Over TCP: the port; that which connections are led to where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Time from one check to the next.
    pub interval: Period,
    /// A host that has not answered for so long has failed.
    pub timeout: Period,
    /// Failures in a row after which a host is down.
    pub failures: u32,
    /// Answers in a row after which a host is up again.
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
    /// It takes a TCP connection.
    #[default]
    Tcp,
    /// It answers an echo request.
    Icmp,
}

/// `[[nat.static]]`: each inside address has an outside address of its own, whatever the protocol, in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StaticRule {
    /// Network of the inside hosts.
    pub inside: Prefix,
    /// Network of their outside addresses, as large.
    pub outside: Prefix,
    /// The interface by which their connections leave; any where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}

/// `[[nat.exempt]]`: what goes to a destination, or comes from a network, is not translated (RFC 6888, REQ-6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExemptRule {
    /// Network of the destinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Prefix>,
    /// Network of the inside hosts, in the place of `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// TCP or UDP; where not given both, and without a port any protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Transport>,
    /// The port or ports of the destinations; all where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortRange>,
    /// With `from`, the interface by which the packets leave; any where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}
