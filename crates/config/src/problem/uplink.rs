//! Problems of uplinks.

use std::net::IpAddr;

use super::Problem;
use crate::value::{Period, Prefix};

/// A problem of an uplink, or of a route by uplinks.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum UplinkProblem {
    /// There are more uplinks than supported.
    #[error("{0} uplinks are more than {1}")]
    #[diagnostic(help("leave some out"))]
    TooMany(usize, usize),
    /// An uplink has no gateway, or several of one address family.
    #[error("an uplink has one gateway of each address family at most, and one at least")]
    #[diagnostic(help("write `via = [\"…\"]`, and an uplink for each further gateway"))]
    Gateways,
    /// Two uplinks have the same gateway.
    #[error("the gateway `{gateway}` is that of uplink `{other}`")]
    #[diagnostic(help("keep one of them, or name another gateway"))]
    Shared {
        /// The gateway.
        gateway: IpAddr,
        /// Name of the other uplink.
        other: String,
    },
    /// The health checks have neither `ping` nor `route`.
    #[error("`health` has neither `ping` nor `route`")]
    #[diagnostic(help("add `ping = [\"…\"]` with hosts beyond the uplink, or leave `health` out: the link counts"))]
    NothingToCheck,
    /// The timeout of a check is out of range or exceeds the interval.
    #[error("a timeout is 10 ms at least, and `interval` ({0}) at most")]
    #[diagnostic(help("write a shorter timeout, or a longer interval"))]
    Timeout(Period),
    /// An uplink has too many probed hosts.
    #[error("an uplink is checked by {0} hosts at most")]
    #[diagnostic(help("leave some out: one that answers is enough"))]
    TooManyTargets(usize),
    /// The interface can't send echo requests, because it has no Ethernet link.
    #[error("echo requests cannot be sent by interface `{0}`, a tunnel or virtual link")]
    #[diagnostic(help("check it by a `route` of a routing daemon"))]
    NoEthernet(String),
    /// The uplink has no gateway of a probed host's address family.
    #[error("the uplink has no gateway of the family of `{0}`")]
    #[diagnostic(help("add a gateway of that family, or leave the host out"))]
    TargetFamily(IpAddr),
    /// The interface has no source address of a probed host's family.
    #[error("`{0}` would be asked from an address of interface `{1}`, which has none of its family")]
    #[diagnostic(help("give the interface an address, or leave the host out"))]
    NoSource(IpAddr, String),
    /// A route has uplinks and another next hop.
    #[error("the route to `{0}` has `uplinks` beside another way to go")]
    #[diagnostic(help(
        "keep `uplinks` alone, with `from`, `balance` and `distance`; the `weight` stands in the uplink"
    ))]
    Contradicts(Prefix),
    /// No uplink has this name.
    #[error("there is no uplink `{name}`")]
    #[diagnostic(help("{}", super::meant(name, known)))]
    Unknown {
        /// Name as written.
        name: String,
        /// Names of the uplinks.
        known: Vec<String>,
    },
    /// A route names an uplink twice.
    #[error("the route has uplink `{0}` twice")]
    #[diagnostic(help("name it once; its part is its `weight`"))]
    Twice(String),
    /// No uplink of a route has a gateway of the route's address family.
    #[error("none of the uplinks has a gateway of the family of `{0}`")]
    #[diagnostic(help("add one to `via` of an uplink"))]
    NoGateway(Prefix),
    /// `balance` is set on a route without uplinks.
    #[error("`balance` is about `uplinks`")]
    #[diagnostic(help("leave it out, or name `uplinks`"))]
    Balance,
    /// Two routes to one network with the same distance, of which only one uses uplinks.
    #[error("the route to `{0}` has `uplinks` beside other ways at its distance")]
    #[diagnostic(help("write them as one route, or give one a greater `distance`"))]
    NotAlone(Prefix),
}

impl From<UplinkProblem> for Problem {
    fn from(problem: UplinkProblem) -> Self {
        Self::Uplink(problem)
    }
}
