//! What can be wrong with subscribers.

use super::{Problem, meant};
use crate::limits::MOST_SITES;
use crate::value::{AddressRange, Prefix, Tags};

/// One thing that is wrong with `[subscribers]`, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SubscribersProblem {
    /// No groups.
    #[error("there are no sites")]
    NoSites,
    /// More than a session's context has room for.
    #[error("{0} sites are more than there can be")]
    TooManySites(u64),
    /// A table that is not there.
    #[error("there is no [subscribers.{table}.{name}]")]
    Unknown {
        /// `dhcp` or `public`.
        table: &'static str,
        /// As written.
        name: String,
        /// The tables there are.
        known: Vec<String>,
    },
    /// A table that no group names.
    #[error("no sites use [subscribers.{table}.{name}]")]
    Unused {
        /// `dhcp` or `public`.
        table: &'static str,
        /// As written.
        name: String,
    },
    /// An interface that is no link of its own.
    #[error("interface `{interface}` is {what}")]
    Link {
        /// The interface.
        interface: String,
        /// What it is.
        what: &'static str,
    },
    /// Sites inside and outside in different routers.
    #[error("`{access}` is in router `{router}`, and `{public}` in router `{other}`")]
    Routers {
        /// The interface of the terminals.
        access: String,
        /// Its router.
        router: String,
        /// That of the public addresses.
        public: String,
        /// Its router.
        other: String,
    },
    /// Terminals without a gateway.
    #[error("interface `{0}` has no IPv4 address, and terminals no gateway")]
    NoGateway(String),
    /// Public addresses on a link that Sluice is not on.
    #[error("interface `{0}` has no IPv4 address of its own")]
    NoOwnAddress(String),
    /// Terminals where public addresses are.
    #[error("terminals of group `{group}` come in by `{interface}`")]
    TerminalsOutside {
        /// The group.
        group: String,
        /// The interface.
        interface: String,
    },
    /// Leases of any address.
    #[error("nothing says where public addresses on `{0}` come from")]
    NoPrefixes(String),
    /// Both ways to tell sites apart.
    #[error("`tags` and `prefix` both say which frames are of the group")]
    TagsAndPrefix,
    /// Frames of two sites.
    #[error("frames of `{interface}` with the tags {tags} are of group `{group}` and of group `{other}`")]
    TagsTwice {
        /// The interface.
        interface: String,
        /// The first tags that both have.
        tags: Tags,
        /// This group.
        group: String,
        /// The one before it.
        other: String,
    },
    /// Frames of a site and of a VLAN.
    #[error("the tags {tags} of `{interface}` are those of interface `{vlan}`")]
    TagsOfVlan {
        /// The interface of the terminals.
        interface: String,
        /// The tags.
        tags: Tags,
        /// The VLAN.
        vlan: String,
    },
    /// One of two groups has all frames.
    #[error("all that comes in by `{interface}` is of site `{whole}`, and some of it of group `{other}`")]
    NotAlone {
        /// The interface.
        interface: String,
        /// The group without tags and prefix.
        whole: String,
        /// The other one.
        other: String,
    },
    /// Terminals of two sites.
    #[error("`{prefix}` overlaps `{other_prefix}` of group `{other}`")]
    PrefixesOverlap {
        /// As written.
        prefix: Prefix,
        /// The other one.
        other_prefix: Prefix,
        /// Who has it.
        other: String,
    },
    /// Two sites with one name.
    #[error("`{name}` is also the name of a site of group `{group}`")]
    NameTwice {
        /// The group that is one site.
        name: String,
        /// The group with tags.
        group: String,
    },
    /// Two ways out.
    #[error("`public` and `pool` both say what the sites are outside")]
    TwoOutsides,
    /// No way out.
    #[error("nothing says what the sites are outside")]
    NoOutside,
    /// Terminals that nobody knows.
    #[error("nobody leases addresses to the terminals, and none without a lease is served")]
    NoServer,
    /// A pool of other hosts.
    #[error("pool `{pool}` is of router `{other}`, and the sites are in router `{router}`")]
    PoolElsewhere {
        /// The pool.
        pool: String,
        /// The router whose rules, or sites, name it.
        other: String,
        /// That of the sites.
        router: String,
    },
    /// Ports that are computed.
    #[error("pool `{0}` computes ports from inside addresses, which terminals of several sites have")]
    PoolComputes(String),
    /// An IPv6 address or network.
    #[error("`{0}` is not IPv4")]
    NotIpv4(String),
    /// A relay that is in no network of the sites.
    #[error("`{relay}` is no host's address in a network of `{interface}`, by which group `{group}` comes in")]
    RelayElsewhere {
        /// As written.
        relay: std::net::Ipv4Addr,
        /// The interface of the terminals.
        interface: String,
        /// The group.
        group: String,
    },
    /// Two tables with one file.
    #[error("`{file}` is also the file of [subscribers.{table}.{other}]")]
    SameFile {
        /// As written.
        file: String,
        /// `dhcp` or `public`.
        table: &'static str,
        /// The other one.
        other: String,
    },
    /// Something else than letters, digits, dots, hyphens and underscores.
    #[error("`{0}` cannot begin a host name")]
    HostName(String),
    /// Addresses of a pool that a site may be given.
    #[error("a DHCP server could give a site `{overlap}` of `{prefix}`, which pool `{pool}` lends")]
    PoolInPrefix {
        /// As written.
        prefix: Prefix,
        /// What both hold.
        overlap: AddressRange,
        /// The pool.
        pool: String,
    },
}

impl SubscribersProblem {
    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::NoSites => "add a table such as [subscribers.sites.homes]".into(),
            Self::TooManySites(_) => format!("at most {MOST_SITES} are possible"),
            Self::Unknown { table, name, known } if known.is_empty() => format!("write [subscribers.{table}.{name}]"),
            Self::Unknown { name, known, .. } => meant(name, known),
            Self::Unused { table, name } => format!("write `{table} = \"{name}\"` in a group, or take the table away"),
            Self::Link { .. } => "name the interface that has the device, or the bond, alone".into(),
            Self::Routers { .. } => "put both interfaces into one router".into(),
            Self::NoGateway(_) => {
                "add the gateway's address in the terminals' network: `addresses = [\"10.0.0.1/16\"]`".into()
            }
            Self::NoOwnAddress(_) => "add a static address, by which other gateways on the link are asked for".into(),
            Self::TerminalsOutside { .. } => "public addresses are on an interface without sites".into(),
            Self::NoPrefixes(_) => "write `prefixes = [\"198.51.100.0/22\"]`".into(),
            Self::TagsAndPrefix => "keep one of them".into(),
            Self::TagsTwice { .. } => "narrow one of them".into(),
            Self::TagsOfVlan { .. } => "narrow `tags`, or take the VLAN away".into(),
            Self::NotAlone { .. } => "write `tags` or `prefix` in both".into(),
            Self::PrefixesOverlap { .. } => "a terminal's address is of one site".into(),
            Self::NameTwice { .. } => "give one of them another name".into(),
            Self::TwoOutsides => "keep one of them".into(),
            Self::NoOutside => "add `public = \"…\"` for public addresses by DHCP, or `pool = \"…\"`".into(),
            Self::NoServer => "write [subscribers.dhcp.inside], and here `dhcp = \"inside\"`".into(),
            Self::PoolElsewhere { .. } => "give the sites a pool of their own".into(),
            Self::PoolComputes(_) => "take a pool without `deterministic`".into(),
            Self::NotIpv4(_) => "sites are translated between IPv4 addresses: write one".into(),
            Self::RelayElsewhere { .. } => "leave it out, and it is the interface's first address".into(),
            Self::SameFile { .. } => "name one table in several groups".into(),
            Self::HostName(_) => "write 1 to 200 letters, digits, `-`, `_` and `.`".into(),
            Self::PoolInPrefix { .. } => "leave the addresses out of `prefixes`, or out of the pool".into(),
        }
    }
}

impl From<SubscribersProblem> for Problem {
    fn from(problem: SubscribersProblem) -> Self {
        Self::Subscribers(problem)
    }
}
