//! Problems of static routes.

use std::net::IpAddr;

use super::Problem;
use crate::value::Prefix;

/// A problem of a route.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RouteProblem {
    /// A route has neither a next hop nor an action.
    #[error("the route to `{0}` leads nowhere")]
    #[diagnostic(help("add `via = \"…\"`, `interface = \"…\"` or `action = \"blackhole\"`"))]
    Incomplete(Prefix),
    /// A route has both a next hop and an action.
    #[error("the route to `{0}` has both an `action` and a way to go")]
    #[diagnostic(help("keep `action`, or `via` and `interface`"))]
    Contradicts(Prefix),
    /// Two routes have the same network and next hop.
    #[error("there is this way to `{0}` already")]
    #[diagnostic(help("keep one of them; its part beside other ways is its `weight`"))]
    Twice(Prefix),
    /// Two routes to one network with the same distance, of which only one has an action.
    #[error("the route to `{0}` has an `action` beside another way")]
    #[diagnostic(help("keep one of them, or give one a greater `distance`"))]
    NotAlone(Prefix),
    /// A route has too many next hops.
    #[error("the route to `{0}` has more than {1} ways")]
    #[diagnostic(help("leave some out"))]
    TooManyWays(Prefix, usize),
    /// The destination is a connected network.
    #[error("`{0}` is on the link of interface `{1}`")]
    #[diagnostic(help("leave it out, or give it a `distance` above 1: it is used while the link is down"))]
    OnLink(Prefix, String),
    /// `onlink` is set without a gateway or without an interface.
    #[error("the route to `{0}` is `onlink`, which is about a `via` with an `interface`")]
    #[diagnostic(help("add what is missing, or leave `onlink` out"))]
    Onlink(Prefix),
    /// No route leads to a recursive gateway.
    #[error("no route leads to the gateway `{0}`")]
    #[diagnostic(help(
        "add a route to it that is not the default route, such as one by the `interface` that it is on; or \
         name that interface and write `onlink = true` in place of `recursive`"
    ))]
    Unreachable(IpAddr),
    /// The gateway is the network or broadcast address of a link.
    #[error("`{0}` is the network or broadcast address of the link of interface `{1}`")]
    #[diagnostic(help("write the address of a router"))]
    Broadcast(IpAddr, String),
    /// The router has no IPv4 address to resolve IPv4 gateways with.
    #[error("the router cannot ask for IPv4 hosts by interface `{0}`: it has no IPv4 address")]
    #[diagnostic(help("give one of its interfaces an IPv4 address, or take a gateway of IPv6"))]
    NothingToAskWith(String),
    /// `from` and `to` have different address families.
    #[error("the route to `{to}` is for packets from `{from}`, which is of another family")]
    #[diagnostic(help("write both in one family: a route for each"))]
    SourceFamily {
        /// Destination network.
        to: Prefix,
        /// Source network.
        from: Prefix,
    },
    /// `from` matches every source.
    #[error("`from` of the route to `{0}` matches every source")]
    #[diagnostic(help("leave `from` out"))]
    FromEverywhere(Prefix),
    /// A route by source has a recursive gateway.
    #[error("the route to `{0}` has a `from`, and is `recursive`")]
    #[diagnostic(help("write the address of a gateway on a link, or leave `recursive` out"))]
    RecursiveFrom(Prefix),
    /// The routes of a router have too many different sources.
    #[error("routes of one router name more than {0} different sources")]
    #[diagnostic(help("join sources that have the same routes in a shorter network"))]
    TooManySources(usize),
    /// There are too many routers and sources of routes together.
    #[error("there are more than {0} virtual routers and sources of routes")]
    #[diagnostic(help("leave some out"))]
    TooManyTables(usize),
    /// `recursive` is set without a gateway, or with an interface.
    #[error("the route to `{0}` is `recursive`, which is about a `via` without an `interface`")]
    #[diagnostic(help("write `via` alone, or leave `recursive` out"))]
    Recursive(Prefix),
    /// The zone of a gateway contradicts the interface.
    #[error("the gateway is on the link of `{zone}`, the route leaves by `{interface}`")]
    #[diagnostic(help("keep one of them; `%` and the interface behind a gateway say all"))]
    ZoneElsewhere {
        /// Interface in the gateway's zone.
        zone: String,
        /// Interface of the route or uplink.
        interface: String,
    },
}

impl From<RouteProblem> for Problem {
    fn from(problem: RouteProblem) -> Self {
        Self::Route(problem)
    }
}
