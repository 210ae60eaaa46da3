//! Problems of pipeline stages.

use super::Problem;

/// Number of packets written to a ring together.
pub(crate) const BURST: u32 = 64;

/// A problem of `system.model`, `system.stages` or `system.roles`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum StageProblem {
    /// The pipeline has no stages.
    #[error("a pipeline needs stages")]
    #[diagnostic(help("add [[system.stages]] with `parts` and `cores`, or leave `model` out"))]
    Missing,
    /// Stages are given for another model than a pipeline.
    #[error("stages belong to `model = \"pipeline\"`")]
    #[diagnostic(help("write `model = \"pipeline\"`, or leave the stages out"))]
    NoPipeline,
    /// Cores are given in two places.
    #[error("`workers` and the {0} both say which cores work")]
    #[diagnostic(help("leave `workers` out: the cores of the {0} are the workers'"))]
    WorkersToo(&'static str),
    /// A stage has no parts.
    #[error("the stage does nothing")]
    #[diagnostic(help("{}", ORDER))]
    Nothing,
    /// A stage has no cores.
    #[error("nobody does the stage")]
    #[diagnostic(help("write cores such as [2, 3]"))]
    NoCores,
    /// A part is out of order or repeated.
    #[error("`{0}` is not the next part of a packet's way")]
    #[diagnostic(help("{}", next(_1)))]
    Order(String, Option<&'static str>),
    /// No stage has the part.
    #[error("no stage does `{0}`")]
    #[diagnostic(help("add it to a stage: {}; `{0}` is missing", ORDER))]
    Part(&'static str),
    /// No part has this name.
    #[error("there is no part `{0}`")]
    #[diagnostic(help("{}", ORDER))]
    Unknown(String),
    /// A stage would split a part.
    #[error("`{node}` can't be a stage of its own: {written} would have two writers")]
    #[diagnostic(help("cut before or behind `session`, which holds it"))]
    Cut {
        /// The node.
        node: &'static str,
        /// State that the node writes together with others.
        written: &'static str,
    },
    /// A role has no cores.
    #[error("`model = \"role-split\"` needs cores for `{0}`")]
    #[diagnostic(help("add `{0} = [2]` to [system.roles]"))]
    NoRole(&'static str),
    /// Roles are given for another model than role-split.
    #[error("roles belong to `model = \"role-split\"`")]
    #[diagnostic(help("write `model = \"role-split\"`, or leave the roles out"))]
    NoRoleSplit,
    /// A core has both roles.
    #[error("core {0} can't both receive and inspect")]
    #[diagnostic(help(
        "name it in one of `io` and `inspect`; a core that does both is a worker of `model = \"run-to-completion\"`"
    ))]
    BothRoles(u16),
    /// The assist threshold exceeds what the ring can hold.
    #[error("a ring of {ring} packets never holds more than {threshold} and has room for a burst")]
    #[diagnostic(help("at most {}, or a larger `ring`; `assist = false` turns the assist off", ring.saturating_sub(BURST)))]
    ThresholdAboveRing {
        /// Threshold as written.
        threshold: u32,
        /// Capacity of the ring in packets.
        ring: u32,
    },
    /// There are more stages than cores.
    #[error("{stages} stages share {cores} core{}", if *cores == 1 { "" } else { "s" })]
    #[diagnostic(help("stages on one core could be one stage, without rings between them"))]
    MoreThanCores {
        /// Number of stages.
        stages: usize,
        /// Number of cores.
        cores: usize,
    },
}

impl From<StageProblem> for Problem {
    fn from(problem: StageProblem) -> Self {
        Self::Stage(problem)
    }
}

const ORDER: &str = "the parts are receive, parse, session, transmit, in this order";

/// Hint for a part that is out of order.
fn next(expected: &Option<&str>) -> String {
    match expected {
        Some(next) => format!("`{next}` comes next: {ORDER}"),
        None => ORDER.into(),
    }
}
