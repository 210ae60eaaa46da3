//! Problems of subscribers.

use super::{Problem, meant};
use crate::limits::MOST_SITES;
use crate::value::{AddressRange, Prefix, Tags};

/// A problem of `[subscribers]`, or advice about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum SubscribersProblem {
    /// There are no site groups.
    #[error("there are no sites")]
    #[diagnostic(help("add a table such as [subscribers.sites.homes]"))]
    NoSites,
    /// There are more sites than supported.
    #[error("{0} sites are more than there can be")]
    #[diagnostic(help("at most {MOST_SITES} are possible"))]
    TooManySites(u64),
    /// A referenced table is missing.
    #[error("there is no [subscribers.{table}.{name}]")]
    #[diagnostic(help("{}", named(table, name, known)))]
    Unknown {
        /// `dhcp` or `public`.
        table: &'static str,
        /// Name as written.
        name: String,
        /// Names of the tables.
        known: Vec<String>,
    },
    /// No group uses the table.
    #[error("no sites use [subscribers.{table}.{name}]")]
    #[diagnostic(help("write `{table} = \"{name}\"` in a group, or take the table away"))]
    Unused {
        /// `dhcp` or `public`.
        table: &'static str,
        /// Name of the table.
        name: String,
    },
    /// The interface has neither a device nor a bond of its own.
    #[error("interface `{interface}` is {what}")]
    #[diagnostic(help("name the interface that has the device, or the bond, alone"))]
    Link {
        /// Name of the interface.
        interface: String,
        /// Kind of the interface.
        what: &'static str,
    },
    /// Access and public interface of sites are in different routers.
    #[error("`{access}` is in router `{router}`, and `{public}` in router `{other}`")]
    #[diagnostic(help("put both interfaces into one router"))]
    Routers {
        /// Access interface of the terminals.
        access: String,
        /// Router of the access interface.
        router: String,
        /// Interface of the public addresses.
        public: String,
        /// Router of the public interface.
        other: String,
    },
    /// An access interface has no IPv4 address.
    #[error("interface `{0}` has no IPv4 address, and terminals no gateway")]
    #[diagnostic(help("add the gateway's address in the terminals' network: `addresses = [\"10.0.0.1/16\"]`"))]
    NoGateway(String),
    /// A public interface has no IPv4 address of its own.
    #[error("interface `{0}` has no IPv4 address of its own")]
    #[diagnostic(help("add a static address, by which other gateways on the link are asked for"))]
    NoOwnAddress(String),
    /// A public interface is also the access interface of a group.
    #[error("terminals of group `{group}` come in by `{interface}`")]
    #[diagnostic(help("public addresses are on an interface without sites"))]
    TerminalsOutside {
        /// Name of the group.
        group: String,
        /// Name of the interface.
        interface: String,
    },
    /// A public interface has no prefixes.
    #[error("nothing says where public addresses on `{0}` come from")]
    #[diagnostic(help("write `prefixes = [\"198.51.100.0/22\"]`"))]
    NoPrefixes(String),
    /// A group has both `tags` and `prefix`.
    #[error("`tags` and `prefix` both say which frames are of the group")]
    #[diagnostic(help("keep one of them"))]
    TagsAndPrefix,
    /// Two groups have the same tags.
    #[error("frames of `{interface}` with the tags {tags} are of group `{group}` and of group `{other}`")]
    #[diagnostic(help("narrow one of them"))]
    TagsTwice {
        /// Name of the interface.
        interface: String,
        /// First tags that both groups have.
        tags: Tags,
        /// The later group.
        group: String,
        /// The earlier group.
        other: String,
    },
    /// A group has the tags of a VLAN interface.
    #[error("the tags {tags} of `{interface}` are those of interface `{vlan}`")]
    #[diagnostic(help("narrow `tags`, or take the VLAN away"))]
    TagsOfVlan {
        /// Access interface of the terminals.
        interface: String,
        /// The tags.
        tags: Tags,
        /// Name of the VLAN interface.
        vlan: String,
    },
    /// A group with all frames of an interface is not the only one there.
    #[error("all that comes in by `{interface}` is of site `{whole}`, and some of it of group `{other}`")]
    #[diagnostic(help("write `tags` or `prefix` in both"))]
    NotAlone {
        /// Name of the interface.
        interface: String,
        /// The group without tags and prefix.
        whole: String,
        /// The other group.
        other: String,
    },
    /// The prefixes of two groups overlap.
    #[error("`{prefix}` overlaps `{other_prefix}` of group `{other}`")]
    #[diagnostic(help("a terminal's address is of one site"))]
    PrefixesOverlap {
        /// Prefix as written.
        prefix: Prefix,
        /// Prefix of the other group.
        other_prefix: Prefix,
        /// Name of the other group.
        other: String,
    },
    /// A group has the name of another group's site.
    #[error("`{name}` is also the name of a site of group `{group}`")]
    #[diagnostic(help("give one of them another name"))]
    NameTwice {
        /// The group that is a single site.
        name: String,
        /// The group with tags.
        group: String,
    },
    /// A group has both `public` and `pool`.
    #[error("`public` and `pool` both say what the sites are outside")]
    #[diagnostic(help("keep one of them"))]
    TwoOutsides,
    /// A group has neither `public` nor `pool`.
    #[error("nothing says what the sites are outside")]
    #[diagnostic(help("add `public = \"…\"` for public addresses by DHCP, or `pool = \"…\"`"))]
    NoOutside,
    /// A group has no DHCP server for its terminals.
    #[error("nobody leases addresses to the terminals, and none without a lease is served")]
    #[diagnostic(help("write [subscribers.dhcp.inside], and here `dhcp = \"inside\"`"))]
    NoServer,
    /// The pool of a group is used in another router.
    #[error("pool `{pool}` is of router `{other}`, and the sites are in router `{router}`")]
    #[diagnostic(help("give the sites a pool of their own"))]
    PoolElsewhere {
        /// Name of the pool.
        pool: String,
        /// Router whose rules or sites use the pool.
        other: String,
        /// Router of the sites.
        router: String,
    },
    /// The pool of a group is deterministic.
    #[error("pool `{0}` computes ports from inside addresses, which terminals of several sites have")]
    #[diagnostic(help("take a pool without `deterministic`"))]
    PoolComputes(String),
    /// An IPv6 address or network is given.
    #[error("`{0}` is not IPv4")]
    #[diagnostic(help("sites are translated between IPv4 addresses: write one"))]
    NotIpv4(String),
    /// The relay address is not in a network of the access interface.
    #[error("`{relay}` is no host's address in a network of `{interface}`, by which group `{group}` comes in")]
    #[diagnostic(help("leave it out, and it is the interface's first address"))]
    RelayElsewhere {
        /// Address as written.
        relay: std::net::Ipv4Addr,
        /// Access interface of the terminals.
        interface: String,
        /// Name of the group.
        group: String,
    },
    /// Two tables have the same file.
    #[error("`{file}` is also the file of [subscribers.{table}.{other}]")]
    #[diagnostic(help("name one table in several groups"))]
    SameFile {
        /// Path as written.
        file: String,
        /// `dhcp` or `public`.
        table: &'static str,
        /// Name of the other table.
        other: String,
    },
    /// The host name has invalid characters or an invalid length.
    #[error("`{0}` cannot begin a host name")]
    #[diagnostic(help("write 1 to 200 letters, digits, `-`, `_` and `.`"))]
    HostName(String),
    /// A DHCP server could lease an address that a pool uses.
    #[error("a DHCP server could give a site `{overlap}` of `{prefix}`, which pool `{pool}` lends")]
    #[diagnostic(help("leave the addresses out of `prefixes`, or out of the pool"))]
    PoolInPrefix {
        /// Prefix as written.
        prefix: Prefix,
        /// The overlapping range.
        overlap: AddressRange,
        /// Name of the pool.
        pool: String,
    },
}

impl From<SubscribersProblem> for Problem {
    fn from(problem: SubscribersProblem) -> Self {
        Self::Subscribers(problem)
    }
}

/// Hint for a missing table.
fn named(table: &str, name: &str, known: &[String]) -> String {
    match known {
        [] => format!("write [subscribers.{table}.{name}]"),
        known => meant(name, known),
    }
}
