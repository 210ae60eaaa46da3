//! Pools: the outside addresses and ports that sources are translated to.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use thiserror::Error;

use crate::Address;
use crate::behaviour::{Behaviour, Blocks, Hold, Limits, PortSelection, SubscriberLimits};
use crate::deterministic::Deterministic;
use crate::timeout::{Schedule, TimeoutError, Timeouts};

/// Place of a pool in the configuration, counted from 0.
pub type PoolIndex = u16;

/// Most addresses of one pool; its bitmaps take memory for every one.
pub const ADDRESSES: u128 = 1 << 20;

/// What happens when the outside address that an inside host is paired with has no port left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// The new session is refused (RFC 7857, section 4).
    #[default]
    Hard,
    /// Another address of the pool is taken.
    Soft,
}

/// A pool as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<A> {
    /// Ranges of addresses, first and last; they need not touch (RFC 6888, REQ-3).
    pub addresses: Vec<(A, A)>,
    /// Ports, and ICMP identifiers.
    pub ports: RangeInclusive<u16>,
    /// Ports among those that are not lent (RFC 7422, variable R).
    pub reserved: Vec<RangeInclusive<u16>>,
    /// What happens when the paired address is full.
    pub pairing: Pairing,
    /// Timeouts of the sessions that use the pool.
    pub timeouts: Timeouts,
    /// Mapping and filtering by class: TCP, UDP, ICMP queries.
    pub behaviour: [Behaviour; 3],
    /// With address-and-port-dependent mapping: flows to different destinations may share an outside port
    /// (RFC 7857, section 3).
    pub overlap: bool,
    /// Which free port a mapping gets.
    pub selection: PortSelection,
    /// UDP: even inside ports get even outside ports, odd ones odd (RFC 4787, REQ-4).
    pub parity: bool,
    /// Blocks of ports; none: port by port.
    pub blocks: Option<Blocks>,
    /// How long freed ports wait.
    pub hold: Hold,
    /// Inside addresses whose outside address and ports are computed (RFC 7422).
    pub deterministic: Option<Deterministic<A>>,
    /// Limits of each subscriber.
    pub subscriber: SubscriberLimits,
    /// Limits of the pool.
    pub limits: Limits,
}

impl<A: Address> Pool<A> {
    /// A pool of one range of addresses with ports 1024 to 65535 and the default timeouts.
    pub fn new(first: A, last: A) -> Self {
        Self {
            addresses: vec![(first, last)],
            ports: 1024..=u16::MAX,
            reserved: Vec::new(),
            pairing: Pairing::default(),
            timeouts: Timeouts::default(),
            behaviour: [Behaviour::default(); 3],
            overlap: false,
            selection: PortSelection::default(),
            parity: false,
            blocks: None,
            hold: Hold::default(),
            deterministic: None,
            subscriber: SubscriberLimits::default(),
            limits: Limits::default(),
        }
    }
}

/// Why pools are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// No address.
    #[error("pool {pool} has no address")]
    Empty {
        /// The pool.
        pool: PoolIndex,
    },
    /// A range whose last address is before its first.
    #[error("pool {pool}: the range {first}-{last} ends before it begins")]
    Reversed {
        /// The pool.
        pool: PoolIndex,
        /// The range's first address.
        first: IpAddr,
        /// The range's last address.
        last: IpAddr,
    },
    /// More addresses than [`ADDRESSES`].
    #[error("pool {pool} has {count} addresses, at most 1048576 are possible")]
    TooLarge {
        /// The pool.
        pool: PoolIndex,
        /// Its addresses.
        count: u128,
    },
    /// A port range that is empty or holds port 0.
    #[error("pool {pool}: ports {first}-{last} are not a range within 1-65535")]
    BadPorts {
        /// The pool.
        pool: PoolIndex,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// Two ranges that share an address and a port.
    #[error("pools {pool} and {other} overlap: both have {address}")]
    Overlap {
        /// The one.
        pool: PoolIndex,
        /// The other; the same where two ranges of one pool overlap.
        other: PoolIndex,
        /// The first address that both have.
        address: IpAddr,
    },
    /// Timeouts out of bounds.
    #[error("pool {pool}: {error}")]
    Timeout {
        /// The pool.
        pool: PoolIndex,
        /// What is wrong.
        error: TimeoutError,
    },
    /// More pools than an index can name.
    #[error("{count} pools, at most 65536 are possible")]
    TooMany {
        /// As configured.
        count: usize,
    },
}

/// A pool that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPool<A> {
    /// Ranges by first address, with the number of addresses before each.
    ranges: Box<[(A, A, u32)]>,
    count: u32,
    ports: (u16, u16),
    pairing: Pairing,
    timeouts: Schedule,
}

impl<A: Address> ValidPool<A> {
    /// What stands where no pool is: it has no address.
    fn none() -> Self {
        Self {
            ranges: Box::default(),
            count: 0,
            ports: (1, 1),
            pairing: Pairing::default(),
            timeouts: Schedule::default(),
        }
    }

    /// How many addresses.
    #[inline(always)]
    pub fn addresses(&self) -> u32 {
        self.count
    }

    /// The `index`-th address in ascending order; the last where there are not so many.
    #[inline(always)]
    pub fn address(&self, index: u32) -> A {
        let index = index.min(self.count.saturating_sub(1));
        let mut at = 0;
        if self.ranges.len() > 1 {
            at = self.ranges.partition_point(|range| range.2 <= index) - 1;
        }
        let (first, _, before) = self.ranges[at];
        A::from_number(first.number() + u128::from(index - before))
    }

    /// Place of an address among the pool's.
    #[inline(always)]
    pub fn index_of(&self, address: A) -> Option<u32> {
        let at = self.ranges.partition_point(|range| range.0 <= address).checked_sub(1)?;
        let (first, last, before) = *self.ranges.get(at)?;
        (address <= last).then(|| before + (address.number() - first.number()) as u32)
    }

    /// First and last port.
    #[inline(always)]
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// What happens when the paired address is full.
    #[inline(always)]
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// Timeouts of the sessions that use the pool.
    #[inline(always)]
    pub fn timeouts(&self) -> &Schedule {
        &self.timeouts
    }

    /// Has it the address, and lends it the port?
    pub fn lends(&self, address: A, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port) && self.index_of(address).is_some()
    }

    /// Whether it lends the same ports in the same way as another.
    pub(crate) fn lends_as(&self, other: &Self) -> bool {
        (&self.ranges, self.ports, self.pairing) == (&other.ranges, other.ports, other.pairing)
    }

    /// Outside ports per protocol, all addresses together.
    pub fn capacity(&self) -> u64 {
        u64::from(self.count) * (u64::from(self.ports.1) - u64::from(self.ports.0) + 1)
    }
}

/// All pools of a family, checked against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools<A> {
    pools: Box<[ValidPool<A>]>,
    /// Every range of every pool by first address: first, last, pool.
    owners: Box<[(A, A, PoolIndex)]>,
}

impl<A: Address> Default for Pools<A> {
    fn default() -> Self {
        Self {
            pools: Box::default(),
            owners: Box::default(),
        }
    }
}

impl<A: Address> Pools<A> {
    /// Check each pool, and all against each other: two may share an address only where their ports differ.
    pub fn new(pools: &[Pool<A>]) -> Result<Self, PoolError> {
        Self::placed(&pools.iter().map(Some).collect::<Vec<_>>())
    }

    /// The same with places that are left free: an index is a pool's for as long as sessions may name it.
    pub fn placed(pools: &[Option<&Pool<A>>]) -> Result<Self, PoolError> {
        if pools.len() > usize::from(PoolIndex::MAX) + 1 {
            return Err(PoolError::TooMany { count: pools.len() });
        }
        let mut valid = Vec::with_capacity(pools.len());
        let mut owners = Vec::new();
        for (index, pool) in pools.iter().enumerate() {
            let index = index as PoolIndex;
            let Some(pool) = pool else {
                valid.push(ValidPool::none());
                continue;
            };
            valid.push(check(index, pool)?);
            owners.extend(pool.addresses.iter().map(|&(first, last)| (first, last, index)));
        }
        owners.sort_unstable();
        for (k, &(first, last, pool)) in owners.iter().enumerate() {
            for &(from, _, other) in owners[k + 1..].iter().take_while(|range| range.0 <= last) {
                let (a, b) = (valid[usize::from(pool)].ports, valid[usize::from(other)].ports);
                if a.0 <= b.1 && b.0 <= a.1 {
                    return Err(PoolError::Overlap {
                        pool,
                        other,
                        address: from.max(first).display(),
                    });
                }
            }
        }
        Ok(Self {
            pools: valid.into(),
            owners: owners.into(),
        })
    }

    /// How many pools.
    pub fn len(&self) -> usize {
        self.pools.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// A pool.
    #[inline(always)]
    pub fn get(&self, index: PoolIndex) -> Option<&ValidPool<A>> {
        self.pools.get(usize::from(index))
    }

    /// All pools in order.
    pub fn iter(&self) -> impl Iterator<Item = (PoolIndex, &ValidPool<A>)> {
        self.pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (index as PoolIndex, pool))
    }

    /// A pool that has the address. What arrives there of no session and no rule is unsolicited.
    #[inline]
    pub fn owner(&self, address: A) -> Option<PoolIndex> {
        let before = self.owners.partition_point(|range| range.0 <= address);
        // Ranges overlap only where pools share addresses by ports: then an earlier range may be the longer one.
        self.owners[..before]
            .iter()
            .rev()
            .find(|range| address <= range.1)
            .map(|range| range.2)
    }

    /// A pool that has the address and lends one of the ports from `first` to `last`.
    pub fn lends(&self, address: A, first: u16, last: u16) -> Option<PoolIndex> {
        self.iter()
            .find(|(_, pool)| pool.index_of(address).is_some() && pool.ports.0 <= last && first <= pool.ports.1)
            .map(|(index, _)| index)
    }
}

fn check<A: Address>(index: PoolIndex, pool: &Pool<A>) -> Result<ValidPool<A>, PoolError> {
    let (first, last) = (*pool.ports.start(), *pool.ports.end());
    if first == 0 || last < first {
        return Err(PoolError::BadPorts {
            pool: index,
            first,
            last,
        });
    }
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
    let timeouts = Schedule::new(&pool.timeouts).map_err(|error| PoolError::Timeout { pool: index, error })?;
    Ok(ValidPool {
        ranges: ranges.into(),
        count: count as u32,
        ports: (first, last),
        pairing: pool.pairing,
        timeouts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u32 = 0xcb00_7100;

    #[test]
    fn rfc6888_req3_non_contiguous_ranges_count_and_index() {
        let mut pool = Pool::new(BASE + 100, BASE + 101);
        pool.addresses.push((BASE, BASE + 2));
        let pools = Pools::new(&[pool]).unwrap();
        let pool = pools.get(0).unwrap();
        let expected = [BASE, BASE + 1, BASE + 2, BASE + 100, BASE + 101];
        assert_eq!(5, pool.addresses());
        assert_eq!(5 * 64_512, pool.capacity());
        for (index, address) in expected.into_iter().enumerate() {
            assert_eq!(address, pool.address(index as u32));
            assert_eq!(Some(index as u32), pool.index_of(address));
        }
        assert_eq!(None, pool.index_of(BASE + 3));
        assert_eq!(None, pool.index_of(BASE - 1));
        assert_eq!(Some(0), pools.owner(BASE + 100));
        assert_eq!(None, pools.owner(BASE + 102));
    }

    #[test]
    fn pools_overlapping_addresses_and_ports_are_refused() {
        let one = Pool::new(BASE, BASE + 9);
        let other = Pool::new(BASE + 9, BASE + 20);
        let expected = PoolError::Overlap {
            pool: 0,
            other: 1,
            address: (BASE + 9).display(),
        };
        assert_eq!(Err(expected), Pools::new(&[one.clone(), other.clone()]));
        let low = Pool {
            ports: 1..=1023,
            ..other
        };
        let pools = Pools::new(&[one, low]).unwrap();
        assert_eq!(Some(0), pools.lends(BASE + 9, 1024, 1024));
        assert_eq!(Some(1), pools.lends(BASE + 9, 80, 80));
        assert_eq!(Some(0), pools.owner(BASE + 8));
        assert_eq!(Some(1), pools.owner(BASE + 20));
    }

    #[test]
    fn pools_range_overlapping_itself_is_refused() {
        let mut pool = Pool::new(BASE, BASE + 9);
        pool.addresses.push((BASE + 5, BASE + 6));
        let expected = PoolError::Overlap {
            pool: 0,
            other: 0,
            address: (BASE + 5).display(),
        };
        assert_eq!(Err(expected), Pools::new(&[pool]));
    }

    #[test]
    fn pools_bad_ranges_are_refused_by_name() {
        let good = Pool::new(BASE, BASE);
        let empty = Pool {
            addresses: vec![],
            ..good.clone()
        };
        assert_eq!(Err(PoolError::Empty { pool: 1 }), Pools::new(&[good.clone(), empty]));
        let reversed = Pool::new(BASE + 1, BASE);
        assert!(matches!(
            Pools::new(&[reversed]),
            Err(PoolError::Reversed { pool: 0, .. })
        ));
        let zero = Pool {
            ports: 0..=100,
            ..good.clone()
        };
        assert_eq!(
            Err(PoolError::BadPorts {
                pool: 0,
                first: 0,
                last: 100
            }),
            Pools::new(&[zero])
        );
        let all = Pool::new([0u64, 0], [u64::MAX, u64::MAX]);
        assert_eq!(
            Err(PoolError::TooLarge {
                pool: 0,
                count: u128::MAX
            }),
            Pools::new(&[all])
        );
        let hasty = Pool {
            timeouts: Timeouts {
                udp: 1,
                ..Timeouts::default()
            },
            ..good
        };
        assert!(matches!(Pools::new(&[hasty]), Err(PoolError::Timeout { pool: 0, .. })));
    }
}
