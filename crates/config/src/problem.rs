//! What can be wrong with a configuration: what, and what to do about it.

mod bridge;
mod chain;
mod destination;
mod filter;
mod inspection;
mod pool;
mod route;
mod router;
mod stage;
mod subscribers;
mod tunnel;
mod uplink;

use std::net::{IpAddr, Ipv4Addr};

use miette::Diagnostic;

pub use self::bridge::BridgeProblem;
pub use self::chain::ChainProblem;
pub use self::destination::DestinationProblem;
pub(crate) use self::destination::MOST_HOSTS;
pub use self::filter::FilterProblem;
pub use self::inspection::InspectionProblem;
pub use self::pool::PoolProblem;
pub use self::route::RouteProblem;
pub use self::router::RouterProblem;
pub(crate) use self::stage::BURST;
pub use self::stage::StageProblem;
pub use self::subscribers::SubscribersProblem;
pub use self::tunnel::TunnelProblem;
pub use self::uplink::UplinkProblem;
use crate::value::{AddressRange, Device, InterfaceAddress, PortRange, Prefix, Tags};

/// One thing that is wrong. [`std::fmt::Display`] says what, [`Problem::hint`] what to do: each stands at its
/// variant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Diagnostic)]
pub enum Problem {
    /// The text is not TOML, or a value is of the wrong type.
    #[error("{what}")]
    Form {
        /// What is wrong.
        what: String,
        /// What to write.
        #[help]
        hint: Option<String>,
    },
    /// A key that does not exist.
    #[error("there is no key `{key}` here")]
    #[diagnostic(help("{}", meant_key(key, known)))]
    UnknownKey {
        /// As written.
        key: String,
        /// The keys that exist here.
        known: Vec<String>,
    },
    /// A key that must be there.
    #[error("`{0}` is missing")]
    #[diagnostic(help("add `{0} = …`"))]
    MissingKey(String),
    /// A number or time out of its range.
    #[error("{what} of {value} is out of range")]
    #[diagnostic(help("it goes from {range}"))]
    OutOfRange {
        /// What it is.
        what: &'static str,
        /// As written.
        value: String,
        /// The range.
        range: String,
    },
    /// No workers at all.
    #[error("no worker would move packets")]
    #[diagnostic(help("write a number such as 1, or cores such as [2, 3]"))]
    NoWorkers,
    /// More workers than cores.
    #[error("{workers} workers need as many cores, and this machine has {cores}")]
    #[diagnostic(help("use fewer, or leave the key out for one"))]
    TooManyWorkers {
        /// As written.
        workers: usize,
        /// Cores of the machine.
        cores: usize,
    },
    /// A core that the machine does not have.
    #[error("there is no core {core}")]
    #[diagnostic(help("cores are {}", list(cores)))]
    UnknownCore {
        /// As written.
        core: u16,
        /// Those that there are.
        cores: Vec<u16>,
    },
    /// A core named twice.
    #[error("core {0} is named twice")]
    #[diagnostic(help("each worker has a core of its own"))]
    DuplicateCore(u16),
    /// Something about the stages of a pipeline.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Stage(StageProblem),
    /// Something about bridges.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Bridge(BridgeProblem),
    /// About virtual routers.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Router(RouterProblem),
    /// A static route.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Route(RouteProblem),
    /// A destination rule.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Destination(DestinationProblem),
    /// A tunnel.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tunnel(TunnelProblem),
    /// An uplink, or a route by uplinks.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Uplink(UplinkProblem),
    /// About chains of routers.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Chain(ChainProblem),
    /// Something about inspection.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Inspection(InspectionProblem),
    /// Something about subscribers.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Subscribers(SubscribersProblem),
    /// A number of shards that is no power of two.
    #[error("{0} shards: the number must be a power of two")]
    #[diagnostic(help("the nearest is {}", _0.max(&1).checked_next_power_of_two().unwrap_or(1 << 15)))]
    ShardsNotPowerOfTwo(u16),
    /// Workers that would own no shard.
    #[error("{shards} shards cannot be divided among {workers} workers")]
    #[diagnostic(help("write at least `shards = {}`", workers.next_power_of_two()))]
    FewerShardsThanWorkers {
        /// As written.
        shards: u16,
        /// Workers.
        workers: usize,
    },
    /// A table that does not fit into the memory.
    #[error("{entries} {table} take {needed}, and this machine has {available} free")]
    #[diagnostic(help("at most {fits} fit"))]
    MemoryExceeded {
        /// Name of the table.
        table: &'static str,
        /// Its capacity.
        entries: u64,
        /// Its memory.
        needed: crate::memory::Bytes,
        /// Free memory of the machine.
        available: crate::memory::Bytes,
        /// The capacity that would fit.
        fits: u64,
    },
    /// Tables that do not fit into the memory together.
    #[error("all tables together take {needed}, and this machine has {available} free")]
    #[diagnostic(help(
        "lower `sessions.ipv4`, `sessions.ipv6` or `system.ring`; `sluice check` prints the memory of each table"
    ))]
    MemoryExceededTogether {
        /// Their memory.
        needed: crate::memory::Bytes,
        /// Free memory of the machine.
        available: crate::memory::Bytes,
    },
    /// A timeout below the minimum of a standard.
    #[error("`{what}` of {value} is below the minimum of {minimum} ({standard})")]
    #[diagnostic(help("hosts rely on the minimum; raise it, or leave it out"))]
    TimeoutBelowMinimum {
        /// The timeout.
        what: &'static str,
        /// As written.
        value: crate::value::Period,
        /// The least allowed.
        minimum: crate::value::Period,
        /// Where it is said.
        standard: &'static str,
    },
    /// No interfaces at all.
    #[error("there are no interfaces")]
    #[diagnostic(help("add a table such as [interfaces.inside] with `device = \"eth1\"`"))]
    NoInterfaces,
    /// A name of an interface or pool that can't be typed well.
    #[error("`{0}` cannot be a name")]
    #[diagnostic(help("names have 1 to 32 letters, digits, `-`, `_` and `.`"))]
    Name(String),
    /// An interface that is made of nothing.
    #[error("interface `{0}` has no device")]
    #[diagnostic(help("add `device = \"eth1\"`, `bond = {{ members = […] }}`, or `parent` and `vlan`"))]
    NothingBehind(String),
    /// An interface that is made of several things.
    #[error("interface `{0}` has more than one of `device`, `bond`, `parent`, `peer` and `tunnel`")]
    #[diagnostic(help("keep one of them"))]
    SeveralBehind(String),
    /// Tags without the interface that carries them.
    #[error("`vlan` without `parent`")]
    #[diagnostic(help("add `parent = \"…\"`, the interface that carries the tagged frames"))]
    VlanWithoutParent,
    /// What is about tags, on an interface without any.
    #[error("`{0}` without `vlan`")]
    #[diagnostic(help("leave it out: frames of this interface have no tags"))]
    OnlyOnVlan(&'static str),
    /// A subinterface without tags.
    #[error("`parent` without `vlan`")]
    #[diagnostic(help("add `vlan = \"100\"`"))]
    ParentWithoutVlan,
    /// A subinterface of a subinterface.
    #[error("`{0}` is itself a VLAN of another interface")]
    #[diagnostic(help("name the interface with the device, and write both tags: `vlan = \"100.200\"`"))]
    ParentIsVlan(String),
    /// Tags that another subinterface has.
    #[error("VLAN {tags} of `{parent}` belongs to interface `{other}` already")]
    #[diagnostic(help("each VLAN is one interface"))]
    DuplicateTags {
        /// As written.
        tags: Tags,
        /// The interface that carries them.
        parent: String,
        /// Who has them.
        other: String,
    },
    /// A key that makes no sense on a subinterface.
    #[error("`{0}` belongs to the device and cannot be set on a VLAN")]
    #[diagnostic(help("set it on the parent"))]
    NotOnVlan(&'static str),
    /// A device that is used twice.
    #[error("device `{device}` belongs to interface `{other}` already")]
    #[diagnostic(help("several networks on one link: more `addresses`, or VLANs with `parent`"))]
    DuplicateDevice {
        /// As written.
        device: Device,
        /// Who has it.
        other: String,
    },
    /// A bond of nothing.
    #[error("a bond needs members")]
    #[diagnostic(help("write `members = [\"eth1\", \"eth2\"]`"))]
    EmptyBond,
    /// A device that can't be bonded.
    #[error("device `{0}` cannot be a member of a bond")]
    #[diagnostic(help("members are kernel interfaces and PCI cards"))]
    NotBondable(Device),
    /// A name that no interface has.
    #[error("there is no interface `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownInterface {
        /// As written.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// IPv6 on a link too narrow for it.
    #[error("an MTU of {0} is too small for IPv6")]
    #[diagnostic(help("IPv6 needs 1280 (RFC 8200, 5); raise it, or take the IPv6 addresses away"))]
    MtuTooSmallForIpv6(u16),
    /// A VLAN wider than the link that carries it.
    #[error("an MTU of {mtu} is larger than {parent_mtu}, that of `{parent}`")]
    #[diagnostic(help("lower it, or raise that of the parent"))]
    MtuAboveParent {
        /// As written.
        mtu: u16,
        /// The interface that carries it.
        parent: String,
        /// Its MTU.
        parent_mtu: u16,
    },
    /// Receive queues that nobody would read.
    #[error("{queues} queues are more than the workers that read them")]
    #[diagnostic(help("at most {workers}, the number of `system.workers`: each reads one"))]
    MoreQueuesThanWorkers {
        /// As written.
        queues: u16,
        /// Workers.
        workers: usize,
    },
    /// An address that no interface or host can have.
    #[error("`{address}` is {reason} and cannot be used here")]
    #[diagnostic(help("write an address that one host can have"))]
    UnusableAddress {
        /// As written.
        address: IpAddr,
        /// Why.
        reason: &'static str,
    },
    /// An address that another interface has.
    #[error("address `{address}` belongs to interface `{other}` already")]
    #[diagnostic(help("an address belongs to one interface"))]
    DuplicateAddress {
        /// As written.
        address: IpAddr,
        /// Who has it.
        other: String,
    },
    /// Two links with overlapping networks.
    #[error("the network of `{address}` overlaps that of `{other_address}` on interface `{other}`")]
    #[diagnostic(help("hosts of one network are on one link; split it by longer prefixes"))]
    OverlappingLinks {
        /// As written.
        address: InterfaceAddress,
        /// The other one.
        other_address: InterfaceAddress,
        /// Who has it.
        other: String,
    },
    /// Advertisements on a link without IPv6.
    #[error("interface `{0}` has no IPv6 network to announce")]
    #[diagnostic(help("add an IPv6 address with /64, or take `router-advertisements` away"))]
    NothingToAnnounce(String),
    /// A network that hosts can't make addresses in.
    #[error("hosts cannot make addresses of their own in `{0}`")]
    #[diagnostic(help("use a /64 (RFC 4862, 5.5.3), or set `autonomous = false`"))]
    NotAutonomous(Prefix),
    /// An IPv6 network or address where IPv4 is needed.
    #[error("`{0}` is not IPv4")]
    #[diagnostic(help("translation is between IPv4 addresses; IPv6 is routed as it is"))]
    NotIpv4(String),
    /// An address that is preferred for longer than it is valid.
    #[error("`preferred-lifetime` is longer than `valid-lifetime`")]
    #[diagnostic(help("lower it (RFC 4861, 4.6.2)"))]
    PreferredBeyondValid,
    /// An IPv4 gateway of an IPv6 route.
    #[error("a gateway `{via}` cannot serve a route to `{to}`")]
    #[diagnostic(help("give an IPv6 gateway"))]
    FamiliesDiffer {
        /// The gateway.
        via: IpAddr,
        /// The network.
        to: Prefix,
    },
    /// A neighbour on none of the links.
    #[error("`{address}` is on the link of no interface")]
    #[diagnostic(help("{}", beyond_links(links)))]
    NotAttached {
        /// As written.
        address: IpAddr,
        /// The links of its family.
        links: Vec<String>,
    },
    /// A neighbour on the link of another interface.
    #[error("`{address}` is on the link of interface `{on}`, not `{interface}`")]
    #[diagnostic(help("write `interface = \"{on}\"`, or leave it out"))]
    AttachedElsewhere {
        /// As written.
        address: IpAddr,
        /// Where it is.
        on: String,
        /// As written.
        interface: String,
    },
    /// A link-local address that could be on any link.
    #[error("`{0}` is link-local and could be on any interface")]
    #[diagnostic(help("add `interface = \"…\"`"))]
    LinkLocalNeedsInterface(IpAddr),
    /// The gateway's own address as neighbour.
    #[error("`{0}` is an address of this gateway itself")]
    #[diagnostic(help("write the address of the other host"))]
    OwnAddress(IpAddr),
    /// Two static neighbours with one address.
    #[error("there is a static neighbour `{0}` already")]
    #[diagnostic(help("keep one of them"))]
    DuplicateNeighbour(IpAddr),
    /// A name that no pool has.
    #[error("there is no pool `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownPool {
        /// As written.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A pool without addresses.
    #[error("pool `{0}` has no addresses")]
    #[diagnostic(help("write `addresses = [\"198.51.100.0/28\"]`"))]
    EmptyPool(String),
    /// Addresses in two pools, or twice in one.
    #[error("`{range}` overlaps pool `{other}`: {overlap}")]
    #[diagnostic(help("each address belongs to one pool"))]
    PoolsOverlap {
        /// As written.
        range: AddressRange,
        /// The other pool.
        other: String,
        /// What both hold.
        overlap: AddressRange,
    },
    /// An address that belongs to an interface that the pool does not lead out by.
    #[error("`{address}` in pool `{pool}` is the address of interface `{interface}`")]
    #[diagnostic(help("a pool may hold an address only of the interface that its rules lead `out` by"))]
    PoolHoldsInsideAddress {
        /// The address.
        address: Ipv4Addr,
        /// The pool.
        pool: String,
        /// Who has it.
        interface: String,
    },
    /// The network or broadcast address of a link in a pool.
    #[error("pool `{pool}` holds `{address}`, which is the network or broadcast address of interface `{interface}`")]
    #[diagnostic(help("leave it out: write a range instead of the prefix"))]
    PoolHoldsBroadcast {
        /// The address.
        address: Ipv4Addr,
        /// The pool.
        pool: String,
        /// Whose link.
        interface: String,
    },
    /// How a pool lends its ports.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pool(#[from] PoolProblem),
    /// Something about the packet filter.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Filter(#[from] FilterProblem),
    /// A pool that no rule uses.
    #[error("no rule uses pool `{0}`")]
    #[diagnostic(help("add a [[nat.source]] with `pool = \"{0}\"`, or take the pool away"))]
    UnusedPool(String),
    /// Two source rules of which neither is more specific.
    #[error("an earlier rule translates what comes from `{0}` and leaves by the same interface")]
    #[diagnostic(help("keep one of them; a longer prefix or a named interface would be more specific"))]
    DuplicateSource(Prefix),
    /// A forwarded port that a pool gives out.
    #[error("port {ports} of `{address}` is given out by pool `{pool}`")]
    #[diagnostic(help("leave room beside the pool, such as `ports = \"16384-65535\"` in [nat.pools.{pool}]"))]
    ForwardsLentPort {
        /// The outside address.
        address: Ipv4Addr,
        /// What both hold.
        ports: PortRange,
        /// The pool.
        pool: String,
    },
    /// More timeouts by port than there is room for.
    #[error("{0} ports have timeouts of their own")]
    #[diagnostic(help("at most 8 can"))]
    TooManyPorts(usize),
    /// Two destination rules of which neither is more specific.
    #[error("an earlier rule decides about {what} of `{address}` already")]
    #[diagnostic(help("each port has one rule; only a range within another may differ"))]
    DestinationsOverlap {
        /// The outside addresses.
        address: ipnet::Ipv4Net,
        /// What both hold.
        what: String,
    },
    /// A target port without a port.
    #[error("`to-port` stands without `port`")]
    #[diagnostic(help("add `port`, or take `to-port` away: then each port stays"))]
    TargetPortAlone,
    /// Networks that are translated one to one and differ in size.
    #[error("`{outside}` is not as large as `{inside}`")]
    #[diagnostic(help("give both the same prefix length"))]
    StaticSizes {
        /// The inside network.
        inside: Prefix,
        /// The outside network.
        outside: Prefix,
    },
    /// Outside addresses that are given to hosts one to one, and by a pool.
    #[error("`{overlap}` of `{outside}` is in pool `{pool}`")]
    #[diagnostic(help("take the addresses out of [nat.pools.{pool}], which would give them to others"))]
    StaticInPool {
        /// The outside network.
        outside: Prefix,
        /// What both hold.
        overlap: AddressRange,
        /// The pool.
        pool: String,
    },
    /// Outside addresses that an earlier rule has given to other hosts.
    #[error("an earlier rule gives addresses of `{0}` to its own hosts")]
    #[diagnostic(help("an outside address leads to one host"))]
    StaticsOverlap(Prefix),
    /// An exemption of nothing, or of both ends.
    #[error("an exemption names either `to` or `from`")]
    #[diagnostic(help("`to` is where packets go, `from` where they come from; write two rules for both"))]
    ExemptEnds,
    /// A key that belongs to the other kind of exemption.
    #[error("`{0}` means nothing with `{1}`")]
    #[diagnostic(help("take `{0}` away"))]
    ExemptKey(&'static str, &'static str),
    /// A destination range that does not fit behind its first port.
    #[error("{count} ports from {first} end behind 65535")]
    #[diagnostic(help("lower `to-port`"))]
    PortsOverflow {
        /// First inside port.
        first: u16,
        /// How many.
        count: u16,
    },
}

impl Problem {
    /// Whether it is a key that was meant to be this one.
    pub(crate) fn means(&self, expected: &str) -> bool {
        matches!(self, Self::UnknownKey { key, known } if nearest_key(key, known).is_some_and(|name| name == expected))
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Diagnostic::help(self).map(|help| help.to_string())
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// The name that is least unlike what is written, where one is near.
pub fn nearest<'a>(written: &str, known: &'a [String]) -> Option<&'a String> {
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().min(written.len()) / 3)
        .min()
        .map(|(_, name)| name)
}

/// Keys of earlier versions, and the names that they have now.
const RENAMED: &[(&str, &str)] = &[
    ("begins", "threshold"),
    ("quarantined-ports", "quarantined-ports"),
    ("hold", "quarantine"),
    ("partial-checksums", "partial-checksums"),
    ("own", "local"),
    ("rest", "other"),
    ("minimum-lease", "minimum-lease"),
    ("stats-interval", "stats-interval"),
];

/// The key that replaced a key of earlier versions, or else the most similar one.
fn nearest_key<'a>(written: &str, known: &'a [String]) -> Option<&'a String> {
    let renamed = RENAMED.iter().filter(|(old, _)| *old == written);
    renamed
        .filter_map(|(_, new)| known.iter().find(|name| name == new))
        .next()
        .or_else(|| nearest(written, known))
}

/// Hint for a key that does not exist.
fn meant_key(written: &str, known: &[String]) -> String {
    meant(nearest_key(written, known).map_or(written, String::as_str), known)
}

/// `did you mean …?` where something near is known, else what is known.
fn meant(written: &str, known: &[String]) -> String {
    match nearest(written, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "there are none".into(),
        None => format!(
            "there are {}",
            known
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// `did you mean …?` where something near is known, else what to write.
fn meant_or(written: &str, known: &[String], otherwise: String) -> String {
    nearest(written, known).map_or(otherwise, |name| format!("did you mean `{name}`?"))
}

/// What to write for a gateway that is on none of the links.
fn beyond_links(links: &[String]) -> String {
    match links {
        [] => "no interface has an address of its family".into(),
        links => format!(
            "links are {}; name the `interface` of one beyond them, of a gateway with `onlink = true` or a route to it by that interface",
            list(links)
        ),
    }
}
