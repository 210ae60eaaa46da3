//! What can be wrong with virtual routers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Problem, nearest};
use crate::value::BitRate;

/// One thing that is wrong with `[routers]`, or with who is in which.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouterProblem {
    /// A router that is not there.
    #[error("there is no router `{name}`")]
    Unknown {
        /// As written.
        name: String,
        /// The routers there are.
        known: Vec<String>,
    },
    /// An interface of another router.
    #[error("interface `{interface}` is in router `{router}`, not in this one")]
    Elsewhere {
        /// The interface.
        interface: String,
        /// Its router.
        router: String,
    },
    /// Something of the top level's in the table of the router `default`.
    #[error("`{0}` of the router `default` stands at the top level")]
    OfDefault(&'static str),
    /// A pool that two routers name.
    #[error("rules of router `{one}` and of router `{other}` name the pool `{pool}`")]
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
    NotOnLink(&'static str),
    /// A link whose other end leads elsewhere.
    #[error("interface `{peer}` is not the other end of `{name}`")]
    PeerElsewhere {
        /// One end.
        name: String,
        /// What it names.
        peer: String,
    },
    /// A link within one router.
    #[error("interface `{0}` is in the same router")]
    LinkToItself(String),
    /// Two MTUs.
    #[error("packets of {own} bytes would leave here, and `{peer}` takes {its}")]
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
    TagsOnLink(String),
    /// Settings of filters that all share.
    #[error("the filters of all routers have the same `{0}`, and this one is another")]
    FiltersDiffer(&'static str),
    /// A name that no interface in a namespace can have.
    #[error("the router of `{0}` has a namespace, where an interface can't be called so")]
    NotLinuxName(String),
    /// Routes of a namespace that is not there.
    #[error("this router has no namespace whose routes could be its own")]
    NoNamespace,
    /// What comes to a namespace that is not there.
    #[error("this router has no namespace that anything could come to")]
    NoHost,
    /// An own address whose ports are lent, and used by connections of the router's host too.
    #[error("pool `{pool}` lends ports of {address} that connections of the router's own host begin from")]
    PortsOfHost {
        /// The address.
        address: Ipv4Addr,
        /// The pool.
        pool: String,
    },
    /// An address that another router listens at.
    #[error("router `{other}` listens to FPM at {listen} already")]
    SameListen {
        /// The address and port.
        listen: SocketAddr,
        /// The other router.
        other: String,
    },
    /// An FPM server without a place.
    #[error("FPM is listened to nowhere")]
    ListensNowhere,
    /// A key of somebody who is not heard.
    #[error("there is a TCP-MD5 key for `{0}`, which is not in `peers`")]
    KeyOfNobody(IpAddr),
    /// A key of a peer that can't connect.
    #[error("`{0}` cannot connect to `{1}`, which is of IPv4")]
    KeyFamily(IpAddr, SocketAddr),
    /// Keys of TCP without TCP.
    #[error("there are TCP-MD5 keys, and nothing is listened to by TCP")]
    KeysWithoutListen,
    /// A rate of nothing.
    #[error("this rate limits neither packets nor bits")]
    EmptyRate,
    /// A share of a virtual link.
    #[error("`{0}` is an end of a virtual link, where nothing else leaves")]
    ShareOfVirtualLink(String),
    /// A guarantee on a link whose rate is not known.
    #[error("there is no telling what `{0}` can guarantee")]
    NoLinkRate(String),
    /// Guarantees above the rate of the link.
    #[error("interfaces on `{link}` are guaranteed {all} bits a second together, and its rate is {rate}")]
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
    TooMany(usize),
}

impl RouterProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Unknown { name, known } => match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write [routers.{name}]"),
            },
            Self::Elsewhere { router, .. } if router == "default" => {
                "name an interface of this router, or write it at the top level".into()
            }
            Self::Elsewhere { router, .. } => {
                format!("name an interface of this router, or write it in [routers.{router}]")
            }
            Self::OfDefault("limits") => "write `sessions` and `new-sessions` in [nat.limits]".into(),
            Self::OfDefault(key) => format!("write [{key}]"),
            Self::SharedPool { .. } => "give each router a pool of its own".into(),
            Self::NotOnLink(_) => "leave it out".into(),
            Self::PeerElsewhere { name, peer } => format!("write `peer = \"{name}\"` in [interfaces.{peer}]"),
            Self::LinkToItself(_) => "a virtual link leads from one router to another".into(),
            Self::LinkMtu { .. } => "write the same `mtu` at both ends".into(),
            Self::TagsOnLink(_) => "make another link in the place of the VLAN".into(),
            Self::FiltersDiffer(_) => "write the same in each".into(),
            Self::NotLinuxName(_) => "Linux takes names of 15 bytes, and `lo` is its own".into(),
            Self::PortsOfHost { .. } => {
                "whose port is lent is cut: write `reserved-ports = [\"32768-60999\"]`, or give the namespace other \
                 `net.ipv4.ip_local_port_range`"
                    .into()
            }
            Self::NoNamespace | Self::NoHost => "write `daemon = true`".into(),
            Self::SameListen { .. } => "choose another port, or give the router a namespace: `daemon = true`".into(),
            Self::ListensNowhere => "write `listen`, `socket` or both".into(),
            Self::KeyOfNobody(_) => "add it to `peers`, or leave the key out".into(),
            Self::KeyFamily(..) => "listen at an IPv6 address, `[::]` for both, or leave the key out".into(),
            Self::KeysWithoutListen => "write `listen`, or leave the keys out: a Unix socket knows its users".into(),
            Self::EmptyRate => "write `packets`, `bits` or both".into(),
            Self::ShareOfVirtualLink(_) => "give it a `rate`".into(),
            Self::NoLinkRate(link) => format!("write the `rate` of [interfaces.{link}]"),
            Self::GuaranteesAboveRate { .. } => "guarantee less".into(),
            Self::TooMany(_) => format!("at most {} are possible", crate::limits::MOST_ROUTERS),
        }
    }
}

impl From<RouterProblem> for Problem {
    fn from(problem: RouterProblem) -> Self {
        Self::Router(problem)
    }
}
