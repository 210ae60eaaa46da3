//! Problems of the packet filter.

use super::meant;
use crate::value::SetType;

/// A problem of the filter, or advice about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum FilterProblem {
    /// No group has this name.
    #[error("there is no group `{name}` of {what}")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownGroup {
        /// Name as written.
        name: String,
        /// Kind of the group: addresses or ports.
        what: &'static str,
        /// Names of the groups.
        known: Vec<String>,
    },
    /// A group contains itself.
    #[error("group `{0}` names itself")]
    #[diagnostic(help("remove this reference, or the one in the other group"))]
    GroupOfItself(String),
    /// A group has no members.
    #[error("group `{0}` is empty")]
    #[diagnostic(help("write its members, or remove it"))]
    EmptyGroup(String),
    /// Sources and destinations of a rule have different address families.
    #[error("source and destination addresses are of different families: no packet matches")]
    #[diagnostic(help("write a rule for each family"))]
    MixedFamilies,
    /// Only some values of a key begin with `!`.
    #[error("negated and plain values are mixed")]
    #[diagnostic(help("write `!` before all of them or none, or write two rules"))]
    MixedSigns,
    /// A rule excludes all values of a field.
    #[error("every possible value is excluded: no packet matches")]
    #[diagnostic(help("remove a value"))]
    NothingLeft,
    /// A key does not apply to the rule's protocol.
    #[error("`{key}` belongs to {of}, but the rule has protocol {protocol}")]
    #[diagnostic(help("write only protocol {of}, or remove `{key}`"))]
    NotOfProtocol {
        /// The key.
        key: &'static str,
        /// Protocol that has the field.
        of: &'static str,
        /// Protocol as written.
        protocol: String,
    },
    /// The ICMP message does not exist in the rule's address families.
    #[error("`{0}` is not a message type of the rule's protocol")]
    #[diagnostic(help("write its number, or change the protocol"))]
    NotAMessage(String),
    /// A key belongs to another action.
    #[error("`{key}` needs the action `{action}`")]
    #[diagnostic(help("remove it, or change the action"))]
    NotOfAction {
        /// The key.
        key: &'static str,
        /// Action that has the key.
        action: &'static str,
    },
    /// A rate limit has no rate.
    #[error("a rate-limit needs its `rate`")]
    #[diagnostic(help("write packets per second, such as `rate = 100`"))]
    NoRate,
    /// A set and a group have the same name.
    #[error("`{0}` is already the name of a group")]
    #[diagnostic(help("rules refer to groups and sets by `@`: choose another name"))]
    SetAndGroup(String),
    /// The elements of a set exceed its size.
    #[error("{count} elements exceed the size {size} of the set")]
    #[diagnostic(help("{}", larger(*count, *most)))]
    SetTooSmall {
        /// Number of elements.
        count: usize,
        /// Size of the set.
        size: u32,
        /// Maximum size of any set.
        most: u32,
    },
    /// An element does not fit the type of its set.
    #[error("`{element}` does not fit into a set of {}", plural(*.kind))]
    #[diagnostic(help("{}", of_set(kind, element)))]
    NotOfSet {
        /// Element as written.
        element: String,
        /// Type of the set.
        kind: SetType,
    },
    /// A rule adds addresses to a set of ports.
    #[error("set `{0}` contains ports, but `add-to-set` adds addresses")]
    #[diagnostic(help("name a set of addresses or networks"))]
    AddsToPorts(String),
    /// A set is part of a list of values.
    #[error("set `{0}` is combined with other values")]
    #[diagnostic(help("a rule matches either one set or a list: write a second rule"))]
    SetAmongOthers(String),
    /// No set has this name.
    #[error("there is no set `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownSet {
        /// Name as written.
        name: String,
        /// Names of the sets.
        known: Vec<String>,
    },
    /// `add-to-set` has no set.
    #[error("add-to-set needs its `set`")]
    #[diagnostic(help("write the name of a set of [filter.sets]"))]
    NoSet,
    /// `set-dscp` has no DSCP.
    #[error("set-dscp needs its `new-dscp`")]
    #[diagnostic(help("write the code point, such as `new-dscp = \"ef\"`"))]
    NoDscp,
    /// `set-ecn` has no ECN code point.
    #[error("set-ecn needs its `new-ecn`")]
    #[diagnostic(help("write the code point, such as `new-ecn = \"not-ect\"`"))]
    NoEcn,
    /// A rule for applications does not create sessions.
    #[error("`application` needs sessions, and `track` is off")]
    #[diagnostic(help("remove `track` or `application`"))]
    UntrackedApplication,
    /// `track` is set in a filter that doesn't create sessions.
    #[error("`track` needs a stateful filter")]
    #[diagnostic(help("remove `track`, or remove `sessions = false` in [filter]"))]
    NothingTracked,
    /// `set-mark` has no mark.
    #[error("set-mark needs its `new-mark`")]
    #[diagnostic(help("write the mark, such as `new-mark = \"0x10\"`"))]
    NoMark,
    /// The list size exceeds the maximum.
    #[error("a list of {0} entries is too long")]
    #[diagnostic(help("write at most 255"))]
    ListSize(u16),
    /// A rule excludes packets to the gateway, but would not match them without this exclusion either.
    #[error("`!gateway` has no effect: only rules with `gateway` match packets to the gateway")]
    #[diagnostic(help("remove `!gateway`"))]
    NotGateway,
    /// A rule for packets to the gateway has a condition that does not apply to them.
    #[error("packets to the gateway have no `{0}`")]
    #[diagnostic(help("remove it, or write a rule without `gateway`"))]
    NotOfGateway(&'static str),
    /// The rules expand to too many combinations.
    #[error("{combinations} combinations of addresses, ports and other values are too many")]
    #[diagnostic(help("at most {most} are possible; use prefixes and ranges in place of lists"))]
    TooLarge {
        /// Number of combinations.
        combinations: u64,
        /// Maximum number of combinations.
        most: u64,
    },
    /// The rules contain too many MAC addresses.
    #[error("{0} different MAC addresses are too many")]
    #[diagnostic(help("at most {} are possible in all rules together", crate::limits::MOST_MACS))]
    TooManyMacs(usize),
    /// Too many rules are evaluated individually.
    #[error("{0} rules that continue, or that have applications, marks or sets, are too many")]
    #[diagnostic(help(
        "at most 256 are possible, because each packet evaluates all of them; every rule has counters in any case"
    ))]
    TooManyGoingOn(usize),
    /// A rule refers to applications, but application identification is not configured.
    #[error("application identification is not enabled")]
    #[diagnostic(help("add [applications] with `interfaces`"))]
    NobodySeeks,
    /// A rule refers to applications in a filter without sessions.
    #[error("`application` needs a stateful filter")]
    #[diagnostic(help("remove `sessions = false` in [filter]"))]
    NoSessions,
    /// The application is a protocol that other conditions already select.
    #[error("`{0}` is a protocol, not an application")]
    #[diagnostic(help("write `protocol = \"{}\"`", _0.to_lowercase()))]
    OfProtocol(String),
    /// Two rules have the same name.
    #[error("rule {0} has the same name")]
    #[diagnostic(help("names of rules must be unique"))]
    DuplicateName(usize),
    /// A file of rules to insert contains other settings.
    #[error("only filter rules can be inserted")]
    #[diagnostic(help("write only `[[filter.rules]]`; use `sluice apply` for whole configurations"))]
    NotRules,
    /// A rule to insert has no name.
    #[error("an inserted rule needs a name")]
    #[diagnostic(help("add `name = \"…\"`, by which it can be removed"))]
    NoName,
    /// The name of a rule is a number, which could be mistaken for a rule's position.
    #[error("`{0}` is a number, which is reserved for rules without a name")]
    #[diagnostic(help("write a word, such as `rule-{0}`"))]
    Number(String),
    /// An earlier rule with another action matches all packets of the rule.
    #[error("`{by}` matches all packets of `{rule}`, with another action: the rule never matches")]
    #[diagnostic(help("move it before the other rule, or remove it"))]
    Shadowed {
        /// The rule.
        rule: String,
        /// Name or number of the earlier rule.
        by: String,
    },
    /// An earlier rule with the same action matches all packets of the rule.
    #[error("`{by}` matches all packets of `{rule}`, with the same action: the rule is redundant")]
    #[diagnostic(help("remove it"))]
    Redundant {
        /// The rule.
        rule: String,
        /// Name or number of the earlier rule.
        by: String,
    },
}

/// Noun for the elements of a set type, in the plural.
fn plural(kind: SetType) -> &'static str {
    match kind {
        SetType::Addresses => "single addresses",
        SetType::Networks => "networks",
        SetType::Ports => "ports",
    }
}

/// Hint for a set that is too small.
fn larger(count: usize, most: u32) -> String {
    match count as u64 <= u64::from(most) {
        true => format!("write `size = {count}` or more, up to {most}"),
        false => format!("a set has at most {most}: take some away, or make two sets"),
    }
}

/// Hint for an element that does not fit the type of its set.
fn of_set(kind: &SetType, element: &str) -> &'static str {
    match (kind, element.contains(['.', ':'])) {
        (SetType::Addresses, true) => "write `type = \"networks\"` for the set, or single addresses",
        (SetType::Ports, _) => "write ports such as 80 or \"1024-65535\", or another `type`",
        (_, false) => "write `type = \"ports\"` for the set",
        (SetType::Networks, true) => "write prefixes such as \"192.0.2.0/24\"",
    }
}
