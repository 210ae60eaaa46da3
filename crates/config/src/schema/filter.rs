//! `[filter]`: the packet filter.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::pool::is_default;
use crate::value::{
    Addresses, Dscp, Ecn, IpProtocol, Mac, Mark, Message, Numbers, OneOrMore, OrNot, Period, Ports, SetElement,
    SetType, TcpFlags,
};

/// `[filter]`: rules for forwarded packets, evaluated in the order of the file. The first matching rule that accepts,
/// drops or rejects decides. Packets to the gateway itself are matched only by rules with `out = "gateway"`, and
/// accepted if none decides. Packets that the gateway originates always pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Filter {
    /// Verdict on packets that no rule decides about.
    pub default: Verdict,
    /// Whether only the first packet of a flow is filtered. Later packets in both directions and related ICMP errors
    /// then pass. Otherwise every packet is filtered.
    pub sessions: bool,
    /// Algorithm of the matcher.
    pub matcher: Matcher,
    /// With `cached-trie`: number of entries in the list of each node.
    pub list_size: u16,
    /// With `cached-trie`: search algorithm of the lists.
    pub list_search: ListSearch,
    /// Maximum memory of a `trie` or `cached-trie` in MiB; a larger set of rules is rejected.
    pub trie_memory: u32,
    /// Address groups by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub addresses: IndexMap<String, OneOrMore<Addresses>>,
    /// Port groups by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, OneOrMore<Ports>>,
    /// Sets by name, which can change at run time. Rules refer to them in the same way as to groups.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sets: IndexMap<String, NamedSet>,
    /// The rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// `[filter.sets.NAME]`: a set whose elements commands and rules add and remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NamedSet {
    /// Type of the elements.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: SetType,
    /// Maximum number of elements.
    pub size: u32,
    /// Timeout of elements added at run time; if omitted, they remain until they are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// Initial elements, which have no timeout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<SetElement>,
}

impl Default for NamedSet {
    fn default() -> Self {
        Self {
            kind: SetType::default(),
            size: 65_536,
            timeout: None,
            elements: Vec::new(),
        }
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            default: Verdict::Drop,
            sessions: true,
            matcher: Matcher::Best,
            list_size: 11,
            list_search: ListSearch::InOrder,
            trie_memory: 256,
            addresses: IndexMap::new(),
            ports: IndexMap::new(),
            sets: IndexMap::new(),
            rules: Vec::new(),
        }
    }
}

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The packet passes.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its sender gets a reply.
    Reject,
}

impl From<Verdict> for Action {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accept => Self::Accept,
            Verdict::Drop => Self::Drop,
            Verdict::Reject => Self::Reject,
        }
    }
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Accept the packet.
    Accept,
    /// Drop the packet.
    Drop,
    /// Drop the packet, and reply to its sender.
    Reject,
    /// Count the packet and continue with the next rule.
    Count,
    /// Log a line, at most 10 per second and rule, and continue with the next rule.
    Log,
    /// Drop packets above a rate, and continue with the next rule for the others.
    RateLimit,
    /// Set the mark of the session and continue with the next rule.
    SetMark,
    /// Set the DSCP of the packet and of the session's later packets in this direction, and continue with the next
    /// rule.
    SetDscp,
    /// Set the ECN code point of the packet and of the session's later packets in this direction, and continue with the
    /// next rule.
    SetEcn,
    /// Add the source address to a set and continue with the next rule.
    AddToSet,
}

/// Reply to the sender of a rejected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectWith {
    /// A reset for TCP, otherwise ICMP port unreachable.
    #[default]
    Reset,
    /// ICMP port unreachable.
    PortUnreachable,
    /// ICMP communication administratively prohibited.
    Prohibited,
}

/// Algorithm of the matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matcher {
    /// Three search trees, which are fast and small for any rules.
    Best,
    /// Linear search.
    Linear,
    /// A trie of elementary intervals.
    Trie,
    /// A trie of elementary intervals with a cache of recent results in each node.
    CachedTrie,
}

/// Search algorithm of a cache list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListSearch {
    /// Linear search from the first entry.
    InOrder,
    /// Binary search.
    Bisection,
}

/// `[[filter.rules]]`: omitted conditions match everything. At least one value of each given key must match. If all
/// values of a key begin with `!`, none of them may match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilterRule {
    /// Name in lists, counters and the log; the rule's number if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Action of the rule.
    pub action: Action,
    /// Source addresses.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from: OneOrMore<OrNot<Addresses>>,
    /// Destination addresses after translation.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to: OneOrMore<OrNot<Addresses>>,
    /// Protocols.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub protocol: OneOrMore<OrNot<IpProtocol>>,
    /// Source ports.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from_port: OneOrMore<OrNot<Ports>>,
    /// Destination ports after translation.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to_port: OneOrMore<OrNot<Ports>>,
    /// ICMP and ICMPv6 messages.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub icmp: OneOrMore<Message>,
    /// TCP flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<TcpFlags>,
    /// Fragment kind of the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Part>,
    /// Differentiated services code points.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub dscp: OneOrMore<Dscp>,
    /// ECN code points.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub ecn: OneOrMore<Ecn>,
    /// Source MAC addresses, which are those of neighbours, including routers. A packet that did not arrive in an
    /// Ethernet frame matches none.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from_mac: OneOrMore<OrNot<Mac>>,
    /// Destination MAC addresses of received frames.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to_mac: OneOrMore<OrNot<Mac>>,
    /// Packet length in bytes, from the IP header on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Numbers>,
    /// Input VLANs; the outer tag of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Numbers>,
    /// Input interfaces.
    #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
    pub incoming: OneOrMore<OrNot<Name>>,
    /// Output interfaces, or `gateway` for packets addressed to the gateway itself.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub out: OneOrMore<OrNot<Name>>,
    /// Applications of sessions, by nDPI's names: `BitTorrent`, `TLS.NetFlix`. The rule is evaluated once the session's
    /// application is identified.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub application: OneOrMore<Name>,
    /// Mark that earlier rules have set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<OrNot<Mark>>,
    /// With `accept`: whether the flow creates a session. Without a session, all packets are filtered in both
    /// directions.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub track: bool,
    /// With `reject`: reply to the sender.
    #[serde(default, skip_serializing_if = "is_default")]
    pub with: RejectWith,
    /// With `rate-limit`: packets per second over all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// With `rate-limit`: burst in packets; one second's amount if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// With `set-mark`: the mark; bits outside its mask are unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_mark: Option<Mark>,
    /// With `set-dscp`: the DSCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_dscp: Option<Dscp>,
    /// With `set-ecn`: the ECN code point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_ecn: Option<Ecn>,
    /// With `add-to-set`: name of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

impl FilterRule {
    /// A rule with this action for all packets.
    pub fn of(action: Action) -> Self {
        Self {
            name: None,
            action,
            from: OneOrMore::default(),
            to: OneOrMore::default(),
            protocol: OneOrMore::default(),
            from_port: OneOrMore::default(),
            to_port: OneOrMore::default(),
            icmp: OneOrMore::default(),
            flags: None,
            fragment: None,
            dscp: OneOrMore::default(),
            ecn: OneOrMore::default(),
            from_mac: OneOrMore::default(),
            to_mac: OneOrMore::default(),
            length: None,
            vlan: None,
            incoming: OneOrMore::default(),
            out: OneOrMore::default(),
            application: OneOrMore::default(),
            track: true,
            with: RejectWith::default(),
            rate: None,
            burst: None,
            mark: None,
            new_mark: None,
            new_dscp: None,
            new_ecn: None,
            set: None,
        }
    }

    /// Conditions of the rule as key and text.
    pub fn matches(&self) -> Vec<(String, String)> {
        let Ok(table) = toml::Table::try_from(self) else {
            return Vec::new();
        };
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text = |value: &toml::Value| match value {
            toml::Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(" "),
            one => text(one),
        };
        let other = [
            "name", "action", "with", "rate", "burst", "new-mark", "new-dscp", "new-ecn", "set",
        ];
        let order = [
            "protocol",
            "from",
            "from-port",
            "to",
            "to-port",
            "icmp",
            "flags",
            "in",
            "out",
        ];
        let mut found: Vec<_> = table
            .iter()
            .filter(|(key, _)| !other.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), text(value)))
            .collect();
        found.sort_by_key(|(key, _)| order.iter().position(|known| known == key).unwrap_or(order.len()));
        found
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// Name of an interface or an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(pub String);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Name {
    type Err = crate::value::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.into()))
    }
}

/// Fragment kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Not fragmented.
    Whole,
    /// First fragment.
    First,
    /// Later fragment, which has no ports.
    Later,
}
