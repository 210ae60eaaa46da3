//! What can be wrong with static routes.

use std::net::IpAddr;

use super::Problem;
use crate::value::Prefix;

/// One thing that is wrong with a route.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RouteProblem {
    /// A route that leads nowhere by accident.
    #[error("the route to `{0}` leads nowhere")]
    #[diagnostic(help("add `via = \"…\"`, `interface = \"…\"` or `action = \"blackhole\"`"))]
    Incomplete(Prefix),
    /// A route with a gateway and an action.
    #[error("the route to `{0}` has both an `action` and a way to go")]
    #[diagnostic(help("keep `action`, or `via` and `interface`"))]
    Contradicts(Prefix),
    /// The same way twice.
    #[error("there is this way to `{0}` already")]
    #[diagnostic(help("keep one of them; its part beside other ways is its `weight`"))]
    Twice(Prefix),
    /// A way beside an action.
    #[error("the route to `{0}` has an `action` beside another way")]
    #[diagnostic(help("keep one of them, or give one a greater `distance`"))]
    NotAlone(Prefix),
    /// More ways than a flow can choose from.
    #[error("the route to `{0}` has more than {1} ways")]
    #[diagnostic(help("leave some out"))]
    TooManyWays(Prefix, usize),
    /// A route to a network on the link of an interface.
    #[error("`{0}` is on the link of interface `{1}`")]
    #[diagnostic(help("leave it out, or give it a `distance` above 1: it is used while the link is down"))]
    OnLink(Prefix, String),
    /// A gateway that is said to be on a link, without the gateway or the link.
    #[error("the route to `{0}` is `onlink`, which is about a `via` with an `interface`")]
    #[diagnostic(help("add what is missing, or leave `onlink` out"))]
    Onlink(Prefix),
    /// A gateway that no route leads to.
    #[error("no route leads to the gateway `{0}`")]
    #[diagnostic(help(
        "add a route to it that is not the default route, such as one by the `interface` that it is on; or \
         name that interface and write `onlink = true` in place of `recursive`"
    ))]
    Unreachable(IpAddr),
    /// An address that all hosts of a link have.
    #[error("`{0}` is the network or broadcast address of the link of interface `{1}`")]
    #[diagnostic(help("write the address of a router"))]
    Broadcast(IpAddr, String),
    /// A router without IPv4 addresses.
    #[error("the router cannot ask for IPv4 hosts by interface `{0}`: it has no IPv4 address")]
    #[diagnostic(help("give one of its interfaces an IPv4 address, or take a gateway of IPv6"))]
    NothingToAskWith(String),
    /// A source of another family.
    #[error("the route to `{to}` is for packets from `{from}`, which is of another family")]
    #[diagnostic(help("write both in one family: a route for each"))]
    SourceFamily {
        /// The destination.
        to: Prefix,
        /// The source.
        from: Prefix,
    },
    /// A source that all packets have.
    #[error("`from` of the route to `{0}` matches every source")]
    #[diagnostic(help("leave `from` out"))]
    FromEverywhere(Prefix),
    /// A route by source whose gateway is to be found.
    #[error("the route to `{0}` has a `from`, and is `recursive`")]
    #[diagnostic(help("write the address of a gateway on a link, or leave `recursive` out"))]
    RecursiveFrom(Prefix),
    /// More sources than can be compared.
    #[error("routes of one router name more than {0} different sources")]
    #[diagnostic(help("join sources that have the same routes in a shorter network"))]
    TooManySources(usize),
    /// No numbers are left.
    #[error("there are more than {0} virtual routers and sources of routes")]
    #[diagnostic(help("leave some out"))]
    TooManyTables(usize),
    /// A gateway that is to be found, with the answer beside it, or none at all.
    #[error("the route to `{0}` is `recursive`, which is about a `via` without an `interface`")]
    #[diagnostic(help("write `via` alone, or leave `recursive` out"))]
    Recursive(Prefix),
    /// A gateway's zone beside another interface.
    #[error("the gateway is on the link of `{zone}`, the route leaves by `{interface}`")]
    #[diagnostic(help("keep one of them; `%` and the interface behind a gateway say all"))]
    ZoneElsewhere {
        /// The interface behind the address.
        zone: String,
        /// That of the route or the uplink.
        interface: String,
    },
}

impl From<RouteProblem> for Problem {
    fn from(problem: RouteProblem) -> Self {
        Self::Route(problem)
    }
}
