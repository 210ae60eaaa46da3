//! Release of a session's resources, and quarantine of released ports.

use super::{Bindings, Quarantined, Resource, Sides, sides};
use crate::behaviour::{Filtering, Quarantine};
use crate::decision::Resources;
use crate::event::{Event, EventKind};
use crate::ports::{Block, Lease, PortClass};
use crate::{Address, Decision, PoolIndex, Tuple};

/// Request to release the resources of an ended session, created by [`Bindings::release_request`].
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<A> {
    ends: Sides<A>,
    pool: PoolIndex,
    class: PortClass,
    resources: Resources,
    /// Keyed hash of the mapping in the outside index. If the session has no mapping, keyed hash of its subscriber.
    hash: u64,
    /// Record number of the mapping. [`Bindings::prefetch_release`] sets a probable number, and
    /// [`Bindings::prefetch_release_subscriber`] replaces it by a more reliable one. The number is verified before use.
    mapping: Option<u32>,
    /// Keyed hash of the mapping in the inside index.
    inside: Option<u64>,
}

/// A port that is no longer in use.
#[derive(Clone, Copy)]
pub(super) struct Port<A> {
    pub pool: PoolIndex,
    pub class: PortClass,
    pub lease: Lease<A>,
    /// Whether a mapping used the port. False if a session used the port directly.
    pub mapped: bool,
}

impl<A: Address> Bindings<'_, A> {
    /// Creates the release request of a session from its decision and keys, and prefetches the index lines. `None` if
    /// the session has no allocated resources. To hide memory latency, callers can run [`Bindings::prefetch_release`]
    /// and [`Bindings::prefetch_release_subscriber`] over many sessions before they call [`Bindings::release`].
    #[inline(always)]
    pub fn release_request<T: Tuple<Address = A>>(
        &self,
        decision: Decision,
        protocol: u8,
        forward: &T,
        reverse: &T,
    ) -> Option<ReleaseRequest<A>> {
        let (resources, pool) = (decision.resources().allocated(), decision.pool_index());
        if resources == Resources::NONE {
            return None;
        }
        let class = PortClass::of(protocol, A::BITS)?;
        let ends = sides(decision, forward, reverse);
        if resources.has(Resources::MAPPING) || resources.has(Resources::PORT) {
            self.ports.prefetch_release(pool, class, ends.outside);
        }
        let hash = if resources.has(Resources::MAPPING) {
            let hash = self.mappings.outside_hash(ends.outside, class);
            self.mappings.prefetch_outside(hash);
            hash
        } else if resources.has(Resources::SUBSCRIBER) {
            let hash = self.host_hash(ends.context, self.prefix(ends.context, ends.inside.0), pool);
            self.subscribers.prefetch(hash);
            hash
        } else {
            0
        };
        Some(ReleaseRequest {
            ends,
            pool,
            class,
            resources,
            hash,
            mapping: None,
            inside: None,
        })
    }

    /// Second pass of a release: prefetches the record of the mapping or the subscriber.
    #[inline(always)]
    pub fn prefetch_release(&self, ending: &mut ReleaseRequest<A>) {
        if ending.resources.has(Resources::MAPPING) {
            ending.mapping = self.mappings.prefetch_outside_record(ending.hash);
        } else if ending.resources.has(Resources::SUBSCRIBER) {
            self.subscribers.prefetch_record(ending.hash);
        }
    }

    /// Third pass of a release: prefetches the mapping's subscriber and the mapping's entry in the inside index.
    #[inline(always)]
    pub fn prefetch_release_subscriber(&self, ending: &mut ReleaseRequest<A>) {
        if !ending.resources.has(Resources::MAPPING) {
            return;
        }
        ending.mapping = self.mapping_of(ending);
        if let Some(record) = ending.mapping.and_then(|number| self.mappings.get(number)) {
            self.subscribers.records.prefetch(record.subscriber());
            if record.sessions() == 1 {
                let inside = self.inside_of(ending);
                self.mappings.prefetch(inside);
                ending.inside = Some(inside);
            }
        }
    }

    /// Finds the mapping of an ended session. Tries the record number from the earlier passes before a lookup.
    #[inline(always)]
    fn mapping_of(&self, ending: &ReleaseRequest<A>) -> Option<u32> {
        let (outside, class, inside) = (ending.ends.outside, ending.class, ending.ends.inside);
        let known = ending
            .mapping
            .filter(|&number| self.mappings.is_exact(number, outside, class, inside));
        known.or_else(|| self.mappings.find_exact(ending.hash, outside, class, inside))
    }

    /// Keyed hash of the session's mapping in the inside index.
    #[inline(always)]
    fn inside_of(&self, ending: &ReleaseRequest<A>) -> u64 {
        let Sides { inside, context, .. } = ending.ends;
        self.inside_hash(context, inside.0, inside.1, ending.class)
    }

    /// Releases the resources of a session. Must be called once, when the session ends; `now` is in nanoseconds.
    /// Returns false if some of the resources were not allocated.
    #[inline]
    pub fn release(&mut self, ending: &ReleaseRequest<A>, now: u64) -> bool {
        let &ReleaseRequest {
            pool,
            class,
            resources,
            hash,
            ..
        } = ending;
        let Sides {
            inside,
            outside,
            remote,
            context,
        } = ending.ends;
        if resources == Resources::PORT {
            return self.ports.release(pool, class, outside);
        }
        if resources.has(Resources::MAPPING) {
            self.publish();
            if self.filtering(pool, class) == Filtering::AddressDependent {
                self.mappings.revoke(outside, class, remote);
            }
            let Some(mapping) = self.mapping_of(ending) else {
                return false;
            };
            let inside = ending.inside.unwrap_or_else(|| self.inside_of(ending));
            let number = self.mappings.get(mapping).map_or(0, |record| record.subscriber());
            self.release_mapping(mapping, (inside, hash), now);
            self.end_session(number, now);
            return true;
        }
        let Some(number) = self
            .subscribers
            .find(hash, context, self.prefix(context, inside.0), pool)
        else {
            return false;
        };
        let mut known = true;
        if resources.has(Resources::PORT) {
            let port = Port {
                pool,
                class,
                lease: outside,
                mapped: false,
            };
            known = self.release_port(number, port, None, now);
            self.count_port(number, class);
        }
        self.end_session(number, now);
        known
    }

    /// Releases the resources of a single session, like [`Bindings::release`] without prefetch passes.
    pub fn release_one<T: Tuple<Address = A>>(
        &mut self,
        decision: Decision,
        protocol: u8,
        forward: &T,
        reverse: &T,
        now: u64,
    ) -> bool {
        match self.release_request(decision, protocol, forward, reverse) {
            Some(ending) => self.release(&ending, now),
            None => decision.resources().allocated() == Resources::NONE,
        }
    }

    /// Removes a session from a mapping. After the last session, the mapping's port is released or, if so configured,
    /// quarantined. The hashes are the mapping's keys in the inside index and in the outside index.
    pub(super) fn release_mapping(&mut self, mapping: u32, (inside, outside): (u64, u64), now: u64) {
        let Some(record) = self.mappings.get_mut(mapping) else {
            return;
        };
        if record.sessions() > 1 {
            record.remove_session();
            return;
        }
        let (number, class, lease) = (record.subscriber(), record.class(), record.outside());
        let (address, port) = record.inside();
        let Some(subscriber) = self.subscribers.get(number) else {
            return;
        };
        let (pool, context) = (subscriber.pool(), subscriber.context());
        self.events.push(EventKind::BibDelete, || Event {
            inside_port: port,
            class: Some(class),
            ..Event::new(EventKind::BibDelete, now, context, address, pool)
                .outside(lease.address, (lease.port, lease.port))
        });
        let hold = self.quarantine_of(pool, class);
        if let Some(hold) = hold {
            let stored = self.pool(pool).is_some_and(|valid| {
                let computed = valid.inside(lease.address, lease.port).is_some();
                valid.has_bits() || computed
            });
            // In a pool without a port bitmap, only the record of the mapping marks the port as occupied.
            if !stored && self.quarantine(pool, Resource::Record(mapping), hold, now) {
                self.mappings.quarantine(mapping, inside);
                self.count_port(number, class);
                return;
            }
        }
        self.mappings.remove(mapping, inside, outside);
        let port = Port {
            pool,
            class,
            lease,
            mapped: true,
        };
        self.release_port(number, port, hold, now);
        self.count_port(number, class);
    }

    fn count_port(&mut self, number: u32, class: PortClass) {
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.ports[class as usize] -= 1;
        }
    }

    /// Quarantine of a mapping's port (RFC 6888, REQ-8). Three kinds of ports are not quarantined: TCP ports, because
    /// connections are tracked; ports with strict filtering, which blocks unsolicited packets; and ports of a port
    /// block, which stays with its subscriber.
    fn quarantine_of(&self, pool: PoolIndex, class: PortClass) -> Option<Quarantine> {
        let valid = self.pool(pool)?;
        let waits = class != PortClass::Tcp
            && valid.plan().is_none()
            && valid.behaviour(class).filtering == Filtering::EndpointIndependent
            && valid.blocks().is_none();
        Some(valid.quarantine()).filter(|hold| waits && hold.seconds > 0)
    }

    /// Puts a resource into quarantine. Returns false if the quarantine is full.
    fn quarantine(&mut self, pool: PoolIndex, resource: Resource<A>, hold: Quarantine, now: u64) -> bool {
        if self.quarantine.len() >= self.quarantine.capacity().min(hold.max as usize) {
            self.not_quarantined += 1;
            return false;
        }
        let due = now + u64::from(hold.seconds) * 1_000_000_000;
        self.quarantine.push_back(Quarantined { due, pool, resource });
        true
    }

    /// Frees at most `count` resources after their quarantine. The queue is first-in, first-out: entries with a long
    /// quarantine delay later entries with a short quarantine.
    pub fn expire(&mut self, now: u64, count: usize) {
        for _ in 0..count {
            let Some(held) = self.quarantine.front().copied().filter(|held| held.due <= now) else {
                return;
            };
            self.quarantine.pop_front();
            match held.resource {
                Resource::Port(class, lease) => {
                    self.ports.release_quarantined(held.pool, class, lease);
                }
                Resource::Block(block) => {
                    self.ports.put_block(held.pool, block);
                }
                Resource::Record(record) => self.mappings.end_quarantine(record),
            }
        }
    }

    /// Releases a port of a session or mapping.
    pub(super) fn release_port(&mut self, number: u32, port: Port<A>, hold: Option<Quarantine>, now: u64) -> bool {
        let Port {
            pool,
            class,
            lease,
            mapped,
        } = port;
        let Some(valid) = self.pool(pool) else { return false };
        if !valid.has_bits() || valid.inside(lease.address, lease.port).is_some() {
            return true;
        }
        let Some(blocks) = valid.blocks() else {
            if let Some(hold) = hold
                && self.quarantine(pool, Resource::Port(class, lease), hold, now)
            {
                return true;
            }
            // When a session moves to another pool, ports of mappings and of port blocks stay in the old pool.
            let of_block = self.subscribers.get(number).is_some_and(|record| record.blocks() > 0);
            return match mapped || of_block {
                true => self.ports.release_quarantined(pool, class, lease),
                false => self.ports.release(pool, class, lease),
            };
        };
        let known = self.ports.release(pool, class, lease);
        let size = u32::from(blocks.size);
        let has = |block: Block<A>| {
            block.address == lease.address && u32::from(lease.port).wrapping_sub(block.first.into()) < size
        };
        let owned = self.subscribers.blocks_of(number).find(|(_, owned)| has(owned.block()));
        let Some((owned, _)) = owned else {
            self.ports.release_stray(pool, lease);
            return known;
        };
        let Some(record) = self.subscribers.blocks.get_mut(owned) else {
            return known;
        };
        record.count(class, -1);
        if record.used() != [0; 3] {
            return known;
        }
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.empty += 1;
            // An empty block can be kept as the spare block. If the subscriber already has another empty block, release
            // this block.
            if subscriber.empty > u16::from(blocks.spare) {
                self.release_block(number, owned, now);
            }
        }
        known
    }

    /// Releases a subscriber's block that has no ports in use. If quarantine is configured, the block is quarantined
    /// instead.
    fn release_block(&mut self, number: u32, owned: u32, now: u64) {
        let (Some(record), Some(subscriber)) = (
            self.subscribers.blocks.get(owned).copied(),
            self.subscribers.get(number).copied(),
        ) else {
            return;
        };
        let before = self
            .subscribers
            .blocks_of(number)
            .find(|(_, before)| before.next == owned + 1)
            .map(|(before, _)| before);
        match before.and_then(|before| self.subscribers.blocks.get_mut(before)) {
            Some(before) => before.next = record.next,
            None => {
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.blocks = record.next;
                }
            }
        }
        self.subscribers.blocks.release(owned);
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.block_count -= 1;
            // If the pool's port layout has changed since the allocation of the block, the block may have been counted
            // as in use.
            subscriber.empty = subscriber.empty.saturating_sub(1);
        }
        let pool = subscriber.pool();
        self.events.push(EventKind::PortBlockDeallocation, || {
            let kind = EventKind::PortBlockDeallocation;
            let size = self.ports.layout().pool(pool).and_then(|valid| valid.blocks());
            let block = record.block();
            let last = block.first + size.map_or(0, |blocks| blocks.size - 1);
            Event::new(kind, now, subscriber.context(), subscriber.address(), pool)
                .outside(block.address, (block.first, last))
        });
        let hold = self
            .pool(pool)
            .map(|valid| valid.quarantine())
            .filter(|hold| hold.seconds > 0);
        if let Some(hold) = hold
            && self.quarantine(pool, Resource::Block(record.block()), hold, now)
        {
            return;
        }
        self.ports.put_block(pool, record.block());
    }

    /// Removes a session from a subscriber. Removes the subscriber with its last session.
    fn end_session(&mut self, number: u32, now: u64) {
        let Some(subscriber) = self.subscribers.records.get_mut(number) else {
            return;
        };
        subscriber.sessions -= 1;
        if subscriber.is_idle() {
            let removed = *subscriber;
            let host = self.host_hash(removed.context(), removed.address(), removed.pool());
            self.leave(host, number, now);
        }
    }

    /// Removes a subscriber without sessions, and releases its blocks.
    #[inline(never)]
    pub(super) fn leave(&mut self, host: u64, number: u32, now: u64) {
        while let Some(owned) = self
            .subscribers
            .get(number)
            .and_then(|record| record.blocks.checked_sub(1))
        {
            self.release_block(number, owned, now);
        }
        if let Some(removed) = self.subscribers.get(number).copied() {
            let kind = EventKind::AddressBindingDelete;
            self.events.push(kind, || {
                let ports = self
                    .ports
                    .layout()
                    .pool(removed.pool())
                    .map_or((0, 0), |valid| valid.ports());
                Event::new(kind, now, removed.context(), removed.address(), removed.pool())
                    .outside(removed.paired(), ports)
            });
        }
        self.subscribers.remove(host, number);
    }
}
