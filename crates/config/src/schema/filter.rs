//! `[filter]`: which packets pass.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::pool::is_default;
use super::rule::FilterRule;
use crate::value::{Addresses, FieldValues, OneOrMore, Period, Ports, SetElement, SetType};

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
