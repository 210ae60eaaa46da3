//! What can be wrong with tunnels.

use std::net::IpAddr;

use super::Problem;

/// One thing that is wrong with an interface's `tunnel`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum TunnelProblem {
    /// A key that this kind does not have.
    #[error("`{0}` does not belong to {1}")]
    #[diagnostic(help("leave it out"))]
    NotOf(&'static str, &'static str),
    /// VXLAN without an identifier.
    #[error("VXLAN without an `id`")]
    #[diagnostic(help("write the network's identifier: `id = 42`"))]
    NoId,
    /// Ends of two families.
    #[error("`local` and `remote` are of two address families")]
    #[diagnostic(help("write two IPv4 or two IPv6 addresses; what is inside may be of both families"))]
    Families,
    /// An end that is not here.
    #[error("no interface of router `{1}` has the address {0}")]
    #[diagnostic(help("write an address of an interface there, or name its router: `underlay`"))]
    NotLocal(IpAddr, String),
    /// An address that is inside the tunnel itself.
    #[error("`local` is an address of the tunnel itself")]
    #[diagnostic(help("write the address of the interface that outer packets come in by"))]
    OverItself,
    /// Both ends are here.
    #[error("{0} is an address of `{1}`: both ends would be here")]
    #[diagnostic(help("write a virtual link (`peer`) in the place of the tunnel"))]
    ToItself(IpAddr, String),
    /// Packets of two tunnels could not be told apart.
    #[error("`{0}` has the same ends, and nothing tells their packets apart")]
    #[diagnostic(help("write another `id`, or leave one of them out"))]
    Twice(String),
    /// Outer packets don't fit.
    #[error("outer packets of {outer} bytes would leave by `{underlay}`, which takes {its}")]
    #[diagnostic(help("leave `mtu` out, and as much is taken as fits"))]
    Mtu {
        /// Bytes of the longest outer packet.
        outer: u16,
        /// The interface that has `local`.
        underlay: String,
        /// Its MTU.
        its: u16,
    },
    /// VLANs over a tunnel.
    #[error("`{0}` is a tunnel, which carries no tags")]
    #[diagnostic(help("make another tunnel in the place of the VLAN"))]
    Tags(String),
}

impl From<TunnelProblem> for Problem {
    fn from(problem: TunnelProblem) -> Self {
        Self::Tunnel(problem)
    }
}
