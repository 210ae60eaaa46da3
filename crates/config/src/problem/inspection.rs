//! Problems of inspection.

use super::Problem;
use crate::schema::EXCEPTIONS;

/// A problem of `[inspection]` or `[applications]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum InspectionProblem {
    /// No interfaces are inspected.
    #[error("nothing is inspected")]
    #[diagnostic(help("name the interfaces whose flows are inspected: `interfaces = [\"lan\"]`"))]
    Nothing,
    /// No interfaces are given for application identification.
    #[error("no session's application is looked for")]
    #[diagnostic(help("name the interfaces whose sessions are looked at: `interfaces = [\"lan\"]`"))]
    NothingNamed,
    /// No signature files are given.
    #[error("there are no signatures to compare flows with")]
    #[diagnostic(help("add [[inspection.signatures]] with `file` and `dialect`"))]
    NoSignatures,
    /// A bypass class has no conditions, so that nothing would be inspected.
    #[error("a class that names nothing is every flow: nothing would be inspected")]
    #[diagnostic(help("name a `protocol`, `ports` or `networks`"))]
    BypassesAll,
    /// An interface is named twice.
    #[error("interface `{0}` is named twice")]
    #[diagnostic(help("once is enough"))]
    Twice(String),
    /// EVE records have no target, or several.
    #[error("records of EVE go to one place")]
    #[diagnostic(help("say one of `file`, `stream` and `datagram`"))]
    EveTarget,
    /// A record type is named twice.
    #[error("this type of records is named twice")]
    #[diagnostic(help("once is enough"))]
    EveTypeTwice,
    /// No exception has this name.
    #[error("there is no exception `{0}`")]
    #[diagnostic(help("{}", super::meant(_0, &EXCEPTIONS.map(str::to_owned))))]
    Exception(String),
    /// The threshold that ends the overload is not below the one that begins it.
    #[error("an overload that begins at {begins} waiting packets can't end at {ends}")]
    #[diagnostic(help("let it end at fewer, such as a quarter of them"))]
    Marks {
        /// Number of packets that begins the overload.
        begins: u32,
        /// Number of packets that ends the overload.
        ends: u32,
    },
    /// Two classes have the same name.
    #[error("there is a class `{0}` before this one")]
    #[diagnostic(help("give each a name of its own"))]
    ClassTwice(String),
    /// A class with `inspect-less` has no depth.
    #[error("the class is inspected less, to no depth")]
    #[diagnostic(help("add the bytes after which a clean flow is left: `depth = 4096`"))]
    NoDepth,
    /// A class without `inspect-less` has a depth.
    #[error("only a class that is inspected less has a depth")]
    #[diagnostic(help("take it away, or write `action = \"inspect-less\"`"))]
    NeedlessDepth,
}

impl From<InspectionProblem> for Problem {
    fn from(problem: InspectionProblem) -> Self {
        Self::Inspection(problem)
    }
}
