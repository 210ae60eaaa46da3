//! Problems of destination rules of the translation.

use std::net::Ipv4Addr;

use super::Problem;

/// A problem of a destination rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum DestinationProblem {
    /// A rule has neither an address nor an interface.
    #[error("the rule names neither an address nor an interface")]
    #[diagnostic(help("add `address = …`, or `in = …` for all addresses of these interfaces"))]
    Anywhere,
    /// A rule translates to the gateway itself, but the router has no host stack.
    #[error("no service can use the gateway's own addresses, because the router has no host")]
    #[diagnostic(help("write `daemon = true` for the router, such as in [routers.default]"))]
    NoHost,
    /// A rule translates to the gateway itself, but an interface has no IPv4 address.
    #[error("interface `{0}` has no IPv4 address to forward connections to")]
    #[diagnostic(help("add an IPv4 address to the interface, or list in `in` only interfaces that have one"))]
    NoOwnAddress(String),
    /// The list of hosts is empty or too long.
    #[error("the list has {0} hosts")]
    #[diagnostic(help("write 1 to {MAX_HOSTS} hosts"))]
    Hosts(usize),
    /// A host is listed twice.
    #[error("`{0}` is already in the list")]
    #[diagnostic(help("write each host once; set its share of connections with `weight`"))]
    HostTwice(Ipv4Addr),
    /// A key requires a list of hosts.
    #[error("`{0}` needs a list of hosts")]
    #[diagnostic(help("write a list in `to`, or remove the key"))]
    OneHost(&'static str),
    /// Health checks require a host stack of the router.
    #[error("health checks are sent by the router's host, but this router has no host")]
    #[diagnostic(help("write `daemon = true` for the router, such as in [routers.default]"))]
    HealthWithoutHost,
    /// `local` requires a host stack of the router.
    #[error("`local` needs a router with a host, but this router has no host")]
    #[diagnostic(help("write `daemon = true` for the router, such as in [routers.default]"))]
    LocalWithoutHost,
    /// A rule for packets of the router's host stack has an input interface.
    #[error("packets from the gateway's own host have no ingress interface")]
    #[diagnostic(help("remove `in` or `local`"))]
    LocalWithInput,
    /// A rule translates packets of the router's host stack to the gateway itself.
    #[error("packets from the gateway's own host can't be forwarded back to this host")]
    #[diagnostic(help("name another host in `to`"))]
    LocalToLocal,
    /// A source rule for the router's host stack has no output interface.
    #[error("a source rule with `local` needs the egress interface")]
    #[diagnostic(help("add `out = …`"))]
    LocalWithoutOutput,
    /// A TCP check has no port.
    #[error("a TCP check needs a port")]
    #[diagnostic(help("add `port` to `health`, or write `protocol = \"icmp\"` in `health`"))]
    CheckWithoutPort,
    /// An ICMP check has a port.
    #[error("an ICMP check has no port")]
    #[diagnostic(help("remove `port`, or write `protocol = \"tcp\"`"))]
    CheckPort,
    /// Too many rules differ only in protocol and interface.
    #[error("{count} rules for `{network}` differ only in protocol and interface")]
    #[diagnostic(help(
        "at most {} can: write rules without `in`, `out` or `protocol` in place of some",
        crate::limits::MAX_EQUAL_RULES
    ))]
    TooManyEqual {
        /// Network of the rules.
        network: ipnet::Ipv4Net,
        /// Number of such rules for one port, or without ports.
        count: usize,
    },
    /// The timeout of a check exceeds the interval.
    #[error("the timeout of a check is longer than the interval between checks")]
    #[diagnostic(help("write a shorter `timeout`"))]
    TimeoutBeyondInterval,
}

/// Maximum number of hosts in a list.
pub(crate) const MAX_HOSTS: usize = 64;

impl From<DestinationProblem> for Problem {
    fn from(problem: DestinationProblem) -> Self {
        Self::Destination(problem)
    }
}
