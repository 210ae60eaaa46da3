//! What can be wrong with how a pool lends its ports.

use crate::api::Protocol;
use crate::value::{AddressRange, PortRange};

/// One thing that is wrong with a pool, or seldom meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoolProblem {
    /// Every port is reserved, or none is written.
    #[error("no port is left to give out")]
    NoPortLeft,
    /// A protocol among those without ports that has some.
    #[error("`{0}` has ports or identifiers")]
    HasPorts(Protocol),
    /// Two settings of which one makes no sense beside the other.
    #[error("`{one}` and `{other}` contradict each other")]
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
    FilteringIgnored {
        /// `tcp`, `udp` or `icmp`.
        protocol: &'static str,
        /// As written.
        filtering: &'static str,
    },
    /// Overlapping of ports that no mapping makes possible.
    #[error("no protocol of the pool is mapped by address and port, so that ports cannot overlap")]
    NothingOverlaps,
    /// Fewer addresses than shards, of which each needs one.
    #[error("{addresses} addresses cannot be divided among {shards} shards")]
    FewerAddressesThanShards {
        /// As written.
        addresses: u64,
        /// As written.
        shards: u16,
    },
    /// A block size that is no power of two, or too small.
    #[error("blocks of {0} ports: the size must be a power of two from 64 to 32768")]
    BlockSize(u16),
    /// Fewer blocks than shards, of which each needs one.
    #[error("{blocks} blocks of {size} ports cannot be divided among {shards} shards")]
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
    DynamicWithoutBlock,
    /// Blocks that have no ports.
    #[error("`block` without `dynamic`: all ports are dealt to inside addresses")]
    BlockWithoutDynamic,
    /// Kept ports in which no block fits.
    #[error("no block of {size} ports fits into the ports that `dynamic` keeps, {ports}")]
    NoBlockKept {
        /// As written.
        size: u16,
        /// The ports kept.
        ports: PortRange,
    },
    /// A random deal without its key.
    #[error("`algorithm = \"random\"` needs a `key`")]
    KeyMissing,
    /// A key that nothing uses.
    #[error("`key` belongs to `algorithm = \"random\"`")]
    KeyUnused,
    /// A limit that is always below what is dealt.
    #[error("`maximum-ports` of {maximum} is below the {share} ports that every inside address is dealt")]
    BelowShare {
        /// As written.
        maximum: u32,
        /// Ports of a share.
        share: u32,
    },
    /// Deterministic shares of single addresses, and subscribers that are prefixes.
    #[error("a deterministic pool deals ports to single addresses, and `subscriber-prefix` is {0}")]
    SubscriberPrefix(u8),
    /// Inside addresses that no rule leads to the pool.
    #[error("no rule leads all of `{inside}` to pool `{pool}`")]
    InsideNotLed {
        /// As written.
        inside: AddressRange,
        /// The pool.
        pool: String,
    },
}

impl PoolProblem {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::HasPorts(_) => "take it away: `protocols` is for what has neither".into(),
            Self::NoPortLeft => "shorten `reserved-ports`, or widen `ports`".into(),
            Self::Contradiction { why, .. } => (*why).into(),
            Self::FilteringIgnored { .. } => {
                "there only who was sent to may answer: write \"address-and-port-dependent\", or leave it out".into()
            }
            Self::NothingOverlaps => "add `mapping = \"address-and-port-dependent\"`, or take `overlap` away".into(),
            Self::FewerAddressesThanShards { addresses, .. } => format!(
                "where ports are preserved, each address belongs to one shard: use at most `shards = {}`, more addresses, \
                 or `port-selection = \"random\"`",
                floor_power_of_two(*addresses)
            ),
            Self::BlockSize(size) => format!("the nearest is {}", size.clamp(&64, &32_768).next_power_of_two()),
            Self::FewerBlocksThanShards { blocks, .. } => format!(
                "each block belongs to one shard: use at most `shards = {}`, smaller blocks, or more addresses",
                floor_power_of_two(*blocks)
            ),
            Self::FewerPortsThanShards { parts, size, .. } => format!(
                "pieces of {size} ports belong to one shard each, and a subscriber gets ports of its own shard: use at most \
                 `shards = {}`, or more ports",
                floor_power_of_two(u64::from(*parts))
            ),
            Self::BlocksOutOfReach { maximum, blocks, .. } => format!(
                "use at most `shards = {}`, smaller blocks, or `pairing = \"soft\"`",
                floor_power_of_two(u64::from(blocks / maximum))
            ),
            Self::BlocksCut { whole, .. } => format!("`ports = \"{whole}\"` has whole blocks alone"),
            Self::NoPortsEach { ports, .. } => format!("`compression` and `dynamic` together go up to {ports}"),
            Self::TooManyInside { count, outside, .. } => {
                format!("`compression = {}` would do", count.div_ceil((*outside).max(1)))
            }
            Self::DynamicWithoutBlock => "add `block = { size = 64 }`, or take `dynamic` away".into(),
            Self::BlockWithoutDynamic => "add `dynamic = 1` to `deterministic`, or take `block` away".into(),
            Self::NoBlockKept { .. } => "raise `dynamic`, or lower `block.size`".into(),
            Self::KeyMissing => {
                "write `key = \"…\"` with 32 hexadecimal digits, and keep a copy: without it nobody can tell \
                                 who had a port"
                    .into()
            }
            Self::KeyUnused => "take it away, or write `algorithm = \"random\"`".into(),
            Self::BelowShare { share, .. } => format!("write {share} or more; a higher `compression` deals fewer"),
            Self::SubscriberPrefix(_) => "write `subscriber-prefix = 32` in [nat], or leave it out".into(),
            Self::InsideNotLed { pool, .. } => {
                format!("add a [[nat.source]] with `pool = \"{pool}\"`, or narrow `inside`")
            }
        }
    }
}

/// The largest power of two that is not larger, at least 1.
fn floor_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}
