//! Problems of a configuration, with messages and hints.

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
pub(crate) use self::destination::MAX_HOSTS;
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

/// A problem. [`std::fmt::Display`] formats the message, and [`Problem::hint`] returns the remedy. Message and remedy
/// are declared at the variant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Diagnostic)]
pub enum Problem {
    /// The text is not TOML, or a value has the wrong type.
    #[error("{description}")]
    Form {
        /// The message.
        description: String,
        /// The hint.
        #[help]
        hint: Option<String>,
    },
    /// The key does not exist.
    #[error("there is no key `{key}` here")]
    #[diagnostic(help("{}", meant_key(key, known)))]
    UnknownKey {
        /// Key as written.
        key: String,
        /// Keys that exist in this table.
        known: Vec<String>,
    },
    /// A mandatory key is missing.
    #[error("`{0}` is missing")]
    #[diagnostic(help("add `{0} = …`"))]
    MissingKey(String),
    /// A number or time is out of range.
    #[error("{value} is out of range for {description}")]
    #[diagnostic(help("write a value in the range {range}"))]
    OutOfRange {
        /// Name of the quantity.
        description: &'static str,
        /// Value as written.
        value: String,
        /// Valid range.
        range: String,
    },
    /// The number of workers is zero.
    #[error("without a worker, no packets are processed")]
    #[diagnostic(help("write a number such as 1, or cores such as [2, 3]"))]
    NoWorkers,
    /// There are more workers than cores.
    #[error("{workers} workers need one core each, but this machine has only {cores} cores")]
    #[diagnostic(help("write a smaller number of workers, or remove the key for a single worker"))]
    TooManyWorkers {
        /// Number of workers as written.
        workers: usize,
        /// Number of cores in the machine.
        cores: usize,
    },
    /// The machine does not have this core.
    #[error("there is no core {core}")]
    #[diagnostic(help("cores are {}", list(cores)))]
    UnknownCore {
        /// Core as written.
        core: u16,
        /// Cores of the machine.
        cores: Vec<u16>,
    },
    /// A core is listed twice.
    #[error("core {0} is named twice")]
    #[diagnostic(help("each worker needs a different core"))]
    DuplicateCore(u16),
    /// A problem of pipeline stages.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Stage(StageProblem),
    /// A problem of bridges.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Bridge(BridgeProblem),
    /// A problem of virtual routers.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Router(RouterProblem),
    /// A problem of static routes.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Route(RouteProblem),
    /// A problem of destination rules.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Destination(DestinationProblem),
    /// A problem of tunnels.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tunnel(TunnelProblem),
    /// A problem of uplinks, or of routes by uplinks.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Uplink(UplinkProblem),
    /// A problem of routers' chains.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Chain(ChainProblem),
    /// A problem of inspection.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Inspection(InspectionProblem),
    /// A problem of subscribers.
    #[error("{0}")]
    #[diagnostic(transparent)]
    Subscribers(SubscribersProblem),
    /// The number of shards is not a power of two.
    #[error("{0} shards: the number must be a power of two")]
    #[diagnostic(help("the nearest power of two is {}", _0.max(&1).checked_next_power_of_two().unwrap_or(1 << 15)))]
    ShardsNotPowerOfTwo(u16),
    /// Some workers would own no shard.
    #[error("{shards} shards are fewer than {workers} workers")]
    #[diagnostic(help("write at least `shards = {}`", workers.next_power_of_two()))]
    FewerShardsThanWorkers {
        /// Number of shards as written.
        shards: u16,
        /// Number of workers.
        workers: usize,
    },
    /// A table exceeds the available memory.
    #[error("{entries} {table} need {needed} of memory, but this machine has only {available} free")]
    #[diagnostic(help("the free memory is sufficient for at most {fits}"))]
    MemoryExceeded {
        /// Name of the table.
        table: &'static str,
        /// Capacity of the table.
        entries: u64,
        /// Memory of the table.
        needed: crate::memory::Bytes,
        /// Free memory of the machine.
        available: crate::memory::Bytes,
        /// Maximum capacity that fits.
        fits: u64,
    },
    /// All tables together exceed the available memory.
    #[error("all tables together need {needed} of memory, but this machine has only {available} free")]
    #[diagnostic(help(
        "lower `sessions.ipv4`, `sessions.ipv6` or `system.ring`; `sluice check` prints the memory of each table"
    ))]
    MemoryExceededTogether {
        /// Memory of all tables.
        needed: crate::memory::Bytes,
        /// Free memory of the machine.
        available: crate::memory::Bytes,
    },
    /// A timeout is below the minimum of a standard.
    #[error("`{description}` of {value} is below the minimum of {minimum} ({standard})")]
    #[diagnostic(help("hosts rely on this minimum: write a longer timeout, or remove the key"))]
    TimeoutBelowMinimum {
        /// Name of the timeout.
        description: &'static str,
        /// Value as written.
        value: crate::value::Period,
        /// Minimum value.
        minimum: crate::value::Period,
        /// The standard.
        standard: &'static str,
    },
    /// The configuration has no interfaces.
    #[error("there are no interfaces")]
    #[diagnostic(help("add a table such as [interfaces.inside] with `device = \"eth1\"`"))]
    NoInterfaces,
    /// The name of an interface or pool has invalid characters or an invalid length.
    #[error("`{0}` is not a valid name")]
    #[diagnostic(help("names have 1 to 32 letters, digits, `-`, `_` and `.`"))]
    Name(String),
    /// An interface has no device.
    #[error("interface `{0}` has no device")]
    #[diagnostic(help("add `device = \"eth1\"`, `bond = {{ members = […] }}`, or `parent` and `vlan`"))]
    NothingBehind(String),
    /// An interface has several devices.
    #[error("interface `{0}` has more than one of `device`, `bond`, `parent`, `peer` and `tunnel`")]
    #[diagnostic(help("keep one of these keys, and remove the others"))]
    SeveralBehind(String),
    /// `vlan` is set without the parent interface.
    #[error("`vlan` needs `parent`")]
    #[diagnostic(help("add `parent = \"…\"`, the interface that carries the tagged frames"))]
    VlanWithoutParent,
    /// A key that applies only to tagged interfaces is set on an interface without tags.
    #[error("`{0}` needs `vlan`")]
    #[diagnostic(help("remove the key: frames of this interface have no VLAN tags"))]
    OnlyOnVlan(&'static str),
    /// A subinterface has no tags.
    #[error("`parent` needs `vlan`")]
    #[diagnostic(help("add `vlan = \"100\"`"))]
    ParentWithoutVlan,
    /// The parent of a subinterface is a subinterface itself.
    #[error("`{0}` is itself a VLAN of another interface")]
    #[diagnostic(help("write the interface that has the device as `parent`, and both tags: `vlan = \"100.200\"`"))]
    ParentIsVlan(String),
    /// Another subinterface has the same tags.
    #[error("VLAN {tags} of `{parent}` already belongs to interface `{other}`")]
    #[diagnostic(help("write other VLAN tags, or remove one of the two interfaces"))]
    DuplicateTags {
        /// Tags as written.
        tags: Tags,
        /// Parent interface.
        parent: String,
        /// Name of the other subinterface.
        other: String,
    },
    /// The key is not valid on a subinterface.
    #[error("`{0}` belongs to the device and cannot be set on a VLAN")]
    #[diagnostic(help("write the key in the table of the parent interface"))]
    NotOnVlan(&'static str),
    /// A device is used twice.
    #[error("device `{device}` already belongs to interface `{other}`")]
    #[diagnostic(help("for several networks on one link, add `addresses`, or add VLANs with `parent`"))]
    DuplicateDevice {
        /// Device as written.
        device: Device,
        /// Name of the other interface.
        other: String,
    },
    /// A bond has no members.
    #[error("a bond needs members")]
    #[diagnostic(help("write `members = [\"eth1\", \"eth2\"]`"))]
    EmptyBond,
    /// The device can't be a member of a bond.
    #[error("device `{0}` cannot be a member of a bond")]
    #[diagnostic(help("members of a bond must be kernel interfaces or PCI cards"))]
    NotBondable(Device),
    /// No interface has this name.
    #[error("there is no interface `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownInterface {
        /// Name as written.
        name: String,
        /// Names of the interfaces.
        known: Vec<String>,
    },
    /// The MTU is too small for IPv6.
    #[error("an MTU of {0} is too small for IPv6")]
    #[diagnostic(help("raise the MTU to at least 1280 bytes (RFC 8200, section 5), or remove the IPv6 addresses"))]
    MtuTooSmallForIpv6(u16),
    /// The MTU of a VLAN exceeds that of its parent.
    #[error("an MTU of {mtu} exceeds the MTU of the parent `{parent}`, {parent_mtu}")]
    #[diagnostic(help("lower this MTU, or raise the MTU of the parent interface"))]
    MtuAboveParent {
        /// MTU as written.
        mtu: u16,
        /// Parent interface.
        parent: String,
        /// MTU of the parent.
        parent_mtu: u16,
    },
    /// An interface has more receive queues than there are workers.
    #[error("{queues} receive queues exceed the number of workers")]
    #[diagnostic(help("write at most {workers} queues (`system.workers`): each queue needs its own worker"))]
    MoreQueuesThanWorkers {
        /// Number of queues as written.
        queues: u16,
        /// Number of workers.
        workers: usize,
    },
    /// The address is not valid for an interface or host.
    #[error("`{address}` is {reason} and cannot be used here")]
    #[diagnostic(help("write the unicast address of a host"))]
    UnusableAddress {
        /// Address as written.
        address: IpAddr,
        /// Kind of address that is not valid for a host.
        reason: &'static str,
    },
    /// Another interface has the same address.
    #[error("address `{address}` already belongs to interface `{other}`")]
    #[diagnostic(help("an address can belong to only one interface"))]
    DuplicateAddress {
        /// Address as written.
        address: IpAddr,
        /// Name of the other interface.
        other: String,
    },
    /// The networks of two links overlap.
    #[error("the network of `{address}` overlaps that of `{other_address}` on interface `{other}`")]
    #[diagnostic(help("a network can be on only one link: split the network with longer prefixes"))]
    OverlappingLinks {
        /// Address as written.
        address: InterfaceAddress,
        /// Address of the other link.
        other_address: InterfaceAddress,
        /// Interface of the other link.
        other: String,
    },
    /// Router advertisements are configured on a link without an IPv6 network.
    #[error("interface `{0}` has no IPv6 network to announce")]
    #[diagnostic(help("add an IPv6 address with /64, or remove `router-advertisements`"))]
    NothingToAnnounce(String),
    /// Hosts can't autoconfigure addresses in the network.
    #[error("hosts cannot configure addresses automatically in `{0}`")]
    #[diagnostic(help("use a /64 (RFC 4862, 5.5.3), or set `autonomous = false`"))]
    NotAutonomous(Prefix),
    /// An IPv6 network or address is specified, but IPv4 is required.
    #[error("`{0}` is not an IPv4 address or prefix")]
    #[diagnostic(help("write an IPv4 address or prefix: NAT translates only IPv4; IPv6 is routed untranslated"))]
    NotIpv4(String),
    /// The preferred lifetime exceeds the valid lifetime.
    #[error("`preferred-lifetime` is longer than `valid-lifetime`")]
    #[diagnostic(help("lower `preferred-lifetime` to at most `valid-lifetime` (RFC 4861, 4.6.2)"))]
    PreferredBeyondValid,
    /// An IPv6 route has an IPv4 gateway.
    #[error("a route to `{to}` cannot use the IPv4 gateway `{via}`")]
    #[diagnostic(help("write an IPv6 gateway"))]
    FamiliesDiffer {
        /// The gateway.
        via: IpAddr,
        /// Destination network.
        to: Prefix,
    },
    /// A neighbour is not on any interface's link.
    #[error("`{address}` is not in the network of any interface")]
    #[diagnostic(help("{}", beyond_links(links)))]
    NotAttached {
        /// Address as written.
        address: IpAddr,
        /// Networks on links, for the address family of the neighbour.
        links: Vec<String>,
    },
    /// A neighbour is on the link of another interface.
    #[error("`{address}` is on the link of interface `{on}`, not on the link of `{interface}`")]
    #[diagnostic(help("write `interface = \"{on}\"`, or remove the key `interface`"))]
    AttachedElsewhere {
        /// Address as written.
        address: IpAddr,
        /// Interface on whose link the address is.
        on: String,
        /// Interface as written.
        interface: String,
    },
    /// The interface of a link-local address is not specified.
    #[error("the link-local address `{0}` does not determine an interface")]
    #[diagnostic(help("add `interface = \"…\"`"))]
    LinkLocalNeedsInterface(IpAddr),
    /// A static neighbour has an address of the gateway itself.
    #[error("`{0}` is an address of this gateway itself")]
    #[diagnostic(help("write the address of the other host"))]
    OwnAddress(IpAddr),
    /// Two static neighbours have the same address.
    #[error("there is already a static neighbour `{0}`")]
    #[diagnostic(help("keep one of the two neighbours"))]
    DuplicateNeighbour(IpAddr),
    /// No pool has this name.
    #[error("there is no pool `{name}`")]
    #[diagnostic(help("{}", meant(name, known)))]
    UnknownPool {
        /// Name as written.
        name: String,
        /// Names of the pools.
        known: Vec<String>,
    },
    /// A pool has no addresses.
    #[error("pool `{0}` has no addresses")]
    #[diagnostic(help("write `addresses = [\"198.51.100.0/28\"]`"))]
    EmptyPool(String),
    /// Addresses are in two pools, or twice in the same pool.
    #[error("`{range}` has addresses in common with pool `{other}`: {overlap}")]
    #[diagnostic(help("an address can belong to only one pool"))]
    PoolsOverlap {
        /// Range as written.
        range: AddressRange,
        /// Name of the other pool.
        other: String,
        /// The overlapping range.
        overlap: AddressRange,
    },
    /// A pool contains an address of an interface that is not an output interface of the pool's rules.
    #[error("`{address}` in pool `{pool}` is the address of interface `{interface}`")]
    #[diagnostic(help("exclude the address, or name this interface as `out` in all rules of the pool"))]
    PoolHoldsInsideAddress {
        /// The address.
        address: Ipv4Addr,
        /// Name of the pool.
        pool: String,
        /// Interface with the address.
        interface: String,
    },
    /// A pool contains the network or broadcast address of a link.
    #[error("pool `{pool}` contains `{address}`, which is the network or broadcast address of interface `{interface}`")]
    #[diagnostic(help("replace the prefix with a range that excludes this address"))]
    PoolHoldsBroadcast {
        /// The address.
        address: Ipv4Addr,
        /// Name of the pool.
        pool: String,
        /// Interface of the link.
        interface: String,
    },
    /// A problem of a pool's port allocation.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pool(#[from] PoolProblem),
    /// A problem of the packet filter.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Filter(#[from] FilterProblem),
    /// No rule uses the pool.
    #[error("no rule uses pool `{0}`")]
    #[diagnostic(help("add a [[nat.source]] with `pool = \"{0}\"`, or remove the pool"))]
    UnusedPool(String),
    /// Two source rules are equally specific.
    #[error("an earlier rule already translates packets from `{0}` that leave by the same interface")]
    #[diagnostic(help("remove one rule, or make one more specific by a longer prefix or a named interface"))]
    DuplicateSource(Prefix),
    /// A pool may allocate a port that a destination rule forwards.
    #[error("port {ports} of `{address}` belongs to pool `{pool}`")]
    #[diagnostic(help("restrict the ports of the pool, such as `ports = \"16384-65535\"` in [nat.pools.{pool}]"))]
    ForwardsPoolPort {
        /// Outside address.
        address: Ipv4Addr,
        /// The overlapping ports.
        ports: PortRange,
        /// Name of the pool.
        pool: String,
    },
    /// The number of ports with their own timeouts exceeds the supported maximum.
    #[error("{0} ports have their own timeouts")]
    #[diagnostic(help("at most 8 ports can have their own timeouts"))]
    TooManyPorts(usize),
    /// Two destination rules are equally specific.
    #[error("an earlier rule for `{address}` already matches {description}")]
    #[diagnostic(help("remove one of the two rules; two port ranges may overlap only if one contains the other"))]
    DestinationsOverlap {
        /// Outside addresses.
        address: ipnet::Ipv4Net,
        /// The overlapping protocol and ports.
        description: String,
    },
    /// `to-port` is set without `port`.
    #[error("`to-port` needs `port`")]
    #[diagnostic(help("add `port`; or remove `to-port` to leave the ports unchanged"))]
    TargetPortAlone,
    /// The networks of a static rule differ in size.
    #[error("`{outside}` and `{inside}` have different sizes")]
    #[diagnostic(help("write two prefixes of the same length"))]
    StaticSizes {
        /// Inside network.
        inside: Prefix,
        /// Outside network.
        outside: Prefix,
    },
    /// Outside addresses of a static rule are also addresses of a pool.
    #[error("`{overlap}` of `{outside}` is in pool `{pool}`")]
    #[diagnostic(help("remove the addresses from [nat.pools.{pool}]"))]
    StaticInPool {
        /// Outside network.
        outside: Prefix,
        /// The overlapping range.
        overlap: AddressRange,
        /// Name of the pool.
        pool: String,
    },
    /// An earlier static rule uses the same outside addresses.
    #[error("an earlier rule maps addresses of `{0}` to other hosts")]
    #[diagnostic(help("an outside address can be translated to only one host"))]
    StaticsOverlap(Prefix),
    /// An exemption has neither `to` nor `from`, or has both keys.
    #[error("an exemption needs either `to` or `from`")]
    #[diagnostic(help("`to` is the destination of packets and `from` their source: to exempt both, write two rules"))]
    ExemptEnds,
    /// A key is valid only for exemptions with `to`, or only for exemptions with `from`.
    #[error("`{0}` has no effect with `{1}`")]
    #[diagnostic(help("remove `{0}`"))]
    ExemptKey(&'static str, &'static str),
    /// The target range of a destination rule exceeds port 65535.
    #[error("{count} ports starting at {first} exceed the last port, 65535")]
    #[diagnostic(help("lower `to-port`"))]
    PortsOverflow {
        /// First inside port.
        first: u16,
        /// Number of ports.
        count: u16,
    },
}

impl Problem {
    /// Whether the unknown key of this problem is probably a misspelling of the key `expected`.
    pub(crate) fn means(&self, expected: &str) -> bool {
        matches!(self, Self::UnknownKey { key, known } if nearest_key(key, known).is_some_and(|name| name == expected))
    }

    /// What to do about the problem.
    pub fn hint(&self) -> Option<String> {
        Diagnostic::help(self).map(|help| help.to_string())
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// The known name that is most similar to the written name. `None` if no known name is similar.
pub fn nearest<'a>(written: &str, known: &'a [String]) -> Option<&'a String> {
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().min(written.len()) / 3)
        .min()
        .map(|(_, name)| name)
}

/// Renamed keys: each former name with its current name.
const RENAMED: &[(&str, &str)] = &[
    ("begins", "threshold"),
    ("held-ports", "quarantined-ports"),
    ("hold", "quarantine"),
    ("left-to-offload", "partial-checksums"),
    ("own", "local"),
    ("rest", "other"),
    ("shortest-lease", "minimum-lease"),
    ("stats-every", "stats-interval"),
    ("waiting-full", "pending-rules-full"),
    ("work", "budget"),
];

/// The key that replaced a key of earlier versions, or else the most similar key.
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

/// The hint `did you mean …?` with the most similar known name, or a list of the known names if no name is similar.
fn meant(written: &str, known: &[String]) -> String {
    match nearest(written, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "no names are defined here".into(),
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

/// The hint `did you mean …?` if a known name is similar; otherwise `otherwise`.
fn meant_or(written: &str, known: &[String], otherwise: String) -> String {
    nearest(written, known).map_or(otherwise, |name| format!("did you mean `{name}`?"))
}

/// Hint for a gateway that is not on any link.
fn beyond_links(links: &[String]) -> String {
    match links {
        [] => "no interface has an address of this address family".into(),
        links => format!(
            "the networks of interfaces are {}; for an address outside them, write its `interface`, and for a gateway also `onlink = true` or a route to the gateway",
            list(links)
        ),
    }
}
