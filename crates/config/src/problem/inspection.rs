//! Problems of inspection and of application identification.

use super::Problem;
use crate::schema::EXCEPTIONS;

/// A problem of `[inspection]` or `[applications]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum InspectionProblem {
    /// No interface is specified for inspection.
    #[error("[inspection] names no interfaces")]
    #[diagnostic(help("write the interfaces to inspect: `interfaces = [\"lan\"]`"))]
    Nothing,
    /// No interface is specified for application identification.
    #[error("[applications] names no interfaces")]
    #[diagnostic(help("write the interfaces on which applications are identified: `interfaces = [\"lan\"]`"))]
    NothingNamed,
    /// No signature files are given.
    #[error("there are no signature files")]
    #[diagnostic(help("add [[inspection.signatures]] with `file` and `dialect`"))]
    NoSignatures,
    /// A bypass class has no conditions, so that nothing would be inspected.
    #[error("a class without conditions matches every flow, so that nothing would be inspected")]
    #[diagnostic(help("add `protocol`, `ports` or `networks`"))]
    BypassesAll,
    /// An interface is listed twice.
    #[error("interface `{0}` is named twice")]
    #[diagnostic(help("remove one of the two entries"))]
    Twice(String),
    /// EVE records have no target, or have several targets.
    #[error("EVE records need exactly one output")]
    #[diagnostic(help("write exactly one of the keys `file`, `stream` and `datagram`"))]
    EveTarget,
    /// A record type is listed twice.
    #[error("this record type is named twice")]
    #[diagnostic(help("remove one of the two entries"))]
    EveTypeTwice,
    /// No exception has this name.
    #[error("there is no exception `{0}`")]
    #[diagnostic(help("{}", super::meant_key(_0, &EXCEPTIONS.map(str::to_owned))))]
    Exception(String),
    /// The threshold at which an overload ends is not below the threshold at which the overload begins.
    #[error("`threshold` of {begins} waiting packets must be above `ends` of {ends}")]
    #[diagnostic(help("lower `ends`, for example to a quarter of `threshold`"))]
    Marks {
        /// Number of queued packets at which the overload begins.
        begins: u32,
        /// Number of queued packets at which the overload ends.
        ends: u32,
    },
    /// Two classes have the same name.
    #[error("an earlier class has the name `{0}`")]
    #[diagnostic(help("choose another name for this class"))]
    ClassTwice(String),
    /// A class with `inspect-less` has no depth.
    #[error("the action `inspect-less` needs `depth`")]
    #[diagnostic(help("add the number of bytes after which a flow without a match is bypassed: `depth = 4096`"))]
    NoDepth,
    /// A class without `inspect-less` has a depth.
    #[error("`depth` has no effect without the action `inspect-less`")]
    #[diagnostic(help("remove `depth`, or write `action = \"inspect-less\"`"))]
    NeedlessDepth,
}

impl From<InspectionProblem> for Problem {
    fn from(problem: InspectionProblem) -> Self {
        Self::Inspection(problem)
    }
}
