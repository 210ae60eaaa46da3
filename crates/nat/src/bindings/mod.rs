//! Resources that a shard has allocated: ports, mappings, and the subscribers that use them.
//!
//! An outside address and port is allocated in several passes over a batch of new sessions, which hides memory latency:
//! [`Bindings::request`], [`Bindings::prefetch_records`] and [`Bindings::allocate`]. The [`crate::Decision`] of the
//! session records which resources were allocated. At the end of the session, [`Bindings::release_request`] and
//! [`Bindings::release`] release these resources.

mod allocation;
mod capacity;
mod mapping;
mod release;
mod subscriber;

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;

pub use self::allocation::TRIES;
pub use self::capacity::Capacity;
use self::mapping::Mappings;
pub use self::mapping::{Mapping, Part as MappingsPart};
pub use self::release::ReleaseRequest;
use self::subscriber::Subscribers;
pub use self::subscriber::{Subscriber, SubscriberBlock};
use crate::behaviour::Filtering;
use crate::decision::Resources;
use crate::event::Outbox;
use crate::keyed::{Secret, fold, sip};
use crate::pool::{Source, ValidPool};
use crate::ports::{self, Block, BlockPlace, Layout, Lease, PortClass, Ports, TooSmall};
use crate::sites::is_site;
use crate::{Address, Decision, PoolIndex, Reason, RssPorts, Tuple};
use sluice_table::memory::Line;
use sluice_table::reserve::Reserve;
use sluice_wire::{Context, Direction};

/// Maximum number of new mappings that wait for their insertion into the outside index.
const PENDING: usize = 64;

/// Request for an outside port, created by [`Bindings::request`].
#[derive(Clone, Copy, Debug)]
pub struct PortRequest<A> {
    pool: PoolIndex,
    class: PortClass,
    source: Source,
    /// Keyed hash of the subscriber; `None` if the pool does not count subscribers.
    host: Option<u64>,
    /// Keyed hash that selects the port: hash of the flow, or, if the flow uses a mapping, hash of the inside address
    /// and port.
    flow: u64,
    /// Request for a port. `None` if the session also needs a mapping or a subscriber.
    port: Option<ports::LeaseRequest>,
    /// Record number of the subscriber. [`Bindings::prefetch_records`] sets a probable number, and
    /// [`Bindings::prefetch_block`] replaces it by a more reliable one. The number is verified before use.
    subscriber: Option<u32>,
    /// The newest port block of the subscriber, with the block's location in memory.
    block: Option<(Block<A>, BlockPlace)>,
}

/// Resources allocated to a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation<A> {
    /// Outside address and port.
    pub lease: Lease<A>,
    /// Resources that the session holds.
    pub resources: Resources,
    /// Whether other sessions may share the outside address and port. Sessions that share a port must have different
    /// remote endpoints. If the remote endpoints are equal, [`Bindings::another`] returns the next candidate.
    pub overlaps: bool,
}

/// Result of looking up the outside address and port of a packet from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbound<A> {
    /// No inside host is mapped to the address and port.
    Unmapped,
    /// An inside host is mapped to the address and port, but filtering does not permit this remote address and port.
    Filtered,
    /// An inside address and port is mapped to the outside address and port.
    Inside {
        /// Inside address.
        address: A,
        /// Inside port.
        port: u16,
        /// Context of the inside key.
        context: Context,
        /// Pool of the mapping.
        pool: PoolIndex,
    },
}

/// A quarantined port or block (RFC 6888, REQ-8).
#[derive(Clone, Copy, Debug)]
struct Quarantined<A> {
    due: u64,
    pool: PoolIndex,
    resource: Resource<A>,
}

#[derive(Clone, Copy, Debug)]
enum Resource<A> {
    Port(PortClass, Lease<A>),
    Block(Block<A>),
    /// Record number of a quarantined mapping.
    Record(u32),
}

/// All resources that one shard has allocated.
#[derive(Debug)]
pub struct Bindings<'m, A: Address> {
    ports: Ports<'m, A>,
    mappings: Mappings<'m, A>,
    subscribers: Subscribers<'m, A>,
    quarantine: VecDeque<Quarantined<A>>,
    /// Number of ports and blocks freed without quarantine because the quarantine queue was full.
    not_quarantined: u64,
    pending: ArrayVec<(u32, u64), PENDING>,
    /// Events that are queued in the shard until the worker reads them.
    pub events: Outbox,
    secret: Secret,
    /// Length of the inside prefix that counts as one subscriber.
    subscriber: u8,
}

impl<'m, A: Address> Bindings<'m, A> {
    /// Number of memory lines that a shard needs for the layout, `spare` further addresses, and the given capacity.
    pub fn lines(layout: &Layout<A>, spare: u32, capacity: &Capacity) -> usize {
        Ports::lines(layout, spare)
            + mapping::lines_for::<A>(capacity.mappings)
            + subscriber::lines_for::<A>(capacity.subscribers, capacity.blocks)
    }

    /// Creates bindings without any allocated resources.
    pub fn new(
        layout: &Layout<A>,
        shard: u32,
        secret: Secret,
        capacity: &Capacity,
        memory: &'m mut [Line],
    ) -> Result<Self, TooSmall> {
        let (needed, provided) = (Self::lines(layout, 0, capacity), memory.len());
        if provided < needed {
            return Err(TooSmall { needed, provided });
        }
        let (mappings, rest) = memory.split_at_mut(mapping::lines_for::<A>(capacity.mappings));
        let (subscribers, ports) = rest.split_at_mut(subscriber::lines_for::<A>(capacity.subscribers, capacity.blocks));
        Ok(Self {
            ports: Ports::new(layout, shard, secret, ports)?,
            mappings: Mappings::new(mappings, capacity.mappings, secret),
            subscribers: Subscribers::new(subscribers, capacity.subscribers, capacity.blocks),
            quarantine: VecDeque::with_capacity(capacity.quarantine),
            not_quarantined: 0,
            pending: ArrayVec::new(),
            events: Outbox::new(capacity.events),
            secret,
            subscriber: capacity.subscriber.min(A::BITS),
        })
    }

    /// Sets the reserve from which a full mapping table takes further parts. Empty parts are returned to the reserve.
    pub fn share(&mut self, reserve: Arc<Reserve<MappingsPart<'m, A>>>) {
        self.mappings.share(reserve);
    }

    /// Number of memory lines that one part of the reserve needs for `mappings` mappings.
    pub fn lines_of_part(mappings: usize) -> usize {
        mapping::lines_for::<A>(mappings)
    }

    /// Ports of the pools.
    pub fn ports(&self) -> &Ports<'m, A> {
        &self.ports
    }

    /// Ports of the pools, mutable for migration to new pools.
    pub fn ports_mut(&mut self) -> &mut Ports<'m, A> {
        &mut self.ports
    }

    /// Number of mapping records (including permissions), and number of records for which the shard has space without
    /// the reserve.
    pub fn mappings(&self) -> (usize, usize) {
        (self.mappings.len(), self.mappings.capacity())
    }

    /// Number of subscribers, and their maximum.
    pub fn subscribers(&self) -> (usize, usize) {
        (self.subscribers.len(), self.subscribers.records.capacity())
    }

    /// Number of allocated port blocks, and their maximum.
    pub fn blocks(&self) -> (usize, usize) {
        (self.subscribers.blocks.len(), self.subscribers.blocks.capacity())
    }

    /// Number of quarantined ports and blocks, and number of ports and blocks freed without quarantine because the
    /// quarantine queue was full.
    pub fn quarantined(&self) -> (usize, u64) {
        (self.quarantine.len(), self.not_quarantined)
    }

    /// Visits the mappings among the next `count` records, starting at `cursor`. Each mapping is passed with its
    /// subscriber. The first cursor is 0. Returns the next cursor, or `None` after the last record.
    pub fn scan_mappings(
        &self,
        cursor: u32,
        count: u32,
        mut visit: impl FnMut(&Mapping<A>, &Subscriber<A>),
    ) -> Option<u32> {
        let end = self.mappings.end().min(cursor.saturating_add(count));
        for number in cursor..end {
            if let Some(record) = self.mappings.get(number).filter(|record| record.is_mapping())
                && let Some(subscriber) = self.subscribers.get(record.subscriber())
            {
                visit(record, subscriber);
            }
        }
        (end < self.mappings.end()).then_some(end)
    }

    /// Visits the subscribers among the next `count` records, starting at `cursor`. Each subscriber is passed with its
    /// port blocks. The first cursor is 0. Returns the next cursor, or `None` after the last record.
    pub fn scan_subscribers(
        &self,
        cursor: u32,
        count: u32,
        mut visit: impl FnMut(&Subscriber<A>, &mut dyn Iterator<Item = SubscriberBlock<A>>),
    ) -> Option<u32> {
        let reach = self.subscribers.records.high_water();
        let end = reach.min(cursor.saturating_add(count));
        for number in cursor..end {
            if let Some(record) = self.subscribers.get(number).filter(|record| !record.is_idle()) {
                visit(record, &mut self.subscribers.blocks_of(number).map(|(_, owned)| *owned));
            }
        }
        (end < reach).then_some(end)
    }

    /// Sets the table of the outside ports for which RSS delivers replies to this shard. Allocations prefer these
    /// ports.
    pub fn prefer_rss_ports(&mut self, rss_ports: Arc<RssPorts>) {
        self.ports.prefer_rss_ports(rss_ports);
    }

    /// First pass for a new session: determines how the pool allocates the session's outside port, and prefetches the
    /// index lines.
    #[inline]
    pub fn request<T: Tuple<Address = A>>(&mut self, pool: PoolIndex, class: PortClass, key: &T) -> PortRequest<A> {
        self.ports.migrate_if_due();
        let mut request = PortRequest {
            pool,
            class,
            source: Source::Session,
            host: None,
            flow: 0,
            port: None,
            subscriber: None,
            block: None,
        };
        let Some(valid) = self.ports.layout().pool(pool) else {
            return request;
        };
        request.source = valid.source(class);
        let counted = valid.has_subscribers(class);
        if !counted && request.source == Source::Session {
            request.port = Some(self.ports.request(pool, class, key));
            return request;
        }
        if counted {
            let host = self.host_hash(key.context(), self.prefix(key.context(), key.source()), pool);
            self.subscribers.prefetch(host);
            request.host = Some(host);
        }
        request.flow = match request.source {
            Source::Mapping => self.inside_hash(key.context(), key.source(), key.source_port(), class),
            _ => self.ports.flow_hash(class, key),
        };
        if request.source == Source::Mapping {
            self.mappings.prefetch(request.flow);
        }
        request
    }

    /// Second pass for a new session: prefetches the records.
    #[inline(always)]
    pub fn prefetch_records(&self, request: &mut PortRequest<A>) {
        if let Some(host) = request.host {
            request.subscriber = self.subscribers.prefetch_record(host);
            if request.source == Source::Mapping {
                self.mappings.prefetch_record(request.flow);
            }
        }
    }

    /// Third pass for a new session: prefetches the block from which the port will be allocated.
    #[inline(always)]
    pub fn prefetch_block<T: Tuple<Address = A>>(&self, request: &mut PortRequest<A>, key: &T) {
        let Some(host) = request.host else { return };
        request.subscriber = self.subscriber_of(request, host, key);
        if let Some(subscriber) = request.subscriber.and_then(|number| self.subscribers.get(number))
            && let Some(owned) = subscriber.blocks.checked_sub(1)
        {
            self.subscribers.blocks.prefetch(owned);
            let newest = Block {
                address: subscriber.paired(),
                first: subscriber.newest,
            };
            let place = self.ports.find_block(request.pool, newest);
            if let Some(place) = place {
                self.ports
                    .prefetch_block(request.pool, request.class, place, request.flow);
            }
            request.block = place.map(|place| (newest, place));
        }
    }

    /// Last pass: allocates the resources of a session whose remote address is `remote`. `now` is in nanoseconds.
    /// Lookups from outside find new mappings only after [`Bindings::publish`].
    ///
    /// # Errors
    /// The reason for which the allocation is refused. The bindings are unchanged.
    #[inline]
    pub fn allocate<T: Tuple<Address = A>>(
        &mut self,
        request: &PortRequest<A>,
        key: &T,
        remote: A,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        if let Some(port) = request.port {
            return Ok(Allocation {
                lease: self.ports.allocate(port)?,
                resources: Resources::PORT,
                overlaps: false,
            });
        }
        self.allocate_beyond_port(request, key, remote, now)
    }

    /// Adds the new mappings to the outside index. Called after a batch of allocations.
    #[inline]
    pub fn publish(&mut self) {
        for &(number, hash) in &self.pending {
            // If the index has no free entry for the hash, lookups from outside don't find the mapping. The existing
            // sessions of the mapping still work.
            self.mappings.publish(number, hash);
        }
        self.pending.clear();
    }

    /// Looks up the outside address and port to which a packet from outside is sent. `key` is the packet's key.
    pub fn inbound<T: Tuple<Address = A>>(
        &self,
        key: &T,
        class: PortClass,
        is_known: impl FnOnce() -> bool,
    ) -> Inbound<A> {
        let outside = Lease {
            address: key.destination(),
            port: key.destination_port(),
        };
        let record = self
            .mappings
            .find_outside(outside, class)
            .and_then(|number| self.mappings.get(number))
            .filter(|record| record.is_mapping());
        let Some(record) = record else {
            return Inbound::Unmapped;
        };
        let Some(subscriber) = self.subscribers.get(record.subscriber()) else {
            return Inbound::Unmapped;
        };
        let admitted = match self.filtering(subscriber.pool(), class) {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => self.mappings.permission(outside, class, key.source()).is_some(),
            Filtering::AddressAndPortDependent => false,
        } || is_known();
        let (address, port) = record.inside();
        match admitted {
            true => Inbound::Inside {
                address,
                port,
                context: subscriber.context(),
                pool: subscriber.pool(),
            },
            false => Inbound::Filtered,
        }
    }

    fn filtering(&self, pool: PoolIndex, class: PortClass) -> Filtering {
        let pool = self.ports.layout().pool(pool);
        pool.map_or(Filtering::default(), |pool| pool.behaviour(class).filtering)
    }

    fn pool(&self, pool: PoolIndex) -> Option<&ValidPool<A>> {
        self.ports.layout().pool(pool)
    }

    /// Keyed hash of a subscriber.
    #[inline(always)]
    fn host_hash(&self, context: Context, prefix: A, pool: PoolIndex) -> u64 {
        let [high, low] = prefix.words();
        fold(
            self.secret,
            low ^ high.rotate_left(32),
            u64::from(context) << 16 | u64::from(pool),
        )
    }

    /// Keyed hash of an inside address and port. The hash places the mapping in the index, and selects its outside
    /// port.
    #[inline(always)]
    fn inside_hash(&self, context: Context, inside: A, port: u16, class: PortClass) -> u64 {
        let [high, low] = inside.words();
        let rest = u64::from(context) << 32 | u64::from(port) << 8 | class as u64;
        if A::BITS == 32 {
            sip::<1, 3>(self.secret, &[low << 32 ^ rest], rest >> 32)
        } else {
            sip::<1, 3>(self.secret, &[high, low, rest], 0)
        }
    }

    /// The inside prefix of the subscriber to which an address belongs. A site is one subscriber, independent of the
    /// addresses of its terminals.
    #[inline(always)]
    fn prefix(&self, context: Context, address: A) -> A {
        if is_site(context) {
            return A::from_number(0);
        }
        if self.subscriber >= A::BITS {
            return address;
        }
        let host = u32::from(A::BITS - self.subscriber);
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        A::from_number(address.number() & mask)
    }

    /// Finds the subscriber of a key. Tries the record number from the earlier passes before a lookup.
    #[inline(always)]
    fn subscriber_of<T: Tuple<Address = A>>(&self, request: &PortRequest<A>, host: u64, key: &T) -> Option<u32> {
        let (context, prefix) = (key.context(), self.prefix(key.context(), key.source()));
        let known = request
            .subscriber
            .filter(|&number| self.subscribers.is(number, context, prefix, request.pool));
        known.or_else(|| self.find_subscriber(host, key, request.pool))
    }

    #[inline(always)]
    fn find_subscriber<T: Tuple<Address = A>>(&self, host: u64, key: &T, pool: PoolIndex) -> Option<u32> {
        let prefix = self.prefix(key.context(), key.source());
        self.subscribers.find(host, key.context(), prefix, pool)
    }
}

/// Inside, outside and remote addresses of a translated session.
#[derive(Clone, Copy, Debug)]
struct Sides<A> {
    /// Inside address and port.
    inside: (A, u16),
    /// Outside address and port that replace the inside address and port.
    outside: Lease<A>,
    /// Remote address.
    remote: A,
    /// Context of the inside key.
    context: Context,
}

/// Derives the addresses of a session from its decision and its keys.
#[inline(always)]
fn sides<T: Tuple>(decision: Decision, forward: &T, reverse: &T) -> Sides<T::Address> {
    // Key of packets from the inside host, and key of packets from the remote host.
    let (from_inside, from_outside) = match decision.outbound(Direction::Forward) {
        true => (forward, reverse),
        false => (reverse, forward),
    };
    Sides {
        inside: (from_inside.source(), from_inside.source_port()),
        outside: Lease {
            address: from_outside.destination(),
            port: from_outside.destination_port(),
        },
        remote: from_outside.source(),
        context: from_inside.context(),
    }
}
