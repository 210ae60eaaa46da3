//! What can be wrong with virtual routers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Problem, meant_or};
use crate::value::BitRate;

/// One thing that is wrong with `[routers]`, or with who is in which.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RouterProblem {
    /// A router that is not there.
    #[error("there is no router `{name}`")]
    #[diagnostic(help("{}", meant_or(name, known, format!("write [routers.{name}]"))))]
    Unknown {
        /// As written.
        name: String,
        /// The routers there are.
        known: Vec<String>,
    },
    /// An interface of another router.
    #[error("interface `{interface}` is in router `{router}`, not in this one")]
    #[diagnostic(help("name an interface of this router, or write it {}", table_of(router)))]
    Elsewhere {
        /// The interface.
        interface: String,
        /// Its router.
        router: String,
    },
    /// Something of the top level's in the table of the router `default`.
    #[error("`{0}` of the router `default` stands at the top level")]
    #[diagnostic(help("write {}", in_place_of(_0)))]
    OfDefault(&'static str),
    /// A pool that two routers name.
    #[error("rules of router `{one}` and of router `{other}` name the pool `{pool}`")]
    #[diagnostic(help("give each router a pool of its own"))]
    SharedPool {
        /// The pool.
        pool: String,
        /// A router.
        one: String,
        /// Another.
        other: String,
    },
    /// A key that an end of a virtual link does not have.
    #[error("`{0}` is of devices, and this is an end of a virtual link")]
    #[diagnostic(help("leave it out"))]
    NotOnLink(&'static str),
    /// A link whose other end leads elsewhere.
    #[error("interface `{peer}` is not the other end of `{name}`")]
    #[diagnostic(help("write `peer = \"{name}\"` in [interfaces.{peer}]"))]
    PeerElsewhere {
        /// One end.
        name: String,
        /// What it names.
        peer: String,
    },
    /// A link within one router.
    #[error("interface `{0}` is in the same router")]
    #[diagnostic(help("a virtual link leads from one router to another"))]
    LinkToItself(String),
    /// Two MTUs.
    #[error("packets of {own} bytes would leave here, and `{peer}` takes {its}")]
    #[diagnostic(help("write the same `mtu` at both ends"))]
    LinkMtu {
        /// This end's.
        own: u16,
        /// The other end.
        peer: String,
        /// Its.
        its: u16,
    },
    /// VLANs over a virtual link.
    #[error("`{0}` is an end of a virtual link, which carries no tags")]
    #[diagnostic(help("make another link in the place of the VLAN"))]
    TagsOnLink(String),
    /// Settings of filters that all share.
    #[error("the filters of all routers have the same `{0}`, and this one is another")]
    #[diagnostic(help("write the same in each"))]
    FiltersDiffer(&'static str),
    /// A name that no interface in a namespace can have.
    #[error("the router of `{0}` has a namespace, where an interface can't be called so")]
    #[diagnostic(help("Linux takes names of 15 bytes, and `lo` is its own"))]
    NotLinuxName(String),
    /// Routes of a namespace that is not there.
    #[error("this router has no namespace whose routes could be its own")]
    #[diagnostic(help("write `daemon = true`"))]
    NoNamespace,
    /// What comes to a namespace that is not there.
    #[error("this router has no namespace that anything could come to")]
    #[diagnostic(help("write `daemon = true`"))]
    NoHost,
    /// An own address whose ports are lent, and used by connections of the router's host too.
    #[error("pool `{pool}` lends ports of {address} that connections of the router's own host begin from")]
    #[diagnostic(help(
        "whose port is lent is cut: write `reserved-ports = [\"32768-60999\"]`, or give the namespace other \
         `net.ipv4.ip_local_port_range`"
    ))]
    PortsOfHost {
        /// The address.
        address: Ipv4Addr,
        /// The pool.
        pool: String,
    },
    /// An address that another router listens at.
    #[error("router `{other}` listens to FPM at {listen} already")]
    #[diagnostic(help("choose another port, or give the router a namespace: `daemon = true`"))]
    SameListen {
        /// The address and port.
        listen: SocketAddr,
        /// The other router.
        other: String,
    },
    /// An FPM server without a place.
    #[error("FPM is listened to nowhere")]
    #[diagnostic(help("write `listen`, `socket` or both"))]
    ListensNowhere,
    /// A key of somebody who is not heard.
    #[error("there is a TCP-MD5 key for `{0}`, which is not in `peers`")]
    #[diagnostic(help("add it to `peers`, or leave the key out"))]
    KeyOfNobody(IpAddr),
    /// A key of a peer that can't connect.
    #[error("`{0}` cannot connect to `{1}`, which is of IPv4")]
    #[diagnostic(help("listen at an IPv6 address, `[::]` for both, or leave the key out"))]
    KeyFamily(IpAddr, SocketAddr),
    /// Keys of TCP without TCP.
    #[error("there are TCP-MD5 keys, and nothing is listened to by TCP")]
    #[diagnostic(help("write `listen`, or leave the keys out: a Unix socket knows its users"))]
    KeysWithoutListen,
    /// A rate of nothing.
    #[error("this rate limits neither packets nor bits")]
    #[diagnostic(help("write `packets`, `bits` or both"))]
    EmptyRate,
    /// A share of a virtual link.
    #[error("`{0}` is an end of a virtual link, where nothing else leaves")]
    #[diagnostic(help("give it a `rate`"))]
    ShareOfVirtualLink(String),
    /// A guarantee on a link whose rate is not known.
    #[error("there is no telling what `{0}` can guarantee")]
    #[diagnostic(help("write the `rate` of [interfaces.{0}]"))]
    NoLinkRate(String),
    /// Guarantees above the rate of the link.
    #[error("interfaces on `{link}` are guaranteed {all} bits a second together, and its rate is {rate}")]
    #[diagnostic(help("guarantee less"))]
    GuaranteesAboveRate {
        /// The interface that is the link.
        link: String,
        /// Their guarantees.
        all: BitRate,
        /// Its rate.
        rate: BitRate,
    },
    /// Too many.
    #[error("{0} routers are more than there can be")]
    #[diagnostic(help("at most {} are possible", crate::limits::MOST_ROUTERS))]
    TooMany(usize),
}

impl From<RouterProblem> for Problem {
    fn from(problem: RouterProblem) -> Self {
        Self::Router(problem)
    }
}

/// Where something of another router is written.
fn table_of(router: &str) -> String {
    match router {
        "default" => "at the top level".into(),
        router => format!("in [routers.{router}]"),
    }
}

/// What the router `default` has in the place of a key of others.
fn in_place_of(key: &str) -> String {
    match key {
        "limits" => "`sessions` and `new-sessions` in [nat.limits]".into(),
        key => format!("[{key}]"),
    }
}
