//! What can be wrong with how a pool lends its ports.

use crate::value::{AddressRange, PortRange, Protocol};

/// One thing that is wrong with a pool, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum PoolProblem {
    /// Every port is reserved, or none is written.
    #[error("no port is left to give out")]
    #[diagnostic(help("shorten `reserved-ports`, or widen `ports`"))]
    NoPortLeft,
    /// A protocol among those without ports that has some.
    #[error("`{0}` has ports or identifiers")]
    #[diagnostic(help("take it away: `protocols` is for what has neither"))]
    HasPorts(Protocol),
    /// Two settings of which one makes no sense beside the other.
    #[error("`{one}` and `{other}` contradict each other")]
    #[diagnostic(help("{why}"))]
    Contradiction {
        /// As written.
        one: String,
        /// As written.
        other: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// Filtering that the mapping makes stricter.
    #[error("`{filtering}` filtering of {protocol} cannot be with address-and-port-dependent mapping")]
    #[diagnostic(help("there only who was sent to may answer: write \"address-and-port-dependent\", or leave it out"))]
    FilteringIgnored {
        /// `tcp`, `udp` or `icmp`.
        protocol: &'static str,
        /// As written.
        filtering: &'static str,
    },
    /// Overlapping of ports that no mapping makes possible.
    #[error("no protocol of the pool is mapped by address and port, so that ports cannot overlap")]
    #[diagnostic(help("add `mapping = \"address-and-port-dependent\"`, or take `overlap` away"))]
    NothingOverlaps,
    /// Fewer addresses than shards, of which each needs one.
    #[error("{addresses} addresses cannot be divided among {shards} shards")]
    #[diagnostic(help(
        "where ports are preserved, each address belongs to one shard: use at most `shards = {}`, more addresses, \
         or `port-selection = \"random\"`",
        floor_power_of_two(*addresses)
    ))]
    FewerAddressesThanShards {
        /// As written.
        addresses: u64,
        /// As written.
        shards: u16,
    },
    /// A block size that is no power of two, or too small.
    #[error("blocks of {0} ports: the size must be a power of two from 64 to 32768")]
    #[diagnostic(help("the nearest is {}", _0.clamp(&64, &32_768).next_power_of_two()))]
    BlockSize(u16),
    /// Fewer blocks than shards, of which each needs one.
    #[error("{blocks} blocks of {size} ports cannot be divided among {shards} shards")]
    #[diagnostic(help(
        "each block belongs to one shard: use at most `shards = {}`, smaller blocks, or more addresses",
        floor_power_of_two(*blocks)
    ))]
    FewerBlocksThanShards {
        /// Of all addresses.
        blocks: u64,
        /// As written.
        size: u16,
        /// As written.
        shards: u16,
    },
    /// Fewer parts of an address than shards: some would have none of it.
    #[error("the ports {ports} of an address cannot be divided among {shards} shards")]
    #[diagnostic(help(
        "pieces of {size} ports belong to one shard each, and a subscriber gets ports of its own shard: use at most \
         `shards = {}`, or more ports",
        floor_power_of_two(u64::from(*parts))
    ))]
    FewerPortsThanShards {
        /// From the first to the last.
        ports: PortRange,
        /// How many pieces they are.
        parts: u16,
        /// Ports of a piece.
        size: u16,
        /// As written.
        shards: u16,
    },
    /// More blocks for a subscriber than its shard has of an address.
    #[error("no subscriber gets {maximum} blocks: the {blocks} of its address are divided among {shards} shards")]
    #[diagnostic(help(
        "use at most `shards = {}`, smaller blocks, or `pairing = \"soft\"`",
        floor_power_of_two(u64::from(blocks / maximum))
    ))]
    BlocksOutOfReach {
        /// As written.
        maximum: u16,
        /// Blocks of an address.
        blocks: u16,
        /// As written.
        shards: u16,
    },
    /// Ports that begin or end within a block.
    #[error("blocks begin at multiples of {size}: the ports {ports} cut the first or the last one")]
    #[diagnostic(help("`ports = \"{whole}\"` has whole blocks alone"))]
    BlocksCut {
        /// As written.
        size: u16,
        /// From the first to the last.
        ports: PortRange,
        /// The whole blocks among them.
        whole: PortRange,
    },
    /// Shares without a port.
    #[error("{ports} ports of an address cannot be divided into {shares} shares")]
    #[diagnostic(help("`compression` and `dynamic` together go up to {ports}"))]
    NoPortsEach {
        /// Ports of an address.
        ports: u32,
        /// Compression and dynamic.
        shares: u32,
    },
    /// More inside addresses than places.
    #[error(
        "`{inside}` has {count} addresses, and {outside} outside addresses {compression} times have {places} places"
    )]
    #[diagnostic(help("`compression = {}` would do", count.div_ceil((*outside).max(1))))]
    TooManyInside {
        /// As written.
        inside: AddressRange,
        /// Its addresses.
        count: u64,
        /// Outside addresses.
        outside: u64,
        /// As written.
        compression: u16,
        /// Their product.
        places: u64,
    },
    /// Blocks on demand without blocks, or the reverse.
    #[error("`dynamic` keeps ports for blocks on demand, and the pool has no `block`")]
    #[diagnostic(help("add `block = {{ size = 64 }}`, or take `dynamic` away"))]
    DynamicWithoutBlock,
    /// Blocks that have no ports.
    #[error("`block` without `dynamic`: all ports are dealt to inside addresses")]
    #[diagnostic(help("add `dynamic = 1` to `deterministic`, or take `block` away"))]
    BlockWithoutDynamic,
    /// Kept ports in which no block fits.
    #[error("no block of {size} ports fits into the ports that `dynamic` keeps, {ports}")]
    #[diagnostic(help("raise `dynamic`, or lower `block.size`"))]
    NoBlockKept {
        /// As written.
        size: u16,
        /// The ports kept.
        ports: PortRange,
    },
    /// A random deal without its key.
    #[error("`algorithm = \"random\"` needs a `key`")]
    #[diagnostic(help(
        "write `key = \"…\"` with 32 hexadecimal digits, and keep a copy: without it nobody can tell \
         who had a port"
    ))]
    KeyMissing,
    /// A key that nothing uses.
    #[error("`key` belongs to `algorithm = \"random\"`")]
    #[diagnostic(help("take it away, or write `algorithm = \"random\"`"))]
    KeyUnused,
    /// A limit that is always below what is dealt.
    #[error("`maximum-ports` of {maximum} is below the {share} ports that every inside address is dealt")]
    #[diagnostic(help("write {share} or more; a higher `compression` deals fewer"))]
    BelowShare {
        /// As written.
        maximum: u32,
        /// Ports of a share.
        share: u32,
    },
    /// Deterministic shares of single addresses, and subscribers that are prefixes.
    #[error("a deterministic pool deals ports to single addresses, and `subscriber-prefix` is {0}")]
    #[diagnostic(help("write `subscriber-prefix = 32` in [nat], or leave it out"))]
    SubscriberPrefix(u8),
    /// Inside addresses that no rule leads to the pool.
    #[error("no rule leads all of `{inside}` to pool `{pool}`")]
    #[diagnostic(help("add a [[nat.source]] with `pool = \"{pool}\"`, or narrow `inside`"))]
    InsideNotLed {
        /// As written.
        inside: AddressRange,
        /// The pool.
        pool: String,
    },
}

/// The largest power of two that is not larger, at least 1.
fn floor_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}
