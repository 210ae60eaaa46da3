//! What can be wrong with the stages of a pipeline.

use super::Problem;

/// Packets that go through a ring at once.
pub(crate) const BURST: u32 = 64;

/// One thing that is wrong with `system.model` or `system.stages`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StageProblem {
    /// A pipeline without stages.
    #[error("a pipeline needs stages")]
    Missing,
    /// Stages without a pipeline.
    #[error("stages belong to `model = \"pipeline\"`")]
    NoPipeline,
    /// Cores given in two places.
    #[error("`workers` and the {0} both say which cores work")]
    WorkersToo(&'static str),
    /// A stage of no parts.
    #[error("the stage does nothing")]
    Nothing,
    /// A stage on no core.
    #[error("nobody does the stage")]
    NoCores,
    /// A part that comes before one that should be first, or twice.
    #[error("`{0}` is not the next part of a packet's way")]
    Order(String, Option<&'static str>),
    /// A part that no stage does.
    #[error("no stage does `{0}`")]
    Part(&'static str),
    /// A name that no part has.
    #[error("there is no part `{0}`")]
    Unknown(String),
    /// A cut within a part.
    #[error("`{node}` can't be a stage of its own: {written} would have two writers")]
    Cut {
        /// The node.
        node: &'static str,
        /// What it writes together with others.
        written: &'static str,
    },
    /// Cores split by role, and none for a role.
    #[error("`model = \"role-split\"` needs cores for `{0}`")]
    NoRole(&'static str),
    /// Roles without the model.
    #[error("roles belong to `model = \"role-split\"`")]
    NoRoleSplit,
    /// A core in both roles.
    #[error("core {0} can't both receive and inspect")]
    BothRoles(u16),
    /// A ring that is full before the assist begins.
    #[error("a ring of {ring} packets never holds more than {threshold} and has room for a burst")]
    ThresholdAboveRing {
        /// As written.
        threshold: u32,
        /// Packets of the ring.
        ring: u32,
    },
    /// Stages that share cores.
    #[error("{stages} stages share {cores} core{}", if *cores == 1 { "" } else { "s" })]
    MoreThanCores {
        /// Stages.
        stages: usize,
        /// Cores.
        cores: usize,
    },
}

impl StageProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        let order = "the parts are receive, parse, session, transmit, in this order";
        match self {
            Self::Missing => "add [[system.stages]] with `parts` and `cores`, or leave `model` out".into(),
            Self::NoPipeline => "write `model = \"pipeline\"`, or leave the stages out".into(),
            Self::WorkersToo(which) => format!("leave `workers` out: the cores of the {which} are the workers'"),
            Self::Nothing | Self::Order(_, None) | Self::Unknown(_) => order.into(),
            Self::Order(_, Some(next)) => format!("`{next}` comes next: {order}"),
            Self::NoCores => "write cores such as [2, 3]".into(),
            Self::Part(part) => format!("add it to a stage: {order}; `{part}` is missing"),
            Self::Cut { .. } => "cut before or behind `session`, which holds it".into(),
            Self::NoRole(role) => format!("add `{role} = [2]` to [system.roles]"),
            Self::NoRoleSplit => "write `model = \"role-split\"`, or leave the roles out".into(),
            Self::BothRoles(_) => "name it in one of `io` and `inspect`; a core that does both is a worker of `model = \"run-to-completion\"`".into(),
            Self::ThresholdAboveRing { ring, .. } => {
                format!("at most {}, or a larger `ring`; `assist = false` turns the assist off", ring.saturating_sub(BURST))
            }
            Self::MoreThanCores { .. } => "stages on one core could be one stage, without rings between them".into(),
        }
    }
}

impl From<StageProblem> for Problem {
    fn from(problem: StageProblem) -> Self {
        Self::Stage(problem)
    }
}
