//! What can be wrong with subscribers.

use super::{Problem, meant};
use crate::limits::MOST_SITES;
use crate::value::{AddressRange, Prefix, Tags};

/// One thing that is wrong with `[subscribers]`, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum SubscribersProblem {
    /// No groups.
    #[error("there are no sites")]
    #[diagnostic(help("add a table such as [subscribers.sites.homes]"))]
    NoSites,
    /// More than a session's context has room for.
    #[error("{0} sites are more than there can be")]
    #[diagnostic(help("at most {MOST_SITES} are possible"))]
    TooManySites(u64),
    /// A table that is not there.
    #[error("there is no [subscribers.{table}.{name}]")]
    #[diagnostic(help("{}", named(table, name, known)))]
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
    #[diagnostic(help("write `{table} = \"{name}\"` in a group, or take the table away"))]
    Unused {
        /// `dhcp` or `public`.
        table: &'static str,
        /// As written.
        name: String,
    },
    /// An interface that is no link of its own.
    #[error("interface `{interface}` is {what}")]
    #[diagnostic(help("name the interface that has the device, or the bond, alone"))]
    Link {
        /// The interface.
        interface: String,
        /// What it is.
        what: &'static str,
    },
    /// Sites inside and outside in different routers.
    #[error("`{access}` is in router `{router}`, and `{public}` in router `{other}`")]
    #[diagnostic(help("put both interfaces into one router"))]
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
    #[diagnostic(help("add the gateway's address in the terminals' network: `addresses = [\"10.0.0.1/16\"]`"))]
    NoGateway(String),
    /// Public addresses on a link that Sluice is not on.
    #[error("interface `{0}` has no IPv4 address of its own")]
    #[diagnostic(help("add a static address, by which other gateways on the link are asked for"))]
    NoOwnAddress(String),
    /// Terminals where public addresses are.
    #[error("terminals of group `{group}` come in by `{interface}`")]
    #[diagnostic(help("public addresses are on an interface without sites"))]
    TerminalsOutside {
        /// The group.
        group: String,
        /// The interface.
        interface: String,
    },
    /// Leases of any address.
    #[error("nothing says where public addresses on `{0}` come from")]
    #[diagnostic(help("write `prefixes = [\"198.51.100.0/22\"]`"))]
    NoPrefixes(String),
    /// Both ways to tell sites apart.
    #[error("`tags` and `prefix` both say which frames are of the group")]
    #[diagnostic(help("keep one of them"))]
    TagsAndPrefix,
    /// Frames of two sites.
    #[error("frames of `{interface}` with the tags {tags} are of group `{group}` and of group `{other}`")]
    #[diagnostic(help("narrow one of them"))]
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
    #[diagnostic(help("narrow `tags`, or take the VLAN away"))]
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
    #[diagnostic(help("write `tags` or `prefix` in both"))]
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
    #[diagnostic(help("a terminal's address is of one site"))]
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
    #[diagnostic(help("give one of them another name"))]
    NameTwice {
        /// The group that is one site.
        name: String,
        /// The group with tags.
        group: String,
    },
    /// Two ways out.
    #[error("`public` and `pool` both say what the sites are outside")]
    #[diagnostic(help("keep one of them"))]
    TwoOutsides,
    /// No way out.
    #[error("nothing says what the sites are outside")]
    #[diagnostic(help("add `public = \"…\"` for public addresses by DHCP, or `pool = \"…\"`"))]
    NoOutside,
    /// Terminals that nobody knows.
    #[error("nobody leases addresses to the terminals, and none without a lease is served")]
    #[diagnostic(help("write [subscribers.dhcp.inside], and here `dhcp = \"inside\"`"))]
    NoServer,
    /// A pool of other hosts.
    #[error("pool `{pool}` is of router `{other}`, and the sites are in router `{router}`")]
    #[diagnostic(help("give the sites a pool of their own"))]
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
    #[diagnostic(help("take a pool without `deterministic`"))]
    PoolComputes(String),
    /// An IPv6 address or network.
    #[error("`{0}` is not IPv4")]
    #[diagnostic(help("sites are translated between IPv4 addresses: write one"))]
    NotIpv4(String),
    /// A relay that is in no network of the sites.
    #[error("`{relay}` is no host's address in a network of `{interface}`, by which group `{group}` comes in")]
    #[diagnostic(help("leave it out, and it is the interface's first address"))]
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
    #[diagnostic(help("name one table in several groups"))]
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
    #[diagnostic(help("write 1 to 200 letters, digits, `-`, `_` and `.`"))]
    HostName(String),
    /// Addresses of a pool that a site may be given.
    #[error("a DHCP server could give a site `{overlap}` of `{prefix}`, which pool `{pool}` lends")]
    #[diagnostic(help("leave the addresses out of `prefixes`, or out of the pool"))]
    PoolInPrefix {
        /// As written.
        prefix: Prefix,
        /// What both hold.
        overlap: AddressRange,
        /// The pool.
        pool: String,
    },
}

impl From<SubscribersProblem> for Problem {
    fn from(problem: SubscribersProblem) -> Self {
        Self::Subscribers(problem)
    }
}

/// What to write in the place of a table that is not there.
fn named(table: &str, name: &str, known: &[String]) -> String {
    match known {
        [] => format!("write [subscribers.{table}.{name}]"),
        known => meant(name, known),
    }
}
