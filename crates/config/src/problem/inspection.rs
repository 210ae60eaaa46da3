//! What can be wrong with inspection.

use super::Problem;
use crate::schema::EXCEPTIONS;

/// One thing that is wrong with `[inspection]` or `[applications]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InspectionProblem {
    /// No interfaces.
    #[error("nothing is inspected")]
    Nothing,
    /// No interfaces whose applications are looked for.
    #[error("no session's application is looked for")]
    NothingNamed,
    /// No files.
    #[error("there are no signatures to compare flows with")]
    NoSignatures,
    /// A class of everything.
    #[error("a class that names nothing is every flow: nothing would be inspected")]
    BypassesAll,
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
    /// Overload that ends where it begins, or before it does.
    #[error("an overload that begins at {begins} waiting packets can't end at {ends}")]
    Marks {
        /// Where it begins.
        begins: u32,
        /// Where it ends.
        ends: u32,
    },
    /// Two classes with one name.
    #[error("there is a class `{0}` before this one")]
    ClassTwice(String),
    /// To be inspected less, and nobody says how much less.
    #[error("the class is inspected less, to no depth")]
    NoDepth,
    /// A depth that means nothing.
    #[error("only a class that is inspected less has a depth")]
    NeedlessDepth,
}

impl InspectionProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Nothing => "name the interfaces whose flows are inspected: `interfaces = [\"lan\"]`".into(),
            Self::NothingNamed => "name the interfaces whose sessions are looked at: `interfaces = [\"lan\"]`".into(),
            Self::BypassesAll => "name a `protocol`, `ports` or `networks`".into(),
            Self::NoSignatures => "add [[inspection.signatures]] with `file` and `dialect`".into(),
            Self::Twice(_) | Self::EveTypeTwice => "once is enough".into(),
            Self::EveTarget => "say one of `file`, `stream` and `datagram`".into(),
            Self::Marks { .. } => "let it end at fewer, such as a quarter of them".into(),
            Self::ClassTwice(_) => "give each a name of its own".into(),
            Self::NoDepth => "add the bytes after which a clean flow is left: `depth = 4096`".into(),
            Self::NeedlessDepth => "take it away, or write `action = \"inspect-less\"`".into(),
            Self::Exception(name) => super::meant(name, &EXCEPTIONS.map(str::to_owned)),
        }
    }
}

impl From<InspectionProblem> for Problem {
    fn from(problem: InspectionProblem) -> Self {
        Self::Inspection(problem)
    }
}
