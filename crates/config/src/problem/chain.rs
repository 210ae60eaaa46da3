//! Problems of chains.

use super::{Problem, meant_or};

/// A problem of a router's chains, or advice about them.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum ChainProblem {
    /// The chain `input` is missing.
    #[error("the chain `input`, at which packets enter, is missing")]
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
    #[error("no chain uses the policer `{0}`")]
    #[diagnostic(help("write {{ police = \"{0}\" }} in a chain, or remove the policer"))]
    UnusedPolicer(String),
    /// No packet reaches the chain.
    #[error("no packet reaches the chain `{0}`")]
    #[diagnostic(help("write `to = \"{0}\"` in another chain, or remove this chain"))]
    Unreached(String),
    /// The chain has no final action.
    #[error("the chain `{0}` has no final step")]
    #[diagnostic(help(
        "end the chain with \"forward\" (with or without \"sessions\" before it), \"drop\" or {{ to = \
         \"CHAIN\" }}"
    ))]
    Endless(String),
    /// The chains contain a loop.
    #[error("packets would pass the chains in a loop: {0}")]
    #[diagnostic(help("remove one of these references"))]
    Loop(String),
    /// A step follows a final action and is unreachable.
    #[error("no packet reaches this step, because the previous step ends the chain")]
    #[diagnostic(help("remove this step, or place it earlier in the chain"))]
    BehindTheEnd,
    /// `sessions` must be followed by `forward` and by nothing else.
    #[error("only \"forward\" may follow `sessions`")]
    #[diagnostic(help("write \"sessions\", \"forward\" at the end of the chain"))]
    SessionsAlone,
    /// A chain bypasses the sessions that the router's packet filter needs.
    #[error("\"forward\" without \"sessions\" bypasses the stateful packet filter of the router")]
    #[diagnostic(help(
        "write \"sessions\" before \"forward\"; or write `sessions = false` in the filter, which then matches each \
         packet"
    ))]
    BypassesFilter,
    /// A chain uses `sessions`, but the router has no sessions.
    #[error("`sessions` has no effect: the router has no NAT, stateful filter or inspection")]
    #[diagnostic(help("remove `sessions`"))]
    NoSessions,
    /// A step has no action, or has several actions.
    #[error("a step needs exactly one of `count`, `classify`, `police`, `mirror` and `to`, but this step has {0}")]
    #[diagnostic(help("write a separate step for each of these keys"))]
    NotOne(String),
    /// A key requires another key.
    #[error("`{0}` needs `{1}`")]
    #[diagnostic(help("{}", required_key(_0, _1)))]
    Requires(&'static str, &'static str),
    /// A policer has no rate, or two.
    #[error("a rate needs either `packets` or `bits`")]
    #[diagnostic(help("write {{ packets = 10000, burst = 200 }} or {{ bits = \"100M\" }}"))]
    Rate,
    /// A mirror can't send on this interface.
    #[error("`{0}` can't send mirrored packets: {1}")]
    #[diagnostic(help("write an interface that has a device and, if it belongs to this router, has no addresses"))]
    Mirror(String, &'static str),
    /// The chains have too many steps.
    #[error("{0} steps exceed the maximum for the chains of a router")]
    #[diagnostic(help("at most {} steps are possible", crate::limits::MAX_STEPS))]
    TooMany(usize),
}

impl From<ChainProblem> for Problem {
    fn from(problem: ChainProblem) -> Self {
        Self::Chain(problem)
    }
}

/// Hint for a key that requires another key.
fn required_key(key: &str, needed: &str) -> String {
    match key {
        "to" => "write { classify = { … }, to = \"CHAIN\" }".into(),
        "classify" => "add `to = \"CHAIN\"` to the step".into(),
        key => format!("remove `{key}`, or add `{needed}` to the step"),
    }
}
