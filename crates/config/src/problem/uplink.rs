//! Problems of uplinks.

use std::net::IpAddr;

use super::Problem;
use crate::value::{Period, Prefix};

/// A problem of an uplink, or of a route that uses uplinks.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum UplinkProblem {
    /// There are more uplinks than supported.
    #[error("{0} uplinks exceed the maximum of {1}")]
    #[diagnostic(help("remove some uplinks"))]
    TooMany(usize, usize),
    /// An uplink has no gateway, or several gateways of the same address family.
    #[error("an uplink needs a gateway, and can have one gateway of each address family")]
    #[diagnostic(help("write `via = [\"…\"]`, and add another uplink for each further gateway"))]
    Gateways,
    /// Two uplinks have the same gateway.
    #[error("uplink `{other}` already has the gateway `{gateway}`")]
    #[diagnostic(help("remove one of the two uplinks, or write another gateway"))]
    Shared {
        /// The gateway.
        gateway: IpAddr,
        /// Name of the other uplink.
        other: String,
    },
    /// The health checks have neither `ping` nor `route`.
    #[error("`health` has neither `ping` nor `route`")]
    #[diagnostic(help("add `ping = [\"…\"]` with hosts beyond the uplink, or remove `health` to check only the link"))]
    NothingToCheck,
    /// The timeout of a check is out of range or exceeds the interval.
    #[error("the timeout is not between 10 ms and `interval` ({0})")]
    #[diagnostic(help("write a shorter timeout, or a longer interval"))]
    Timeout(Period),
    /// An uplink has too many probed hosts.
    #[error("an uplink has at most {0} hosts to ping")]
    #[diagnostic(help("remove some hosts: the answer of a single host is enough"))]
    TooManyTargets(usize),
    /// The interface can't send echo requests, because it has no Ethernet link.
    #[error("echo requests cannot be sent on interface `{0}`, a tunnel or inter-router link")]
    #[diagnostic(help("use `route` as check, which needs a routing daemon"))]
    NoEthernet(String),
    /// The uplink has no gateway of a probed host's address family.
    #[error("the uplink has no gateway of the address family of `{0}`")]
    #[diagnostic(help("add a gateway of that family, or remove the host"))]
    TargetFamily(IpAddr),
    /// The interface has no source address of a probed host's family.
    #[error("interface `{1}` has no source address of the family of `{0}`")]
    #[diagnostic(help("add an address to the interface, or remove the host"))]
    NoSource(IpAddr, String),
    /// A route has both uplinks and another next hop.
    #[error("the route to `{0}` has both `uplinks` and another next hop")]
    #[diagnostic(help("remove the next hop: a route with `uplinks` can have only `from`, `balance` and `distance`"))]
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
    /// A route lists the same uplink twice.
    #[error("the route names uplink `{0}` twice")]
    #[diagnostic(help("write each uplink once, and set its share of new flows with `weight`"))]
    Twice(String),
    /// No uplink of a route has a gateway of the route's address family.
    #[error("none of the uplinks has a gateway of the address family of `{0}`")]
    #[diagnostic(help("add a gateway of this family to `via` of an uplink"))]
    NoGateway(Prefix),
    /// `balance` is set on a route without uplinks.
    #[error("`balance` needs `uplinks`")]
    #[diagnostic(help("remove `balance`, or add `uplinks`"))]
    Balance,
    /// Two routes to one network have the same distance, but only one of the routes uses uplinks.
    #[error("of two routes to `{0}` with the same distance, one has `uplinks` and the other has other next hops")]
    #[diagnostic(help("merge the two routes into one, or write a greater `distance` for one of them"))]
    NotAlone(Prefix),
}

impl From<UplinkProblem> for Problem {
    fn from(problem: UplinkProblem) -> Self {
        Self::Uplink(problem)
    }
}
