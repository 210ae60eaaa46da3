//! Validation of pools.

use core::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use super::{ADDRESSES, Derived, Pool, PoolIndex, ValidPool};
use crate::Address;
use crate::behaviour::{Blocks, MappingBehaviour, PortSelection};
use crate::deterministic::{DeterministicError, Plan};
use crate::ports::SharedOf;
use crate::shard::{BLOCK, BLOCKS};
use crate::timeout::{Schedule, TimeoutError};

/// Why pools are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// The pool has no address.
    #[error("pool {pool} has no address")]
    Empty {
        /// Index of the pool.
        pool: PoolIndex,
    },
    /// The last address of a range precedes its first address.
    #[error("pool {pool}: the range {first}-{last} ends before it begins")]
    Reversed {
        /// Index of the pool.
        pool: PoolIndex,
        /// The range's first address.
        first: IpAddr,
        /// The range's last address.
        last: IpAddr,
    },
    /// The pool has more than [`ADDRESSES`] addresses.
    #[error("pool {pool} has {count} addresses, but at most 1048576 addresses are possible")]
    TooLarge {
        /// Index of the pool.
        pool: PoolIndex,
        /// Number of addresses.
        count: u128,
    },
    /// The port range is empty or contains port 0.
    #[error("pool {pool}: ports {first}-{last} are not a range within 1-65535")]
    BadPorts {
        /// Index of the pool.
        pool: PoolIndex,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// The list of protocols that are translated by address alone contains a protocol that has ports or identifiers.
    #[error("pool {pool}: protocol {protocol} has ports or identifiers, so it can't be translated by address only")]
    HasPorts {
        /// Index of the pool.
        pool: PoolIndex,
        /// Protocol number.
        protocol: u8,
    },
    /// The block size is not a power of two, or is below 64.
    #[error("pool {pool}: a block has {size} ports, but its size must be a power of two and at least 64")]
    BadBlocks {
        /// Index of the pool.
        pool: PoolIndex,
        /// Configured block size.
        size: u16,
    },
    /// The deterministic plan is invalid.
    #[error("pool {pool}: {error}")]
    Deterministic {
        /// Index of the pool.
        pool: PoolIndex,
        /// Why the plan is invalid.
        error: DeterministicError,
    },
    /// Some settings contradict each other.
    #[error("pool {pool}: {reason}")]
    Contradiction {
        /// Index of the pool.
        pool: PoolIndex,
        /// Description of the contradiction.
        reason: &'static str,
    },
    /// Two ranges have an address and a port in common.
    #[error("pools {pool} and {other} overlap: both contain {address}")]
    Overlap {
        /// First pool.
        pool: PoolIndex,
        /// Second pool. Equal to `pool` if both ranges belong to one pool.
        other: PoolIndex,
        /// First address that both ranges contain.
        address: IpAddr,
    },
    /// A timeout is invalid.
    #[error("pool {pool}: {error}")]
    Timeout {
        /// Index of the pool.
        pool: PoolIndex,
        /// Violated bound or duplicate.
        error: TimeoutError,
    },
    /// The number of pools exceeds the maximum number of indexes.
    #[error("{count} pools exceed the maximum of 65536")]
    TooMany {
        /// Configured number of pools.
        count: usize,
    },
}

/// Validates a single pool.
pub(super) fn check<A: Address>(index: PoolIndex, pool: &Pool<A>) -> Result<ValidPool<A>, PoolError> {
    let (first, last) = (*pool.ports.start(), *pool.ports.end());
    let bad_ports = PoolError::BadPorts {
        pool: index,
        first,
        last,
    };
    if first == 0 || last < first {
        return Err(bad_ports);
    }
    let (ranges, count) = ranges(index, pool)?;
    if let Some(Blocks { size, .. }) = pool.blocks
        && (!size.is_power_of_two() || u32::from(size) < BLOCK)
    {
        return Err(PoolError::BadBlocks { pool: index, size });
    }
    if let Some(reason) = contradiction(pool) {
        return Err(PoolError::Contradiction { pool: index, reason });
    }
    let reserved = reserved(pool, first, last);
    if reserved == [(first, last)] {
        return Err(bad_ports);
    }
    let plan = match Plan::of(pool) {
        None => None,
        Some(Ok(plan)) => Some(Arc::new(plan)),
        Some(Err(error)) => return Err(PoolError::Deterministic { pool: index, error }),
    };
    let protocols = protocols(index, pool)?;
    let timeouts = Schedule::new(&pool.timeouts).map_err(|error| PoolError::Timeout { pool: index, error })?;
    let mut valid = ValidPool {
        ranges: ranges.into(),
        count,
        ports: (first, last),
        reserved: reserved.into(),
        per_port: 0,
        units: 0,
        pairing: pool.pairing,
        timeouts,
        behaviour: pool.behaviour,
        overlap: pool.overlap,
        selection: pool.selection,
        parity: pool.parity,
        blocks: pool.blocks,
        hold: pool.hold,
        subscriber: pool.subscriber,
        limits: pool.limits,
        plan,
        renumber: pool.renumber,
        protocols,
        queried: Derived::default(),
        shared: SharedOf::default(),
    };
    valid.queried = Derived::of(&valid);
    valid.units = units(&valid);
    valid.per_port = (1 << 32) / u64::from(valid.unit() * BLOCK) + 1;
    Ok(valid)
}

/// Sorted address ranges of a pool (first address, last address, index of the first address), and total number of
/// addresses.
#[expect(clippy::type_complexity, reason = "the ranges of a valid pool, and their length")]
fn ranges<A: Address>(index: PoolIndex, pool: &Pool<A>) -> Result<(Vec<(A, A, u32)>, u32), PoolError> {
    if pool.addresses.is_empty() {
        return Err(PoolError::Empty { pool: index });
    }
    let mut sorted = pool.addresses.clone();
    sorted.sort_unstable();
    let mut ranges = Vec::with_capacity(sorted.len());
    let mut count = 0u128;
    for (first, last) in sorted {
        if last < first {
            return Err(PoolError::Reversed {
                pool: index,
                first: first.display(),
                last: last.display(),
            });
        }
        ranges.push((first, last, count.min(ADDRESSES) as u32));
        count = count.saturating_add((last.number() - first.number()).saturating_add(1));
    }
    if count > ADDRESSES {
        return Err(PoolError::TooLarge { pool: index, count });
    }
    Ok((ranges, count as u32))
}

/// Finds settings that contradict each other.
fn contradiction<A>(pool: &Pool<A>) -> Option<&'static str> {
    let has_mapping = |mapping| pool.behaviour.iter().any(|one| one.mapping == mapping);
    let all_independent = pool
        .behaviour
        .iter()
        .all(|one| one.mapping == MappingBehaviour::EndpointIndependent);
    let preserves = pool.selection == PortSelection::Preserve;
    let by_both = has_mapping(MappingBehaviour::AddressAndPortDependent) && !pool.overlap;
    if pool.overlap && all_independent {
        Some("overlapping ports need address-and-port-dependent mapping")
    } else if pool.overlap && pool.blocks.is_some() {
        Some("overlapping ports can't be allocated in blocks")
    } else if preserves && pool.blocks.is_some() {
        Some("preserved ports can't be allocated in blocks")
    } else if pool.deterministic.is_some() && preserves {
        Some("computed ports can't be preserved")
    } else if pool.deterministic.is_some() && by_both {
        Some("computed ports with address-and-port-dependent mapping must be allowed to overlap")
    } else if preserves && by_both {
        Some("preserved ports with address-and-port-dependent mapping must be allowed to overlap")
    } else {
        None
    }
}

/// The reserved ports within the pool's range, sorted and merged.
fn reserved<A>(pool: &Pool<A>, first: u16, last: u16) -> Vec<(u16, u16)> {
    let mut reserved: Vec<(u16, u16)> = Vec::new();
    let mut sorted: Vec<_> = pool
        .reserved
        .iter()
        .map(|range| (*range.start(), *range.end()))
        .collect();
    sorted.sort_unstable();
    for (from, to) in sorted.into_iter().map(|(from, to)| (from.max(first), to.min(last))) {
        match reserved.last_mut() {
            _ if to < from => {}
            Some((_, end)) if u32::from(from) <= u32::from(*end) + 1 => *end = to.max(*end),
            _ => reserved.push((from, to)),
        }
    }
    reserved
}

/// Bitmap of the protocols that are translated by address alone.
fn protocols<A>(index: PoolIndex, pool: &Pool<A>) -> Result<[u64; 4], PoolError> {
    let mut protocols = [0; 4];
    for &protocol in &pool.protocols {
        if matches!(protocol, 1 | 6 | 17 | 58) {
            return Err(PoolError::HasPorts { pool: index, protocol });
        }
        protocols[usize::from(protocol / 64)] |= 1 << (protocol % 64);
    }
    Ok(protocols)
}

/// Maximum number of shards that can each own ports if the NIC's RSS hash distributes addresses and ports. The result
/// is larger than any number of shards if no other distribution would give ports to more shards.
fn units<A: Address>(pool: &ValidPool<A>) -> u32 {
    if pool.selection != PortSelection::Preserve {
        let ((first, last), size) = (pool.dynamic_range().unwrap_or(pool.ports), pool.unit() * BLOCK);
        return ((u32::from(last) + 1) / size).saturating_sub(u32::from(first).div_ceil(size));
    }
    let whole = |count: u32| {
        let mut ranges = pool.ranges.iter();
        ranges.any(|&(first, last, _)| {
            let from = first.number().checked_next_multiple_of(count.into());
            from.is_some_and(|from| from <= last.number() && last.number() - from >= u128::from(count) - 1)
        })
    };
    let max = (0..=BLOCKS.ilog2())
        .rev()
        .map(|bits| 1 << bits)
        .find(|&count| whole(count));
    match max.unwrap_or_default() {
        all if all == pool.count => u32::MAX,
        max => max,
    }
}
