//! Pools: the outside addresses and ports that sources are translated to.

use core::net::IpAddr;
use core::ops::RangeInclusive;
use std::sync::Arc;

use thiserror::Error;

use crate::Address;
use crate::behaviour::{Behaviour, Blocks, Hold, Limits, Mapping, PortSelection, SubscriberLimits};
use crate::deterministic::{Deterministic, DeterministicError, Plan};
use crate::ports::PortClass;
use crate::shard::{BLOCK, BLOCKS, Shards};
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
    /// Datagrams that are fragments or may become such leave with an identification of the gateway's (RFC 6864, 5.3.1).
    pub renumber: bool,
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
            renumber: true,
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
    /// A block size that is no power of two, or below 64.
    #[error("pool {pool}: blocks of {size} ports; a block has a power of two of ports, at least 64")]
    BadBlocks {
        /// The pool.
        pool: PoolIndex,
        /// As configured.
        size: u16,
    },
    /// Ports can't be computed.
    #[error("pool {pool}: {error}")]
    Deterministic {
        /// The pool.
        pool: PoolIndex,
        /// Why.
        error: DeterministicError,
    },
    /// Settings that contradict each other.
    #[error("pool {pool}: {why}")]
    Contradiction {
        /// The pool.
        pool: PoolIndex,
        /// What is wrong.
        why: &'static str,
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
    reserved: Box<[(u16, u16)]>,
    pairing: Pairing,
    timeouts: Schedule,
    behaviour: [Behaviour; 3],
    overlap: bool,
    selection: PortSelection,
    parity: bool,
    blocks: Option<Blocks>,
    hold: Hold,
    subscriber: SubscriberLimits,
    limits: Limits,
    plan: Option<Arc<Plan<A>>>,
    renumber: bool,
}

/// Where an outside address and port belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<A> {
    /// To a shard.
    Shard(u32),
    /// To the shard of an inside address.
    Inside(A),
}

/// Where a new session's outside port comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The session gets one of its own.
    Session,
    /// The session gets any with which its answers are told apart from those of all others.
    Overlap,
    /// The mapping of its inside address and port has one.
    Mapping,
}

impl<A: Address> ValidPool<A> {
    /// What stands where no pool is: it has no address.
    fn none() -> Self {
        Self {
            ranges: Box::default(),
            count: 0,
            ports: (1, 1),
            reserved: Box::default(),
            pairing: Pairing::default(),
            timeouts: Schedule::default(),
            behaviour: [Behaviour::default(); 3],
            overlap: false,
            selection: PortSelection::default(),
            parity: false,
            blocks: None,
            hold: Hold::default(),
            subscriber: SubscriberLimits::default(),
            limits: Limits::default(),
            plan: None,
            renumber: true,
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

    /// Do datagrams that are not atomic leave with an identification of the gateway's?
    #[inline(always)]
    pub fn renumbers(&self) -> bool {
        self.renumber
    }

    /// Has it the address, and lends it the port?
    pub fn lends(&self, address: A, port: u16) -> bool {
        self.has_port(port) && self.index_of(address).is_some()
    }

    /// Is the port one of the pool's?
    #[inline(always)]
    pub fn has_port(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
            && !self
                .reserved
                .iter()
                .any(|&(first, last)| (first..=last).contains(&port))
    }

    /// Is one of the ports from `first` to `last` one of the pool's?
    fn has_port_within(&self, first: u16, last: u16) -> bool {
        let (mut from, to) = (first.max(self.ports.0), last.min(self.ports.1));
        for &(start, end) in &self.reserved {
            if (start..=end).contains(&from) {
                if end >= to {
                    return false;
                }
                from = end + 1;
            }
        }
        from <= to
    }

    /// Ports that are not lent, in ascending order.
    pub(crate) fn reserved(&self) -> &[(u16, u16)] {
        &self.reserved
    }

    /// Whether it lends the same ports in the same way as another.
    pub(crate) fn lends_as(&self, other: &Self) -> bool {
        let timeless = |pool: &Self| Self {
            timeouts: Schedule::default(),
            ..pool.clone()
        };
        timeless(self) == timeless(other)
    }

    /// Whether leases of the one are kept as those of the other are.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        let shape = |pool: &Self| {
            let mapping = pool.behaviour.map(|behaviour| behaviour.mapping);
            (
                mapping,
                pool.overlap,
                pool.selection,
                pool.blocks.map(|blocks| blocks.size),
                pool.plan.clone(),
            )
        };
        shape(self) == shape(other)
    }

    /// Mapping and filtering of a class.
    #[inline(always)]
    pub fn behaviour(&self, class: PortClass) -> Behaviour {
        self.behaviour[class as usize]
    }

    /// Where the port of a new session of a class comes from.
    #[inline(always)]
    pub fn source(&self, class: PortClass) -> Source {
        match self.behaviour[class as usize].mapping {
            Mapping::EndpointIndependent => Source::Mapping,
            Mapping::AddressAndPortDependent if self.overlap => Source::Overlap,
            Mapping::AddressAndPortDependent => Source::Session,
        }
    }

    /// Whether sessions of a class are counted by subscriber.
    #[inline(always)]
    pub fn has_subscribers(&self, class: PortClass) -> bool {
        self.source(class) == Source::Mapping || self.blocks.is_some() || self.subscriber != SubscriberLimits::default()
    }

    /// Which free port a mapping gets.
    #[inline(always)]
    pub fn selection(&self) -> PortSelection {
        self.selection
    }

    /// Whether UDP ports keep their parity.
    #[inline(always)]
    pub fn keeps_parity(&self) -> bool {
        self.parity
    }

    /// Blocks of ports.
    #[inline(always)]
    pub fn blocks(&self) -> Option<Blocks> {
        self.blocks
    }

    /// How long freed ports wait.
    #[inline(always)]
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// Limits of each subscriber.
    #[inline(always)]
    pub fn subscriber(&self) -> &SubscriberLimits {
        &self.subscriber
    }

    /// Limits of the pool.
    #[inline(always)]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a bit per port says which are free: not where sessions may share a port, or an address belongs to one
    /// shard as a whole.
    pub(crate) fn has_bits(&self) -> bool {
        if self.plan.is_some() {
            return self.blocks.is_some() && self.dealt().is_some();
        }
        self.selection == PortSelection::Random
            && PortClass::ALL
                .iter()
                .any(|&class| self.source(class) != Source::Overlap)
    }

    /// First and last of the ports that are not computed; none where all are.
    pub(crate) fn dealt(&self) -> Option<(u16, u16)> {
        match &self.plan {
            Some(plan) => plan.dynamic(),
            None => Some(self.ports),
        }
    }

    /// Whether every session holds a port of its own and nothing else: then another pool may take it over.
    pub fn is_plain(&self) -> bool {
        self.has_bits()
            && self.plan.is_none()
            && self.blocks.is_none()
            && PortClass::ALL
                .iter()
                .all(|&class| self.source(class) == Source::Session)
    }

    /// Words of 64 ports that always share a shard.
    #[inline(always)]
    pub fn unit(&self) -> u32 {
        match (self.selection, self.blocks) {
            (PortSelection::Preserve, _) => BLOCKS,
            (_, Some(blocks)) => u32::from(blocks.size) / BLOCK,
            _ => 1,
        }
    }

    /// Where an address and port belong.
    #[inline(always)]
    pub fn home(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        match self.inside(address, port) {
            Some(inside) => Home::Inside(inside),
            None => Home::Shard(self.shard_of(shards, address, port)),
        }
    }

    /// The inside address that has a port of the pool by computation (RFC 7422).
    #[inline(always)]
    pub fn inside(&self, address: A, port: u16) -> Option<A> {
        self.plan.as_ref()?.inside(address, port)
    }

    /// How ports are computed, where they are (RFC 7422).
    pub fn plan(&self) -> Option<&Plan<A>> {
        self.plan.as_deref()
    }

    /// The shard that an address and port that is not computed belong to.
    #[inline(always)]
    pub fn shard_of(&self, shards: Shards, address: A, port: u16) -> u32 {
        shards.shard_of_unit(address, u32::from(port) / (BLOCK * self.unit()))
    }

    /// Outside ports per protocol, all addresses together.
    pub fn capacity(&self) -> u64 {
        let reserved: u64 = self
            .reserved
            .iter()
            .map(|&(first, last)| u64::from(last - first) + 1)
            .sum();
        u64::from(self.count) * (u64::from(self.ports.1) - u64::from(self.ports.0) + 1 - reserved)
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

    /// Where an outside address and port belong; none where no pool has the address.
    #[inline]
    pub fn home(&self, shards: Shards, address: A, port: u16) -> Option<Home<A>> {
        let before = self.owners.partition_point(|range| range.0 <= address);
        let mut owners = self.owners[..before].iter().rev().filter(|range| address <= range.1);
        let first = owners.next()?.2;
        // Pools that share an address differ in their ports.
        let pool = |index: PoolIndex| &self.pools[usize::from(index)];
        let owner = match pool(first).has_port(port) {
            true => first,
            false => owners
                .map(|range| range.2)
                .find(|&index| pool(index).has_port(port))
                .unwrap_or(first),
        };
        Some(pool(owner).home(shards, address, port))
    }

    /// A pool that has the address and lends one of the ports from `first` to `last`.
    pub fn lends(&self, address: A, first: u16, last: u16) -> Option<PoolIndex> {
        self.iter()
            .find(|(_, pool)| pool.index_of(address).is_some() && pool.has_port_within(first, last))
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
    if let Some(Blocks { size, .. }) = pool.blocks
        && (!size.is_power_of_two() || u32::from(size) < BLOCK)
    {
        return Err(PoolError::BadBlocks { pool: index, size });
    }
    let clash = if pool.overlap
        && pool
            .behaviour
            .iter()
            .all(|one| one.mapping == Mapping::EndpointIndependent)
    {
        Some("overlapping ports need address-and-port-dependent mapping")
    } else if pool.overlap && pool.blocks.is_some() {
        Some("ports that overlap don't come in blocks")
    } else if pool.selection == PortSelection::Preserve && pool.blocks.is_some() {
        Some("ports that are preserved don't come in blocks")
    } else if pool.deterministic.is_some() && pool.selection == PortSelection::Preserve {
        Some("ports that are computed are not preserved")
    } else if pool.deterministic.is_some()
        && !pool.overlap
        && pool
            .behaviour
            .iter()
            .any(|one| one.mapping == Mapping::AddressAndPortDependent)
    {
        Some("computed ports with address-and-port-dependent mapping overlap")
    } else if pool.selection == PortSelection::Preserve
        && !pool.overlap
        && pool
            .behaviour
            .iter()
            .any(|one| one.mapping == Mapping::AddressAndPortDependent)
    {
        Some("preserved ports with address-and-port-dependent mapping overlap")
    } else {
        None
    };
    if let Some(why) = clash {
        return Err(PoolError::Contradiction { pool: index, why });
    }
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
    if reserved == [(first, last)] {
        return Err(PoolError::BadPorts {
            pool: index,
            first,
            last,
        });
    }
    let plan = match Plan::of(pool) {
        None => None,
        Some(Ok(plan)) => Some(Arc::new(plan)),
        Some(Err(error)) => return Err(PoolError::Deterministic { pool: index, error }),
    };
    let timeouts = Schedule::new(&pool.timeouts).map_err(|error| PoolError::Timeout { pool: index, error })?;
    Ok(ValidPool {
        ranges: ranges.into(),
        count: count as u32,
        ports: (first, last),
        reserved: reserved.into(),
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
    fn pools_do_not_lend_what_is_reserved() {
        let mut pool = Pool::new(BASE, BASE);
        pool.reserved = vec![8080..=8081, 8082..=8090, 65_000..=u16::MAX];
        let pools = Pools::new(&[pool]).unwrap();
        for (first, last, lent) in [
            (8080, 8090, false),
            (8082, 8082, false),
            (8079, 8090, true),
            (8090, 8091, true),
            (65_000, u16::MAX, false),
            (1, 1023, false),
            (1, u16::MAX, true),
        ] {
            assert_eq!(lent.then_some(0), pools.lends(BASE, first, last), "{first}-{last}");
        }
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
