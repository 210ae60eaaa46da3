//! Problems of chains.

use super::{Problem, meant_or};

/// A problem of a router's chains, or advice about them.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum ChainProblem {
    /// The chain `input` is missing.
    #[error("there is no chain `input`, where packets begin")]
    #[diagnostic(help("write `input = [...]`"))]
    NoInput,
    /// No chain has this name.
    #[error("there is no chain `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write `{name} = [...]`"))))]
    Unknown {
        /// Name as written.
        name: String,
        /// Names of the chains.
        known: Vec<String>,
    },
    /// No policer has this name.
    #[error("there is no policer `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write [policers.{name}]"))))]
    UnknownPolicer {
        /// Name as written.
        name: String,
        /// Names of the policers.
        known: Vec<String>,
    },
    /// No chain uses the policer.
    #[error("no chain names the policer `{0}`")]
    #[diagnostic(help("write {{ police = \"{0}\" }}, or take it away"))]
    UnusedPolicer(String),
    /// No packet reaches the chain.
    #[error("no packet comes to the chain `{0}`")]
    #[diagnostic(help("name it by `to = \"{0}\"` in another, or leave it out"))]
    Unreached(String),
    /// The chain has no final action.
    #[error("the chain `{0}` does not say where its packets go")]
    #[diagnostic(help("end it by \"sessions\" and \"forward\", by \"forward\", \"drop\" or {{ to = \"CHAIN\" }}"))]
    Endless(String),
    /// The chains contain a loop.
    #[error("packets would go round for ever: {0}")]
    #[diagnostic(help("lead to chains that don't lead back"))]
    Loop(String),
    /// A step follows a final action and is unreachable.
    #[error("no packet comes to this step: the one before it is the end")]
    #[diagnostic(help("leave it out, or write it before"))]
    BehindTheEnd,
    /// `sessions` is not followed by `forward` alone.
    #[error("`sessions` is followed by \"forward\", and by that alone")]
    #[diagnostic(help("write \"sessions\", \"forward\" at the end of the chain"))]
    SessionsAlone,
    /// A chain bypasses the sessions that the router's packet filter needs.
    #[error("the router has a packet filter by session, and this leads past it")]
    #[diagnostic(help(
        "write \"sessions\" before \"forward\", or `sessions = false` in the filter, which is then asked about every packet"
    ))]
    PastTheFilter,
    /// A chain uses `sessions`, but the router has none.
    #[error("the router has no translation, filter by session or inspection: `sessions` does nothing")]
    #[diagnostic(help("leave it out"))]
    NoSessions,
    /// A step has no action, or several.
    #[error("a step does one of `count`, `classify`, `police`, `mirror` and `to`, and this one has {0}")]
    #[diagnostic(help("make a step of each"))]
    NotOne(String),
    /// A key requires another key.
    #[error("`{0}` without `{1}`")]
    #[diagnostic(help("{}", beside(_0, _1)))]
    Without(&'static str, &'static str),
    /// A policer has no rate, or two.
    #[error("a rate is of `packets` or of `bits`")]
    #[diagnostic(help("write {{ packets = 10000, burst = 200 }} or {{ bits = \"100M\" }}"))]
    Rate,
    /// A mirror can't send by this interface.
    #[error("a copy can't leave by `{0}`: {1}")]
    #[diagnostic(help("name an interface with a device, and without addresses where it is in this router"))]
    Mirror(String, &'static str),
    /// The chains have too many steps.
    #[error("{0} steps are more than a router's chains can have")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_STEPS))]
    TooMany(usize),
}

impl From<ChainProblem> for Problem {
    fn from(problem: ChainProblem) -> Self {
        Self::Chain(problem)
    }
}

/// Hint for a key that requires another key.
fn beside(key: &str, needed: &str) -> String {
    match key {
        "to" => "write { classify = { … }, to = \"CHAIN\" }".into(),
        "classify" => "write `to = \"CHAIN\"` beside it".into(),
        key => format!("leave `{key}` out, or write `{needed}` beside it"),
    }
}
