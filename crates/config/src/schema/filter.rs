//! `[filter]`: which packets pass.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::pool::is_default;
use crate::value::{
    Addresses, Dscp, Ecn, IpProtocol, Mac, Mark, Message, Numbers, OneOrMore, OrNot, Period, Ports, SetElement,
    SetType, TcpFlags,
};

/// `[filter]`: rules over the packets that are forwarded, asked in the order of the file. The first rule that matches and
/// accepts, drops or rejects decides. Of packets to the gateway itself rules with `out = "gateway"` alone are asked; what none of
/// them decides about passes, as does all that the gateway sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Filter {
    /// What happens to packets that no rule decides about.
    pub default: Verdict,
    /// The first packet of a flow is asked about; those that follow pass in both directions, as do errors about them. Without
    /// it every packet is asked about.
    pub sessions: bool,
    /// How rules are found.
    pub matcher: Matcher,
    /// With `cached-trie`: entries of each node's list.
    pub list_size: u16,
    /// With `cached-trie`: how lists are searched.
    pub list_search: ListSearch,
    /// Most MiB that a `trie` or `cached-trie` may take; a set of rules that needs more is refused.
    pub trie_memory: u32,
    /// Groups of addresses by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub addresses: IndexMap<String, OneOrMore<Addresses>>,
    /// Groups of ports by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, OneOrMore<Ports>>,
    /// Sets by name, which change while the daemon runs. Rules name them as they name groups.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sets: IndexMap<String, NamedSet>,
    /// The rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// `[filter.sets.NAME]`: elements that commands and rules add and remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NamedSet {
    /// What its elements are.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: SetType,
    /// How many elements it may have.
    pub size: u32,
    /// How long elements stay that are added later; for ever where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// Elements that it has from the start, for ever.
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

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
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

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The packet passes.
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
    /// It is counted, and later rules are asked.
    Count,
    /// A line is logged, at most 10 a second for each rule, and later rules are asked.
    Log,
    /// Packets above a rate are dropped; about the others later rules are asked.
    RateLimit,
    /// The session gets a mark, and later rules are asked.
    SetMark,
    /// The packet, and those of its session in its direction, get a code point, and later rules are asked.
    SetDscp,
    /// They get a code point of congestion, and later rules are asked.
    SetEcn,
    /// Its source is added to a set, and later rules are asked.
    AddToSet,
}

/// What the sender of a rejected packet is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectWith {
    /// A reset over TCP, else that the port is unreachable.
    #[default]
    Reset,
    /// That the port is unreachable.
    PortUnreachable,
    /// That communication is prohibited.
    Prohibited,
}

/// How rules are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matcher {
    /// Three search trees: fast and small for any rules.
    Best,
    /// One after the other.
    Linear,
    /// A trie of elementary intervals.
    Trie,
    /// The same with a list of recent answers in each node.
    CachedTrie,
}

/// How lists are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListSearch {
    /// From the first entry on.
    InOrder,
    /// By halves.
    Bisection,
}

/// `[[filter.rules]]`: what is not named may be anything. Of several values of a key any may hold, of several keys all must.
/// With `!` before all values of a key, none of them may hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilterRule {
    /// What it is called in lists, counters and the log; its number where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    pub action: Action,
    /// Source addresses.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from: OneOrMore<OrNot<Addresses>>,
    /// Destination addresses, after translation.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to: OneOrMore<OrNot<Addresses>>,
    /// Protocols.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub protocol: OneOrMore<OrNot<IpProtocol>>,
    /// Source ports.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from_port: OneOrMore<OrNot<Ports>>,
    /// Destination ports, after translation.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to_port: OneOrMore<OrNot<Ports>>,
    /// ICMP and ICMPv6 messages.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub icmp: OneOrMore<Message>,
    /// TCP flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<TcpFlags>,
    /// Which part of its datagram the packet is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Part>,
    /// Differentiated services code points.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub dscp: OneOrMore<Dscp>,
    /// Code points of explicit congestion notification.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub ecn: OneOrMore<Ecn>,
    /// MAC addresses of senders: neighbours, which routers are too. What no Ethernet frame brought has none.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from_mac: OneOrMore<OrNot<Mac>>,
    /// MAC addresses that frames came to.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub to_mac: OneOrMore<OrNot<Mac>>,
    /// Length of the packet in bytes, from its IP header on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Numbers>,
    /// VLANs that it came in by, the outer tag where there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Numbers>,
    /// Interfaces that it came in by.
    #[serde(default, rename = "in", skip_serializing_if = "OneOrMore::is_empty")]
    pub incoming: OneOrMore<OrNot<Name>>,
    /// Interfaces that it leaves by; or `gateway`: it is addressed to the gateway itself.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub out: OneOrMore<OrNot<Name>>,
    /// Applications of sessions, by nDPI's names: `BitTorrent`, `TLS.NetFlix`. The rule is asked when a session's is known.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub application: OneOrMore<Name>,
    /// The mark that rules before it have set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<OrNot<Mark>>,
    /// With `accept`: whether the flow becomes a session. Without one all its packets are asked about, in both directions.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub track: bool,
    /// With `reject`: what the sender is told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub with: RejectWith,
    /// With `rate-limit`: packets a second, all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// With `rate-limit`: packets at once; as many as a second's where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// With `set-mark`: the mark; bits outside its mask stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_mark: Option<Mark>,
    /// With `set-dscp`: the code point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_dscp: Option<Dscp>,
    /// With `set-ecn`: the code point of congestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_ecn: Option<Ecn>,
    /// With `add-to-set`: the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

impl FilterRule {
    /// A rule that does something with all packets.
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

    /// What it matches, by key, as it is written.
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

/// The name of an interface, or of an application.
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

/// Which part of its datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All of it.
    Whole,
    /// Its first fragment.
    First,
    /// A later one: it has no ports.
    Later,
}
