//! Problems of tunnels.

use std::net::IpAddr;

use super::Problem;

/// A problem of an interface's `tunnel`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum TunnelProblem {
    /// The key is not valid for this encapsulation.
    #[error("`{0}` does not belong to {1}")]
    #[diagnostic(help("remove it"))]
    NotOf(&'static str, &'static str),
    /// A VXLAN tunnel has no network identifier.
    #[error("VXLAN without an `id`")]
    #[diagnostic(help("write the network's identifier: `id = 42`"))]
    NoId,
    /// The two ends of the tunnel have different address families.
    #[error("`local` and `remote` are of two address families")]
    #[diagnostic(help("write two IPv4 or two IPv6 addresses; inner packets may be of both families"))]
    Families,
    /// No interface of the underlay router has the local address.
    #[error("no interface of router `{1}` has the address {0}")]
    #[diagnostic(help("write an address of an interface of that router, or name another router in `underlay`"))]
    NotLocal(IpAddr, String),
    /// The local address belongs to the tunnel interface itself.
    #[error("`local` is an address of the tunnel itself")]
    #[diagnostic(help("write the address of the interface that receives the outer packets"))]
    OverItself,
    /// The remote address belongs to the gateway itself.
    #[error("{0} is an address of `{1}`: both ends would be on this gateway")]
    #[diagnostic(help("use an inter-router link (`peer`) in place of the tunnel"))]
    ToItself(IpAddr, String),
    /// Two tunnels have the same end addresses and the same identifier.
    #[error("`{0}` has the same ends and identifier, so their packets can't be distinguished")]
    #[diagnostic(help("change `id`, or remove one of them"))]
    Twice(String),
    /// Outer packets exceed the MTU of the underlay interface.
    #[error("outer packets of {outer} bytes exceed the MTU of `{underlay}`, {its}")]
    #[diagnostic(help("remove `mtu` to use the largest possible one"))]
    Mtu {
        /// Length of the longest outer packet in bytes.
        outer: u16,
        /// Interface with the local address.
        underlay: String,
        /// MTU of the underlay interface.
        its: u16,
    },
    /// A VLAN has a tunnel as its parent.
    #[error("`{0}` is a tunnel, which carries no VLAN tags")]
    #[diagnostic(help("add another tunnel in place of the VLAN"))]
    Tags(String),
}

impl From<TunnelProblem> for Problem {
    fn from(problem: TunnelProblem) -> Self {
        Self::Tunnel(problem)
    }
}
