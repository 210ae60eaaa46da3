//! What can be wrong with chains.

use super::{Problem, nearest};

/// One thing that is wrong with the chains of a router, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChainProblem {
    /// Nothing says where packets begin.
    #[error("there is no chain `input`, where packets begin")]
    NoInput,
    /// A chain that is not there.
    #[error("there is no chain `{name}`")]
    Unknown {
        /// As written.
        name: String,
        /// The chains there are.
        known: Vec<String>,
    },
    /// A policer that is not there.
    #[error("there is no policer `{name}`")]
    UnknownPolicer {
        /// As written.
        name: String,
        /// The policers there are.
        known: Vec<String>,
    },
    /// A policer that nobody keeps to.
    #[error("no chain names the policer `{0}`")]
    UnusedPolicer(String),
    /// A chain that no packet comes to.
    #[error("no packet comes to the chain `{0}`")]
    Unreached(String),
    /// Nothing says where the packets of a chain go.
    #[error("the chain `{0}` does not say where its packets go")]
    Endless(String),
    /// Chains that lead back.
    #[error("packets would go round for ever: {0}")]
    Loop(String),
    /// Steps that no packet comes to.
    #[error("no packet comes to this step: the one before it is the end")]
    BehindTheEnd,
    /// Sessions without what follows.
    #[error("`sessions` is followed by \"forward\", and by that alone")]
    SessionsAlone,
    /// Packets that a filter by session would not be asked about.
    #[error("the router has a packet filter by session, and this leads past it")]
    PastTheFilter,
    /// Sessions that the router does not have.
    #[error("the router has no translation, filter by session or inspection: `sessions` does nothing")]
    NoSessions,
    /// A step that does nothing, or several things.
    #[error("a step does one of `count`, `classify`, `police`, `mirror` and `to`, and this one has {0}")]
    NotOne(String),
    /// A key that another one needs.
    #[error("`{0}` without `{1}`")]
    Without(&'static str, &'static str),
    /// A rate of nothing, or of two things.
    #[error("a rate is of `packets` or of `bits`")]
    Rate,
    /// A mirror to where no copy can go.
    #[error("a copy can't leave by `{0}`: {1}")]
    Mirror(String, &'static str),
    /// Too many.
    #[error("{0} steps are more than a router's chains can have")]
    TooMany(usize),
}

impl ChainProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::NoInput => "write `input = [...]`".into(),
            Self::Unknown { name, known } => match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write `{name} = [...]`"),
            },
            Self::UnknownPolicer { name, known } => match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write [policers.{name}]"),
            },
            Self::UnusedPolicer(name) => format!("write {{ police = \"{name}\" }}, or take it away"),
            Self::Unreached(name) => format!("name it by `to = \"{name}\"` in another, or leave it out"),
            Self::Endless(_) => "end it by \"sessions\" and \"forward\", by \"forward\", \"drop\" or { to = \"CHAIN\" }".into(),
            Self::Loop(_) => "lead to chains that don't lead back".into(),
            Self::BehindTheEnd => "leave it out, or write it before".into(),
            Self::SessionsAlone => "write \"sessions\", \"forward\" at the end of the chain".into(),
            Self::PastTheFilter => {
                "write \"sessions\" before \"forward\", or `sessions = false` in the filter, which is then asked about every packet"
                    .into()
            }
            Self::NoSessions => "leave it out".into(),
            Self::NotOne(_) => "make a step of each".into(),
            Self::Without("to", _) => "write { classify = { … }, to = \"CHAIN\" }".into(),
            Self::Without("classify", _) => "write `to = \"CHAIN\"` beside it".into(),
            Self::Without(key, other) => format!("leave `{key}` out, or write `{other}` beside it"),
            Self::Rate => "write { packets = 10000, burst = 200 } or { bits = \"100M\" }".into(),
            Self::Mirror(..) => "name an interface with a device, and without addresses where it is in this router".into(),
            Self::TooMany(_) => format!("at most {} are possible", crate::limits::MOST_STEPS),
        }
    }
}

impl From<ChainProblem> for Problem {
    fn from(problem: ChainProblem) -> Self {
        Self::Chain(problem)
    }
}
