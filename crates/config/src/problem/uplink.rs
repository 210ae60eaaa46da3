//! What can be wrong with uplinks.

use std::net::IpAddr;

use super::Problem;
use crate::value::{Period, Prefix};

/// One thing that is wrong with an uplink, or with a route by uplinks.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum UplinkProblem {
    /// More than are checked.
    #[error("{0} uplinks are more than {1}")]
    #[diagnostic(help("leave some out"))]
    TooMany(usize, usize),
    /// No gateway, or several of one family.
    #[error("an uplink has one gateway of each address family at most, and one at least")]
    #[diagnostic(help("write `via = [\"…\"]`, and an uplink for each further gateway"))]
    Gateways,
    /// Two uplinks that are one.
    #[error("the gateway `{gateway}` is that of uplink `{other}`")]
    #[diagnostic(help("keep one of them, or name another gateway"))]
    Shared {
        /// The gateway.
        gateway: IpAddr,
        /// The other uplink.
        other: String,
    },
    /// Nothing says whether it is up.
    #[error("`health` has neither `ping` nor `route`")]
    #[diagnostic(help("add `ping = [\"…\"]` with hosts beyond the uplink, or leave `health` out: the link counts"))]
    NothingToCheck,
    /// Answers that come after the next question.
    #[error("a timeout is 10 ms at least, and `interval` ({0}) at most")]
    #[diagnostic(help("write a shorter timeout, or a longer interval"))]
    Timeout(Period),
    /// Too many hosts to ask.
    #[error("an uplink is checked by {0} hosts at most")]
    #[diagnostic(help("leave some out: one that answers is enough"))]
    TooManyTargets(usize),
    /// A link without frames.
    #[error("echo requests cannot be sent by interface `{0}`, a tunnel or virtual link")]
    #[diagnostic(help("check it by a `route` of a routing daemon"))]
    NoEthernet(String),
    /// A host of a family that the uplink does not lead to.
    #[error("the uplink has no gateway of the family of `{0}`")]
    #[diagnostic(help("add a gateway of that family, or leave the host out"))]
    TargetFamily(IpAddr),
    /// No address to ask from.
    #[error("`{0}` would be asked from an address of interface `{1}`, which has none of its family")]
    #[diagnostic(help("give the interface an address, or leave the host out"))]
    NoSource(IpAddr, String),
    /// Uplinks beside something else.
    #[error("the route to `{0}` has `uplinks` beside another way to go")]
    #[diagnostic(help(
        "keep `uplinks` alone, with `from`, `balance` and `distance`; the `weight` stands in the uplink"
    ))]
    Contradicts(Prefix),
    /// No uplink of that name.
    #[error("there is no uplink `{name}`")]
    #[diagnostic(help("{}", super::meant(name, known)))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// An uplink twice in one route.
    #[error("the route has uplink `{0}` twice")]
    #[diagnostic(help("name it once; its part is its `weight`"))]
    Twice(String),
    /// No uplink has a gateway of the family.
    #[error("none of the uplinks has a gateway of the family of `{0}`")]
    #[diagnostic(help("add one to `via` of an uplink"))]
    NoGateway(Prefix),
    /// Balance of a single way.
    #[error("`balance` is about `uplinks`")]
    #[diagnostic(help("leave it out, or name `uplinks`"))]
    Balance,
    /// Uplinks and gateways to one network at one distance.
    #[error("the route to `{0}` has `uplinks` beside other ways at its distance")]
    #[diagnostic(help("write them as one route, or give one a greater `distance`"))]
    NotAlone(Prefix),
}

impl From<UplinkProblem> for Problem {
    fn from(problem: UplinkProblem) -> Self {
        Self::Uplink(problem)
    }
}
