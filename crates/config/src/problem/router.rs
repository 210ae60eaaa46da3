//! Problems of virtual routers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Problem, meant_or};
use crate::value::BitRate;

/// A problem of `[routers]`, or of references to routers.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RouterProblem {
    /// No router has this name.
    #[error("there is no router `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write [routers.{name}]"))))]
    Unknown {
        /// Name as written.
        name: String,
        /// Names of the routers.
        known: Vec<String>,
    },
    /// An interface belongs to another router.
    #[error("interface `{interface}` is in router `{router}`, not in this one")]
    #[diagnostic(help("write an interface of this router, or list the interface {}", table_of(router)))]
    Elsewhere {
        /// Name of the interface.
        interface: String,
        /// Router of the interface.
        router: String,
    },
    /// A key for the router `default` must be written at the top level.
    #[error("`{0}` of the router `default` must be written at the top level")]
    #[diagnostic(help("write {}", in_place_of(_0)))]
    OfDefault(&'static str),
    /// Rules of two routers use the same pool.
    #[error("routers `{one}` and `{other}` both use the pool `{pool}`")]
    #[diagnostic(help("add a separate pool for each router"))]
    SharedPool {
        /// Name of the pool.
        pool: String,
        /// One router.
        one: String,
        /// The other router.
        other: String,
    },
    /// The key is not valid for an end of an inter-router link.
    #[error("`{0}` needs a device, but this is an end of an inter-router link")]
    #[diagnostic(help("remove `{0}`"))]
    NotOnLink(&'static str),
    /// The peer of an inter-router link refers to a different interface.
    #[error("interface `{peer}` is not the other end of `{name}`")]
    #[diagnostic(help("write `peer = \"{name}\"` in [interfaces.{peer}]"))]
    PeerElsewhere {
        /// One end of the link.
        name: String,
        /// Interface that this end has as its peer.
        peer: String,
    },
    /// Both ends of an inter-router link are in the same router.
    #[error("interface `{0}` is in the same router")]
    #[diagnostic(help("write an interface of another router: an inter-router link connects two routers"))]
    LinkToItself(String),
    /// The ends of an inter-router link have different MTUs.
    #[error("the MTU is {own} bytes, but that of `{peer}` is {its}")]
    #[diagnostic(help("write the same `mtu` at both ends"))]
    LinkMtu {
        /// MTU of this end.
        own: u16,
        /// Name of the other end.
        peer: String,
        /// MTU of the other end.
        its: u16,
    },
    /// A VLAN has an inter-router link as its parent.
    #[error("`{0}` is an end of an inter-router link, which carries no VLAN tags")]
    #[diagnostic(help("add another inter-router link in place of the VLAN"))]
    TagsOnLink(String),
    /// Routers have different values of a setting that must be the same for all filters.
    #[error("`{0}` differs from that of another router's filter")]
    #[diagnostic(help("write the same value in all filters"))]
    FiltersDiffer(&'static str),
    /// The name of an interface is not valid in a Linux namespace.
    #[error("the router of `{0}` has a network namespace, in which this interface name is not valid")]
    #[diagnostic(help("Linux allows names of up to 15 bytes, except `lo`"))]
    NotLinuxName(String),
    /// Kernel routes are enabled for a router without a namespace.
    #[error("the router has no network namespace from which it could read routes")]
    #[diagnostic(help("write `daemon = true`"))]
    NoNamespace,
    /// Host limits are set for a router without a namespace.
    #[error("the router has no network namespace to which packets could be delivered")]
    #[diagnostic(help("write `daemon = true`"))]
    NoHost,
    /// A pool allocates ports of an address, but the router's host stack uses these ports for its own connections.
    #[error("pool `{pool}` contains ports of {address} that the host of the router uses for its own connections")]
    #[diagnostic(help(
        "the pool can allocate a port that a connection of the host uses, which breaks this connection: write \
         `reserved-ports = [\"32768-60999\"]`, or set another `net.ipv4.ip_local_port_range` in the namespace"
    ))]
    PortsOfHost {
        /// The address.
        address: Ipv4Addr,
        /// Name of the pool.
        pool: String,
    },
    /// Two routers have the same FPM listening address.
    #[error("router `{other}` already listens for FPM at {listen}")]
    #[diagnostic(help("choose another port, or give the router a namespace: `daemon = true`"))]
    SameListen {
        /// The address and port.
        listen: SocketAddr,
        /// Name of the other router.
        other: String,
    },
    /// An FPM server has no listening address or socket.
    #[error("FPM has no address or socket to listen on")]
    #[diagnostic(help("write `listen`, `socket` or both"))]
    ListensNowhere,
    /// A TCP-MD5 key is given for an address that is not in `peers`.
    #[error("there is a TCP-MD5 key for `{0}`, which is not in `peers`")]
    #[diagnostic(help("add the address to `peers`, or remove the key"))]
    KeyWithoutPeer(IpAddr),
    /// A TCP-MD5 key is given for a peer that can't connect because of its address family.
    #[error("the peer `{0}` cannot connect to the IPv4 listener `{1}`")]
    #[diagnostic(help("listen on an IPv6 address (`[::]` for both families), or remove the peer's key"))]
    KeyFamily(IpAddr, SocketAddr),
    /// TCP-MD5 keys are given without a TCP listening address.
    #[error("TCP-MD5 keys need a TCP listener")]
    #[diagnostic(help("write `listen`, or remove the keys: access to a Unix socket is controlled by permissions"))]
    KeysWithoutListen,
    /// A rate states no limit.
    #[error("this rate limits neither packets nor bits")]
    #[diagnostic(help("write `packets`, `bits` or both"))]
    EmptyRate,
    /// A share is set on an end of an inter-router link.
    #[error(
        "`{0}` is an end of an inter-router link, which carries only traffic of this router: a share has no \
         effect"
    )]
    #[diagnostic(help("write a `rate` for the link"))]
    ShareOfVirtualLink(String),
    /// A guarantee is set on a link without a rate.
    #[error("a share of `{0}` can't be guaranteed, because the rate of this interface is not configured")]
    #[diagnostic(help("write the `rate` of [interfaces.{0}]"))]
    NoLinkRate(String),
    /// The guarantees on a link exceed its rate.
    #[error("the guarantees on `{link}` add up to {all} bits per second and exceed the rate of the link, {rate}")]
    #[diagnostic(help("lower the guarantees"))]
    GuaranteesAboveRate {
        /// Interface with the device of the link.
        link: String,
        /// Sum of the guarantees.
        all: BitRate,
        /// Rate of the link.
        rate: BitRate,
    },
    /// There are too many routers.
    #[error("{0} routers exceed the maximum")]
    #[diagnostic(help("at most {} routers are possible", crate::limits::MAX_ROUTERS))]
    TooMany(usize),
}

impl From<RouterProblem> for Problem {
    fn from(problem: RouterProblem) -> Self {
        Self::Router(problem)
    }
}

/// Table in which items of another router must be written.
fn table_of(router: &str) -> String {
    match router {
        "default" => "at the top level".into(),
        router => format!("in [routers.{router}]"),
    }
}

/// Top-level key that the default router has instead of a key of other routers.
fn in_place_of(key: &str) -> String {
    match key {
        "limits" => "`sessions` and `new-sessions` in [nat.limits]".into(),
        key => format!("[{key}]"),
    }
}
