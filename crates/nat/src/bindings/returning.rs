//! How what a session holds goes back, and what waits before it is lent again.

use super::{Bindings, Ends, Held, Waits, ends};
use crate::behaviour::{Filtering, Hold};
use crate::decision::Holding;
use crate::event::{Event, EventKind};
use crate::ports::{Block, Lease, PortClass};
use crate::{Address, Decision, PoolIndex, Tuple};

/// What a session gives back when it ends: [`Bindings::ending`].
#[derive(Clone, Copy, Debug)]
pub struct Ending<A> {
    ends: Ends<A>,
    pool: PoolIndex,
    class: PortClass,
    holding: Holding,
    /// Keyed function of what finds the mapping from outside; without a mapping, of the subscriber.
    hash: u64,
    /// The mapping: probably after [`Bindings::approach_ending`], most certainly after [`Bindings::near_ending`].
    mapping: Option<u32>,
    /// The keyed function that finds it from inside.
    inside: Option<u64>,
}

/// A port that is used no more.
#[derive(Clone, Copy)]
pub(super) struct Port<A> {
    pub pool: PoolIndex,
    pub class: PortClass,
    pub lease: Lease<A>,
    /// It was a mapping's, not a session's own.
    pub mapped: bool,
}

impl<A: Address> Bindings<'_, A> {
    /// What a session gives back, by its decision and its keys; none where nothing was lent. Asks the processor for the
    /// lines that find it. [`Bindings::approach_ending`] and [`Bindings::near_ending`] may follow, for many sessions
    /// each, and hide the latency of the records; then [`Bindings::give_back`].
    #[inline(always)]
    pub fn ending<T: Tuple<Address = A>>(
        &self,
        decision: Decision,
        protocol: u8,
        forward: &T,
        reverse: &T,
    ) -> Option<Ending<A>> {
        let (holding, pool) = (decision.holding().lent(), decision.pool_index());
        if holding == Holding::NOTHING {
            return None;
        }
        let class = PortClass::of(protocol, A::BITS)?;
        let ends = ends(decision, forward, reverse);
        if holding.has(Holding::MAPPING) || holding.has(Holding::PORT) {
            self.ports.prefetch_give_back(pool, class, ends.outside);
        }
        let hash = if holding.has(Holding::MAPPING) {
            let hash = self.mappings.outside_hash(ends.outside, class);
            self.mappings.prefetch_outside(hash);
            hash
        } else if holding.has(Holding::SUBSCRIBER) {
            let hash = self.host_hash(ends.context, self.prefix(ends.context, ends.inside.0), pool);
            self.subscribers.prefetch(hash);
            hash
        } else {
            0
        };
        Some(Ending {
            ends,
            pool,
            class,
            holding,
            hash,
            mapping: None,
            inside: None,
        })
    }

    /// Second pass: the records of mapping or subscriber.
    #[inline(always)]
    pub fn approach_ending(&self, ending: &mut Ending<A>) {
        if ending.holding.has(Holding::MAPPING) {
            ending.mapping = self.mappings.approach_outside(ending.hash);
        } else if ending.holding.has(Holding::SUBSCRIBER) {
            self.subscribers.approach(ending.hash);
        }
    }

    /// Third pass: the mapping's subscriber, and what finds the mapping from inside if it goes.
    #[inline(always)]
    pub fn near_ending(&self, ending: &mut Ending<A>) {
        if !ending.holding.has(Holding::MAPPING) {
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

    /// The mapping of a session that ends, where it may be known already.
    #[inline(always)]
    fn mapping_of(&self, ending: &Ending<A>) -> Option<u32> {
        let (outside, class, inside) = (ending.ends.outside, ending.class, ending.ends.inside);
        let known = ending
            .mapping
            .filter(|&number| self.mappings.is_exact(number, outside, class, inside));
        known.or_else(|| self.mappings.find_exact(ending.hash, outside, class, inside))
    }

    /// The keyed function that finds its mapping from inside.
    #[inline(always)]
    fn inside_of(&self, ending: &Ending<A>) -> u64 {
        let Ends { inside, context, .. } = ending.ends;
        self.inside_hash(context, inside.0, inside.1, ending.class)
    }

    /// Give back what a session holds: called once when it ends, at the moment `now` in nanoseconds. False where
    /// something of it was not lent.
    #[inline]
    pub fn give_back(&mut self, ending: &Ending<A>, now: u64) -> bool {
        let &Ending {
            pool,
            class,
            holding,
            hash,
            ..
        } = ending;
        let Ends {
            inside,
            outside,
            remote,
            context,
        } = ending.ends;
        if holding == Holding::PORT {
            return self.ports.give_back(pool, class, outside);
        }
        if holding.has(Holding::MAPPING) {
            self.publish();
            if self.filtering(pool, class) == Filtering::AddressDependent {
                self.mappings.forbid(outside, class, remote);
            }
            let Some(mapping) = self.mapping_of(ending) else {
                return false;
            };
            let inside = ending.inside.unwrap_or_else(|| self.inside_of(ending));
            let number = self.mappings.get(mapping).map_or(0, |record| record.subscriber());
            self.let_go(mapping, (inside, hash), now);
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
        if holding.has(Holding::PORT) {
            let port = Port {
                pool,
                class,
                lease: outside,
                mapped: false,
            };
            known = self.free_port(number, port, None, now);
            self.count_port(number, class);
        }
        self.end_session(number, now);
        known
    }

    /// [`Bindings::give_back`] of one session alone.
    pub fn release<T: Tuple<Address = A>>(
        &mut self,
        decision: Decision,
        protocol: u8,
        forward: &T,
        reverse: &T,
        now: u64,
    ) -> bool {
        match self.ending(decision, protocol, forward, reverse) {
            Some(ending) => self.give_back(&ending, now),
            None => decision.holding().lent() == Holding::NOTHING,
        }
    }

    /// A session of a mapping has ended; with the last one its port is free, after a while where it has to wait. The
    /// hashes find the mapping from inside and from outside.
    pub(super) fn let_go(&mut self, mapping: u32, (inside, outside): (u64, u64), now: u64) {
        let Some(record) = self.mappings.get_mut(mapping) else {
            return;
        };
        if record.sessions() > 1 {
            record.leave();
            return;
        }
        let (number, class, lease) = (record.subscriber(), record.class(), record.outside());
        let (address, port) = record.inside();
        let Some(subscriber) = self.subscribers.get(number) else {
            return;
        };
        let (pool, context) = (subscriber.pool(), subscriber.context());
        self.events.put(EventKind::BibDelete, || Event {
            inside_port: port,
            class: Some(class),
            ..Event::new(EventKind::BibDelete, now, context, address, pool)
                .outside(lease.address, (lease.port, lease.port))
        });
        let hold = self.waits(pool, class);
        if let Some(hold) = hold {
            let stored = self.pool(pool).is_some_and(|valid| {
                let computed = valid.inside(lease.address, lease.port).is_some();
                valid.has_bits() || computed
            });
            // Where no bits say which ports are taken, the record itself does.
            if !stored && self.hold(pool, Waits::Record(mapping), hold, now) {
                self.mappings.let_sleep(mapping, inside);
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
        self.free_port(number, port, hold, now);
        self.count_port(number, class);
    }

    fn count_port(&mut self, number: u32, class: PortClass) {
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.ports[class as usize] -= 1;
        }
    }

    /// How long a mapping's port waits (RFC 6888, REQ-8): TCP is tracked, strict filtering keeps strangers out, and a
    /// block stays with its subscriber.
    fn waits(&self, pool: PoolIndex, class: PortClass) -> Option<Hold> {
        let valid = self.pool(pool)?;
        let waits = class != PortClass::Tcp
            && valid.plan().is_none()
            && valid.behaviour(class).filtering == Filtering::EndpointIndependent
            && valid.blocks().is_none();
        Some(valid.hold()).filter(|hold| waits && hold.seconds > 0)
    }

    /// Keep something from being lent again for a while; false where too much waits already.
    fn hold(&mut self, pool: PoolIndex, what: Waits<A>, hold: Hold, now: u64) -> bool {
        if self.held.len() >= self.held.capacity().min(hold.most as usize) {
            self.not_held += 1;
            return false;
        }
        let due = now + u64::from(hold.seconds) * 1_000_000_000;
        self.held.push_back(Held { due, pool, what });
        true
    }

    /// What has waited long enough is free, at most `count` of it. Pools that wait longer delay those that wait less.
    pub fn expire(&mut self, now: u64, count: usize) {
        for _ in 0..count {
            let Some(held) = self.held.front().copied().filter(|held| held.due <= now) else {
                return;
            };
            self.held.pop_front();
            match held.what {
                Waits::Port(class, lease) => {
                    self.ports.give_back_held(held.pool, class, lease);
                }
                Waits::Block(block) => {
                    self.ports.put_block(held.pool, block);
                }
                Waits::Record(record) => self.mappings.wake(record),
            }
        }
    }

    /// A port of a session, or of a mapping, is not used any more.
    pub(super) fn free_port(&mut self, number: u32, port: Port<A>, hold: Option<Hold>, now: u64) -> bool {
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
                && self.hold(pool, Waits::Port(class, lease), hold, now)
            {
                return true;
            }
            // A port of a mapping or of a block never comes to another pool with its session.
            let of_block = self.subscribers.get(number).is_some_and(|record| record.blocks() > 0);
            return match mapped || of_block {
                true => self.ports.give_back_held(pool, class, lease),
                false => self.ports.give_back(pool, class, lease),
            };
        };
        let known = self.ports.give_back(pool, class, lease);
        let size = u32::from(blocks.size);
        let has = |block: Block<A>| {
            block.address == lease.address && u32::from(lease.port).wrapping_sub(block.first.into()) < size
        };
        let owned = self.subscribers.blocks_of(number).find(|(_, owned)| has(owned.block()));
        let Some((owned, _)) = owned else {
            self.ports.release_stray(pool, lease);
            return known;
        };
        let Some(record) = self.subscribers.owned.get_mut(owned) else {
            return known;
        };
        record.count(class, -1);
        if record.used() != [0; 3] {
            return known;
        }
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.empty += 1;
            // The one that is empty now may stay as the spare one; of two, this one goes.
            if subscriber.empty > u16::from(blocks.spare) {
                self.give_block_back(number, owned, now);
            }
        }
        known
    }

    /// A block of a subscriber's without a port in use goes back to the pool, after a while.
    fn give_block_back(&mut self, number: u32, owned: u32, now: u64) {
        let (Some(record), Some(subscriber)) = (
            self.subscribers.owned.get(owned).copied(),
            self.subscribers.get(number).copied(),
        ) else {
            return;
        };
        let before = self
            .subscribers
            .blocks_of(number)
            .find(|(_, before)| before.next == owned + 1)
            .map(|(before, _)| before);
        match before.and_then(|before| self.subscribers.owned.get_mut(before)) {
            Some(before) => before.next = record.next,
            None => {
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.blocks = record.next;
                }
            }
        }
        self.subscribers.owned.give_back(owned);
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.block_count -= 1;
            // One that was given while the pool dealt its ports otherwise may have been counted as in use.
            subscriber.empty = subscriber.empty.saturating_sub(1);
        }
        let pool = subscriber.pool();
        self.events.put(EventKind::PortBlockDeallocation, || {
            let kind = EventKind::PortBlockDeallocation;
            let size = self.ports.layout().pool(pool).and_then(|valid| valid.blocks());
            let block = record.block();
            let last = block.first + size.map_or(0, |blocks| blocks.size - 1);
            Event::new(kind, now, subscriber.context(), subscriber.address(), pool)
                .outside(block.address, (block.first, last))
        });
        let hold = self
            .pool(pool)
            .map(|valid| valid.hold())
            .filter(|hold| hold.seconds > 0);
        if let Some(hold) = hold
            && self.hold(pool, Waits::Block(record.block()), hold, now)
        {
            return;
        }
        self.ports.put_block(pool, record.block());
    }

    /// A session of a subscriber has ended; with the last one the subscriber goes.
    fn end_session(&mut self, number: u32, now: u64) {
        let Some(subscriber) = self.subscribers.records.get_mut(number) else {
            return;
        };
        subscriber.sessions -= 1;
        if subscriber.is_idle() {
            let gone = *subscriber;
            let host = self.host_hash(gone.context(), gone.address(), gone.pool());
            self.leave(host, number, now);
        }
    }

    /// A subscriber without sessions goes, with its blocks.
    #[inline(never)]
    pub(super) fn leave(&mut self, host: u64, number: u32, now: u64) {
        while let Some(owned) = self
            .subscribers
            .get(number)
            .and_then(|record| record.blocks.checked_sub(1))
        {
            self.give_block_back(number, owned, now);
        }
        if let Some(gone) = self.subscribers.get(number).copied() {
            let kind = EventKind::AddressBindingDelete;
            self.events.put(kind, || {
                let ports = self
                    .ports
                    .layout()
                    .pool(gone.pool())
                    .map_or((0, 0), |valid| valid.ports());
                Event::new(kind, now, gone.context(), gone.address(), gone.pool()).outside(gone.paired(), ports)
            });
        }
        self.subscribers.remove(host, number);
    }
}
