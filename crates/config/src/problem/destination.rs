//! What can be wrong with destination rules.

use std::net::Ipv4Addr;

use super::Problem;

/// One thing that is wrong with a destination rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DestinationProblem {
    /// A rule for every address that comes from anywhere.
    #[error("the rule names neither an address nor an interface")]
    Anywhere,
    /// A router whose own addresses nobody lives at.
    #[error("nothing listens at the gateway's own addresses: the router has no host")]
    NoHost,
    /// An interface without an address of its own.
    #[error("interface `{0}` has no IPv4 address that connections could be led to")]
    NoOwnAddress(String),
    /// A list without hosts, or with too many.
    #[error("a list of {0} hosts")]
    Hosts(usize),
    /// A host twice in one list.
    #[error("`{0}` is in the list already")]
    HostTwice(Ipv4Addr),
    /// Something about several hosts where there is one.
    #[error("`{0}` is about a list of hosts")]
    OneHost(&'static str),
    /// Checks that nobody can make.
    #[error("hosts are checked by the host of the router, and it has none")]
    NobodyChecks,
    /// A rule about a host that there is not.
    #[error("the router has no host whose packets `own` could be about")]
    NobodySends,
    /// What the router's host sends, and an interface.
    #[error("what the gateway's own host sends comes in by no interface")]
    OwnComesIn,
    /// What the router's host sends, to itself.
    #[error("what the gateway's own host sends cannot be led back to it")]
    OwnToItself,
    /// A rule about the host's sources that names no interface.
    #[error("a source rule with `own` names the interface that packets leave by")]
    OwnWithoutOut,
    /// A TCP check without a port.
    #[error("no port says what is to answer")]
    CheckWithoutPort,
    /// A port where there is none.
    #[error("an echo request has no port")]
    CheckPort,
    /// An answer that comes later than the next question.
    #[error("the timeout is longer than the interval")]
    TimeoutBeyondInterval,
}

/// Most hosts of a list.
pub(crate) const MOST_HOSTS: usize = 64;

impl DestinationProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Anywhere => {
                "add `address = …`, or `in = …` for whatever address, by the interfaces that it names".into()
            }
            Self::NoHost | Self::NobodyChecks | Self::NobodySends => {
                "write `daemon = true` for its router, such as in [routers.default]".into()
            }
            Self::NoOwnAddress(_) => "give it one, or name in `in` the interfaces that have one".into(),
            Self::Hosts(_) => format!("write 1 to {MOST_HOSTS}"),
            Self::HostTwice(_) => "write it once; its part beside others is its `weight`".into(),
            Self::OneHost(_) => "write a list in `to`, or leave the key out".into(),
            Self::OwnComesIn => "leave `in` or `own` out".into(),
            Self::OwnToItself => "write another host in `to`".into(),
            Self::OwnWithoutOut => "add `out = …`".into(),
            Self::CheckWithoutPort => "add `port` to `health`, or write `protocol = \"icmp\"` there".into(),
            Self::CheckPort => "leave `port` out, or write `protocol = \"tcp\"`".into(),
            Self::TimeoutBeyondInterval => "write a shorter `timeout`".into(),
        }
    }
}

impl From<DestinationProblem> for Problem {
    fn from(problem: DestinationProblem) -> Self {
        Self::Destination(problem)
    }
}
