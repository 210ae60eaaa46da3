//! Problems of a pool's port allocation.

use crate::value::{AddressRange, PortRange, Protocol};

/// A problem of a pool, or advice about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum PoolProblem {
    /// No port can be allocated.
    #[error("all ports of the pool are reserved")]
    #[diagnostic(help("shorten `reserved-ports`, or widen `ports`"))]
    NoPortLeft,
    /// The list of protocols without ports contains a protocol with ports.
    #[error("protocol `{0}` has ports or query identifiers")]
    #[diagnostic(help("remove the protocol: `protocols` lists only protocols without ports"))]
    HasPorts(Protocol),
    /// Two settings contradict each other.
    #[error("`{one}` and `{other}` contradict each other")]
    #[diagnostic(help("{why}"))]
    Contradiction {
        /// First setting as written.
        one: String,
        /// Second setting as written.
        other: String,
        /// Reason and remedy.
        why: &'static str,
    },
    /// The mapping behaviour implies a stricter filtering behaviour.
    #[error("for {protocol}, `{filtering}` filtering is not possible with address-and-port-dependent mapping")]
    #[diagnostic(help("write \"address-and-port-dependent\", or remove the key"))]
    FilteringIgnored {
        /// `tcp`, `udp` or `icmp`.
        protocol: &'static str,
        /// Filtering behaviour as written.
        filtering: &'static str,
    },
    /// `overlap` is set, but no protocol has a mapping behaviour that permits shared ports.
    #[error("`overlap` has no effect: no protocol has address-and-port-dependent mapping")]
    #[diagnostic(help("add `mapping = \"address-and-port-dependent\"`, or remove `overlap`"))]
    NothingOverlaps,
    /// There are fewer addresses than shards, although each shard needs an address.
    #[error("{addresses} addresses cannot be divided among {shards} shards")]
    #[diagnostic(help(
        "if ports are preserved, each address belongs to one shard: write at most `shards = {}`, add addresses, or \
         write `port-selection = \"random\"`",
        floor_power_of_two(*addresses)
    ))]
    FewerAddressesThanShards {
        /// Number of addresses.
        addresses: u64,
        /// Number of shards.
        shards: u16,
    },
    /// The block size is not a power of two, or out of range.
    #[error("blocks of {0} ports: the size must be a power of two from 64 to 32768")]
    #[diagnostic(help("the nearest valid size is {}", _0.clamp(&64, &32_768).next_power_of_two()))]
    BlockSize(u16),
    /// There are fewer blocks than shards, although each shard needs a block.
    #[error("{blocks} blocks of {size} ports cannot be divided among {shards} shards")]
    #[diagnostic(help(
        "each block belongs to one shard: write at most `shards = {}`, use smaller blocks, or add addresses",
        floor_power_of_two(*blocks)
    ))]
    FewerBlocksThanShards {
        /// Number of blocks over all addresses.
        blocks: u64,
        /// Block size.
        size: u16,
        /// Number of shards.
        shards: u16,
    },
    /// The ports of an address are divided into fewer parts than there are shards.
    #[error("the ports {ports} of an address cannot be distributed among {shards} shards")]
    #[diagnostic(help(
        "ports are distributed among shards in ranges of {size} ports, and each shard needs a range: write at most \
         `shards = {}`, or add ports",
        floor_power_of_two(u64::from(*parts))
    ))]
    FewerPortsThanShards {
        /// Range from the first to the last port.
        ports: PortRange,
        /// Number of parts.
        parts: u16,
        /// Number of ports per part.
        size: u16,
        /// Number of shards.
        shards: u16,
    },
    /// The maximum number of blocks per subscriber exceeds the blocks per shard and address.
    #[error(
        "no subscriber can have {maximum} blocks: the {blocks} blocks of its address are divided among {shards} shards"
    )]
    #[diagnostic(help(
        "write at most `shards = {}`, use smaller blocks, or write `pairing = \"soft\"`",
        floor_power_of_two(u64::from(blocks / maximum))
    ))]
    BlocksOutOfReach {
        /// Maximum number of blocks as written.
        maximum: u16,
        /// Number of blocks per address.
        blocks: u16,
        /// Number of shards.
        shards: u16,
    },
    /// The port range does not begin and end at block boundaries.
    #[error("the ports {ports} do not consist of whole blocks, which begin at multiples of {size}")]
    #[diagnostic(help("`ports = \"{whole}\"` contains whole blocks only"))]
    BlocksCut {
        /// Block size.
        size: u16,
        /// Range from the first to the last port.
        ports: PortRange,
        /// The whole blocks in the range.
        whole: PortRange,
    },
    /// An address has too few ports to give each share a port.
    #[error("{ports} ports of an address cannot be divided into {shares} shares")]
    #[diagnostic(help("the sum of `compression` and `dynamic` must be at most {ports}"))]
    NoPortsEach {
        /// Number of ports per address.
        ports: u32,
        /// Sum of `compression` and `dynamic`.
        shares: u32,
    },
    /// There are more inside addresses than computed shares.
    #[error(
        "`{inside}` has {count} addresses, but {outside} outside addresses with a compression of {compression} serve \
         only {places} addresses"
    )]
    #[diagnostic(help("write `compression = {}` or more", count.div_ceil((*outside).max(1))))]
    TooManyInside {
        /// Inside range as written.
        inside: AddressRange,
        /// Number of inside addresses.
        count: u64,
        /// Number of outside addresses.
        outside: u64,
        /// Compression as written.
        compression: u16,
        /// Number of shares: the product of outside addresses and compression.
        places: u64,
    },
    /// Ports are reserved for dynamic blocks, but the pool has no blocks.
    #[error("`dynamic` reserves ports for blocks on demand, but the pool has no `block`")]
    #[diagnostic(help("add `block = {{ size = 64 }}`, or remove `dynamic`"))]
    DynamicWithoutBlock,
    /// A deterministic pool has blocks, but no ports are reserved for the blocks.
    #[error("`block` needs `dynamic`: without it, all ports are assigned by computation")]
    #[diagnostic(help("add `dynamic = 1` to `deterministic`, or remove `block`"))]
    BlockWithoutDynamic,
    /// The ports reserved for dynamic blocks contain no whole block.
    #[error("no block of {size} ports fits into the {ports} ports that `dynamic` reserves")]
    #[diagnostic(help("raise `dynamic`, or lower `block.size`"))]
    NoBlockKept {
        /// Block size.
        size: u16,
        /// The reserved ports.
        ports: PortRange,
    },
    /// The key for the random algorithm is missing.
    #[error("`algorithm = \"random\"` needs a `key`")]
    #[diagnostic(help(
        "write `key = \"…\"` with 32 hexadecimal digits, and keep a copy: without the key, a port can't be attributed \
         to a subscriber later"
    ))]
    KeyMissing,
    /// A key is specified for an algorithm other than random.
    #[error("`key` needs `algorithm = \"random\"`")]
    #[diagnostic(help("remove `key`, or write `algorithm = \"random\"`"))]
    KeyUnused,
    /// The maximum number of ports is below the computed share.
    #[error("`maximum-ports` of {maximum} is below the {share} computed ports of an inside address")]
    #[diagnostic(help("write at least `maximum-ports = {share}`, or raise `compression`"))]
    BelowShare {
        /// Maximum as written.
        maximum: u32,
        /// Number of ports per share.
        share: u32,
    },
    /// Deterministic NAT requires subscribers of single addresses.
    #[error("in a deterministic pool, each subscriber is a single address, but `subscriber-prefix` is {0}")]
    #[diagnostic(help("write `subscriber-prefix = 32` in [nat], or remove `subscriber-prefix`"))]
    SubscriberPrefix(u8),
    /// Some inside addresses of deterministic NAT match no rule that uses the pool.
    #[error("no rule translates all addresses of `{inside}` with pool `{pool}`")]
    #[diagnostic(help("add a [[nat.source]] with `pool = \"{pool}\"`, or reduce the range `inside`"))]
    InsideNotTranslated {
        /// Inside range as written.
        inside: AddressRange,
        /// Name of the pool.
        pool: String,
    },
}

/// The largest power of two that does not exceed a number, at least 1.
fn floor_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}
