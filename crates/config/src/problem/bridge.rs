//! What can be wrong with bridges.

use super::Problem;

/// One thing that is wrong with `[bridges]`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BridgeProblem {
    /// Not two interfaces.
    #[error("a bridge joins two interfaces, and this one has {0}")]
    NotTwo(usize),
    /// An interface that is in a bridge already.
    #[error("interface `{0}` is in a bridge already")]
    Twice(String),
    /// A bridge with a VLAN, one of whose interfaces is looked into by what a table says.
    #[error(
        "`{table}` names interface `{interface}`, whose bridge puts on the tags of a VLAN: nothing looks into that"
    )]
    Watched {
        /// The table.
        table: &'static str,
        /// The interface that it names.
        interface: String,
    },
    /// An interface that carries a VLAN.
    #[error("interface `{0}` carries the VLAN `{1}`, and a bridge passes all tags on")]
    Parent(String, String),
    /// Something of a router's on an interface of a bridge.
    #[error("`{1}` has no meaning on interface `{0}`, which is in a bridge")]
    Routed(String, &'static str),
    /// Two MTUs.
    #[error("interface `{}` takes packets of {} bytes and `{}` of {}", .0.0, .0.1, .1.0, .1.1)]
    Mtu((String, u16), (String, u16)),
    /// More than there are contexts for.
    #[error("{0} bridges are more than there can be")]
    TooMany(usize),
}

impl BridgeProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::NotTwo(_) => "write `interfaces = [\"left\", \"right\"]`".into(),
            Self::Twice(_) => "each interface is in one bridge, and there once".into(),
            Self::Watched { table, .. } => format!("take it out of `{table}.interfaces`, or bridge whole devices"),
            Self::Parent(..) => "leave one of them out, or put the VLAN into the bridge".into(),
            Self::Routed(_, key) => format!("leave `{key}` out"),
            Self::Mtu(..) => "write the same `mtu` for both".into(),
            Self::TooMany(_) => format!("at most {} are possible", crate::limits::MOST_BRIDGES),
        }
    }
}

impl From<BridgeProblem> for Problem {
    fn from(problem: BridgeProblem) -> Self {
        Self::Bridge(problem)
    }
}
