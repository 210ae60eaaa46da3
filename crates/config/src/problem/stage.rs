//! Problems of pipeline stages.

use super::Problem;

/// Number of packets that are written to a ring together.
pub(crate) const BURST: u32 = 64;

/// A problem of `system.model`, `system.stages` or `system.roles`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum StageProblem {
    /// The pipeline has no stages.
    #[error("the model `pipeline` needs stages")]
    #[diagnostic(help("add [[system.stages]] with `parts` and `cores`, or remove `model`"))]
    Missing,
    /// Stages are specified for a model other than pipeline.
    #[error("stages need `model = \"pipeline\"`")]
    #[diagnostic(help("write `model = \"pipeline\"`, or remove the stages"))]
    NoPipeline,
    /// Cores are specified both as workers and for stages or roles.
    #[error("`workers` is not possible together with {0}")]
    #[diagnostic(help("remove `workers`: each core of the {0} gets a worker"))]
    WorkersToo(&'static str),
    /// A stage contains no parts of packet processing.
    #[error("the stage has no parts")]
    #[diagnostic(help("{}", ORDER))]
    Nothing,
    /// A stage has no cores.
    #[error("the stage has no cores")]
    #[diagnostic(help("write cores such as [2, 3]"))]
    NoCores,
    /// A part of packet processing is out of order or repeated.
    #[error("part `{0}` is not in the order of packet processing")]
    #[diagnostic(help("{}", next(_1)))]
    Order(String, Option<&'static str>),
    /// A part of packet processing is in no stage.
    #[error("no stage contains the part `{0}`")]
    #[diagnostic(help("add `{0}` to a stage: {}", ORDER))]
    Part(&'static str),
    /// A part of packet processing with this name does not exist.
    #[error("there is no part `{0}`")]
    #[diagnostic(help("{}", ORDER))]
    Unknown(String),
    /// The boundary between two stages would split a part of packet processing.
    #[error("`{node}` can't be a separate stage, because two workers would write {written}")]
    #[diagnostic(help("split before or after the part `session`, which contains this node"))]
    Cut {
        /// The node.
        node: &'static str,
        /// State that the node and other nodes of the same part write.
        written: &'static str,
    },
    /// A role has no cores.
    #[error("`model = \"role-split\"` needs cores for `{0}`")]
    #[diagnostic(help("add `{0} = [2]` to [system.roles]"))]
    NoRole(&'static str),
    /// Roles are specified for a model other than role-split.
    #[error("roles need `model = \"role-split\"`")]
    #[diagnostic(help("write `model = \"role-split\"`, or remove the roles"))]
    NoRoleSplit,
    /// A core is listed in both roles, I/O and inspection.
    #[error("core {0} is in both `io` and `inspect`")]
    #[diagnostic(help(
        "remove the core from `io` or `inspect`; for workers that do both, write `model = \
         \"run-to-completion\"`"
    ))]
    BothRoles(u16),
    /// The threshold for assisting exceeds the capacity of the ring.
    #[error(
        "`assist-threshold` of {threshold} is too high for a ring of {ring} packets, which must also have space \
         for a burst"
    )]
    #[diagnostic(help("write at most {}, or a larger `ring`; to disable assistance, write `assist = false`",
         ring.saturating_sub(BURST)))]
    ThresholdAboveRing {
        /// Threshold as written.
        threshold: u32,
        /// Capacity of the ring in packets.
        ring: u32,
    },
    /// There are more stages than cores.
    #[error("{stages} stages share {cores} core{}", if *cores == 1 { "" } else { "s" })]
    #[diagnostic(help("merge the stages that share a core into one stage, which needs no ring between them"))]
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
        Some(next) => format!("the next part is `{next}`: {ORDER}"),
        None => ORDER.into(),
    }
}
