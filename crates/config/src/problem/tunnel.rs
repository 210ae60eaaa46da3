//! Problems of tunnels.

use std::net::IpAddr;

use super::Problem;

/// A problem of an interface's `tunnel`.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum TunnelProblem {
    /// The key is not valid for this encapsulation.
    #[error("`{0}` is not a key of {1}")]
    #[diagnostic(help("remove `{0}`"))]
    NotOf(&'static str, &'static str),
    /// A VXLAN tunnel has no network identifier.
    #[error("a VXLAN tunnel needs an `id`")]
    #[diagnostic(help("write the VXLAN network identifier (VNI): `id = 42`"))]
    NoId,
    /// The two ends of the tunnel have different address families.
    #[error("`local` and `remote` belong to different address families")]
    #[diagnostic(help("write two IPv4 or two IPv6 addresses; the tunnel carries packets of both families"))]
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
    #[error("both ends of the tunnel would be on this gateway: {0} is an address of `{1}`")]
    #[diagnostic(help("use an inter-router link (`peer`) in place of the tunnel"))]
    ToItself(IpAddr, String),
    /// Two tunnels have the same end addresses and the same identifier.
    #[error("packets of this tunnel and of `{0}` can't be distinguished: both have the same ends and identifier")]
    #[diagnostic(help("change `id`, or remove one of the two tunnels"))]
    Twice(String),
    /// Outer packets exceed the MTU of the underlay interface.
    #[error("outer packets of {outer} bytes exceed the MTU of `{underlay}`, which is {its} bytes")]
    #[diagnostic(help("remove `mtu` to use the largest possible MTU"))]
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
