//! What can be wrong with the stages of a pipeline.

use super::Problem;

/// Packets that go through a ring at once.
pub(crate) const BURST: u32 = 64;

/// One thing that is wrong with `system.model` or `system.stages`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum StageProblem {
    /// A pipeline without stages.
    #[error("a pipeline needs stages")]
    #[diagnostic(help("add [[system.stages]] with `parts` and `cores`, or leave `model` out"))]
    Missing,
    /// Stages without a pipeline.
    #[error("stages belong to `model = \"pipeline\"`")]
    #[diagnostic(help("write `model = \"pipeline\"`, or leave the stages out"))]
    NoPipeline,
    /// Cores given in two places.
    #[error("`workers` and the {0} both say which cores work")]
    #[diagnostic(help("leave `workers` out: the cores of the {0} are the workers'"))]
    WorkersToo(&'static str),
    /// A stage of no parts.
    #[error("the stage does nothing")]
    #[diagnostic(help("{}", ORDER))]
    Nothing,
    /// A stage on no core.
    #[error("nobody does the stage")]
    #[diagnostic(help("write cores such as [2, 3]"))]
    NoCores,
    /// A part that comes before one that should be first, or twice.
    #[error("`{0}` is not the next part of a packet's way")]
    #[diagnostic(help("{}", next(_1)))]
    Order(String, Option<&'static str>),
    /// A part that no stage does.
    #[error("no stage does `{0}`")]
    #[diagnostic(help("add it to a stage: {}; `{0}` is missing", ORDER))]
    Part(&'static str),
    /// A name that no part has.
    #[error("there is no part `{0}`")]
    #[diagnostic(help("{}", ORDER))]
    Unknown(String),
    /// A cut within a part.
    #[error("`{node}` can't be a stage of its own: {written} would have two writers")]
    #[diagnostic(help("cut before or behind `session`, which holds it"))]
    Cut {
        /// The node.
        node: &'static str,
        /// What it writes together with others.
        written: &'static str,
    },
    /// Cores split by role, and none for a role.
    #[error("`model = \"role-split\"` needs cores for `{0}`")]
    #[diagnostic(help("add `{0} = [2]` to [system.roles]"))]
    NoRole(&'static str),
    /// Roles without the model.
    #[error("roles belong to `model = \"role-split\"`")]
    #[diagnostic(help("write `model = \"role-split\"`, or leave the roles out"))]
    NoRoleSplit,
    /// A core in both roles.
    #[error("core {0} can't both receive and inspect")]
    #[diagnostic(help(
        "name it in one of `io` and `inspect`; a core that does both is a worker of `model = \"run-to-completion\"`"
    ))]
    BothRoles(u16),
    /// A ring that is full before the assist begins.
    #[error("a ring of {ring} packets never holds more than {threshold} and has room for a burst")]
    #[diagnostic(help("at most {}, or a larger `ring`; `assist = false` turns the assist off", ring.saturating_sub(BURST)))]
    ThresholdAboveRing {
        /// As written.
        threshold: u32,
        /// Packets of the ring.
        ring: u32,
    },
    /// Stages that share cores.
    #[error("{stages} stages share {cores} core{}", if *cores == 1 { "" } else { "s" })]
    #[diagnostic(help("stages on one core could be one stage, without rings between them"))]
    MoreThanCores {
        /// Stages.
        stages: usize,
        /// Cores.
        cores: usize,
    },
}

impl From<StageProblem> for Problem {
    fn from(problem: StageProblem) -> Self {
        Self::Stage(problem)
    }
}

const ORDER: &str = "the parts are receive, parse, session, transmit, in this order";

/// What to write in the place of a part out of order.
fn next(expected: &Option<&str>) -> String {
    match expected {
        Some(next) => format!("`{next}` comes next: {ORDER}"),
        None => ORDER.into(),
    }
}
