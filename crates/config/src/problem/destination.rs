//! What can be wrong with destination rules.

use std::net::Ipv4Addr;

use super::Problem;

/// One thing that is wrong with a destination rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum DestinationProblem {
    /// A rule for every address that comes from anywhere.
    #[error("the rule names neither an address nor an interface")]
    #[diagnostic(help("add `address = …`, or `in = …` for whatever address, by the interfaces that it names"))]
    Anywhere,
    /// A router whose own addresses nobody lives at.
    #[error("nothing listens at the gateway's own addresses: the router has no host")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NoHost,
    /// An interface without an address of its own.
    #[error("interface `{0}` has no IPv4 address that connections could be led to")]
    #[diagnostic(help("give it one, or name in `in` the interfaces that have one"))]
    NoOwnAddress(String),
    /// A list without hosts, or with too many.
    #[error("a list of {0} hosts")]
    #[diagnostic(help("write 1 to {MOST_HOSTS}"))]
    Hosts(usize),
    /// A host twice in one list.
    #[error("`{0}` is in the list already")]
    #[diagnostic(help("write it once; its part beside others is its `weight`"))]
    HostTwice(Ipv4Addr),
    /// Something about several hosts where there is one.
    #[error("`{0}` is about a list of hosts")]
    #[diagnostic(help("write a list in `to`, or leave the key out"))]
    OneHost(&'static str),
    /// Checks that nobody can make.
    #[error("hosts are checked by the host of the router, and it has none")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NobodyChecks,
    /// A rule about a host that there is not.
    #[error("the router has no host whose packets `local` could be about")]
    #[diagnostic(help("write `daemon = true` for its router, such as in [routers.default]"))]
    NobodySends,
    /// What the router's host sends, and an interface.
    #[error("what the gateway's own host sends comes in by no interface")]
    #[diagnostic(help("remove `in` or `local`"))]
    OwnComesIn,
    /// What the router's host sends, to itself.
    #[error("what the gateway's own host sends cannot be led back to it")]
    #[diagnostic(help("write another host in `to`"))]
    OwnToItself,
    /// A rule about the host's sources that names no interface.
    #[error("a source rule with `local` needs the egress interface")]
    #[diagnostic(help("add `out = …`"))]
    OwnWithoutOut,
    /// A TCP check without a port.
    #[error("no port says what is to answer")]
    #[diagnostic(help("add `port` to `health`, or write `protocol = \"icmp\"` there"))]
    CheckWithoutPort,
    /// A port where there is none.
    #[error("an echo request has no port")]
    #[diagnostic(help("leave `port` out, or write `protocol = \"tcp\"`"))]
    CheckPort,
    /// An answer that comes later than the next question.
    #[error("the timeout is longer than the interval")]
    #[diagnostic(help("write a shorter `timeout`"))]
    TimeoutBeyondInterval,
}

/// Most hosts of a list.
pub(crate) const MOST_HOSTS: usize = 64;

impl From<DestinationProblem> for Problem {
    fn from(problem: DestinationProblem) -> Self {
        Self::Destination(problem)
    }
}
