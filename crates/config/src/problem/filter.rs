//! What can be wrong with the packet filter.

use super::meant;
use crate::value::SetType;

/// One thing that is wrong with the filter, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FilterProblem {
    /// A group that does not exist.
    #[error("there is no group `{name}` of {what}")]
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
    GroupOfItself(String),
    /// A group without members.
    #[error("group `{0}` is empty")]
    EmptyGroup(String),
    /// Sources of one family and destinations of the other.
    #[error("no packet has sources of one family and destinations of the other")]
    MixedFamilies,
    /// Some values of a key with `!`, and some without.
    #[error("some values have `!` before them, and some do not")]
    MixedSigns,
    /// All values of a key are excluded.
    #[error("all there is is excluded: no packet has another")]
    NothingLeft,
    /// A key that the rule's protocols do not have.
    #[error("`{key}` is of {of}, and the rule names {protocol}")]
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
    NotAMessage(String),
    /// A key that belongs to another action.
    #[error("`{key}` is for `{action}`")]
    NotOfAction {
        /// The key.
        key: &'static str,
        /// The action that has it.
        action: &'static str,
    },
    /// A limit without a rate.
    #[error("a rate-limit needs its `rate`")]
    NoRate,
    /// A set and a group of one name.
    #[error("`{0}` is a group already")]
    SetAndGroup(String),
    /// A set whose elements do not fit.
    #[error("{count} elements do not fit into a set of {size}")]
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
    NotOfSet {
        /// As written.
        element: String,
        /// What the set has.
        kind: SetType,
    },
    /// A set of ports that is to have addresses.
    #[error("set `{0}` has ports, and `add-to-set` adds addresses")]
    AddsToPorts(String),
    /// A set in a list with others.
    #[error("set `{0}` stands among others")]
    SetAmongOthers(String),
    /// A set that does not exist.
    #[error("there is no set `{name}`")]
    UnknownSet {
        /// As written.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A rule that adds to no set.
    #[error("add-to-set needs its `set`")]
    NoSet,
    /// A rule that sets no code point.
    #[error("set-dscp needs its `new-dscp`")]
    NoDscp,
    /// A rule that sets no code point of congestion.
    #[error("set-ecn needs its `new-ecn`")]
    NoEcn,
    /// A rule about applications that makes no session.
    #[error("without a session, no application is known")]
    UntrackedApplication,
    /// A rule that makes no session where none does.
    #[error("packet by packet, nothing is tracked")]
    NothingTracked,
    /// A rule that sets no mark.
    #[error("set-mark needs its `new-mark`")]
    NoMark,
    /// A key that makes no sense with the matcher.
    #[error("a list of {0} entries is too long")]
    ListSize(u16),
    /// All but the gateway itself.
    #[error("a rule that does not name `gateway` is about no packet to the gateway itself")]
    NotGateway,
    /// A rule about packets to the gateway itself that asks for what these don't have.
    #[error("packets to the gateway itself have no `{0}`")]
    NotOfGateway(&'static str),
    /// Too many combinations.
    #[error("{combinations} combinations of addresses, ports and the like are too many")]
    TooLarge {
        /// How many there are.
        combinations: u64,
        /// How many there may be.
        most: u64,
    },
    /// Too many rules that are asked one by one.
    #[error("{0} rules that go on, or name applications, marks or sets, are too many")]
    TooManyGoingOn(usize),
    /// A rule about applications, and nobody finds them out.
    #[error("nobody looks for applications")]
    NobodySeeks,
    /// A rule about applications without sessions.
    #[error("packet by packet, no application is known")]
    NoSessions,
    /// An application that is a protocol's.
    #[error("`{0}` is what its protocol says")]
    OfProtocol(String),
    /// A name of two rules.
    #[error("rule {0} has the same name")]
    DuplicateName(usize),
    /// More than rules where rules are to be inserted.
    #[error("only rules of the filter can be inserted")]
    NotRules,
    /// A rule without a name where rules are to be inserted.
    #[error("a rule that is inserted needs a name")]
    NoName,
    /// A name that could be the number of a rule without one.
    #[error("`{0}` is a number, which is what rules without a name are called by")]
    Number(String),
    /// A rule that is never asked.
    #[error("`{by}` matches all that `{rule}` does, and decides otherwise: it never decides")]
    Shadowed {
        /// The rule.
        rule: String,
        /// The one before.
        by: String,
    },
    /// A rule that changes nothing.
    #[error("`{by}` matches all that `{rule}` does, and decides the same: it is not needed")]
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

impl FilterProblem {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownGroup { name, known, .. } => meant(name, known),
            Self::GroupOfItself(_) => "take it out of the group, or out of the groups that it names".into(),
            Self::EmptyGroup(_) => "write its members, or take it away".into(),
            Self::MixedFamilies => "write a rule for each family".into(),
            Self::MixedSigns => "write `!` before all of them or before none, or two rules".into(),
            Self::NothingLeft => "take a value away".into(),
            Self::NotOfProtocol { key, of, .. } => format!("name {of} alone, or take `{key}` away"),
            Self::NotAMessage(_) => "write its number, or name the other protocol".into(),
            Self::NotOfAction { .. } => "take it away, or write the other action".into(),
            Self::NobodySeeks => "add [applications] with `interfaces`".into(),
            Self::NoSessions => "leave `sessions` out in [filter]".into(),
            Self::OfProtocol(name) => format!("write `protocol = \"{}\"`", name.to_lowercase()),
            Self::NoRate => "write packets a second, such as `rate = 100`".into(),
            Self::SetAndGroup(_) => "rules name both by `@`: give it another name".into(),
            Self::SetTooSmall { count, most, .. } if *count as u64 <= u64::from(*most) => {
                format!("write `size = {count}` or more, up to {most}")
            }
            Self::SetTooSmall { most, .. } => format!("a set has at most {most}: take some away, or make two sets"),
            Self::NotOfSet { kind, element } => match (kind, element.contains(['.', ':'])) {
                (SetType::Addresses, true) => "write `type = \"networks\"` for the set, or single addresses".into(),
                (SetType::Ports, _) => "write ports such as 80 or \"1024-65535\", or another `type`".into(),
                (_, false) => "write `type = \"ports\"` for the set".into(),
                (SetType::Networks, true) => "write prefixes such as \"192.0.2.0/24\"".into(),
            },
            Self::AddsToPorts(_) => "write the name of a set of addresses or networks".into(),
            Self::SetAmongOthers(_) => "a rule looks into one set alone: write a rule for the others".into(),
            Self::UnknownSet { name, known } => meant(name, known),
            Self::NoSet => "write the name of a set of [filter.sets]".into(),
            Self::NoDscp => "write the code point, such as `new-dscp = \"ef\"`".into(),
            Self::NoEcn => "write the code point, such as `new-ecn = \"not-ect\"`".into(),
            Self::UntrackedApplication => "leave `track` out, or `application`".into(),
            Self::NothingTracked => "leave `track` out, or `sessions = false` in [filter]".into(),
            Self::NoMark => "write the mark, such as `new-mark = \"0x10\"`".into(),
            Self::NotGateway => "leave `!gateway` out".into(),
            Self::NotOfGateway(_) => "take it away, or write a rule without `gateway`".into(),
            Self::ListSize(_) => "write at most 255".into(),
            Self::TooLarge { most, .. } => format!("at most {most} are possible; write prefixes and ranges for lists"),
            Self::TooManyGoingOn(_) => {
                "at most 256 are possible, as every packet asks them; every rule counts anyway".into()
            }
            Self::DuplicateName(_) => "names tell rules apart in lists and counters".into(),
            Self::Number(name) => format!("write a word, such as `rule-{name}`"),
            Self::NotRules => {
                "write `[[filter.rules]]` and nothing else; `sluice apply` takes whole configurations".into()
            }
            Self::NoName => "it is removed by its name: write `name = \"…\"`".into(),
            Self::Shadowed { .. } => "put it before the other, or take it away".into(),
            Self::Redundant { .. } => "take it away".into(),
        }
    }
}
