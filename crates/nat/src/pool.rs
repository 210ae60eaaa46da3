//! Pools: the outside addresses and ports that sources are translated to.

mod check;
mod derived;
mod home;
mod set;
#[cfg(test)]
mod tests;

use core::ops::RangeInclusive;
use std::sync::Arc;

pub use self::check::PoolError;
use self::derived::Derived;
pub use self::home::Home;
pub use self::set::Pools;
use crate::Address;
use crate::behaviour::{Behaviour, Blocks, Limits, PortSelection, Quarantine, SubscriberLimits};
use crate::deterministic::{Deterministic, Plan};
use crate::ports::{PortClass, SharedOf};
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
