//! What can be wrong with bridges.

use super::Problem;

/// One thing that is wrong with `[bridges]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum BridgeProblem {
    /// Not two interfaces.
    #[error("a bridge joins two interfaces, and this one has {0}")]
    #[diagnostic(help("write `interfaces = [\"left\", \"right\"]`"))]
    NotTwo(usize),
    /// An interface that is in a bridge already.
    #[error("interface `{0}` is in a bridge already")]
    #[diagnostic(help("each interface is in one bridge, and there once"))]
    Twice(String),
    /// A bridge with a VLAN, one of whose interfaces is looked into by what a table says.
    #[error(
        "`{table}` names interface `{interface}`, whose bridge puts on the tags of a VLAN: nothing looks into that"
    )]
    #[diagnostic(help("take it out of `{table}.interfaces`, or bridge whole devices"))]
    Watched {
        /// The table.
        table: &'static str,
        /// The interface that it names.
        interface: String,
    },
    /// An interface that carries a VLAN.
    #[error("interface `{0}` carries the VLAN `{1}`, and a bridge passes all tags on")]
    #[diagnostic(help("leave one of them out, or put the VLAN into the bridge"))]
    Parent(String, String),
    /// Something of a router's on an interface of a bridge.
    #[error("`{1}` has no meaning on interface `{0}`, which is in a bridge")]
    #[diagnostic(help("leave `{1}` out"))]
    Routed(String, &'static str),
    /// Two MTUs.
    #[error("interface `{}` takes packets of {} bytes and `{}` of {}", .0.0, .0.1, .1.0, .1.1)]
    #[diagnostic(help("write the same `mtu` for both"))]
    Mtu((String, u16), (String, u16)),
    /// More than there are contexts for.
    #[error("{0} bridges are more than there can be")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_BRIDGES))]
    TooMany(usize),
}

impl From<BridgeProblem> for Problem {
    fn from(problem: BridgeProblem) -> Self {
        Self::Bridge(problem)
    }
}
