//! Allocation of ports, mappings and subscriber records for new sessions.

mod candidates;
mod pairing;

pub use self::candidates::TRIES;
use super::release::Port;
use super::{Allocation, Bindings, PENDING, PortRequest};
use crate::behaviour::Filtering;
use crate::decision::Resources;
use crate::event::{Event, EventKind};
use crate::keyed::sip;
use crate::pool::{Pairing, Source};

use crate::ports::{Lease, PortClass};

use crate::{Address, PoolIndex, Reason, Tuple};

/// Maximum number of outside addresses that one allocation tries in a pool with soft pairing or port preservation.
const ADDRESSES: u32 = 8;

impl<A: Address> Bindings<'_, A> {
    #[inline]
    pub(super) fn allocate_beyond_port<T: Tuple<Address = A>>(
        &mut self,
        request: &PortRequest<A>,
        key: &T,
        remote: A,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let Some(host) = request.host else {
            return self.allocate_overlapping(request, key);
        };
        let found = self.subscriber_of(request, host, key);
        let number = match found {
            Some(number) => number,
            None => self.add_subscriber(host, key, request.pool, now)?,
        };
        let allocated = self.allocate_for_subscriber(number, request, key, remote, now);
        if let Err(reason) = allocated {
            self.report(reason, request, key, now);
        }
        if found.is_none() && allocated.is_err() {
            self.leave(host, number, now);
        }
        allocated
    }

    /// Records the event that a subscriber was refused an allocation.
    #[cold]
    fn report<T: Tuple<Address = A>>(&mut self, reason: Reason, request: &PortRequest<A>, key: &T, now: u64) {
        let kind = match reason {
            Reason::PortsExhausted => EventKind::PortsExhausted,
            _ => EventKind::QuotaExceeded,
        };
        let (inside, class) = (self.prefix(key.context(), key.source()), Some(request.class));
        self.events.push(kind, || Event {
            class,
            ..Event::new(kind, now, key.context(), inside, request.pool)
        });
    }

    /// Allocates a port that several sessions may share. The port is not counted for a subscriber.
    fn allocate_overlapping<T: Tuple<Address = A>>(
        &mut self,
        request: &PortRequest<A>,
        key: &T,
    ) -> Result<Allocation<A>, Reason> {
        let lease = self.first(request, key)?;
        Ok(Allocation {
            lease,
            resources: Resources::NONE,
            overlaps: true,
        })
    }

    /// Whether a pool contains the address and this shard owns ports of the address.
    #[inline(always)]
    fn is_usable(&self, pool: PoolIndex, address: A) -> bool {
        let place = self.pool(pool).and_then(|valid| valid.index_of(address));
        place.is_some_and(|place| self.ports.has_ports(pool, place))
    }

    fn first<T: Tuple<Address = A>>(&self, request: &PortRequest<A>, key: &T) -> Result<Lease<A>, Reason> {
        let found = (0..TRIES).find_map(|attempt| self.another(request, key, attempt));
        found.ok_or(Reason::PortsExhausted)
    }

    fn allocate_for_subscriber<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        request: &PortRequest<A>,
        key: &T,
        remote: A,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let valid = self.pool(request.pool).ok_or(Reason::PortsExhausted)?;
        let limited = valid.limits_subscribers();
        let more_ports = match limited || valid.plan().is_some() {
            true => self.admit(number, request.pool, request.class, now)?,
            false => true,
        };
        let allocation = match request.source {
            Source::Overlap => Allocation {
                lease: self.first(request, key)?,
                resources: Resources::SUBSCRIBER,
                overlaps: true,
            },
            Source::Session if !more_ports => return Err(Reason::SubscriberPorts),
            Source::Session => Allocation {
                lease: self.allocate_port(number, request, key, now)?,
                resources: Resources::SUBSCRIBER | Resources::PORT,
                overlaps: false,
            },
            Source::Mapping => self.allocate_mapping(number, request, key, remote, more_ports, now)?,
        };
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.sessions += 1;
            if allocation.resources == Resources::SUBSCRIBER | Resources::PORT {
                subscriber.ports[request.class as usize] += 1;
            }
        }
        if limited {
            self.charge(number, request.pool, now);
        }
        Ok(allocation)
    }

    /// Checks the limits of a subscriber for another session. `Ok(true)` means that the subscriber may have another
    /// session and another port of the class; `Ok(false)` permits only the session.
    #[inline(never)]
    fn admit(&self, number: u32, pool: PoolIndex, class: PortClass, now: u64) -> Result<bool, Reason> {
        let valid = self.pool(pool).ok_or(Reason::PortsExhausted)?;
        let subscriber = self.subscribers.get(number).ok_or(Reason::PortsExhausted)?;
        let limits = valid.subscriber();
        if limits.sessions.is_some_and(|max| subscriber.sessions() >= max) {
            return Err(Reason::SubscriberSessions);
        }
        if limits.rate.is_some_and(|rate| !subscriber.admits(rate, now)) {
            return Err(Reason::SubscriberRate);
        }
        let ports = subscriber.ports()[class as usize];
        let max = valid.plan().and_then(|plan| plan.max_hosts());
        let mut limits = limits.ports[class as usize].into_iter().chain(max);
        Ok(limits.all(|max| ports < max))
    }

    /// Counts a new session of a subscriber, and takes a token for it from the rate limiter.
    #[inline(never)]
    fn charge(&mut self, number: u32, pool: PoolIndex, now: u64) {
        if let Some(rate) = self.pool(pool).and_then(|valid| valid.subscriber().rate)
            && let Some(subscriber) = self.subscribers.records.get_mut(number)
        {
            subscriber.charge(rate, now);
        }
    }

    /// Finds the mapping of the inside address and port, or creates it.
    #[inline]
    fn allocate_mapping<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        request: &PortRequest<A>,
        key: &T,
        remote: A,
        more_ports: bool,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let inside = (key.source(), key.source_port());
        let lease = match self.mappings.find(request.flow, number, inside, request.class) {
            Some(mapping) => {
                let lease = self.mappings.get(mapping).map(|record| record.outside());
                let lease = lease
                    .filter(|_| self.mappings.add_session(mapping))
                    .ok_or(Reason::MappingsFull)?;
                self.permit(request, remote, mapping, lease, now)?;
                lease
            }
            None if !more_ports => return Err(Reason::SubscriberPorts),
            None => {
                let lease = self.allocate_port(number, request, key, now)?;
                let made = self.mappings.make(request.flow, number, inside, lease, request.class);
                let Some(mapping) = made else {
                    let port = Port {
                        pool: request.pool,
                        class: request.class,
                        lease,
                        mapped: true,
                    };
                    self.release_port(number, port, None, now);
                    return Err(Reason::MappingsFull);
                };
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.ports[request.class as usize] += 1;
                }
                self.events.push(EventKind::BibCreate, || Event {
                    inside_port: key.source_port(),
                    class: Some(request.class),
                    ..Event::new(EventKind::BibCreate, now, key.context(), key.source(), request.pool)
                        .outside(lease.address, (lease.port, lease.port))
                });
                if self.pending.len() == PENDING {
                    self.publish();
                }
                let hash = self.mappings.prepare(lease, request.class);
                let _ = self.pending.try_push((mapping, hash));
                self.permit(request, remote, mapping, lease, now)?;
                lease
            }
        };
        Ok(Allocation {
            lease,
            resources: Resources::SUBSCRIBER | Resources::MAPPING,
            overlaps: false,
        })
    }

    /// If filtering is address-dependent, permits the remote address to send to the mapping.
    #[inline(always)]
    fn permit(
        &mut self,
        request: &PortRequest<A>,
        remote: A,
        mapping: u32,
        lease: Lease<A>,
        now: u64,
    ) -> Result<(), Reason> {
        if self.filtering(request.pool, request.class) != Filtering::AddressDependent
            || self.mappings.permit(lease, request.class, remote)
        {
            return Ok(());
        }
        self.publish();
        let outside = self.mappings.outside_hash(lease, request.class);
        self.release_mapping(mapping, (request.flow, outside), now);
        Err(Reason::MappingsFull)
    }

    /// Allocates resources for a session from outside, to a mapped address and port that [`Bindings::inbound`] found.
    /// `now` is in nanoseconds.
    ///
    /// # Errors
    /// The reason for which the session is refused.
    pub fn accept<T: Tuple<Address = A>>(&mut self, key: &T, class: PortClass, now: u64) -> Result<Resources, Reason> {
        let outside = Lease {
            address: key.destination(),
            port: key.destination_port(),
        };
        let mapping = self.mappings.find_outside(outside, class).ok_or(Reason::Unsolicited)?;
        let record = *self.mappings.get(mapping).ok_or(Reason::Unsolicited)?;
        let number = record.subscriber();
        let pool = self.subscribers.get(number).ok_or(Reason::Unsolicited)?.pool();
        let filtering = self.pool(pool).ok_or(Reason::Unsolicited)?.behaviour(class).filtering;
        self.admit(number, pool, class, now)?;
        let permitted = || filtering != Filtering::AddressDependent;
        if !record.is_mapping() || !(permitted() || self.mappings.permit(outside, class, key.source())) {
            return Err(Reason::MappingsFull);
        }
        if !self.mappings.add_session(mapping) {
            self.mappings.revoke(outside, class, key.source());
            return Err(Reason::MappingsFull);
        }
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.sessions += 1;
        }
        self.charge(number, pool, now);
        Ok(Resources::SUBSCRIBER | Resources::MAPPING)
    }

    /// Creates a subscriber at its first session, and pairs it with an outside address.
    #[inline(never)]
    fn add_subscriber<T: Tuple<Address = A>>(
        &mut self,
        host: u64,
        key: &T,
        pool: PoolIndex,
        now: u64,
    ) -> Result<u32, Reason> {
        let mut paired = self.pair(key, pool).ok_or(Reason::PortsExhausted)?;
        if self
            .pool(pool)
            .is_some_and(|valid| valid.blocks().is_some() && valid.plan().is_none())
        {
            // Pair with the candidate address that has more free blocks, to distribute subscribers evenly.
            let other = self.pair_other(key, pool);
            let free = |bindings: &mut Self, address: A| {
                let place = bindings.pool(pool).and_then(|valid| valid.index_of(address));
                place.map_or(0, |place| bindings.ports.free_blocks(pool, place))
            };
            if let Some(other) = other.filter(|&other| other != paired)
                && free(self, other) > free(self, paired)
            {
                paired = other;
            }
        }
        let prefix = self.prefix(key.context(), key.source());
        let made = self.subscribers.make(host, key.context(), prefix, pool, paired);
        let made = made.ok_or(Reason::SubscribersFull)?;
        self.events.push(EventKind::AddressBindingCreate, || {
            let ports = self.ports.layout().pool(pool).map_or((0, 0), |valid| valid.ports());
            Event::new(EventKind::AddressBindingCreate, now, key.context(), prefix, pool).outside(paired, ports)
        });
        Ok(made)
    }

    /// Allocates a port to a subscriber: from one of its blocks, from a new block, or directly from its paired address.
    #[inline]
    fn allocate_port<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        request: &PortRequest<A>,
        key: &T,
        now: u64,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(request.pool).ok_or(Reason::PortsExhausted)?;
        let paired = self.subscribers.get(number).ok_or(Reason::PortsExhausted)?.paired();
        if valid.plan().is_some() {
            self.publish();
            if let Some(lease) = self.deterministic_port(request, key) {
                return Ok(lease);
            }
        }
        let valid = self.pool(request.pool).ok_or(Reason::PortsExhausted)?;
        if valid.blocks().is_some() {
            return self.allocate_port_of_blocks(number, request, key, now);
        }
        let usable = |&place: &u32| self.ports.has_ports(request.pool, place);
        let Some(place) = valid.index_of(paired).filter(usable) else {
            // After a migration, the pool may lack the paired address, or other shards may own the ports of the
            // address. Pair the subscriber with a different address.
            let paired = self.pair(key, request.pool).ok_or(Reason::PortsExhausted)?;
            self.subscribers
                .records
                .get_mut(number)
                .ok_or(Reason::PortsExhausted)?
                .pair(paired);
            return self.allocate_port_at(paired, request, key);
        };
        if valid.has_bits() {
            let port = self
                .ports
                .request_at(request.pool, request.class, place, request.flow, key);
            return Ok(self.ports.allocate(port)?);
        }
        self.allocate_port_at(paired, request, key)
    }

    /// Allocates a port of an address.
    fn allocate_port_at<T: Tuple<Address = A>>(
        &mut self,
        address: A,
        request: &PortRequest<A>,
        key: &T,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(request.pool).ok_or(Reason::PortsExhausted)?;
        if valid.has_bits() {
            let place = valid.index_of(address).ok_or(Reason::PortsExhausted)?;
            let port = self
                .ports
                .request_at(request.pool, request.class, place, request.flow, key);
            return Ok(self.ports.allocate(port)?);
        }
        self.publish();
        let free = |lease: &Lease<A>| self.mappings.find_outside(*lease, request.class).is_none();
        let mut candidates = (0..TRIES).filter_map(|attempt| self.candidate(request, address, key, attempt));
        candidates.find(free).ok_or(Reason::PortsExhausted)
    }

    #[inline]
    fn allocate_port_of_blocks<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        request: &PortRequest<A>,
        key: &T,
        now: u64,
    ) -> Result<Lease<A>, Reason> {
        let mut next = self.subscribers.get(number).map_or(0, |record| record.blocks);
        while let Some(owned) = next.checked_sub(1) {
            let Some(record) = self.subscribers.blocks.get_mut(owned) else {
                break;
            };
            next = record.next;
            let block = record.block();
            let near = request
                .block
                .filter(|(newest, _)| *newest == block)
                .map(|(_, place)| place);
            let place = near.or_else(|| self.ports.find_block(request.pool, block));
            let allocated = place.and_then(|place| {
                self.ports.allocate_from(
                    request.pool,
                    request.class,
                    (block, place),
                    request.flow,
                    key.source_port(),
                )
            });
            if let Some(lease) = allocated {
                if record.used() == [0; 3]
                    && let Some(subscriber) = self.subscribers.records.get_mut(number)
                {
                    subscriber.empty -= 1;
                }
                record.count(request.class, 1);
                return Ok(lease);
            }
        }
        self.allocate_block(number, request, key, now)
    }

    /// Allocates another port block to a subscriber, and one port of this block to the session.
    #[inline(never)]
    fn allocate_block<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        request: &PortRequest<A>,
        key: &T,
        now: u64,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(request.pool).ok_or(Reason::PortsExhausted)?;
        let blocks = valid.blocks().ok_or(Reason::PortsExhausted)?;
        let (pairing, addresses) = (valid.pairing(), valid.addresses());
        let subscriber = *self.subscribers.get(number).ok_or(Reason::PortsExhausted)?;
        if subscriber.block_count >= blocks.max {
            return Err(Reason::SubscriberPorts);
        }
        let usable = |&place: &u32| self.ports.has_ports(request.pool, place);
        let paired = match valid.index_of(subscriber.paired()).filter(usable) {
            Some(paired) => paired,
            None => {
                let paired = self.pair(key, request.pool).ok_or(Reason::PortsExhausted)?;
                self.subscribers
                    .records
                    .get_mut(number)
                    .ok_or(Reason::PortsExhausted)?
                    .pair(paired);
                self.pool(request.pool)
                    .and_then(|valid| valid.index_of(paired))
                    .ok_or(Reason::PortsExhausted)?
            }
        };
        let random = sip::<1, 3>(
            self.secret,
            &[request.flow, u64::from(number)],
            subscriber.block_count.into(),
        );
        let tries = match pairing {
            Pairing::Soft => addresses.min(ADDRESSES),
            Pairing::Hard => 1,
        };
        let taken =
            (0..tries).find_map(|step| self.ports.take_block(request.pool, (paired + step) % addresses, random));
        let block = taken.ok_or(Reason::PortsExhausted)?;
        let owned = super::subscriber::SubscriberBlock::new(block, subscriber.blocks);
        let Some(owned) = self.subscribers.blocks.allocate(owned) else {
            self.ports.put_block(request.pool, block);
            return Err(Reason::SubscribersFull);
        };
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.blocks = owned + 1;
            subscriber.newest = block.first;
            subscriber.block_count += 1;
        }
        self.events.push(EventKind::PortBlockAllocation, || {
            let kind = EventKind::PortBlockAllocation;
            let last = block.first + (blocks.size - 1);
            Event::new(kind, now, subscriber.context(), subscriber.address(), request.pool)
                .outside(block.address, (block.first, last))
        });
        let allocated = self.ports.find_block(request.pool, block).and_then(|place| {
            self.ports.allocate_from(
                request.pool,
                request.class,
                (block, place),
                request.flow,
                key.source_port(),
            )
        });
        match (allocated, self.subscribers.blocks.get_mut(owned)) {
            (Some(lease), Some(record)) => {
                record.count(request.class, 1);
                Ok(lease)
            }
            _ => {
                // A block at the end of the port range may have no usable port. It is kept as an empty block.
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.empty += 1;
                }
                Err(Reason::PortsExhausted)
            }
        }
    }
}
