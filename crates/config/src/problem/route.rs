//! Problems of static routes.

use std::net::IpAddr;

use super::Problem;
use crate::value::Prefix;

/// A problem of a route.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RouteProblem {
    /// A route has neither a next hop nor an action.
    #[error("the route to `{0}` has no next hop and no action")]
    #[diagnostic(help("add `via = \"…\"`, `interface = \"…\"` or `action = \"blackhole\"`"))]
    Incomplete(Prefix),
    /// A route has both a next hop and an action.
    #[error("the route to `{0}` has both an `action` and a next hop")]
    #[diagnostic(help("keep either `action`, or `via` and `interface`"))]
    Contradicts(Prefix),
    /// Two routes have the same network and next hop.
    #[error("the route to `{0}` already has this next hop")]
    #[diagnostic(help("write the next hop once, and set its share of the traffic with `weight`"))]
    Twice(Prefix),
    /// Two routes to one network have the same distance, but only one of the routes has an action.
    #[error("one route to `{0}` has an `action`, and another route with the same distance has a next hop")]
    #[diagnostic(help("remove one of the two routes, or write a greater `distance` for one of them"))]
    NotAlone(Prefix),
    /// A route has too many next hops.
    #[error("the route to `{0}` has more than {1} next hops")]
    #[diagnostic(help("remove some next hops"))]
    TooManyWays(Prefix, usize),
    /// The destination of a route is a connected network.
    #[error("network `{0}` is already attached to interface `{1}`")]
    #[diagnostic(help("remove the route, or write a `distance` above 1 to use the route while the link is down"))]
    OnLink(Prefix, String),
    /// The destination of a route is an address of the router.
    #[error("`{0}` is an address of this router, on interface `{1}`")]
    #[diagnostic(help("remove the route: the router delivers these packets to itself"))]
    ToItself(Prefix, String),
    /// The destination of a route is the network or broadcast address of a link.
    #[error("`{0}` is the network or broadcast address of the link of interface `{1}`")]
    #[diagnostic(help("remove the route: the router drops these packets"))]
    ToBroadcast(Prefix, String),
    /// The interface of a route or uplink is in a bridge.
    #[error("interface `{0}` is in a bridge, which does not route")]
    #[diagnostic(help("name an interface that is in no bridge"))]
    Bridged(String),
    /// `onlink` is set without a gateway or without an interface.
    #[error("the route to `{0}` is `onlink`, which needs `via` and `interface`")]
    #[diagnostic(help("add the missing key, or remove `onlink`"))]
    Onlink(Prefix),
    /// No route reaches a recursive gateway.
    #[error("there is no route to the gateway `{0}`")]
    #[diagnostic(help(
        "add a route to the gateway, other than the default route; or replace `recursive` with `onlink = true` and \
         the gateway's `interface`"
    ))]
    Unreachable(IpAddr),
    /// The gateway is the network or broadcast address of a link.
    #[error("`{0}` is the network or broadcast address of the link of interface `{1}`")]
    #[diagnostic(help("write the address of a router"))]
    Broadcast(IpAddr, String),
    /// The router has no IPv4 address with which it could resolve IPv4 gateways.
    #[error("the router cannot send ARP requests on interface `{0}`, because the router has no IPv4 address")]
    #[diagnostic(help("add an IPv4 address to an interface of the router, or use an IPv6 gateway"))]
    NoArpSource(String),
    /// `from` and `to` have different address families.
    #[error("the route to `{to}` and its `from` `{from}` are of different families")]
    #[diagnostic(help("write a route for each family"))]
    SourceFamily {
        /// Destination network.
        to: Prefix,
        /// Source network.
        from: Prefix,
    },
    /// `from` is specified, but matches every source.
    #[error("`from` of the route to `{0}` matches every source")]
    #[diagnostic(help("remove `from`"))]
    FromEverywhere(Prefix),
    /// A route for a source network has a recursive gateway.
    #[error("the route to `{0}` has both `from` and `recursive`")]
    #[diagnostic(help("write the address of a gateway on a link, or remove `recursive`"))]
    RecursiveFrom(Prefix),
    /// The routes of a router have too many different sources.
    #[error("routes of one router name more than {0} different sources")]
    #[diagnostic(help("merge sources that have the same routes into a shorter prefix"))]
    TooManySources(usize),
    /// The total number of routers and of sources of routes is too large.
    #[error("the number of virtual routers plus different `from` prefixes of routes exceeds {0}")]
    #[diagnostic(help("remove routers, or merge `from` prefixes of routes"))]
    TooManyTables(usize),
    /// `recursive` is set without a gateway, or with an interface.
    #[error("the route to `{0}` is `recursive`, which needs `via` without `interface`")]
    #[diagnostic(help("remove `interface` or `recursive`"))]
    Recursive(Prefix),
    /// The interface in the zone of a gateway is not the interface of the route or uplink.
    #[error("the gateway has the zone `{zone}`, but the route has the interface `{interface}`")]
    #[diagnostic(help("remove `interface`: the zone after `%` already names the interface"))]
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
