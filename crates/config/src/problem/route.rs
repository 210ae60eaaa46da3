//! What can be wrong with static routes.

use std::net::IpAddr;

use super::Problem;
use crate::value::Prefix;

/// One thing that is wrong with a route.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteProblem {
    /// A route that leads nowhere by accident.
    #[error("the route to `{0}` leads nowhere")]
    Incomplete(Prefix),
    /// A route with a gateway and an action.
    #[error("the route to `{0}` has both an `action` and a way to go")]
    Contradicts(Prefix),
    /// The same way twice.
    #[error("there is this way to `{0}` already")]
    Twice(Prefix),
    /// A way beside an action.
    #[error("the route to `{0}` has an `action` beside another way")]
    NotAlone(Prefix),
    /// More ways than a flow can choose from.
    #[error("the route to `{0}` has more than {1} ways")]
    TooManyWays(Prefix, usize),
    /// A route to a network on the link of an interface.
    #[error("`{0}` is on the link of interface `{1}`")]
    OnLink(Prefix, String),
    /// A gateway that is said to be on a link, without the gateway or the link.
    #[error("the route to `{0}` is `onlink`, which is about a `via` with an `interface`")]
    Onlink(Prefix),
    /// A gateway that no route leads to.
    #[error("no route leads to the gateway `{0}`")]
    Unreachable(IpAddr),
    /// An address that all hosts of a link have.
    #[error("`{0}` is the network or broadcast address of the link of interface `{1}`")]
    Broadcast(IpAddr, String),
    /// A router without IPv4 addresses.
    #[error("the router cannot ask for IPv4 hosts by interface `{0}`: it has no IPv4 address")]
    NothingToAskWith(String),
    /// A source of another family.
    #[error("the route to `{to}` is for packets from `{from}`, which is of another family")]
    SourceFamily {
        /// The destination.
        to: Prefix,
        /// The source.
        from: Prefix,
    },
    /// A source that all packets have.
    #[error("`from` of the route to `{0}` matches every source")]
    FromEverywhere(Prefix),
    /// A route by source whose gateway is to be found.
    #[error("the route to `{0}` has a `from`, and is `recursive`")]
    RecursiveFrom(Prefix),
    /// More sources than can be compared.
    #[error("routes of one router name more than {0} different sources")]
    TooManySources(usize),
    /// No numbers are left.
    #[error("there are more than {0} virtual routers and sources of routes")]
    TooManyTables(usize),
    /// A gateway that is to be found, with the answer beside it, or none at all.
    #[error("the route to `{0}` is `recursive`, which is about a `via` without an `interface`")]
    Recursive(Prefix),
    /// A gateway's zone beside another interface.
    #[error("the gateway is on the link of `{zone}`, the route leaves by `{interface}`")]
    ZoneElsewhere {
        /// The interface behind the address.
        zone: String,
        /// That of the route or the uplink.
        interface: String,
    },
}

impl RouteProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Incomplete(_) => "add `via = \"…\"`, `interface = \"…\"` or `action = \"blackhole\"`".into(),
            Self::Contradicts(_) => "keep `action`, or `via` and `interface`".into(),
            Self::Twice(_) => "keep one of them; its part beside other ways is its `weight`".into(),
            Self::NotAlone(_) => "keep one of them, or give one a greater `distance`".into(),
            Self::TooManyWays(..) => "leave some out".into(),
            Self::OnLink(..) => {
                "leave it out, or give it a `distance` above 1: it is used while the link is down".into()
            }
            Self::Onlink(_) => "add what is missing, or leave `onlink` out".into(),
            Self::Unreachable(_) => {
                "add a route to it that is not the default route, such as one by the `interface` that it is on; or \
                                     name that interface and write `onlink = true` in place of `recursive`"
                    .into()
            }
            Self::Broadcast(..) => "write the address of a router".into(),
            Self::NothingToAskWith(_) => "give one of its interfaces an IPv4 address, or take a gateway of IPv6".into(),
            Self::SourceFamily { .. } => "write both in one family: a route for each".into(),
            Self::FromEverywhere(_) => "leave `from` out".into(),
            Self::RecursiveFrom(_) => "write the address of a gateway on a link, or leave `recursive` out".into(),
            Self::TooManySources(_) => "join sources that have the same routes in a shorter network".into(),
            Self::TooManyTables(_) => "leave some out".into(),
            Self::ZoneElsewhere { .. } => "keep one of them; `%` and the interface behind a gateway say all".into(),
            Self::Recursive(_) => "write `via` alone, or leave `recursive` out".into(),
        }
    }
}

impl From<RouteProblem> for Problem {
    fn from(problem: RouteProblem) -> Self {
        Self::Route(problem)
    }
}
