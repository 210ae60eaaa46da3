//! Pools: the outside addresses and ports to which sources are translated.

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
pub use self::set::{Pools, Window};
use crate::Address;
use crate::behaviour::{Behaviour, Blocks, Limits, PortSelection, Quarantine, SubscriberLimits};
use crate::deterministic::{Deterministic, Plan};
use crate::ports::{PortClass, SharedOf};
use crate::timeout::{Schedule, Timeouts};
use sluice_wire::Context;

/// Index of a pool in the configuration, counted from 0.
pub type PoolIndex = u16;

/// Maximum number of addresses in a pool. Each address takes memory for its port bitmap.
pub const ADDRESSES: u128 = 1 << 20;

/// Action if the paired outside address of an inside host has no free port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Refuse the new session (RFC 7857, section 4).
    #[default]
    Hard,
    /// Allocate a port of a different address of the pool.
    Soft,
}

/// Configuration of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<A> {
    /// The virtual router to which the outside addresses belong. Other virtual routers treat packets to these addresses
    /// as ordinary packets.
    pub context: Context,
    /// Ranges of addresses (first, last). The ranges need not be contiguous (RFC 6888, REQ-3).
    pub addresses: Vec<(A, A)>,
    /// Range of ports and ICMP identifiers.
    pub ports: RangeInclusive<u16>,
    /// Ports in the range that are never allocated (RFC 7422, variable R).
    pub reserved: Vec<RangeInclusive<u16>>,
    /// Action if the paired address has no free port.
    pub pairing: Pairing,
    /// Timeouts of the sessions that use the pool.
    pub timeouts: Timeouts,
    /// Mapping and filtering behaviour of each class: TCP, UDP, ICMP queries.
    pub behaviour: [Behaviour; 3],
    /// Whether flows to different destinations may share an outside port (RFC 7857, section 3). Used only with
    /// address-and-port-dependent mapping.
    pub overlap: bool,
    /// How the outside port of a mapping is selected.
    pub selection: PortSelection,
    /// Whether UDP ports keep their parity: an even inside port gets an even outside port, and an odd inside port an
    /// odd outside port (RFC 4787, REQ-4).
    pub parity: bool,
    /// Port block allocation; if `None`, ports are allocated individually.
    pub blocks: Option<Blocks>,
    /// Quarantine of released ports.
    pub hold: Quarantine,
    /// Deterministic NAT: inside addresses with computed outside addresses and ports (RFC 7422).
    pub deterministic: Option<Deterministic<A>>,
    /// Limits of each subscriber.
    pub subscriber: SubscriberLimits,
    /// Limits of the whole pool.
    pub limits: Limits,
    /// Whether the gateway assigns a new IP ID to datagrams that are fragments or may be fragmented (RFC 6864, section
    /// 5.3.1).
    pub renumber: bool,
    /// Protocols without ports that are translated by address alone. Only addresses distinguish the sessions of such a
    /// protocol. Two hosts with one outside address can't use the protocol with one remote host simultaneously.
    pub protocols: Vec<u8>,
}

impl<A: Address> Pool<A> {
    /// Creates a pool with one address range, ports 1024 to 65535, and the default timeouts.
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

/// A validated pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPool<A> {
    /// Ranges sorted by first address, each with the number of addresses in the preceding ranges.
    ranges: Box<[(A, A, u32)]>,
    count: u32,
    ports: (u16, u16),
    reserved: Box<[(u16, u16)]>,
    /// 2^32 divided by the number of ports in a port unit, rounded up.
    per_port: u64,
    /// Maximum number of shards that can each own ports if the NIC's RSS hash distributes addresses and ports. The
    /// value is the number of whole port units of an address. With port preservation, it is the number of shards over
    /// which consecutive aligned addresses can be distributed.
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
    /// Bitmap of the protocols that are translated by address alone.
    protocols: [u64; 4],
    queried: Derived,
    /// Ports that several shards share, as set by [`Pools::share`].
    shared: SharedOf,
}

/// How the outside port of a new session is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The session gets a port for its exclusive use.
    #[default]
    Session,
    /// The session shares a port with sessions to other remote endpoints.
    Overlap,
    /// The session uses the port of the mapping of its inside address and port.
    Mapping,
}

impl<A: Address> ValidPool<A> {
    /// Placeholder without addresses for an unused pool index.
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
            queried: Derived::default(),
            shared: SharedOf::default(),
        };
        none.queried = Derived::of(&none);
        none
    }

    /// Number of addresses.
    #[inline(always)]
    pub fn addresses(&self) -> u32 {
        self.count
    }

    /// The `index`-th address in ascending order, or the last address if `index` is too large.
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

    /// Index of an address in the pool.
    #[inline(always)]
    pub fn index_of(&self, address: A) -> Option<u32> {
        let at = self.ranges.partition_point(|range| range.0 <= address).checked_sub(1)?;
        let (first, last, before) = *self.ranges.get(at)?;
        (address <= last).then(|| before + (address.number() - first.number()) as u32)
    }

    /// First and last port of the pool.
    #[inline(always)]
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Action if the paired address has no free port.
    #[inline(always)]
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// Timeouts of the sessions that use the pool.
    #[inline(always)]
    pub fn timeouts(&self) -> &Schedule {
        &self.timeouts
    }

    /// Whether the gateway assigns a new IP ID to non-atomic datagrams.
    #[inline(always)]
    pub fn renumbers(&self) -> bool {
        self.renumber
    }

    /// Whether a protocol without ports is translated by address alone.
    #[inline]
    pub fn translates(&self, protocol: u8) -> bool {
        self.protocols[usize::from(protocol / 64)] >> (protocol % 64) & 1 != 0
    }

    /// Whether the pool contains the address and can allocate the port.
    pub fn includes(&self, address: A, port: u16) -> bool {
        self.has_port(port) && self.index_of(address).is_some()
    }

    /// Whether the port is in the pool's range.
    #[inline(always)]
    pub fn has_port(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
            && !self
                .reserved
                .iter()
                .any(|&(first, last)| (first..=last).contains(&port))
    }

    /// Whether any port from `first` to `last` is in the pool's range.
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

    /// Reserved ports, which are never allocated, in ascending order.
    pub(crate) fn reserved(&self) -> &[(u16, u16)] {
        &self.reserved
    }

    /// Whether the pool allocates the same ports as `other`, with the same allocation settings.
    pub(crate) fn allocates_like(&self, other: &Self) -> bool {
        let without_timeouts = |pool: &Self| Self {
            timeouts: Schedule::default(),
            ..pool.clone()
        };
        without_timeouts(self) == without_timeouts(other)
    }

    /// Whether this pool and `other` store port allocations in the same format.
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

    /// Mapping and filtering behaviour of a class.
    #[inline(always)]
    pub fn behaviour(&self, class: PortClass) -> Behaviour {
        self.behaviour[class as usize]
    }

    /// How the port of a new session of a class is allocated.
    #[inline(always)]
    pub fn source(&self, class: PortClass) -> Source {
        self.queried.classes[class as usize].0
    }

    /// Whether sessions of a class are counted by subscriber.
    #[inline(always)]
    pub fn has_subscribers(&self, class: PortClass) -> bool {
        self.queried.classes[class as usize].1
    }

    /// Whether the pool's subscribers have limits.
    #[inline(always)]
    pub fn limits_subscribers(&self) -> bool {
        self.queried.subscriber_limits
    }

    /// Whether the pool has limits for the whole pool.
    #[inline(always)]
    pub fn is_limited(&self) -> bool {
        self.queried.limits
    }

    /// How the outside port of a mapping is selected.
    #[inline(always)]
    pub fn selection(&self) -> PortSelection {
        self.selection
    }

    /// Whether UDP port parity is preserved.
    #[inline(always)]
    pub fn preserves_parity(&self) -> bool {
        self.parity
    }

    /// Port block allocation; `None` if ports are allocated individually.
    #[inline(always)]
    pub fn blocks(&self) -> Option<Blocks> {
        self.blocks
    }

    /// Quarantine of released ports.
    #[inline(always)]
    pub fn quarantine(&self) -> Quarantine {
        self.hold
    }

    /// Limits of each subscriber.
    #[inline(always)]
    pub fn subscriber(&self) -> &SubscriberLimits {
        &self.subscriber
    }

    /// Limits of the whole pool.
    #[inline(always)]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a bitmap records the free ports. A pool has no bitmap if sessions may share a port, or if the pool
    /// preserves ports.
    #[inline(always)]
    pub(crate) fn has_bits(&self) -> bool {
        self.queried.bits
    }

    /// First and last port of the range that is allocated on demand; `None` if deterministic NAT computes all ports.
    pub(crate) fn dynamic_range(&self) -> Option<(u16, u16)> {
        match &self.plan {
            Some(plan) => plan.dynamic(),
            None => Some(self.ports),
        }
    }

    /// Whether each session has a separate port, without mapping or subscriber. Another pool can take over such a port.
    pub fn is_plain(&self) -> bool {
        self.has_bits()
            && self.plan.is_none()
            && self.blocks.is_none()
            && PortClass::ALL
                .iter()
                .all(|&class| self.source(class) == Source::Session)
    }

    /// Number of outside ports for each protocol, over all addresses.
    pub fn capacity(&self) -> u64 {
        let reserved: u64 = self
            .reserved
            .iter()
            .map(|&(first, last)| u64::from(last - first) + 1)
            .sum();
        u64::from(self.count) * (u64::from(self.ports.1) - u64::from(self.ports.0) + 1 - reserved)
    }
}
