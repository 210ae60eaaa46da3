//! Problems of the packet filter.

use super::meant;
use crate::value::SetType;

/// A problem of the filter, or advice about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum FilterProblem {
    /// No group has this name.
    #[error("there is no group of {description} named `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownGroup {
        /// Name as written.
        name: String,
        /// Kind of the group: addresses or ports.
        description: &'static str,
        /// Names of the groups.
        known: Vec<String>,
    },
    /// A group contains itself.
    #[error("group `{0}` contains itself, directly or through other groups")]
    #[diagnostic(help("remove this reference, or the reference in the other group"))]
    GroupOfItself(String),
    /// A group has no members.
    #[error("group `{0}` is empty")]
    #[diagnostic(help("add members to the group, or remove the group"))]
    EmptyGroup(String),
    /// Sources and destinations of a rule have different address families.
    #[error("source and destination addresses are of different families: no packet matches")]
    #[diagnostic(help("write a rule for each family"))]
    MixedFamilies,
    /// Only some values of a key begin with `!`.
    #[error("negated and plain values are mixed")]
    #[diagnostic(help("write `!` before all values or before none, or write two rules"))]
    MixedSigns,
    /// A rule excludes all values of a field.
    #[error("every possible value is excluded: no packet matches")]
    #[diagnostic(help("remove a value"))]
    NothingLeft,
    /// A key does not apply to the rule's protocol.
    #[error("`{key}` is only for {of}, but the protocol of the rule is {protocol}")]
    #[diagnostic(help("write only {of} as protocol, or remove `{key}`"))]
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
    #[diagnostic(help("write the number of the ICMP type, or change the protocol"))]
    NotAMessage(String),
    /// A key belongs to a different action.
    #[error("`{key}` needs the action `{action}`")]
    #[diagnostic(help("remove the key, or change the action"))]
    NotOfAction {
        /// The key.
        key: &'static str,
        /// Action to which the key belongs.
        action: &'static str,
    },
    /// A rate limit has no rate.
    #[error("the action rate-limit needs the key `rate`")]
    #[diagnostic(help("write packets per second, such as `rate = 100`"))]
    NoRate,
    /// A set and a group have the same name.
    #[error("`{0}` is already the name of a group")]
    #[diagnostic(help("choose another name: rules refer to both groups and sets as `@NAME`"))]
    SetAndGroup(String),
    /// The elements of a set exceed its size.
    #[error("{count} elements exceed the size {size} of the set")]
    #[diagnostic(help("{}", larger(*count, *max)))]
    SetTooSmall {
        /// Number of elements.
        count: usize,
        /// Size of the set.
        size: u32,
        /// Maximum size of any set.
        max: u32,
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
    #[diagnostic(help("write the name of a set of addresses or networks"))]
    AddsToPorts(String),
    /// A list of values contains a set and other values.
    #[error("the list combines set `{0}` with other values")]
    #[diagnostic(help("write a second rule: a list contains either a single set or no set"))]
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
    #[error("the action add-to-set needs the key `set`")]
    #[diagnostic(help("write the name of a set in [filter.sets]"))]
    NoSet,
    /// `set-dscp` has no DSCP.
    #[error("the action set-dscp needs the key `new-dscp`")]
    #[diagnostic(help("write the code point, such as `new-dscp = \"ef\"`"))]
    NoDscp,
    /// `set-ecn` has no ECN code point.
    #[error("the action set-ecn needs the key `new-ecn`")]
    #[diagnostic(help("write the code point, such as `new-ecn = \"not-ect\"`"))]
    NoEcn,
    /// A rule for applications does not create sessions.
    #[error("`application` needs a session, but `track = false` creates no session")]
    #[diagnostic(help("remove `track` or `application`"))]
    UntrackedApplication,
    /// `track` is set in a filter that doesn't create sessions.
    #[error("`track` needs a stateful filter")]
    #[diagnostic(help("remove `track`, or remove `sessions = false` in [filter]"))]
    NothingTracked,
    /// `set-mark` has no mark.
    #[error("the action set-mark needs the key `new-mark`")]
    #[diagnostic(help("write the mark, such as `new-mark = \"0x10\"`"))]
    NoMark,
    /// The list size exceeds the maximum.
    #[error("a list of {0} entries is too long")]
    #[diagnostic(help("write at most 255 entries"))]
    ListSize(u16),
    /// A rule excludes packets to the gateway, but this exclusion is redundant.
    #[error("`!gateway` has no effect: only rules with `gateway` match packets to the gateway")]
    #[diagnostic(help("remove `!gateway`"))]
    NotGateway,
    /// A rule for packets to the gateway has a condition that does not apply to packets to the gateway.
    #[error("packets to the gateway have no `{0}`")]
    #[diagnostic(help("remove the key, or write a rule without `gateway`"))]
    NotOfGateway(&'static str),
    /// The rules expand to too many combinations.
    #[error("{combinations} combinations of addresses, ports and other values are too many")]
    #[diagnostic(help("at most {max} combinations are possible: use prefixes and ranges in place of lists"))]
    TooLarge {
        /// Number of combinations.
        combinations: u64,
        /// Maximum number of combinations.
        max: u64,
    },
    /// The rules contain too many MAC addresses.
    #[error("{0} different MAC addresses are too many")]
    #[diagnostic(help("at most {} are possible in all rules together", crate::limits::MAX_MACS))]
    TooManyMacs(usize),
    /// Too many rules are evaluated individually.
    #[error("there are too many rules ({0}) with applications, marks, sets or an action that continues evaluation")]
    #[diagnostic(help(
        "at most 256 such rules are possible, because all of them are evaluated for each packet; to count packets, no \
         `count` rule is needed, because every rule has counters"
    ))]
    TooManyContinuing(usize),
    /// A rule refers to applications, but application identification is not configured.
    #[error("application identification is not enabled")]
    #[diagnostic(help("add [applications] with `interfaces`"))]
    IdentificationNotEnabled,
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
    #[diagnostic(help("write another name: names of rules must be unique"))]
    DuplicateName(usize),
    /// A file of rules to insert contains other settings.
    #[error("only filter rules can be inserted")]
    #[diagnostic(help("write only `[[filter.rules]]`, and use `sluice apply` for other changes of the configuration"))]
    NotRules,
    /// A rule to insert has no name.
    #[error("an inserted rule needs a name")]
    #[diagnostic(help("add `name = \"…\"`: the rule can be removed by its name"))]
    NoName,
    /// The name of a rule is a number, which could be mistaken for a rule's position.
    #[error("`{0}` is a number, which is reserved for rules without a name")]
    #[diagnostic(help("write a word, such as `rule-{0}`"))]
    Number(String),
    /// An earlier rule with a different action matches all packets of the rule.
    #[error("`{by}` matches all packets of `{rule}`, with another action: the rule never matches")]
    #[diagnostic(help("move the rule before the other rule, or remove the rule"))]
    Shadowed {
        /// The rule.
        rule: String,
        /// Name or number of the earlier rule.
        by: String,
    },
    /// An earlier rule with the same action matches all packets of the rule.
    #[error("`{by}` matches all packets of `{rule}`, with the same action: the rule is redundant")]
    #[diagnostic(help("remove the rule"))]
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
fn larger(count: usize, max: u32) -> String {
    match count as u64 <= u64::from(max) {
        true => format!("write `size = {count}` or more, up to {max}"),
        false => format!("a set has at most {max} elements: remove some, or write two sets"),
    }
}

/// Hint for an element that does not fit the type of its set.
fn of_set(kind: &SetType, element: &str) -> &'static str {
    match (kind, element.contains(['.', ':'])) {
        (SetType::Addresses, true) => "write `type = \"networks\"` for the set, or write only single addresses",
        (SetType::Ports, _) => "write ports such as 80 or \"1024-65535\", or change the `type` of the set",
        (_, false) => "write `type = \"ports\"` for the set",
        (SetType::Networks, true) => "write prefixes such as \"192.0.2.0/24\"",
    }
}
