//! Problems of destination rules.

use std::net::Ipv4Addr;

use super::Problem;

/// A problem of a destination rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum DestinationProblem {
    /// A rule has neither an address nor an interface.
    #[error("the rule names neither an address nor an interface")]
    #[diagnostic(help("add `address = …`, or `in = …` for whatever address, by the interfaces that it names"))]
    Anywhere,
    /// A rule leads to the gateway itself, but the router has no host stack.
    #[error("nothing listens at the gateway's own addresses: the router has no host")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NoHost,
    /// An interface has no IPv4 address for a rule that leads to the gateway itself.
    #[error("interface `{0}` has no IPv4 address that connections could be led to")]
    #[diagnostic(help("give it one, or name in `in` the interfaces that have one"))]
    NoOwnAddress(String),
    /// The list of hosts is empty or too long.
    #[error("a list of {0} hosts")]
    #[diagnostic(help("write 1 to {MOST_HOSTS}"))]
    Hosts(usize),
    /// A host is listed twice.
    #[error("`{0}` is in the list already")]
    #[diagnostic(help("write it once; its part beside others is its `weight`"))]
    HostTwice(Ipv4Addr),
    /// A key requires a list of hosts.
    #[error("`{0}` is about a list of hosts")]
    #[diagnostic(help("write a list in `to`, or leave the key out"))]
    OneHost(&'static str),
    /// Health checks require a host stack of the router.
    #[error("hosts are checked by the host of the router, and it has none")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NobodyChecks,
    /// `own` requires a host stack of the router.
    #[error("the router has no host whose packets `local` could be about")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NobodySends,
    /// A rule for packets of the router's host stack has an input interface.
    #[error("what the gateway's own host sends comes in by no interface")]
    #[diagnostic(help("remove `in` or `local`"))]
    OwnComesIn,
    /// A rule leads packets of the router's host stack back to the gateway.
    #[error("what the gateway's own host sends cannot be led back to it")]
    #[diagnostic(help("write another host in `to`"))]
    OwnToItself,
    /// A source rule for the router's host stack has no output interface.
    #[error("a source rule with `local` needs the egress interface")]
    #[diagnostic(help("add `out = …`"))]
    OwnWithoutOut,
    /// A TCP check has no port.
    #[error("no port says what is to answer")]
    #[diagnostic(help("add `port` to `health`, or write `protocol = \"icmp\"` there"))]
    CheckWithoutPort,
    /// An ICMP check has a port.
    #[error("an echo request has no port")]
    #[diagnostic(help("leave `port` out, or write `protocol = \"tcp\"`"))]
    CheckPort,
    /// The timeout of a check exceeds the interval.
    #[error("the timeout is longer than the interval")]
    #[diagnostic(help("write a shorter `timeout`"))]
    TimeoutBeyondInterval,
}

/// Maximum number of hosts in a list.
pub(crate) const MOST_HOSTS: usize = 64;

impl From<DestinationProblem> for Problem {
    fn from(problem: DestinationProblem) -> Self {
        Self::Destination(problem)
    }
}
