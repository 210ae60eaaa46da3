//! How allocations are made.

use super::release::Port;
use super::{Allocation, Bindings, PENDING, PortRequest};
use crate::behaviour::{Filtering, PortSelection};
use crate::decision::Resources;
use crate::deterministic::PortSet;
use crate::event::{Event, EventKind};
use crate::keyed::{reduce, sip};
use crate::pool::{Pairing, Source};

use crate::ports::{EVEN, Lease, PortClass};

use crate::{Address, PoolIndex, Reason, Tuple};

/// Ports that are tried where no bits say which are free.
pub const TRIES: u32 = WORDS + 64;
/// Words of which one port is tried that fits.
const WORDS: u32 = 64;
/// Of these the first, where it has to have the wanted parity too.
const PARITY: u32 = 32;
/// Addresses that are tried with soft pairing, or where an address has to be a shard's own.
const ADDRESSES: u32 = 8;

/// Ports of a word by how they suit a session: answers that come to its shard count more than parity (RFC 4787, REQ-4).
struct PreferredPorts {
    /// All that the pool has.
    owned: u64,
    /// Those of which answers come to this shard.
    fitting: u64,
    parity: u64,
}

impl PreferredPorts {
    /// Those that suit best.
    fn first(&self) -> u64 {
        self.fitting & self.parity
    }

    /// The `count`-th of all, those that suit best first, from a bit on.
    fn nth(&self, from: u32, mut count: u32) -> Option<u32> {
        let mut left = self.owned;
        for some in [self.first(), self.fitting, self.parity, u64::MAX] {
            let some = some & left;
            if count < some.count_ones() {
                return nth(some, from, count);
            }
            count -= some.count_ones();
            left &= !some;
        }
        None
    }
}

/// The `count`-th bit that is set, from one on and around.
fn nth(bits: u64, from: u32, count: u32) -> Option<u32> {
    let rotated = (0..count).fold(bits.rotate_right(from), |left, _| left & left.wrapping_sub(1));
    (rotated != 0).then(|| (from + rotated.trailing_zeros()) % 64)
}

impl<A: Address> Bindings<'_, A> {
    #[inline]
    pub(super) fn allocate_beyond_port<T: Tuple<Address = A>>(
        &mut self,
        aim: &PortRequest<A>,
        key: &T,
        remote: A,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let Some(host) = aim.host else {
            return self.allocate_overlapping(aim, key);
        };
        let found = self.subscriber_of(aim, host, key);
        let number = match found {
            Some(number) => number,
            None => self.add_subscriber(host, key, aim.pool, now)?,
        };
        let granted = self.allocate_for_subscriber(number, aim, key, remote, now);
        if let Err(reason) = granted {
            self.report(reason, aim, key, now);
        }
        if found.is_none() && granted.is_err() {
            self.leave(host, number, now);
        }
        granted
    }

    /// What a subscriber was refused.
    #[cold]
    fn report<T: Tuple<Address = A>>(&mut self, reason: Reason, aim: &PortRequest<A>, key: &T, now: u64) {
        let kind = match reason {
            Reason::PortsExhausted => EventKind::PortsExhausted,
            _ => EventKind::QuotaExceeded,
        };
        let (inside, class) = (self.prefix(key.context(), key.source()), Some(aim.class));
        self.events.push(kind, || Event {
            class,
            ..Event::new(kind, now, key.context(), inside, aim.pool)
        });
    }

    /// A port that sessions may share, without a subscriber.
    fn allocate_overlapping<T: Tuple<Address = A>>(
        &mut self,
        aim: &PortRequest<A>,
        key: &T,
    ) -> Result<Allocation<A>, Reason> {
        let lease = self.first(aim, key)?;
        Ok(Allocation {
            lease,
            holding: Resources::NOTHING,
            overlaps: true,
        })
    }

    /// The `attempt`-th address and port for a session whose port others may share: the next where the answers of the
    /// one before cannot be told apart from another session's. None where it gives none that may be had; after the last of
    /// [`TRIES`] none does.
    pub fn another<T: Tuple<Address = A>>(&self, aim: &PortRequest<A>, key: &T, attempt: u32) -> Option<Lease<A>> {
        let number = aim.host.and_then(|host| self.find_subscriber(host, key, aim.pool));
        let paired = number.and_then(|number| Some(self.subscribers.get(number)?.paired()));
        // The pool may have lost the address since, or it has come to another shard.
        let address = match paired.filter(|&paired| self.is_usable(aim.pool, paired)) {
            Some(paired) => paired,
            None => self.pair(key, aim.pool)?,
        };
        (attempt < TRIES).then(|| self.candidate(aim, address, key, attempt))?
    }

    /// Whether a pool has an address, and this shard ports of it.
    #[inline(always)]
    fn is_usable(&self, pool: PoolIndex, address: A) -> bool {
        let place = self.pool(pool).and_then(|valid| valid.index_of(address));
        place.is_some_and(|place| self.ports.has_ports(pool, place))
    }

    fn first<T: Tuple<Address = A>>(&self, aim: &PortRequest<A>, key: &T) -> Result<Lease<A>, Reason> {
        let found = (0..TRIES).find_map(|attempt| self.another(aim, key, attempt));
        found.ok_or(Reason::PortsExhausted)
    }

    fn allocate_for_subscriber<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        aim: &PortRequest<A>,
        key: &T,
        remote: A,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let valid = self.pool(aim.pool).ok_or(Reason::PortsExhausted)?;
        let limited = valid.limits_subscribers();
        let more_ports = match limited || valid.plan().is_some() {
            true => self.admit(number, aim.pool, aim.class, now)?,
            false => true,
        };
        let grant = match aim.source {
            Source::Overlap => Allocation {
                lease: self.first(aim, key)?,
                holding: Resources::SUBSCRIBER,
                overlaps: true,
            },
            Source::Session if !more_ports => return Err(Reason::SubscriberPorts),
            Source::Session => Allocation {
                lease: self.allocate_port(number, aim, key, now)?,
                holding: Resources::SUBSCRIBER | Resources::PORT,
                overlaps: false,
            },
            Source::Mapping => self.allocate_mapping(number, aim, key, remote, more_ports, now)?,
        };
        if let Some(subscriber) = self.subscribers.records.get_mut(number) {
            subscriber.sessions += 1;
            if grant.holding == Resources::SUBSCRIBER | Resources::PORT {
                subscriber.ports[aim.class as usize] += 1;
            }
        }
        if limited {
            self.charge(number, aim.pool, now);
        }
        Ok(grant)
    }

    /// Whether a subscriber may have one more session, and then whether it may have one more port of a class.
    #[inline(never)]
    fn admit(&self, number: u32, pool: PoolIndex, class: PortClass, now: u64) -> Result<bool, Reason> {
        let valid = self.pool(pool).ok_or(Reason::PortsExhausted)?;
        let subscriber = self.subscribers.get(number).ok_or(Reason::PortsExhausted)?;
        let limits = valid.subscriber();
        if limits.sessions.is_some_and(|most| subscriber.sessions() >= most) {
            return Err(Reason::SubscriberSessions);
        }
        if limits.rate.is_some_and(|rate| !subscriber.admits(rate, now)) {
            return Err(Reason::SubscriberRate);
        }
        let ports = subscriber.ports()[class as usize];
        let most = valid.plan().and_then(|plan| plan.max_hosts());
        let mut limits = limits.ports[class as usize].into_iter().chain(most);
        Ok(limits.all(|most| ports < most))
    }

    /// A subscriber has one more session, counted against its rate.
    #[inline(never)]
    fn charge(&mut self, number: u32, pool: PoolIndex, now: u64) {
        if let Some(rate) = self.pool(pool).and_then(|valid| valid.subscriber().rate)
            && let Some(subscriber) = self.subscribers.records.get_mut(number)
        {
            subscriber.charge(rate, now);
        }
    }

    /// The mapping of the inside address and port: it is there, or is made.
    #[inline]
    fn allocate_mapping<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        aim: &PortRequest<A>,
        key: &T,
        remote: A,
        more_ports: bool,
        now: u64,
    ) -> Result<Allocation<A>, Reason> {
        let inside = (key.source(), key.source_port());
        let lease = match self.mappings.find(aim.flow, number, inside, aim.class) {
            Some(mapping) => {
                let lease = self.mappings.get(mapping).map(|record| record.outside());
                let lease = lease
                    .filter(|_| self.mappings.add_session(mapping))
                    .ok_or(Reason::MappingsFull)?;
                self.permit(aim, remote, mapping, lease, now)?;
                lease
            }
            None if !more_ports => return Err(Reason::SubscriberPorts),
            None => {
                let lease = self.allocate_port(number, aim, key, now)?;
                let made = self.mappings.make(aim.flow, number, inside, lease, aim.class);
                let Some(mapping) = made else {
                    let port = Port {
                        pool: aim.pool,
                        class: aim.class,
                        lease,
                        mapped: true,
                    };
                    self.release_port(number, port, None, now);
                    return Err(Reason::MappingsFull);
                };
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.ports[aim.class as usize] += 1;
                }
                self.events.push(EventKind::BibCreate, || Event {
                    inside_port: key.source_port(),
                    class: Some(aim.class),
                    ..Event::new(EventKind::BibCreate, now, key.context(), key.source(), aim.pool)
                        .outside(lease.address, (lease.port, lease.port))
                });
                if self.pending.len() == PENDING {
                    self.publish();
                }
                let hash = self.mappings.prepare(lease, aim.class);
                let _ = self.pending.try_push((mapping, hash));
                self.permit(aim, remote, mapping, lease, now)?;
                lease
            }
        };
        Ok(Allocation {
            lease,
            holding: Resources::SUBSCRIBER | Resources::MAPPING,
            overlaps: false,
        })
    }

    /// With address-dependent filtering the remote address may send from now on.
    #[inline(always)]
    fn permit(
        &mut self,
        aim: &PortRequest<A>,
        remote: A,
        mapping: u32,
        lease: Lease<A>,
        now: u64,
    ) -> Result<(), Reason> {
        if self.filtering(aim.pool, aim.class) != Filtering::AddressDependent
            || self.mappings.permit(lease, aim.class, remote)
        {
            return Ok(());
        }
        self.publish();
        let outside = self.mappings.outside_hash(lease, aim.class);
        self.release_mapping(mapping, (aim.flow, outside), now);
        Err(Reason::MappingsFull)
    }

    /// A session from outside to a mapped address and port, as [`Bindings::inbound`] found it, by the moment `now` in
    /// nanoseconds.
    ///
    /// # Errors
    /// The reason why there can be none.
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

    /// A subscriber's first session: it is paired with an address.
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
            // Of two addresses the one with more blocks left: subscribers spread evenly.
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

    /// The address that an inside host is paired with, by computation (RFC 7422) or by a keyed function (RFC 4787,
    /// REQ-2).
    fn pair<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let computed = self.pool(pool)?.plan().and_then(|plan| plan.outside(key.source()));
        if let Some(address) = computed.and_then(|share| share.address()) {
            return Some(address);
        }
        self.paired(self.paired_index(key, pool), pool)
    }

    /// Which of a pool's addresses a subscriber is dealt.
    fn paired_index<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> u32 {
        let prefix = self.prefix(key.context(), key.source());
        self.ports.paired_index(pool, key.context(), prefix, self.subscriber)
    }

    /// The outside address of an inside host for what is translated by address alone: the one that it is paired with, as
    /// far as that follows from the inside address. Every shard says the same.
    pub fn address_of<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let valid = self.pool(pool)?;
        let computed = valid.plan().and_then(|plan| plan.outside(key.source()));
        if let Some(address) = computed.and_then(|share| share.address()) {
            return Some(address);
        }
        let place = match valid.has_subscribers(PortClass::Tcp) {
            true => self.paired_index(key, pool),
            false => self.ports.paired_index(pool, key.context(), key.source(), A::BITS),
        };
        (valid.addresses() > 0).then(|| valid.address(place))
    }

    fn pair_other<T: Tuple<Address = A>>(&self, key: &T, pool: PoolIndex) -> Option<A> {
        let host = self.host_hash(key.context(), self.prefix(key.context(), key.source()), pool);
        let other = sip::<1, 3>(self.secret, &[host], 1);
        let count = self.pool(pool)?.addresses();
        self.paired(reduce((other >> 32) as u32, count), pool)
    }

    fn paired(&self, first: u32, pool: PoolIndex) -> Option<A> {
        let valid = self.pool(pool)?;
        let count = valid.addresses();
        if count == 0 {
            return None;
        }
        if valid.selection() == PortSelection::Random {
            return Some(valid.address(self.ports.address_from(pool, first)));
        }
        // An address of this shard's own, which has all of its ports.
        let (shards, shard) = (self.ports.layout().shards(), self.ports.shard());
        let mut order = (first..count).chain(0..first).map(|place| valid.address(place));
        order.find(|&address| valid.shard_of(shards, address, 0) == shard)
    }

    /// The `attempt`-th port of an address to be tried.
    fn candidate<T: Tuple<Address = A>>(
        &self,
        aim: &PortRequest<A>,
        address: A,
        key: &T,
        attempt: u32,
    ) -> Option<Lease<A>> {
        let (inside, inside_port) = (key.source(), key.source_port());
        let valid = self.pool(aim.pool)?;
        if let Some(plan) = valid.plan() {
            let share = plan.outside(inside)?;
            return (attempt < share.count()).then(|| self.deterministic_candidate(aim, &share, attempt));
        }
        let preserves = valid.selection() == PortSelection::Preserve;
        if attempt == 0 && preserves && valid.has_port(inside_port) {
            return Some(Lease {
                address,
                port: inside_port,
            });
        }
        // Random words first, then all of the first of them, so that a few ports are all found.
        let word = if attempt < WORDS { attempt } else { 0 };
        let random = sip::<1, 3>(self.secret, &[aim.flow], word.into());
        let port = self.ports.port_at(aim.pool, address, random)?;
        let suits = self.preferred_ports(aim, Lease { address, port }, key)?;
        let from = u32::from(port % 64);
        let bit = match attempt {
            0..PARITY => nth(suits.first(), from, 0),
            PARITY..WORDS => nth(suits.fitting, from, 0),
            _ => suits.nth(from, attempt - WORDS),
        };
        let port = port & !63 | bit? as u16;
        let low = inside_port < 1024 || aim.class == PortClass::Query || valid.ports().1 < 1024;
        (low || port >= 1024).then_some(Lease { address, port })
    }

    /// The pool's ports in the word of an outside port, by how they suit a session.
    fn preferred_ports<T: Tuple<Address = A>>(
        &self,
        aim: &PortRequest<A>,
        near: Lease<A>,
        key: &T,
    ) -> Option<PreferredPorts> {
        let valid = self.pool(aim.pool)?;
        let owned = self.ports.owned_ports_of_word(aim.pool, near.port);
        let parity = match valid.keeps_parity() && aim.class == PortClass::Udp {
            true => EVEN << (key.source_port() & 1),
            false => u64::MAX,
        };
        Some(PreferredPorts {
            owned,
            fitting: owned & self.ports.rss_ports_of_word(aim.class, near, key),
            parity,
        })
    }

    /// Allocate a port to a subscriber: of one of its blocks, of a new one, or of its address.
    #[inline]
    fn allocate_port<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        aim: &PortRequest<A>,
        key: &T,
        now: u64,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(aim.pool).ok_or(Reason::PortsExhausted)?;
        let paired = self.subscribers.get(number).ok_or(Reason::PortsExhausted)?.paired();
        if valid.plan().is_some() {
            self.publish();
            if let Some(lease) = self.deterministic_port(aim, key) {
                return Ok(lease);
            }
        }
        let valid = self.pool(aim.pool).ok_or(Reason::PortsExhausted)?;
        if valid.blocks().is_some() {
            return self.allocate_port_of_blocks(number, aim, key, now);
        }
        let usable = |&place: &u32| self.ports.has_ports(aim.pool, place);
        let Some(place) = valid.index_of(paired).filter(usable) else {
            // The pool has lost the address since, or its ports have come to other shards: the subscriber gets another.
            let paired = self.pair(key, aim.pool).ok_or(Reason::PortsExhausted)?;
            self.subscribers
                .records
                .get_mut(number)
                .ok_or(Reason::PortsExhausted)?
                .pair(paired);
            return self.allocate_port_at(paired, aim, key);
        };
        if valid.has_bits() {
            let port = self.ports.request_at(aim.pool, aim.class, place, aim.flow, key);
            return Ok(self.ports.allocate(port)?);
        }
        self.allocate_port_at(paired, aim, key)
    }

    /// A free port among those that an inside address has by computation (RFC 7422).
    fn deterministic_port<T: Tuple<Address = A>>(&self, aim: &PortRequest<A>, key: &T) -> Option<Lease<A>> {
        let share = self.pool(aim.pool)?.plan()?.outside(key.source())?;
        let mut ports = (0..TRIES.min(share.count())).map(|attempt| self.deterministic_candidate(aim, &share, attempt));
        ports.find(|lease| self.mappings.find_outside(*lease, aim.class).is_none())
    }

    /// The `attempt`-th port of a share to be tried: one at random, and those that follow it.
    fn deterministic_candidate(&self, aim: &PortRequest<A>, share: &PortSet<'_, A>, attempt: u32) -> Lease<A> {
        let first = reduce((aim.flow >> 32) as u32, share.count());
        let (address, port) = share.at((first + attempt) % share.count().max(1));
        Lease { address, port }
    }

    /// Allocate a port of an address.
    fn allocate_port_at<T: Tuple<Address = A>>(
        &mut self,
        address: A,
        aim: &PortRequest<A>,
        key: &T,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(aim.pool).ok_or(Reason::PortsExhausted)?;
        if valid.has_bits() {
            let place = valid.index_of(address).ok_or(Reason::PortsExhausted)?;
            let port = self.ports.request_at(aim.pool, aim.class, place, aim.flow, key);
            return Ok(self.ports.allocate(port)?);
        }
        self.publish();
        let free = |lease: &Lease<A>| self.mappings.find_outside(*lease, aim.class).is_none();
        let mut candidates = (0..TRIES).filter_map(|attempt| self.candidate(aim, address, key, attempt));
        candidates.find(free).ok_or(Reason::PortsExhausted)
    }

    #[inline]
    fn allocate_port_of_blocks<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        aim: &PortRequest<A>,
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
            let near = aim.block.filter(|(newest, _)| *newest == block).map(|(_, place)| place);
            let place = near.or_else(|| self.ports.find_block(aim.pool, block));
            let lent = place.and_then(|place| {
                self.ports
                    .allocate_from(aim.pool, aim.class, (block, place), aim.flow, key.source_port())
            });
            if let Some(lease) = lent {
                if record.used() == [0; 3]
                    && let Some(subscriber) = self.subscribers.records.get_mut(number)
                {
                    subscriber.empty -= 1;
                }
                record.count(aim.class, 1);
                return Ok(lease);
            }
        }
        self.allocate_block(number, aim, key, now)
    }

    /// A subscriber's next block, and a port of it.
    #[inline(never)]
    fn allocate_block<T: Tuple<Address = A>>(
        &mut self,
        number: u32,
        aim: &PortRequest<A>,
        key: &T,
        now: u64,
    ) -> Result<Lease<A>, Reason> {
        let valid = self.pool(aim.pool).ok_or(Reason::PortsExhausted)?;
        let blocks = valid.blocks().ok_or(Reason::PortsExhausted)?;
        let (pairing, addresses) = (valid.pairing(), valid.addresses());
        let subscriber = *self.subscribers.get(number).ok_or(Reason::PortsExhausted)?;
        if subscriber.block_count >= blocks.most {
            return Err(Reason::SubscriberPorts);
        }
        let usable = |&place: &u32| self.ports.has_ports(aim.pool, place);
        let paired = match valid.index_of(subscriber.paired()).filter(usable) {
            Some(paired) => paired,
            None => {
                let paired = self.pair(key, aim.pool).ok_or(Reason::PortsExhausted)?;
                self.subscribers
                    .records
                    .get_mut(number)
                    .ok_or(Reason::PortsExhausted)?
                    .pair(paired);
                self.pool(aim.pool)
                    .and_then(|valid| valid.index_of(paired))
                    .ok_or(Reason::PortsExhausted)?
            }
        };
        let random = sip::<1, 3>(
            self.secret,
            &[aim.flow, u64::from(number)],
            subscriber.block_count.into(),
        );
        let tries = if pairing == Pairing::Soft {
            addresses.min(ADDRESSES)
        } else {
            1
        };
        let taken = (0..tries).find_map(|step| self.ports.take_block(aim.pool, (paired + step) % addresses, random));
        let block = taken.ok_or(Reason::PortsExhausted)?;
        let owned = super::subscriber::SubscriberBlock::new(block, subscriber.blocks);
        let Some(owned) = self.subscribers.blocks.take(owned) else {
            self.ports.put_block(aim.pool, block);
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
            Event::new(kind, now, subscriber.context(), subscriber.address(), aim.pool)
                .outside(block.address, (block.first, last))
        });
        let lent = self.ports.find_block(aim.pool, block).and_then(|place| {
            self.ports
                .allocate_from(aim.pool, aim.class, (block, place), aim.flow, key.source_port())
        });
        match (lent, self.subscribers.blocks.get_mut(owned)) {
            (Some(lease), Some(record)) => {
                record.count(aim.class, 1);
                Ok(lease)
            }
            _ => {
                // A block at the edge of the pool's ports can be without any: it stays, and is empty.
                if let Some(subscriber) = self.subscribers.records.get_mut(number) {
                    subscriber.empty += 1;
                }
                Err(Reason::PortsExhausted)
            }
        }
    }
}
