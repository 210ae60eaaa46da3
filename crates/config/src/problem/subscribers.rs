//! Problems of subscribers.

use super::{Problem, meant};
use crate::limits::MAX_SITES;
use crate::value::{AddressRange, Prefix, Tags};

/// A problem of `[subscribers]`, or advice about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum SubscribersProblem {
    /// There are no site groups.
    #[error("there are no sites")]
    #[diagnostic(help("add a table such as [subscribers.sites.homes]"))]
    NoSites,
    /// There are more sites than supported.
    #[error("{0} sites exceed the maximum")]
    #[diagnostic(help("at most {MAX_SITES} sites are possible"))]
    TooManySites(u64),
    /// A table to which a group refers is missing.
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
    #[diagnostic(help("write `{table} = \"{name}\"` in a group, or remove the table"))]
    Unused {
        /// `dhcp` or `public`.
        table: &'static str,
        /// Name of the table.
        name: String,
    },
    /// The interface has neither its own device nor a bond.
    #[error("interface `{interface}` is {description}")]
    #[diagnostic(help("write an interface that has a device or a bond"))]
    Link {
        /// Name of the interface.
        interface: String,
        /// Kind of the interface.
        description: &'static str,
    },
    /// The access interface and the public interface of sites are in different routers.
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
    #[error("interface `{0}` has no IPv4 address that terminals could use as gateway")]
    #[diagnostic(help("add the gateway's address in the terminals' network: `addresses = [\"10.0.0.1/16\"]`"))]
    NoGateway(String),
    /// A public interface has no IPv4 address.
    #[error("interface `{0}` has no IPv4 address of its own")]
    #[diagnostic(help("add a static address, which is the source of ARP requests on the link"))]
    NoOwnAddress(String),
    /// A public interface is also the access interface of a group.
    #[error("`{interface}` is already the interface of the terminals of group `{group}`")]
    #[diagnostic(help("write an interface without sites for the public addresses"))]
    TerminalsOutside {
        /// Name of the group.
        group: String,
        /// Name of the interface.
        interface: String,
    },
    /// A public interface has no prefixes.
    #[error("the prefixes of public addresses on `{0}` are missing")]
    #[diagnostic(help("write `prefixes = [\"198.51.100.0/22\"]`"))]
    NoPrefixes(String),
    /// A group has both `tags` and `prefix`.
    #[error("`tags` and `prefix` both select the frames of the group")]
    #[diagnostic(help("keep either `tags` or `prefix`"))]
    TagsAndPrefix,
    /// Two groups have the same tags.
    #[error("frames of `{interface}` with the tags {tags} belong to both group `{group}` and group `{other}`")]
    #[diagnostic(help("reduce the tags of one group"))]
    TagsTwice {
        /// Name of the interface.
        interface: String,
        /// The first tags that both groups have.
        tags: Tags,
        /// The later group.
        group: String,
        /// The earlier group.
        other: String,
    },
    /// A group has the same tags as a VLAN interface.
    #[error("the tags {tags} of `{interface}` belong to interface `{vlan}`")]
    #[diagnostic(help("reduce `tags`, or remove the VLAN"))]
    TagsOfVlan {
        /// Access interface of the terminals.
        interface: String,
        /// The tags.
        tags: Tags,
        /// Name of the VLAN interface.
        vlan: String,
    },
    /// A group without tags and prefix gets all frames of an interface, but the interface has another group.
    #[error("all frames of `{interface}` belong to site `{whole}`, but group `{other}` also selects some of them")]
    #[diagnostic(help("write `tags` or `prefix` in both groups"))]
    NotAlone {
        /// Name of the interface.
        interface: String,
        /// The group that has neither tags nor a prefix.
        whole: String,
        /// The other group.
        other: String,
    },
    /// The prefixes of two groups overlap.
    #[error("`{prefix}` overlaps `{other_prefix}` of group `{other}`")]
    #[diagnostic(help("the address of a terminal must belong to only one site"))]
    PrefixesOverlap {
        /// Prefix as written.
        prefix: Prefix,
        /// Prefix of the other group.
        other_prefix: Prefix,
        /// Name of the other group.
        other: String,
    },
    /// The name of a group equals the name of a site in another group.
    #[error("`{name}` is also the name of a site of group `{group}`")]
    #[diagnostic(help("choose another name for one of the two sites"))]
    NameTwice {
        /// The group that consists of a single site.
        name: String,
        /// The group that contains the site with this name.
        group: String,
    },
    /// A group has both `public` and `pool`.
    #[error("`public` and `pool` both select the outside addresses of the sites")]
    #[diagnostic(help("keep either `public` or `pool`"))]
    TwoOutsides,
    /// A group has neither `public` nor `pool`.
    #[error("the outside addresses of the sites are not configured")]
    #[diagnostic(help("add `public = \"…\"` to lease public addresses by DHCP, or add `pool = \"…\"`"))]
    NoOutside,
    /// A group has no DHCP server for its terminals.
    #[error("the group has no `dhcp`: without a lease, terminals have no service")]
    #[diagnostic(help("add a table [subscribers.dhcp.inside], and write `dhcp = \"inside\"` in this group"))]
    NoServer,
    /// The pool of a group is used in another router.
    #[error("pool `{pool}` belongs to router `{other}`, but the sites are in router `{router}`")]
    #[diagnostic(help("add a separate pool for the sites"))]
    PoolElsewhere {
        /// Name of the pool.
        pool: String,
        /// Router whose rules or sites use the pool.
        other: String,
        /// Router of the sites.
        router: String,
    },
    /// The pool of a group is deterministic, which is not supported.
    #[error("pool `{0}` computes ports from inside addresses, which are not unique across sites")]
    #[diagnostic(help("use a pool without `deterministic`"))]
    PoolComputes(String),
    /// An IPv6 address or network is given.
    #[error("`{0}` is not an IPv4 address or prefix")]
    #[diagnostic(help("write IPv4: sites have no IPv6 service"))]
    NotIpv4(String),
    /// The relay address is not in a network of the access interface.
    #[error("`{relay}` is not a host address in a network of `{interface}`, the interface of group `{group}`")]
    #[diagnostic(help("to use the first address of the interface, remove the key"))]
    RelayElsewhere {
        /// Address as written.
        relay: std::net::Ipv4Addr,
        /// Access interface of the terminals.
        interface: String,
        /// Name of the group.
        group: String,
    },
    /// Two tables specify the same file.
    #[error("`{file}` is already the file of [subscribers.{table}.{other}]")]
    #[diagnostic(help("refer to the other table in both groups"))]
    SameFile {
        /// Path as written.
        file: String,
        /// `dhcp` or `public`.
        table: &'static str,
        /// Name of the other table.
        other: String,
    },
    /// The host name has invalid characters or an invalid length.
    #[error("`{0}` is not valid as the beginning of a host name")]
    #[diagnostic(help("write 1 to 200 letters, digits, `-`, `_` and `.`"))]
    HostName(String),
    /// A DHCP server could lease an address that a pool uses.
    #[error("`{overlap}` is in both `{prefix}` (public addresses of sites) and pool `{pool}`")]
    #[diagnostic(help("remove these addresses from `prefixes` or from the pool"))]
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
