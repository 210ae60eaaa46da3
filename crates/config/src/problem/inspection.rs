//! What can be wrong with inspection.

use super::Problem;
use crate::validate::EXCEPTIONS;

/// One thing that is wrong with `[inspection]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InspectionProblem {
    /// No interfaces.
    #[error("nothing is inspected")]
    Nothing,
    /// No files.
    #[error("there are no signatures to compare flows with")]
    NoSignatures,
    /// An interface named twice.
    #[error("interface `{0}` is named twice")]
    Twice(String),
    /// Records without a place, or with several.
    #[error("records of EVE go to one place")]
    EveTarget,
    /// A type of records named twice.
    #[error("this type of records is named twice")]
    EveTypeTwice,
    /// A name that no exception has.
    #[error("there is no exception `{0}`")]
    Exception(String),
}

impl InspectionProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Nothing => "name the interfaces whose flows are inspected: `interfaces = [\"lan\"]`".into(),
            Self::NoSignatures => "add [[inspection.signatures]] with `file` and `dialect`".into(),
            Self::Twice(_) | Self::EveTypeTwice => "once is enough".into(),
            Self::EveTarget => "say one of `file`, `stream` and `datagram`".into(),
            Self::Exception(name) => super::meant(name, &EXCEPTIONS.map(str::to_owned)),
        }
    }
}

impl From<InspectionProblem> for Problem {
    fn from(problem: InspectionProblem) -> Self {
        Self::Inspection(problem)
    }
}
