//! Port allocations of one shard: its allocated outside ports and its free outside ports.
//!
//! A shard has bits only for the ports that it owns ([`Shards::shard_of`](crate::shard::Shards::shard_of)). Thus two
//! shards can't allocate the same port, and a packet to an allocated port is steered to the port's shard. Half of the
//! ports of an address are shared. A shard that has exhausted its own ports claims some of the shared ports. An
//! allocation accesses one cache line, or a second one if it takes the last free port of a 64-port word.

mod bits;
mod blocks;
mod borrowing;
mod layout;
mod migration;
mod pairing;
mod release;
mod search;
mod shared;

use std::sync::Arc;

use sluice_table::memory::Line;
use sluice_table::prefetch::prefetch_all_at;
use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use thiserror::Error;

use self::bits::{pick, start};
pub use self::blocks::Block;
pub(crate) use self::blocks::BlockPlace;
pub use self::layout::Layout;
use self::layout::Range;
pub(crate) use self::shared::{Borrowed, SharedOf, SharedPorts};
use crate::keyed::{Secret, sip};
use crate::shard::BLOCK;
use crate::{Address, PoolIndex, Reason, RssPorts, Tuple};

/// Class of ports. Each class can use all ports of a pool (RFC 7857, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortClass {
    /// TCP ports.
    Tcp = 0,
    /// UDP ports.
    Udp = 1,
    /// Identifiers of ICMP and ICMPv6 queries.
    Query = 2,
}

/// Number of classes.
const CLASSES: usize = 3;

impl PortClass {
    /// All classes.
    pub const ALL: [PortClass; CLASSES] = [PortClass::Tcp, PortClass::Udp, PortClass::Query];

    /// The class of a parsed packet. `None` for packets without a class, such as ICMP messages other than queries. A
    /// later fragment has no ICMP header. It belongs to a query if virtual reassembly has set an identifier in its port
    /// fields.
    #[inline(always)]
    pub fn of_layers(layers: &Layers) -> Option<Self> {
        let bits = if layers.class == Class::Ipv4 { 32 } else { 128 };
        let class = Self::of(layers.protocol, bits)?;
        let has_ports = layers.fragment == Fragment::Later && (layers.source_port, layers.destination_port) != (0, 0);
        (class != PortClass::Query || layers.flags.has(Flags::ICMP_QUERY) || has_ports).then_some(class)
    }

    /// The class of a protocol in the address family with `bits` address bits. `None` if the protocol has neither ports
    /// nor identifiers.
    #[inline(always)]
    pub fn of(protocol: u8, bits: u8) -> Option<Self> {
        match (protocol, bits) {
            (6, _) => Some(PortClass::Tcp),
            // UDP-Lite has the port class of UDP, so UDP-Lite and UDP share the ports of a pool.
            (17 | 136, _) => Some(PortClass::Udp),
            (1, 32) | (58, 128) => Some(PortClass::Query),
            _ => None,
        }
    }
}

/// An allocated outside address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease<A> {
    /// Outside address.
    pub address: A,
    /// Outside port, or ICMP identifier.
    pub port: u16,
}

/// Request for a port, created by [`Ports::request`].
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// Keyed hash of the flow.
    flow: u64,
    /// Memory index of the first word of port bits to search, and number of the 64-port block in this word.
    place: usize,
    block: u32,
    /// Index of the paired address in the pool.
    address: u32,
    pool: PoolIndex,
    class: PortClass,
    range: Range,
    /// Preferred ports. If no preferred port is free, other ports are allocated.
    preference: PortPreference,
    /// Bit mask of the preferred ports in the first word.
    first: u64,
}

/// Ports that are preferred for a session.
#[derive(Clone, Copy, Debug)]
struct PortPreference {
    /// Mask of the ports in a word that have the preferred parity.
    parity: u64,
    /// Value that the outside port must contribute to the RSS hash so that RSS delivers the session's replies to this
    /// shard. The value is computed for outside address 0. `None` if any port can be used.
    required_hash: Option<u32>,
}

/// Mask of even ports.
pub(crate) const EVEN: u64 = 0x5555_5555_5555_5555;

/// No port is free for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no outside port is free")]
pub struct Exhausted;

impl From<Exhausted> for Reason {
    fn from(_: Exhausted) -> Self {
        Reason::PortsExhausted
    }
}

/// The memory is too small for the ports of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("port bitmaps need {needed} cache lines of memory, but got {provided}")]
pub struct TooSmall {
    /// Required number of lines.
    pub needed: usize,
    /// Provided number of lines.
    pub provided: usize,
}

/// Port allocations of one shard.
#[derive(Debug)]
pub struct Ports<'m, A> {
    memory: &'m mut [u64],
    layout: Layout<A>,
    shard: u32,
    secret: Secret,
    /// Table of the ports for which RSS delivers replies to this shard, if NICs hash addresses and ports.
    rss_ports: Option<Arc<RssPorts>>,
    /// Layout to which a scheduled migration changes, and the memory to which the migration will write the port bits.
    next: Option<Layout<A>>,
    other: &'m mut [u64],
}

impl<'m, A: Address> Ports<'m, A> {
    /// Number of memory lines for the ports of one shard, equal for all shards. Includes space for `spare` further
    /// addresses and for two layouts, because a migration writes the next layout while the current layout is in use.
    pub fn lines(layout: &Layout<A>, spare: u32) -> usize {
        2 * (layout.lines() + Layout::<A>::lines_of_spare(spare, layout.shards))
    }

    /// Creates the ports of one shard. All ports are free. Overwrites the memory.
    pub fn new(layout: &Layout<A>, shard: u32, secret: Secret, memory: &'m mut [Line]) -> Result<Self, TooSmall> {
        let (needed, provided) = (Self::lines(layout, 0), memory.len());
        if provided < needed {
            return Err(TooSmall { needed, provided });
        }
        let (memory, other) = memory.split_at_mut(provided / 2);
        let memory: &mut [u64] = bytemuck::cast_slice_mut(memory);
        layout.write(memory, shard);
        Ok(Self {
            memory,
            layout: layout.clone(),
            shard,
            secret,
            rss_ports: None,
            next: None,
            other: bytemuck::cast_slice_mut(other),
        })
    }

    /// Sets the table of the ports for which RSS delivers replies to this shard. Allocations prefer these ports.
    pub fn prefer_rss_ports(&mut self, rss_ports: Arc<RssPorts>) {
        self.rss_ports = Some(rss_ports);
    }

    /// Schedules a migration to the layout of other pools. The migration runs before the next allocation or in
    /// [`Ports::migrate`], whichever is first. The layout must fit into the memory.
    pub fn prepare_migration(&mut self, next: &Layout<A>) {
        debug_assert!(next.words() <= self.other.len());
        if next.words() <= self.other.len() {
            self.next = Some(next.clone());
        }
    }

    /// Runs a scheduled migration. Allocated ports that a pool still contains remain allocated. The shard no longer
    /// records allocated ports that no pool contains. The sessions of these ports must end before a pool contains the
    /// ports again.
    #[cold]
    pub fn migrate(&mut self) {
        let Some(next) = self.next.take() else { return };
        next.write(self.other, self.shard);
        next.migrate_ports(self.other, &self.layout, self.memory, self.shard);
        core::mem::swap(&mut self.memory, &mut self.other);
        self.layout = next;
    }

    /// Runs the migration if one is scheduled.
    #[inline(always)]
    pub(crate) fn migrate_if_due(&mut self) {
        if self.next.is_some() {
            self.migrate();
        }
    }

    /// Whether a migration is scheduled.
    pub fn is_migration_due(&self) -> bool {
        self.next.is_some()
    }

    /// Allocates a port to a new session. The address depends only on the inside host (paired pooling: RFC 4787,
    /// REQ-2). The search for a free port starts at a hash of the whole flow. A source port below 1024 gets an outside
    /// port below 1024 if such a port is free. A source port from 1024 on gets an outside port from 1024 on if the pool
    /// has such ports (RFC 4787, REQ-3a). Equal sequences of requests result in equal ports.
    #[inline]
    pub fn lease<T: Tuple<Address = A>>(
        &mut self,
        pool: PoolIndex,
        class: PortClass,
        key: &T,
    ) -> Result<Lease<A>, Exhausted> {
        let request = self.request(pool, class, key);
        self.allocate(request)
    }

    /// First pass of [`Ports::lease`] for a batch of new sessions: determines where the search for a port starts, and
    /// prefetches this cache line.
    #[inline]
    pub fn request<T: Tuple<Address = A>>(&mut self, pool: PoolIndex, class: PortClass, key: &T) -> LeaseRequest {
        self.migrate_if_due();
        let first = self.paired_index(pool, key.context(), key.source(), T::Address::BITS);
        self.request_at(
            pool,
            class,
            self.address_from(pool, first),
            self.flow_hash(class, key),
            key,
        )
    }

    /// Number of addresses of a pool in the current layout.
    #[inline(always)]
    pub(crate) fn addresses(&self, pool: PoolIndex) -> u32 {
        let region = self.layout.regions.get(usize::from(pool));
        region.map_or(0, |region| region.geometry.addresses as u32)
    }

    /// The current layout.
    pub(crate) fn layout(&self) -> &Layout<A> {
        &self.layout
    }

    /// Like [`Ports::request`], but for a given address of the pool. `flow` is the keyed hash that selects the port.
    #[inline(always)]
    pub(crate) fn request_at<T: Tuple<Address = A>>(
        &self,
        pool: PoolIndex,
        class: PortClass,
        address: u32,
        flow: u64,
        key: &T,
    ) -> LeaseRequest {
        let inside_port = key.source_port();
        let range = match class {
            PortClass::Query => Range::Any,
            _ if inside_port < 1024 => Range::Low,
            _ => Range::High,
        };
        let mut request = LeaseRequest {
            flow,
            place: usize::MAX,
            block: 0,
            address,
            pool,
            class,
            range,
            preference: PortPreference {
                parity: u64::MAX,
                required_hash: None,
            },
            first: u64::MAX,
        };
        let (regions, shards) = (&self.layout.regions, self.layout.shards);
        if let Some(region) = regions
            .get(usize::from(pool))
            .filter(|region| region.geometry.addresses > 0 && region.geometry.stored)
        {
            request.preference.parity = parity_of(&region.pool, class, inside_port);
            let [(from, to), _] = region.ranges(shards, self.shard, address, range);
            // If the shard has no ports in the preferred range, the search continues with other ports.
            let preference = if from < to { u64::MAX } else { 0 };
            let at = from + start(flow, from, to);
            let outside = region.pool.address(address);
            request.block = region.block_at(shards, self.shard, outside, at);
            request.preference.required_hash = self.required_hash(class, key);
            request.first =
                preference & request.preference.parity & self.rss_ports_of(&request, outside, request.block);
            request.place = region.word(class, address as usize) + at;
            prefetch_all_at(self.memory, request.place);
        }
        request
    }

    /// Value that an outside port must contribute to the RSS hash so that RSS delivers a flow's replies to this shard.
    /// `None` if any port can be used.
    #[inline(always)]
    fn required_hash<T: Tuple<Address = A>>(&self, class: PortClass, key: &T) -> Option<u32> {
        let rss_ports = self.rss_ports.as_deref()?;
        rss_ports.required_hash(class, self.shard, key)
    }

    /// Ports of a block for which RSS delivers replies to this shard.
    #[inline(always)]
    fn rss_ports_of(&self, request: &LeaseRequest, outside: A, block: u32) -> u64 {
        match (self.rss_ports.as_deref(), request.preference.required_hash) {
            (Some(rss_ports), Some(wanted)) => rss_ports.of_word(wanted, outside, block * BLOCK),
            _ => u64::MAX,
        }
    }

    /// Ports of the 64-port word at `outside` for which RSS delivers replies to this shard.
    pub(crate) fn rss_ports_of_word<T: Tuple<Address = A>>(&self, class: PortClass, outside: Lease<A>, key: &T) -> u64 {
        match (self.rss_ports.as_deref(), self.required_hash(class, key)) {
            (Some(rss_ports), Some(wanted)) => {
                let first = u32::from(outside.port) / BLOCK * BLOCK;
                rss_ports.of_word(wanted, outside.address, first)
            }
            _ => u64::MAX,
        }
    }

    /// Ports of the pool in the 64-port word that starts at `port`.
    pub(crate) fn owned_ports_of_word(&self, pool: PoolIndex, port: u16) -> u64 {
        let region = self.layout.regions.get(usize::from(pool));
        region.map_or(0, |region| region.owned(u32::from(port) / BLOCK))
    }

    /// Second pass of [`Ports::lease`]: allocates the port.
    #[inline]
    pub fn allocate(&mut self, request: LeaseRequest) -> Result<Lease<A>, Exhausted> {
        let (Some(word), Some(region)) = (
            self.memory.get_mut(request.place),
            self.layout.regions.get(usize::from(request.pool)),
        ) else {
            return Err(Exhausted);
        };
        // While the word has another free port, an allocation does not change the summary.
        if *word & word.wrapping_sub(1) == 0 || *word & request.first == 0 {
            return self.search(request);
        }
        let bit = pick(*word & request.first, request.flow);
        *word &= !(1 << bit);
        self.memory[region.start + request.class as usize] += 1;
        let port = (request.block * BLOCK + bit) as u16;
        Ok(Lease {
            address: region.pool.address(request.address),
            port,
        })
    }

    /// Allocates a specific port for a session that another shard created. Returns false if the port is already
    /// allocated, or does not belong to this shard or pool.
    pub fn claim(&mut self, pool: PoolIndex, class: PortClass, lease: Lease<A>) -> bool {
        self.migrate();
        let Some((address, at, bit)) = self.place(pool, lease) else {
            return self.claim_shared(pool, class, lease);
        };
        let region = &self.layout.regions[usize::from(pool)];
        let mut bits = region.bits(self.memory, class, address);
        if !bits.is_free(at, bit) {
            return false;
        }
        bits.take(at, bit);
        self.memory[region.start + class as usize] += 1;
        true
    }

    /// Number of this shard.
    pub(crate) fn shard(&self) -> u32 {
        self.shard
    }

    /// Keyed hash of a whole flow.
    #[inline(always)]
    pub(crate) fn flow_hash<T: Tuple<Address = A>>(&self, class: PortClass, key: &T) -> u64 {
        digest(self.secret, class, key)
    }

    /// A port of `address`, selected by a random number among the ports that this shard owns. The pool need not contain
    /// this port.
    #[inline(always)]
    pub(crate) fn port_at(&self, pool: PoolIndex, address: A, random: u64) -> Option<u16> {
        let region = self.layout.regions.get(usize::from(pool))?;
        let at = start(random, 0, region.geometry.words);
        let block = region.block_at(self.layout.shards, self.shard, address, at);
        u16::try_from(block * BLOCK + (random as u32 & (BLOCK - 1))).ok()
    }

    /// Number of ports of a pool that this shard has allocated.
    pub fn used(&self, pool: PoolIndex, class: PortClass) -> u32 {
        let region = self.layout.regions.get(usize::from(pool));
        region.map_or(0, |region| self.memory[region.start + class as usize] as u32)
    }

    /// Address index, word and bit of a pool's port. `None` if another shard can own the port.
    #[inline(always)]
    fn place(&self, pool: PoolIndex, lease: Lease<A>) -> Option<(usize, usize, u32)> {
        let region = self.layout.regions.get(usize::from(pool))?;
        let address = region.pool.index_of(lease.address)?;
        let block = u32::from(lease.port) / BLOCK;
        let at = region.place_of(self.layout.shards, self.shard, lease.address, block)?;
        let known = region.geometry.stored && region.pool.has_port(lease.port);
        known.then_some((address as usize, at, u32::from(lease.port) % BLOCK))
    }
}

/// Mask of the ports in a word that have the parity of the inside port. For classes other than UDP, and for pools
/// without parity preservation (RFC 4787, REQ-4), the mask includes all ports.
#[inline(always)]
fn parity_of<A: Address>(pool: &crate::pool::ValidPool<A>, class: PortClass, inside_port: u16) -> u64 {
    match pool.preserves_parity() && class == PortClass::Udp {
        true => EVEN << (inside_port & 1),
        false => u64::MAX,
    }
}

/// Keyed hash of a whole flow.
#[inline(always)]
fn digest<T: Tuple>(secret: Secret, class: PortClass, key: &T) -> u64 {
    let (context, ports) = (
        key.context(),
        u64::from(key.source_port()) << 16 | u64::from(key.destination_port()),
    );
    let ([s0, s1], [d0, d1]) = (key.source().words(), key.destination().words());
    if T::Address::BITS == 32 {
        let inside = u64::from(context) << 32 | s1;
        sip::<1, 3>(secret, &[inside, d1 << 32 | ports], class as u64)
    } else {
        let last = u64::from(context) << 32 | ports;
        sip::<1, 3>(secret, &[s0, s1, d0, d1, last], class as u64)
    }
}
