//! Problems of bridges.

use super::Problem;

/// A problem of `[bridges]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum BridgeProblem {
    /// A bridge does not have exactly two interfaces.
    #[error("a bridge needs exactly two interfaces, but this bridge has {0}")]
    #[diagnostic(help("write `interfaces = [\"left\", \"right\"]`"))]
    NotTwo(usize),
    /// An interface is in two bridges, or twice in one bridge.
    #[error("interface `{0}` is already in a bridge")]
    #[diagnostic(help("an interface can belong to only one bridge: remove one of the two entries"))]
    Twice(String),
    /// An interface that should be inspected is in a bridge with a VLAN.
    #[error(
        "`{table}` names interface `{interface}`, but its bridge adds VLAN tags, and tagged frames are not \
         inspected"
    )]
    #[diagnostic(help("remove the interface from `{table}.interfaces`, or bridge untagged devices"))]
    Watched {
        /// Table that lists the interface.
        table: &'static str,
        /// Name of the interface.
        interface: String,
    },
    /// An interface in a bridge is the parent of a VLAN.
    #[error("interface `{0}` carries the VLAN `{1}`, but a bridge forwards all tags")]
    #[diagnostic(help("remove the VLAN or the bridge, or use the VLAN's interface in the bridge"))]
    Parent(String, String),
    /// A key of routed interfaces is set on an interface in a bridge.
    #[error("`{1}` has no meaning on interface `{0}`, which is in a bridge")]
    #[diagnostic(help("remove `{1}`"))]
    Routed(String, &'static str),
    /// The interfaces have different MTUs.
    #[error("interface `{}` has an MTU of {} bytes, but `{}` has an MTU of {}", .0.0, .0.1, .1.0, .1.1)]
    #[diagnostic(help("write the same `mtu` for both interfaces"))]
    Mtu((String, u16), (String, u16)),
    /// There are more bridges than supported.
    #[error("{0} bridges exceed the maximum")]
    #[diagnostic(help("at most {} bridges are possible", crate::limits::MAX_BRIDGES))]
    TooMany(usize),
}

impl From<BridgeProblem> for Problem {
    fn from(problem: BridgeProblem) -> Self {
        Self::Bridge(problem)
    }
}
