//! What can be wrong with inspection.

use super::Problem;
use crate::schema::EXCEPTIONS;

/// One thing that is wrong with `[inspection]` or `[applications]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum InspectionProblem {
    /// No interfaces.
    #[error("nothing is inspected")]
    #[diagnostic(help("name the interfaces whose flows are inspected: `interfaces = [\"lan\"]`"))]
    Nothing,
    /// No interfaces whose applications are looked for.
    #[error("no session's application is looked for")]
    #[diagnostic(help("name the interfaces whose sessions are looked at: `interfaces = [\"lan\"]`"))]
    NothingNamed,
    /// No files.
    #[error("there are no signatures to compare flows with")]
    #[diagnostic(help("add [[inspection.signatures]] with `file` and `dialect`"))]
    NoSignatures,
    /// A class of everything.
    #[error("a class that names nothing is every flow: nothing would be inspected")]
    #[diagnostic(help("name a `protocol`, `ports` or `networks`"))]
    BypassesAll,
    /// An interface named twice.
    #[error("interface `{0}` is named twice")]
    #[diagnostic(help("once is enough"))]
    Twice(String),
    /// Records without a place, or with several.
    #[error("records of EVE go to one place")]
    #[diagnostic(help("say one of `file`, `stream` and `datagram`"))]
    EveTarget,
    /// A type of records named twice.
    #[error("this type of records is named twice")]
    #[diagnostic(help("once is enough"))]
    EveTypeTwice,
    /// A name that no exception has.
    #[error("there is no exception `{0}`")]
    #[diagnostic(help("{}", super::meant(_0, &EXCEPTIONS.map(str::to_owned))))]
    Exception(String),
    /// Overload that ends where it begins, or before it does.
    #[error("an overload that begins at {begins} waiting packets can't end at {ends}")]
    #[diagnostic(help("let it end at fewer, such as a quarter of them"))]
    Marks {
        /// Where it begins.
        begins: u32,
        /// Where it ends.
        ends: u32,
    },
    /// Two classes with one name.
    #[error("there is a class `{0}` before this one")]
    #[diagnostic(help("give each a name of its own"))]
    ClassTwice(String),
    /// To be inspected less, and nobody says how much less.
    #[error("the class is inspected less, to no depth")]
    #[diagnostic(help("add the bytes after which a clean flow is left: `depth = 4096`"))]
    NoDepth,
    /// A depth that means nothing.
    #[error("only a class that is inspected less has a depth")]
    #[diagnostic(help("take it away, or write `action = \"inspect-less\"`"))]
    NeedlessDepth,
}

impl From<InspectionProblem> for Problem {
    fn from(problem: InspectionProblem) -> Self {
        Self::Inspection(problem)
    }
}
