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
    #[diagnostic(help("name an interface of this router, or write it {}", table_of(router)))]
    Elsewhere {
        /// Name of the interface.
        interface: String,
        /// Router of the interface.
        router: String,
    },
    /// A key of the router `default` belongs to the top level.
    #[error("`{0}` of the router `default` stands at the top level")]
    #[diagnostic(help("write {}", in_place_of(_0)))]
    OfDefault(&'static str),
    /// Rules of two routers use the same pool.
    #[error("rules of router `{one}` and of router `{other}` name the pool `{pool}`")]
    #[diagnostic(help("give each router a pool of its own"))]
    SharedPool {
        /// Name of the pool.
        pool: String,
        /// One router.
        one: String,
        /// The other router.
        other: String,
    },
    /// The key is not valid for an end of a virtual link.
    #[error("`{0}` is of devices, and this is an end of a virtual link")]
    #[diagnostic(help("leave it out"))]
    NotOnLink(&'static str),
    /// The peer of a virtual link names another interface.
    #[error("interface `{peer}` is not the other end of `{name}`")]
    #[diagnostic(help("write `peer = \"{name}\"` in [interfaces.{peer}]"))]
    PeerElsewhere {
        /// One end of the link.
        name: String,
        /// Interface that it names as peer.
        peer: String,
    },
    /// Both ends of a virtual link are in the same router.
    #[error("interface `{0}` is in the same router")]
    #[diagnostic(help("a virtual link leads from one router to another"))]
    LinkToItself(String),
    /// The ends of a virtual link have different MTUs.
    #[error("packets of {own} bytes would leave here, and `{peer}` takes {its}")]
    #[diagnostic(help("write the same `mtu` at both ends"))]
    LinkMtu {
        /// MTU of this end.
        own: u16,
        /// Name of the other end.
        peer: String,
        /// MTU of the other end.
        its: u16,
    },
    /// A VLAN has a virtual link as its parent.
    #[error("`{0}` is an end of a virtual link, which carries no tags")]
    #[diagnostic(help("make another link in the place of the VLAN"))]
    TagsOnLink(String),
    /// Routers have different values of a setting that all filters share.
    #[error("the filters of all routers have the same `{0}`, and this one is another")]
    #[diagnostic(help("write the same in each"))]
    FiltersDiffer(&'static str),
    /// The name of an interface is not valid in a Linux namespace.
    #[error("the router of `{0}` has a namespace, where an interface can't be called so")]
    #[diagnostic(help("Linux takes names of 15 bytes, and `lo` is its own"))]
    NotLinuxName(String),
    /// Kernel routes are enabled for a router without a namespace.
    #[error("this router has no namespace whose routes could be its own")]
    #[diagnostic(help("write `daemon = true`"))]
    NoNamespace,
    /// Host limits are set for a router without a namespace.
    #[error("this router has no namespace that anything could come to")]
    #[diagnostic(help("write `daemon = true`"))]
    NoHost,
    /// A pool allocates ports of an address that the router's host stack uses for its own connections.
    #[error("pool `{pool}` lends ports of {address} that connections of the router's own host begin from")]
    #[diagnostic(help(
        "whose port is lent is cut: write `reserved-ports = [\"32768-60999\"]`, or give the namespace other \
         `net.ipv4.ip_local_port_range`"
    ))]
    PortsOfHost {
        /// The address.
        address: Ipv4Addr,
        /// Name of the pool.
        pool: String,
    },
    /// Two routers have the same FPM listening address.
    #[error("router `{other}` listens to FPM at {listen} already")]
    #[diagnostic(help("choose another port, or give the router a namespace: `daemon = true`"))]
    SameListen {
        /// The address and port.
        listen: SocketAddr,
        /// Name of the other router.
        other: String,
    },
    /// An FPM server has no listening address or socket.
    #[error("FPM is listened to nowhere")]
    #[diagnostic(help("write `listen`, `socket` or both"))]
    ListensNowhere,
    /// A TCP-MD5 key is given for an address that is not in `peers`.
    #[error("there is a TCP-MD5 key for `{0}`, which is not in `peers`")]
    #[diagnostic(help("add it to `peers`, or leave the key out"))]
    KeyOfNobody(IpAddr),
    /// A TCP-MD5 key is given for a peer that can't connect because of its address family.
    #[error("`{0}` cannot connect to `{1}`, which is of IPv4")]
    #[diagnostic(help("listen at an IPv6 address, `[::]` for both, or leave the key out"))]
    KeyFamily(IpAddr, SocketAddr),
    /// TCP-MD5 keys are given without a TCP listening address.
    #[error("there are TCP-MD5 keys, and nothing is listened to by TCP")]
    #[diagnostic(help("write `listen`, or leave the keys out: a Unix socket knows its users"))]
    KeysWithoutListen,
    /// A rate has no limit.
    #[error("this rate limits neither packets nor bits")]
    #[diagnostic(help("write `packets`, `bits` or both"))]
    EmptyRate,
    /// A share is set on an end of a virtual link.
    #[error("`{0}` is an end of a virtual link, where nothing else leaves")]
    #[diagnostic(help("give it a `rate`"))]
    ShareOfVirtualLink(String),
    /// A guarantee is set on a link without a rate.
    #[error("there is no telling what `{0}` can guarantee")]
    #[diagnostic(help("write the `rate` of [interfaces.{0}]"))]
    NoLinkRate(String),
    /// The guarantees on a link exceed its rate.
    #[error("interfaces on `{link}` are guaranteed {all} bits a second together, and its rate is {rate}")]
    #[diagnostic(help("guarantee less"))]
    GuaranteesAboveRate {
        /// Interface with the device of the link.
        link: String,
        /// Sum of the guarantees.
        all: BitRate,
        /// Rate of the link.
        rate: BitRate,
    },
    /// There are too many routers.
    #[error("{0} routers are more than there can be")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_ROUTERS))]
    TooMany(usize),
}

impl From<RouterProblem> for Problem {
    fn from(problem: RouterProblem) -> Self {
        Self::Router(problem)
    }
}

/// Table in which items of another router are written.
fn table_of(router: &str) -> String {
    match router {
        "default" => "at the top level".into(),
        router => format!("in [routers.{router}]"),
    }
}

/// Top-level key of the default router for a key of other routers.
fn in_place_of(key: &str) -> String {
    match key {
        "limits" => "`sessions` and `new-sessions` in [nat.limits]".into(),
        key => format!("[{key}]"),
    }
}
