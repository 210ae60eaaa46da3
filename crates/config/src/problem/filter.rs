//! What can be wrong with the packet filter.

use super::meant;
use crate::value::SetType;

/// One thing that is wrong with the filter, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum FilterProblem {
    /// A group that does not exist.
    #[error("there is no group `{name}` of {what}")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownGroup {
        /// As written.
        name: String,
        /// Addresses or ports.
        what: &'static str,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A group that has itself among its members.
    #[error("group `{0}` names itself")]
    #[diagnostic(help("take it out of the group, or out of the groups that it names"))]
    GroupOfItself(String),
    /// A group without members.
    #[error("group `{0}` is empty")]
    #[diagnostic(help("write its members, or take it away"))]
    EmptyGroup(String),
    /// Sources of one family and destinations of the other.
    #[error("no packet has sources of one family and destinations of the other")]
    #[diagnostic(help("write a rule for each family"))]
    MixedFamilies,
    /// Some values of a key with `!`, and some without.
    #[error("some values have `!` before them, and some do not")]
    #[diagnostic(help("write `!` before all of them or before none, or two rules"))]
    MixedSigns,
    /// All values of a key are excluded.
    #[error("all there is is excluded: no packet has another")]
    #[diagnostic(help("take a value away"))]
    NothingLeft,
    /// A key that the rule's protocols do not have.
    #[error("`{key}` is of {of}, and the rule names {protocol}")]
    #[diagnostic(help("name {of} alone, or take `{key}` away"))]
    NotOfProtocol {
        /// The key.
        key: &'static str,
        /// What has it.
        of: &'static str,
        /// As written.
        protocol: String,
    },
    /// A message that none of the rule's families has.
    #[error("`{0}` is no message of the rule's protocol")]
    #[diagnostic(help("write its number, or name the other protocol"))]
    NotAMessage(String),
    /// A key that belongs to another action.
    #[error("`{key}` is for `{action}`")]
    #[diagnostic(help("take it away, or write the other action"))]
    NotOfAction {
        /// The key.
        key: &'static str,
        /// The action that has it.
        action: &'static str,
    },
    /// A limit without a rate.
    #[error("a rate-limit needs its `rate`")]
    #[diagnostic(help("write packets a second, such as `rate = 100`"))]
    NoRate,
    /// A set and a group of one name.
    #[error("`{0}` is a group already")]
    #[diagnostic(help("rules name both by `@`: give it another name"))]
    SetAndGroup(String),
    /// A set whose elements do not fit.
    #[error("{count} elements do not fit into a set of {size}")]
    #[diagnostic(help("{}", larger(*count, *most)))]
    SetTooSmall {
        /// How many there are.
        count: usize,
        /// How many there may be.
        size: u32,
        /// How many there may be in any such set.
        most: u32,
    },
    /// An element that a set of its type does not have.
    #[error("`{element}` is none of {}", plural(*.kind))]
    #[diagnostic(help("{}", of_set(kind, element)))]
    NotOfSet {
        /// As written.
        element: String,
        /// What the set has.
        kind: SetType,
    },
    /// A set of ports that is to have addresses.
    #[error("set `{0}` has ports, and `add-to-set` adds addresses")]
    #[diagnostic(help("write the name of a set of addresses or networks"))]
    AddsToPorts(String),
    /// A set in a list with others.
    #[error("set `{0}` stands among others")]
    #[diagnostic(help("a rule looks into one set alone: write a rule for the others"))]
    SetAmongOthers(String),
    /// A set that does not exist.
    #[error("there is no set `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownSet {
        /// As written.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A rule that adds to no set.
    #[error("add-to-set needs its `set`")]
    #[diagnostic(help("write the name of a set of [filter.sets]"))]
    NoSet,
    /// A rule that sets no code point.
    #[error("set-dscp needs its `new-dscp`")]
    #[diagnostic(help("write the code point, such as `new-dscp = \"ef\"`"))]
    NoDscp,
    /// A rule that sets no code point of congestion.
    #[error("set-ecn needs its `new-ecn`")]
    #[diagnostic(help("write the code point, such as `new-ecn = \"not-ect\"`"))]
    NoEcn,
    /// A rule about applications that makes no session.
    #[error("without a session, no application is known")]
    #[diagnostic(help("leave `track` out, or `application`"))]
    UntrackedApplication,
    /// A rule that makes no session where none does.
    #[error("packet by packet, nothing is tracked")]
    #[diagnostic(help("leave `track` out, or `sessions = false` in [filter]"))]
    NothingTracked,
    /// A rule that sets no mark.
    #[error("set-mark needs its `new-mark`")]
    #[diagnostic(help("write the mark, such as `new-mark = \"0x10\"`"))]
    NoMark,
    /// A key that makes no sense with the matcher.
    #[error("a list of {0} entries is too long")]
    #[diagnostic(help("write at most 255"))]
    ListSize(u16),
    /// All but the gateway itself.
    #[error("a rule that does not name `gateway` is about no packet to the gateway itself")]
    #[diagnostic(help("leave `!gateway` out"))]
    NotGateway,
    /// A rule about packets to the gateway itself that asks for what these don't have.
    #[error("packets to the gateway itself have no `{0}`")]
    #[diagnostic(help("take it away, or write a rule without `gateway`"))]
    NotOfGateway(&'static str),
    /// Too many combinations.
    #[error("{combinations} combinations of addresses, ports and the like are too many")]
    #[diagnostic(help("at most {most} are possible; write prefixes and ranges for lists"))]
    TooLarge {
        /// How many there are.
        combinations: u64,
        /// How many there may be.
        most: u64,
    },
    /// Too many rules that are asked one by one.
    #[error("{0} rules that go on, or name applications, marks or sets, are too many")]
    #[diagnostic(help("at most 256 are possible, as every packet asks them; every rule counts anyway"))]
    TooManyGoingOn(usize),
    /// A rule about applications, and nobody finds them out.
    #[error("nobody looks for applications")]
    #[diagnostic(help("add [applications] with `interfaces`"))]
    NobodySeeks,
    /// A rule about applications without sessions.
    #[error("packet by packet, no application is known")]
    #[diagnostic(help("leave `sessions` out in [filter]"))]
    NoSessions,
    /// An application that is a protocol's.
    #[error("`{0}` is what its protocol says")]
    #[diagnostic(help("write `protocol = \"{}\"`", _0.to_lowercase()))]
    OfProtocol(String),
    /// A name of two rules.
    #[error("rule {0} has the same name")]
    #[diagnostic(help("names tell rules apart in lists and counters"))]
    DuplicateName(usize),
    /// More than rules where rules are to be inserted.
    #[error("only rules of the filter can be inserted")]
    #[diagnostic(help("write `[[filter.rules]]` and nothing else; `sluice apply` takes whole configurations"))]
    NotRules,
    /// A rule without a name where rules are to be inserted.
    #[error("a rule that is inserted needs a name")]
    #[diagnostic(help("it is removed by its name: write `name = \"…\"`"))]
    NoName,
    /// A name that could be the number of a rule without one.
    #[error("`{0}` is a number, which is what rules without a name are called by")]
    #[diagnostic(help("write a word, such as `rule-{0}`"))]
    Number(String),
    /// A rule that is never asked.
    #[error("`{by}` matches all that `{rule}` does, and decides otherwise: it never decides")]
    #[diagnostic(help("put it before the other, or take it away"))]
    Shadowed {
        /// The rule.
        rule: String,
        /// The one before.
        by: String,
    },
    /// A rule that changes nothing.
    #[error("`{by}` matches all that `{rule}` does, and decides the same: it is not needed")]
    #[diagnostic(help("take it away"))]
    Redundant {
        /// The rule.
        rule: String,
        /// The one before.
        by: String,
    },
}

/// What a set has.
fn plural(kind: SetType) -> &'static str {
    match kind {
        SetType::Addresses => "single addresses",
        SetType::Networks => "networks",
        SetType::Ports => "ports",
    }
}

/// What to do where the elements of a set do not fit.
fn larger(count: usize, most: u32) -> String {
    match count as u64 <= u64::from(most) {
        true => format!("write `size = {count}` or more, up to {most}"),
        false => format!("a set has at most {most}: take some away, or make two sets"),
    }
}

/// What to write in the place of an element that a set of a type does not have.
fn of_set(kind: &SetType, element: &str) -> &'static str {
    match (kind, element.contains(['.', ':'])) {
        (SetType::Addresses, true) => "write `type = \"networks\"` for the set, or single addresses",
        (SetType::Ports, _) => "write ports such as 80 or \"1024-65535\", or another `type`",
        (_, false) => "write `type = \"ports\"` for the set",
        (SetType::Networks, true) => "write prefixes such as \"192.0.2.0/24\"",
    }
}
