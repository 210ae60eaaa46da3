//! Problems of bridges.

use super::Problem;

/// A problem of `[bridges]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum BridgeProblem {
    /// A bridge does not have exactly two interfaces.
    #[error("a bridge joins two interfaces, and this one has {0}")]
    #[diagnostic(help("write `interfaces = [\"left\", \"right\"]`"))]
    NotTwo(usize),
    /// An interface is in two bridges, or twice in one.
    #[error("interface `{0}` is in a bridge already")]
    #[diagnostic(help("each interface is in one bridge, and there once"))]
    Twice(String),
    /// An interface that is to be inspected is in a bridge with a VLAN.
    #[error(
        "`{table}` names interface `{interface}`, whose bridge puts on the tags of a VLAN: nothing looks into that"
    )]
    #[diagnostic(help("take it out of `{table}.interfaces`, or bridge whole devices"))]
    Watched {
        /// Table that names the interface.
        table: &'static str,
        /// Name of the interface.
        interface: String,
    },
    /// An interface in a bridge is the parent of a VLAN.
    #[error("interface `{0}` carries the VLAN `{1}`, and a bridge passes all tags on")]
    #[diagnostic(help("leave one of them out, or put the VLAN into the bridge"))]
    Parent(String, String),
    /// A key of routed interfaces is set on an interface in a bridge.
    #[error("`{1}` has no meaning on interface `{0}`, which is in a bridge")]
    #[diagnostic(help("leave `{1}` out"))]
    Routed(String, &'static str),
    /// The interfaces have different MTUs.
    #[error("interface `{}` takes packets of {} bytes and `{}` of {}", .0.0, .0.1, .1.0, .1.1)]
    #[diagnostic(help("write the same `mtu` for both"))]
    Mtu((String, u16), (String, u16)),
    /// There are more bridges than supported.
    #[error("{0} bridges are more than there can be")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_BRIDGES))]
    TooMany(usize),
}

impl From<BridgeProblem> for Problem {
    fn from(problem: BridgeProblem) -> Self {
        Self::Bridge(problem)
    }
}
