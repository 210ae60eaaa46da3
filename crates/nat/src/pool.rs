//! Pools: the outside addresses and ports that sources are translated to.

mod check;
mod derived;
#[cfg(test)]
mod tests;

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

pub use self::check::PoolError;
use self::check::check;
use self::derived::Derived;
use crate::Address;
use crate::behaviour::{Behaviour, Blocks, Limits, PortSelection, Quarantine, SubscriberLimits};
use crate::deterministic::{Deterministic, Plan};
use crate::ports::{Borrowed, PortClass, SharedOf, SharedPorts};
use crate::shard::{BLOCK, BLOCKS, Shards};
use crate::timeout::{Schedule, Timeouts};
use sluice_wire::Context;

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
    /// The virtual router whose addresses these are: those of others are not told apart from any other address.
    pub context: Context,
    /// Ranges of addresses, first and last; they need not touch (RFC 6888, REQ-3).
    pub addresses: Vec<(A, A)>,
    /// Ports, and ICMP identifiers.
    pub ports: RangeInclusive<u16>,
    /// Ports among those that are not allocated (RFC 7422, variable R).
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
    pub hold: Quarantine,
    /// Inside addresses whose outside address and ports are computed (RFC 7422).
    pub deterministic: Option<Deterministic<A>>,
    /// Limits of each subscriber.
    pub subscriber: SubscriberLimits,
    /// Limits of the pool.
    pub limits: Limits,
    /// Datagrams that are fragments or may become such leave with an identification of the gateway's (RFC 6864, 5.3.1).
    pub renumber: bool,
    /// Protocols without ports whose sessions are told apart by addresses alone: two hosts that share an outside address
    /// cannot use one to the same remote at a time.
    pub protocols: Vec<u8>,
}

impl<A: Address> Pool<A> {
    /// A pool of one range of addresses with ports 1024 to 65535 and the default timeouts.
    pub fn new(first: A, last: A) -> Self {
        Self {
            context: 0,
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
            hold: Quarantine::default(),
            deterministic: None,
            subscriber: SubscriberLimits::default(),
            limits: Limits::default(),
            renumber: true,
            protocols: Vec::new(),
        }
    }
}

/// A pool that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPool<A> {
    /// Ranges by first address, with the number of addresses before each.
    ranges: Box<[(A, A, u32)]>,
    count: u32,
    ports: (u16, u16),
    reserved: Box<[(u16, u16)]>,
    /// One unit for each port, as a fraction of 2^32, rounded up.
    per_port: u64,
    /// The most shards that each have ports where addresses and ports spread as cards hash: the whole units of an address;
    /// where all ports of an address stay together, consecutive addresses from a multiple of their number on.
    units: u32,
    pairing: Pairing,
    timeouts: Schedule,
    behaviour: [Behaviour; 3],
    overlap: bool,
    selection: PortSelection,
    parity: bool,
    blocks: Option<Blocks>,
    hold: Quarantine,
    subscriber: SubscriberLimits,
    limits: Limits,
    plan: Option<Arc<Plan<A>>>,
    renumber: bool,
    /// A bit for each protocol that is translated by address alone.
    protocols: [u64; 4],
    asked: Derived,
    /// Ports that shards share: [`Pools::share`].
    shared: SharedOf,
}

/// Where an outside address and port belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<A> {
    /// To the shard of a unit of an address's ports, as cards know it ([`Shards::shard_of_unit`]).
    Unit(u32),
    /// To a shard that cards do not know.
    Shard(u32),
    /// To the shard of an inside address.
    Inside(A),
}

/// Where a new session's outside port comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The session gets one of its own.
    #[default]
    Session,
    /// The session gets any with which its answers are told apart from those of all others.
    Overlap,
    /// The mapping of its inside address and port has one.
    Mapping,
}

impl<A: Address> ValidPool<A> {
    /// What stands where no pool is: it has no address.
    fn none() -> Self {
        let mut none = Self {
            ranges: Box::default(),
            count: 0,
            ports: (1, 1),
            reserved: Box::default(),
            per_port: 0,
            units: 0,
            pairing: Pairing::default(),
            timeouts: Schedule::default(),
            behaviour: [Behaviour::default(); 3],
            overlap: false,
            selection: PortSelection::default(),
            parity: false,
            blocks: None,
            hold: Quarantine::default(),
            subscriber: SubscriberLimits::default(),
            limits: Limits::default(),
            plan: None,
            renumber: true,
            protocols: [0; 4],
            asked: Derived::default(),
            shared: SharedOf::default(),
        };
        none.asked = Derived::of(&none);
        none
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

    /// Is a protocol without ports translated, by address alone?
    #[inline]
    pub fn translates(&self, protocol: u8) -> bool {
        self.protocols[usize::from(protocol / 64)] >> (protocol % 64) & 1 != 0
    }

    /// Has it the address, and allocates it the port?
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

    /// Ports that are not allocated, in ascending order.
    pub(crate) fn reserved(&self) -> &[(u16, u16)] {
        &self.reserved
    }

    /// Whether it allocates the same ports in the same way as another.
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
        self.asked.classes[class as usize].0
    }

    /// Whether sessions of a class are counted by subscriber.
    #[inline(always)]
    pub fn has_subscribers(&self, class: PortClass) -> bool {
        self.asked.classes[class as usize].1
    }

    /// Whether subscribers have limits.
    #[inline(always)]
    pub fn limits_subscribers(&self) -> bool {
        self.asked.subscriber_limits
    }

    /// Whether the pool itself has limits.
    #[inline(always)]
    pub fn is_limited(&self) -> bool {
        self.asked.limits
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
    pub fn quarantine(&self) -> Quarantine {
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
    #[inline(always)]
    pub(crate) fn has_bits(&self) -> bool {
        self.asked.bits
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

    /// Where an address and port belong by computation.
    #[inline(always)]
    pub fn home(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        match self.inside(address, port) {
            Some(inside) => Home::Inside(inside),
            None if self.is_wide(shards) => Home::Unit(self.unit_of(port)),
            None => Home::Shard(self.shard_of(shards, address, port)),
        }
    }

    /// Whether addresses and ports spread over shards as cards hash: where that gives ports to every shard.
    #[inline(always)]
    pub(crate) fn is_wide(&self, shards: Shards) -> bool {
        self.units >= shards.count()
    }

    /// Whether shards share ports of its addresses: where bits say which are free, no sessions have a port together and no
    /// computation says who has it, and each shard keeps a whole unit of each address for itself. Of two shards each has half anyway.
    #[inline(always)]
    pub fn shares(&self, shards: Shards) -> bool {
        let by_bits = self.has_bits() && self.plan.is_none() && !self.overlap;
        by_bits && shards.count() > 2 && self.units >= 2 * shards.count()
    }

    /// The ports that shards share of an address, by its place in the pool.
    #[inline(always)]
    pub(crate) fn shared(&self, place: u32) -> Option<&Arc<SharedPorts>> {
        self.shared.0.as_ref()?.get(place as usize)
    }

    /// The same of a port's address, where its unit is one of those.
    fn shared_at(&self, shards: Shards, address: A, port: u16) -> Option<&SharedPorts> {
        let of_unit = self.shared.0.is_some() && shards.is_shared(self.unit_of(port));
        self.shared(self.index_of(address).filter(|_| of_unit)?)
            .map(Arc::as_ref)
    }

    /// Whether a session keeps its address and port after a change of pools: they belong to its shard, or to a unit that shards share
    /// and no other shard has claimed. The shard claims such a unit when it takes up the new pools.
    pub fn keeps(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        match self.shared_at(shards, address, port) {
            Some(shared) => shared.owner(u32::from(port) / BLOCK).is_none_or(|owner| owner == shard),
            None => self.shard_of(shards, address, port) == shard,
        }
    }

    /// Whether a shard has an address and port that is not computed: it has claimed it, or nobody has and it is the one that
    /// computation names.
    pub fn is_of(&self, shards: Shards, shard: u32, address: A, port: u16) -> bool {
        let shared = self.shared_at(shards, address, port);
        let owner = shared.and_then(|shared| shared.owner(u32::from(port) / BLOCK));
        owner.unwrap_or_else(|| self.shard_of(shards, address, port)) == shard
    }

    /// Where an address and port belong, as it is now: shards may have ports of others.
    #[inline(never)]
    fn home_now(&self, shards: Shards, address: A, port: u16) -> Home<A> {
        let shared = self.shared_at(shards, address, port);
        match shared.and_then(|shared| shared.borrower(u32::from(port) / BLOCK)) {
            Some(borrower) => Home::Shard(borrower),
            None => self.home(shards, address, port),
        }
    }

    /// How units of ports spread over shards, where addresses do not as a whole.
    #[inline(always)]
    fn spread(&self, shards: Shards) -> Shards {
        if self.is_wide(shards) {
            shards
        } else {
            shards.spread_over()
        }
    }

    /// The shard of an address as a whole that cards do not know: each has one in turn. None where ports spread, or as cards
    /// hash.
    #[inline(always)]
    fn turn(&self, shards: Shards, address: A) -> Option<u32> {
        let in_turn = self.selection == PortSelection::Preserve && !self.is_wide(shards);
        in_turn.then(|| self.index_of(address).unwrap_or_default() & (shards.count() - 1))
    }

    /// The first unit from `from` on that a shard has of an address by computation; the next are each [`Shards::count`] on.
    #[inline(always)]
    pub(crate) fn first_unit(&self, shards: Shards, address: A, from: u32, shard: u32) -> u32 {
        match self.turn(shards, address) {
            Some(own) if own == shard => from,
            Some(_) => BLOCKS,
            None => self.spread(shards).first_unit(address, from, shard),
        }
    }

    /// Which of an address's units a port is of.
    #[inline(always)]
    pub fn unit_of(&self, port: u16) -> u32 {
        // Exact for 16 bits, and no division.
        ((u64::from(port) * self.per_port) >> 32) as u32
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
        self.turn(shards, address)
            .unwrap_or_else(|| self.spread(shards).shard_of_unit(address, self.unit_of(port)))
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
#[derive(Clone, Debug)]
pub struct Pools<A> {
    pools: Box<[ValidPool<A>]>,
    /// Every range of every pool by virtual router and first address: router, first, last, pool.
    owners: Box<[(Context, A, A, PoolIndex)]>,
    /// Sessions of some pool keep their port.
    keeps_ports: bool,
    /// Blocks of ports that shards have borrowed.
    borrowed: Arc<Borrowed>,
}

/// Pools are what they are configured to be, whatever they have allocated.
impl<A: Address> PartialEq for Pools<A> {
    fn eq(&self, other: &Self) -> bool {
        self.pools == other.pools && self.owners == other.owners
    }
}

impl<A: Address> Eq for Pools<A> {}

impl<A: Address> Default for Pools<A> {
    fn default() -> Self {
        Self {
            pools: Box::default(),
            owners: Box::default(),
            keeps_ports: false,
            borrowed: Arc::default(),
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
            let context = pool.context;
            owners.extend(
                pool.addresses
                    .iter()
                    .map(|&(first, last)| (context, first, last, index)),
            );
        }
        owners.sort_unstable();
        for (k, &(context, first, last, pool)) in owners.iter().enumerate() {
            let near = |range: &&(Context, A, A, PoolIndex)| range.0 == context && range.1 <= last;
            for &(_, from, _, other) in owners[k + 1..].iter().take_while(near) {
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
            keeps_ports: valid.iter().any(|pool| pool.selection == PortSelection::Preserve),
            pools: valid.into(),
            owners: owners.into(),
            borrowed: Arc::default(),
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

    /// A pool of a virtual router that has the address. What arrives there of no session and no rule is unsolicited.
    #[inline]
    pub fn owner(&self, context: Context, address: A) -> Option<PoolIndex> {
        self.owners_of(context, address).next()
    }

    /// A pool of a virtual router that has the address and allocates one of the ports from `first` to `last`.
    pub fn lends(&self, context: Context, address: A, first: u16, last: u16) -> Option<PoolIndex> {
        self.lends_within(context, (address, address), first, last)
            .map(|(index, _)| index)
    }

    /// The same of the addresses from a first to a last one, and the address.
    pub fn lends_within(&self, context: Context, addresses: (A, A), first: u16, last: u16) -> Option<(PoolIndex, A)> {
        let lends = |pool: PoolIndex| self.get(pool).is_some_and(|pool| pool.has_port_within(first, last));
        let owners = self.ranges(context, addresses.1).iter();
        let owner = owners
            .filter(|range| addresses.0 <= range.2)
            .find(|range| lends(range.3))?;
        Some((owner.3, owner.1.max(addresses.0)))
    }

    /// The shard or host that has an outside port, where a pool allocates it.
    #[inline]
    pub fn home_of_allocated(&self, shards: Shards, context: Context, address: A, port: u16) -> Option<Home<A>> {
        self.owners_of(context, address)
            .map(|index| &self.pools[usize::from(index)])
            .find(|pool| pool.has_port(port))
            .map(|pool| match self.borrowed.load(Ordering::Relaxed) {
                0 => pool.home(shards, address, port),
                _ => pool.home_now(shards, address, port),
            })
    }

    /// Let so many shards share ports, and with the pools of `before` those of the addresses that these had: shards go over to
    /// other pools one after the other, and no two may have one block meanwhile.
    pub fn share(&mut self, before: Option<&Self>, shards: Shards) {
        let mut known = HashMap::new();
        if let Some(before) = before {
            self.borrowed = before.borrowed.clone();
            known.extend(before.all_shared());
        }
        let borrowed = self.borrowed.clone();
        let of_pools = self.owners.iter().map(|&(context, _, _, pool)| (pool, context));
        for (pool, context) in of_pools.collect::<HashMap<_, _>>() {
            let Some(pool) = self.pools.get_mut(usize::from(pool)) else {
                continue;
            };
            let share = |place| {
                let new = || Arc::new(SharedPorts::new(borrowed.clone()));
                known.entry((context, pool.address(place))).or_insert_with(new).clone()
            };
            let shared = pool.shares(shards).then(|| (0..pool.count).map(share).collect());
            pool.shared = SharedOf(shared);
        }
    }

    /// What shards share, by router and address.
    fn all_shared(&self) -> impl Iterator<Item = ((Context, A), Arc<SharedPorts>)> {
        self.owners.iter().flat_map(|&(context, first, last, pool)| {
            let pool = self.get(pool);
            let places = pool.and_then(|pool| Some((pool.index_of(first)?, pool.index_of(last)?)));
            let (from, to) = places.map_or((1, 0), |places| places);
            let of_pool = move |place| Some((pool?.address(place), pool?.shared(place)?.clone()));
            (from..=to)
                .filter_map(of_pool)
                .map(move |(address, shared)| ((context, address), shared))
        })
    }

    /// How many blocks of 64 ports shards have that belong to others by computation.
    pub fn borrowed_blocks(&self) -> u32 {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Whether an outside port is of a pool whose sessions keep their port.
    pub fn preserves(&self, context: Context, address: A, port: u16) -> bool {
        self.keeps_ports && {
            let mut owners = self
                .owners_of(context, address)
                .map(|index| &self.pools[usize::from(index)]);
            let preserves = |pool: &ValidPool<A>| pool.selection == PortSelection::Preserve;
            owners.find(|pool| pool.has_port(port)).is_some_and(preserves)
        }
    }

    /// The ranges of a virtual router that begin at an address or before.
    #[inline]
    fn ranges(&self, context: Context, address: A) -> &[(Context, A, A, PoolIndex)] {
        let before = self
            .owners
            .partition_point(|range| (range.0, range.1) <= (context, address));
        let ranges = self.owners.get(..before).unwrap_or_default();
        // Most processes have one router.
        match ranges.first() {
            Some(first) if first.0 != context => {
                let others = ranges.partition_point(|range| range.0 < context);
                ranges.get(others..).unwrap_or_default()
            }
            _ => ranges,
        }
    }

    /// The pools that have an address: several share one where their ports differ.
    #[inline]
    fn owners_of(&self, context: Context, address: A) -> impl Iterator<Item = PoolIndex> {
        // Ranges overlap only where pools share addresses by ports: then an earlier range may be the longer one.
        let owners = self.ranges(context, address).iter().rev();
        owners.filter(move |range| address <= range.2).map(|range| range.3)
    }
}
