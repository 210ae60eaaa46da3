//! What can be wrong with chains.

use super::{Problem, meant_or};

/// One thing that is wrong with the chains of a router, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum ChainProblem {
    /// Nothing says where packets begin.
    #[error("there is no chain `input`, where packets begin")]
    #[diagnostic(help("write `input = [...]`"))]
    NoInput,
    /// A chain that is not there.
    #[error("there is no chain `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write `{name} = [...]`"))))]
    Unknown {
        /// As written.
        name: String,
        /// The chains there are.
        known: Vec<String>,
    },
    /// A policer that is not there.
    #[error("there is no policer `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write [policers.{name}]"))))]
    UnknownPolicer {
        /// As written.
        name: String,
        /// The policers there are.
        known: Vec<String>,
    },
    /// A policer that nobody keeps to.
    #[error("no chain names the policer `{0}`")]
    #[diagnostic(help("write {{ police = \"{0}\" }}, or take it away"))]
    UnusedPolicer(String),
    /// A chain that no packet comes to.
    #[error("no packet comes to the chain `{0}`")]
    #[diagnostic(help("name it by `to = \"{0}\"` in another, or leave it out"))]
    Unreached(String),
    /// Nothing says where the packets of a chain go.
    #[error("the chain `{0}` does not say where its packets go")]
    #[diagnostic(help("end it by \"sessions\" and \"forward\", by \"forward\", \"drop\" or {{ to = \"CHAIN\" }}"))]
    Endless(String),
    /// Chains that lead back.
    #[error("packets would go round for ever: {0}")]
    #[diagnostic(help("lead to chains that don't lead back"))]
    Loop(String),
    /// Steps that no packet comes to.
    #[error("no packet comes to this step: the one before it is the end")]
    #[diagnostic(help("leave it out, or write it before"))]
    BehindTheEnd,
    /// Sessions without what follows.
    #[error("`sessions` is followed by \"forward\", and by that alone")]
    #[diagnostic(help("write \"sessions\", \"forward\" at the end of the chain"))]
    SessionsAlone,
    /// Packets that a filter by session would not be asked about.
    #[error("the router has a packet filter by session, and this leads past it")]
    #[diagnostic(help(
        "write \"sessions\" before \"forward\", or `sessions = false` in the filter, which is then asked about every packet"
    ))]
    PastTheFilter,
    /// Sessions that the router does not have.
    #[error("the router has no translation, filter by session or inspection: `sessions` does nothing")]
    #[diagnostic(help("leave it out"))]
    NoSessions,
    /// A step that does nothing, or several things.
    #[error("a step does one of `count`, `classify`, `police`, `mirror` and `to`, and this one has {0}")]
    #[diagnostic(help("make a step of each"))]
    NotOne(String),
    /// A key that another one needs.
    #[error("`{0}` without `{1}`")]
    #[diagnostic(help("{}", beside(_0, _1)))]
    Without(&'static str, &'static str),
    /// A rate of nothing, or of two things.
    #[error("a rate is of `packets` or of `bits`")]
    #[diagnostic(help("write {{ packets = 10000, burst = 200 }} or {{ bits = \"100M\" }}"))]
    Rate,
    /// A mirror to where no copy can go.
    #[error("a copy can't leave by `{0}`: {1}")]
    #[diagnostic(help("name an interface with a device, and without addresses where it is in this router"))]
    Mirror(String, &'static str),
    /// Too many.
    #[error("{0} steps are more than a router's chains can have")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_STEPS))]
    TooMany(usize),
}

impl From<ChainProblem> for Problem {
    fn from(problem: ChainProblem) -> Self {
        Self::Chain(problem)
    }
}

/// What to do about a key without the one that it needs.
fn beside(key: &str, needed: &str) -> String {
    match key {
        "to" => "write { classify = { … }, to = \"CHAIN\" }".into(),
        "classify" => "write `to = \"CHAIN\"` beside it".into(),
        key => format!("leave `{key}` out, or write `{needed}` beside it"),
    }
}
