//! `[filter]`: the packet filter.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::pool::is_default;
use super::rule::FilterRule;
use crate::value::{Addresses, FieldValues, OneOrMore, Period, Ports, SetElement, SetType};

/// `[filter]`: rules for forwarded packets, evaluated in the order of the file. The first matching rule that accepts,
/// drops or rejects determines the verdict. Packets to the gateway itself are matched only by rules with `out =
/// "gateway"`, and are accepted if none of these rules has a verdict. Packets that the gateway originates always pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Filter {
    /// Verdict on packets for which no rule has a verdict.
    pub default: Verdict,
    /// Whether only the first packet of a flow is filtered. If only first packets are filtered, later packets in both
    /// directions and related ICMP errors pass. Otherwise every packet is filtered.
    pub sessions: bool,
    /// Algorithm of the matcher.
    pub matcher: Matcher,
    /// Only with `cached-trie`: number of entries in the list of each node.
    pub list_size: u16,
    /// Only with `cached-trie`: search algorithm of the lists.
    pub list_search: ListSearch,
    /// Maximum memory of a `trie` or `cached-trie` in MiB. A larger set of rules is rejected.
    pub trie_memory: u32,
    /// Address groups by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub addresses: IndexMap<String, OneOrMore<Addresses>>,
    /// Port groups by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, OneOrMore<Ports>>,
    /// Sets by name. The elements of sets can change at run time. Rules refer to sets in the same way as to groups.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sets: IndexMap<String, NamedSet>,
    /// The rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FilterRule>,
}

/// `[filter.sets.NAME]`: a set with elements that commands and rules can add and remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NamedSet {
    /// Type of the elements.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: SetType,
    /// Maximum number of elements.
    pub size: u32,
    /// Timeout of elements that are added at run time. Without a timeout, an element remains until a command or rule
    /// removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
    /// Initial elements. Initial elements have no timeout.
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
    /// Count the packet, and continue with the next rule.
    Count,
    /// Log a line, and continue with the next rule. At most 10 lines per second are logged for each rule.
    Log,
    /// Drop packets above a rate. All other packets continue with the next rule.
    RateLimit,
    /// Set the mark of the session, and continue with the next rule.
    SetMark,
    /// Set the DSCP of the packet and of the session's later packets in this direction, and continue with the next
    /// rule.
    SetDscp,
    /// Set the ECN code point of the packet and of the session's later packets in this direction, and continue with the
    /// next rule.
    SetEcn,
    /// Add the source address to a set, and continue with the next rule.
    AddToSet,
}

/// Reply to the sender of a rejected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectWith {
    /// A TCP reset for TCP packets, otherwise ICMP port unreachable.
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
    /// Three search trees. The trees are fast and small for any rules.
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
    /// Linear search that begins at the first entry.
    InOrder,
    /// Binary search.
    Bisection,
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

/// Fragment kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Not fragmented.
    Whole,
    /// First fragment.
    First,
    /// A later fragment, which contains no ports.
    Later,
}

impl FieldValues for Option<Part> {
    fn ranges(&self) -> Vec<(u32, u32)> {
        self.iter().map(|&part| (part as u32, part as u32)).collect()
    }

    fn of(ranges: &[(u128, u128)]) -> Vec<Self> {
        let is_in = |part: &Part| {
            ranges
                .iter()
                .any(|&(first, last)| (first..=last).contains(&(*part as u128)))
        };
        [Part::Whole, Part::First, Part::Later]
            .into_iter()
            .filter(is_in)
            .map(Some)
            .collect()
    }
}
