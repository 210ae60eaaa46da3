//! What can be wrong with uplinks.

use std::net::IpAddr;

use super::Problem;
use crate::value::{Period, Prefix};

/// One thing that is wrong with an uplink, or with a route by uplinks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UplinkProblem {
    /// More than are checked.
    #[error("{0} uplinks are more than {1}")]
    TooMany(usize, usize),
    /// No gateway, or several of one family.
    #[error("an uplink has one gateway of each address family at most, and one at least")]
    Gateways,
    /// Two uplinks that are one.
    #[error("the gateway `{gateway}` is that of uplink `{other}`")]
    Shared {
        /// The gateway.
        gateway: IpAddr,
        /// The other uplink.
        other: String,
    },
    /// Nothing says whether it is up.
    #[error("`health` has neither `ping` nor `route`")]
    NothingToCheck,
    /// Answers that come after the next question.
    #[error("a timeout is 10 ms at least, and `interval` ({0}) at most")]
    Timeout(Period),
    /// Too many hosts to ask.
    #[error("an uplink is checked by {0} hosts at most")]
    TooManyTargets(usize),
    /// A link without frames.
    #[error("echo requests cannot be sent by interface `{0}`, a tunnel or virtual link")]
    NoEthernet(String),
    /// A host of a family that the uplink does not lead to.
    #[error("the uplink has no gateway of the family of `{0}`")]
    TargetFamily(IpAddr),
    /// No address to ask from.
    #[error("`{0}` would be asked from an address of interface `{1}`, which has none of its family")]
    NoSource(IpAddr, String),
    /// Uplinks beside something else.
    #[error("the route to `{0}` has `uplinks` beside another way to go")]
    Contradicts(Prefix),
    /// No uplink of that name.
    #[error("there is no uplink `{name}`")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// An uplink twice in one route.
    #[error("the route has uplink `{0}` twice")]
    Twice(String),
    /// No uplink has a gateway of the family.
    #[error("none of the uplinks has a gateway of the family of `{0}`")]
    NoGateway(Prefix),
    /// Balance of a single way.
    #[error("`balance` is about `uplinks`")]
    Balance,
    /// Uplinks and gateways to one network at one distance.
    #[error("the route to `{0}` has `uplinks` beside other ways at its distance")]
    NotAlone(Prefix),
}

impl UplinkProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::TooMany(..) => "leave some out".into(),
            Self::Gateways => "write `via = [\"…\"]`, and an uplink for each further gateway".into(),
            Self::Shared { .. } => "keep one of them, or name another gateway".into(),
            Self::NothingToCheck => {
                "add `ping = [\"…\"]` with hosts beyond the uplink, or leave `health` out: the link counts".into()
            }
            Self::Timeout(_) => "write a shorter timeout, or a longer interval".into(),
            Self::TooManyTargets(_) => "leave some out: one that answers is enough".into(),
            Self::NoEthernet(_) => "check it by a `route` of a routing daemon".into(),
            Self::TargetFamily(_) => "add a gateway of that family, or leave the host out".into(),
            Self::NoSource(..) => "give the interface an address, or leave the host out".into(),
            Self::Contradicts(_) => {
                "keep `uplinks` alone, with `from`, `balance` and `distance`; the `weight` stands in the uplink".into()
            }
            Self::Unknown { name, known } => super::meant(name, known),
            Self::Twice(_) => "name it once; its part is its `weight`".into(),
            Self::NoGateway(_) => "add one to `via` of an uplink".into(),
            Self::Balance => "leave it out, or name `uplinks`".into(),
            Self::NotAlone(_) => "write them as one route, or give one a greater `distance`".into(),
        }
    }
}

impl From<UplinkProblem> for Problem {
    fn from(problem: UplinkProblem) -> Self {
        Self::Uplink(problem)
    }
}
