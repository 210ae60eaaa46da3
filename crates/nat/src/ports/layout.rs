//! Memory layout of the port bits of each pool, and migration of allocations between layouts.
//!
//! The region of a pool starts with the number of allocated ports of each class. For each class it then contains a
//! bitmap of the addresses that have a free port, followed by the data of each address. The data of an address are
//! three bitmaps. The summary marks the words that have a free port. The 64-port words of the shard's own ports follow
//! in ascending order. The last bitmap marks the claimed shared words ([`SharedPorts`](super::SharedPorts)). The region
//! of a pool with port blocks also contains a bitmap of the free blocks.

use std::sync::Arc;

use sluice_table::memory::lines_of;

use super::bits::Bits;
use super::{CLASSES, Lease, PortClass};
use crate::behaviour::PortSelection;
use crate::pool::ValidPool;
use crate::shard::{BLOCK, BLOCKS, Shards};
use crate::{Address, PoolIndex, Pools};

/// Number of 64-port blocks with ports below 1024.
const LOW_BLOCKS: u32 = 1024 / BLOCK;

/// Port range that is preferred for a session (RFC 4787, REQ-3a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Ports below 1024, if any of them are free.
    Low,
    /// Ports from 1024 on, if the pool has such ports.
    High,
    /// No preference: all ports are equally suitable.
    Any,
}

/// Memory layout of the port allocations for the pools of a snapshot. All shards have an identical layout. Clones share
/// their contents, so a worker can adopt a layout without a memory allocation.
#[derive(Clone, Debug)]
pub struct Layout<A> {
    pub(super) regions: Arc<[Region<A>]>,
    pub(super) shards: Shards,
}

impl<A> Default for Layout<A> {
    fn default() -> Self {
        Self {
            regions: Arc::new([]),
            shards: Shards::ONE,
        }
    }
}

impl<A: Address> Layout<A> {
    /// Layout of all pools, without shared ports.
    pub fn new(pools: &Pools<A>, shards: Shards) -> Self {
        Self::made(pools, shards, false)
    }

    /// Layout of all pools, with the shared ports of [`Pools::share`].
    pub fn shared(pools: &Pools<A>, shards: Shards) -> Self {
        Self::made(pools, shards, true)
    }

    fn made(pools: &Pools<A>, shards: Shards, shared: bool) -> Self {
        let mut start = 0;
        let regions = pools.iter().map(|(_, pool)| {
            let region = Region::new(pool, shards, start, shared && pool.shares(shards));
            start += region.length();
            region
        });
        Self {
            regions: regions.collect(),
            shards,
        }
    }

    /// Whether this layout and `other` allocate identically. Then every pool has the same addresses, ports and pairing
    /// in both.
    pub fn is_same(&self, other: &Self) -> bool {
        let pools = self.regions.iter().zip(other.regions.iter());
        Arc::ptr_eq(&self.regions, &other.regions)
            || self.shards == other.shards
                && self.regions.len() == other.regions.len()
                && pools.into_iter().all(|(one, two)| one.pool.allocates_like(&two.pool))
    }

    /// Number of memory lines that each shard needs.
    pub fn lines(&self) -> usize {
        lines_of(self.words() * size_of::<u64>())
    }

    /// Number of memory lines per shard for a pool with `addresses` addresses and all ports.
    pub fn lines_of_spare(addresses: u32, shards: Shards) -> usize {
        let length = |shared| Geometry::new((0, BLOCKS - 1), 1, true, addresses as usize, (shards, shared)).length();
        match addresses {
            0 => 0,
            _ => lines_of(length(false).max(length(true)) * size_of::<u64>()),
        }
    }

    /// Pool with this index.
    #[inline(always)]
    pub fn pool(&self, index: PoolIndex) -> Option<&ValidPool<A>> {
        self.regions.get(usize::from(index)).map(|region| &region.pool)
    }

    /// Shards over which the ports are distributed.
    #[inline(always)]
    pub fn shards(&self) -> Shards {
        self.shards
    }

    pub(super) fn words(&self) -> usize {
        self.regions.last().map_or(0, |last| last.start + last.length())
    }

    /// Pool to which the port of a lease currently belongs.
    pub(super) fn holder(&self, lease: Lease<A>) -> Option<PoolIndex> {
        let holds = |region: &Region<A>| region.pool.is_plain() && region.pool.includes(lease.address, lease.port);
        self.regions.iter().position(holds).map(|place| place as PoolIndex)
    }

    /// Initialises the bits of a shard: all its ports are free.
    pub(super) fn write(&self, memory: &mut [u64], shard: u32) {
        for region in self.regions.iter() {
            region.free_all(memory, self.shards, shard);
        }
    }
}

/// Memory region of one pool.
#[derive(Debug)]
pub(super) struct Region<A> {
    pub(super) pool: ValidPool<A>,
    pub(super) geometry: Geometry,
    /// Memory index of the region's first word. The first words contain the number of allocated ports of each class.
    pub(super) start: usize,
}

/// The two word ranges that a search visits in this order. Of the `words` words, the first `low` contain ports below
/// 1024. `all` is the result for [`Range::Any`] and for pools without ports below 1024.
#[inline(always)]
fn split(range: Range, (low, words): (usize, usize), all: [(usize, usize); 2]) -> [(usize, usize); 2] {
    match range {
        Range::Low if all.iter().any(|&(low, _)| low > 0) => [(0, low), (low, words)],
        Range::High if all.iter().any(|&(low, words)| low < words) => [(low, words), (0, 0)],
        _ => [(0, words), (0, 0)],
    }
}

/// Arrangement of a pool's words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Number of the first port unit of the pool.
    pub(super) first_unit: u32,
    /// Number of 64-port words in a port unit. All words of a port unit belong to one shard.
    pub(super) unit: u32,
    /// Whether the pool has port bits.
    pub(super) stored: bool,
    pub(super) addresses: usize,
    /// Number of words per address that belong exclusively to this shard.
    pub(super) words: usize,
    /// Binary logarithm of the distance between consecutive port units of a shard.
    stride: u32,
    /// Number of shared 64-port words of each address; 0 if no ports are shared.
    pub(super) shared: usize,
    /// Number of port blocks of each address; 0 if the pool has no blocks.
    pub(super) units: usize,
    /// Number of summary words of each address.
    summary: usize,
    /// Number of words in the bitmap of the addresses that have a free port, for each class.
    available: usize,
}

impl Geometry {
    /// Arrangement of the 64-port blocks in port units. Either every second port unit is shared, or no port unit is
    /// shared.
    fn new(
        (first, last): (u32, u32),
        unit: u32,
        stored: bool,
        addresses: usize,
        (shards, shared): (Shards, bool),
    ) -> Self {
        let (first_unit, last_unit) = (first / unit, last / unit);
        let stride = shards.bits() + u32::from(shared);
        let words = ((last_unit - first_unit + 1).div_ceil(1 << stride) * unit) as usize;
        let pairs = last_unit / 2 - first_unit / 2 + 1;
        Self {
            first_unit,
            unit,
            stored,
            units: 0,
            addresses,
            words,
            stride,
            shared: if shared { (pairs * unit) as usize } else { 0 },
            summary: words.div_ceil(64),
            available: addresses.div_ceil(64),
        }
    }

    /// Number of words for each address and class.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.summary + self.words + self.shared.div_ceil(64)
    }

    /// Number of words for each class.
    #[inline(always)]
    fn class(&self) -> usize {
        self.available + self.addresses * self.stride()
    }

    /// Number of words for the block bits of an address.
    #[inline(always)]
    fn block_bits(&self) -> usize {
        self.units.div_ceil(64)
    }

    /// Number of words of the region.
    fn length(&self) -> usize {
        match self.stored {
            true => CLASSES + CLASSES * self.class() + self.addresses * self.block_bits(),
            false => CLASSES,
        }
    }
}

impl<A: Address> Region<A> {
    fn new(pool: &ValidPool<A>, shards: Shards, start: usize, shared: bool) -> Self {
        let (first, last) = pool.dynamic_range().unwrap_or(pool.ports());
        let blocks = (u32::from(first) / BLOCK, u32::from(last) / BLOCK);
        let addresses = pool.addresses() as usize;
        let mut geometry = Geometry::new(blocks, pool.unit(), pool.has_bits(), addresses, (shards, shared));
        if pool.blocks().is_some() && geometry.stored {
            geometry.units = geometry.words / geometry.unit as usize;
        }
        Self {
            pool: pool.clone(),
            geometry,
            start,
        }
    }

    /// First port unit that a shard owns.
    #[inline(always)]
    fn first_own(&self, shards: Shards, address: A, shard: u32) -> u32 {
        let first = self.pool.first_unit(shards, address, self.geometry.first_unit, shard);
        match self.geometry.shared > 0 && shards.is_shared(first) {
            true => first + shards.count(),
            false => first,
        }
    }

    /// Number of the 64-port block at an index among the words of a shard.
    #[inline(always)]
    pub(super) fn block_at(&self, shards: Shards, shard: u32, address: A, at: usize) -> u32 {
        let (unit, at) = (self.geometry.unit, at as u32);
        let first = self.first_own(shards, address, shard);
        (first + ((at / unit) << self.geometry.stride)) * unit + at % unit
    }

    /// Index of a 64-port block among the words of a shard. `None` if the shard does not own the block, or if the pool
    /// does not contain the block.
    #[inline(always)]
    pub(super) fn place_of(&self, shards: Shards, shard: u32, address: A, block: u32) -> Option<usize> {
        let (unit, stride) = (self.geometry.unit, self.geometry.stride);
        let behind = (block / unit).checked_sub(self.first_own(shards, address, shard))?;
        let at = ((behind >> stride) * unit + block % unit) as usize;
        (behind & ((1 << stride) - 1) == 0 && at < self.geometry.words).then_some(at)
    }

    /// Whether a shard owns any ports of an address besides those that deterministic NAT computes.
    #[inline(always)]
    pub(super) fn has_ports(&self, shards: Shards, shard: u32, address: u32) -> bool {
        let spread = self.geometry.stored && self.pool.is_wide(shards);
        spread || address as usize >= self.geometry.addresses || self.owns_any(shards, shard, address)
    }

    #[inline(never)]
    fn owns_any(&self, shards: Shards, shard: u32, address: u32) -> bool {
        let outside = self.pool.address(address);
        if self.pool.selection() == PortSelection::Preserve {
            return self.pool.shard_of(shards, outside, 0) == shard;
        }
        let owned = |at| self.owned(self.block_at(shards, shard, outside, at)) != 0;
        !self.geometry.stored || (0..self.geometry.words).any(owned)
    }

    /// Index of the first word in the block bitmap of an address.
    fn block_word(&self, address: usize) -> usize {
        self.start + CLASSES + CLASSES * self.geometry.class() + address * self.geometry.block_bits()
    }

    /// Block bitmap of an address.
    #[inline(always)]
    pub(super) fn units<'a>(&self, memory: &'a mut [u64], address: usize) -> &'a mut [u64] {
        &mut memory[self.block_word(address)..][..self.geometry.block_bits()]
    }

    pub(super) fn is_unit_free(&self, memory: &[u64], address: usize, unit: usize) -> bool {
        memory[self.block_word(address) + unit / 64] >> (unit % 64) & 1 != 0
    }

    /// Allocates a block.
    #[inline(always)]
    pub(super) fn take_unit(&self, memory: &mut [u64], address: usize, unit: usize) {
        self.units(memory, address)[unit / 64] &= !(1 << (unit % 64));
    }

    /// Releases a block.
    #[inline(always)]
    pub(super) fn release_unit(&self, memory: &mut [u64], address: usize, unit: usize) {
        self.units(memory, address)[unit / 64] |= 1 << (unit % 64);
    }

    /// Number of words in the region.
    fn length(&self) -> usize {
        self.geometry.length()
    }

    /// Index of the first word of a class.
    #[inline(always)]
    fn class(&self, class: PortClass) -> usize {
        self.start + CLASSES + class as usize * self.geometry.class()
    }

    /// Memory index of the first word of an address's port bits.
    #[inline(always)]
    pub(super) fn word(&self, class: PortClass, address: usize) -> usize {
        let geometry = &self.geometry;
        self.class(class) + geometry.available + address * geometry.stride() + geometry.summary
    }

    /// Port bits of one address and class.
    #[inline(always)]
    pub(super) fn bits<'a>(&self, memory: &'a mut [u64], class: PortClass, address: usize) -> Bits<'a> {
        let geometry = &self.geometry;
        let class = &mut memory[self.class(class)..];
        let (available, addresses) = class.split_at_mut(geometry.available);
        let one = &mut addresses[address * geometry.stride()..][..geometry.stride()];
        let (summary, words) = one.split_at_mut(geometry.summary);
        let (words, claimed) = words.split_at_mut(geometry.words);
        Bits {
            available,
            address,
            summary,
            words,
            claimed,
        }
    }

    /// The two word ranges that a search of the shard's own ports visits in this order.
    #[inline(always)]
    pub(super) fn ranges(&self, shards: Shards, shard: u32, address: u32, range: Range) -> [(usize, usize); 2] {
        let own = self.low(shards, shard, address);
        split(range, own, [own, self.low_shared()])
    }

    /// The two word ranges that a search of the shared ports visits in this order.
    pub(super) fn shared_ranges(&self, shards: Shards, shard: u32, address: u32, range: Range) -> [(usize, usize); 2] {
        let shared = self.low_shared();
        split(range, shared, [self.low(shards, shard, address), shared])
    }

    /// Number of words that a shard owns, and number of owned words in port units with a port below 1024. Such port
    /// units may also contain higher ports.
    #[inline(always)]
    fn low(&self, shards: Shards, shard: u32, address: u32) -> (usize, usize) {
        let (unit, words) = (self.geometry.unit, self.geometry.words);
        let outside = self.pool.address(address);
        let (first, stride) = (self.first_own(shards, outside, shard), self.geometry.stride);
        let low = LOW_BLOCKS.div_ceil(unit).saturating_sub(first);
        let low = (((low + (1 << stride) - 1) >> stride) * unit) as usize;
        (low.min(words), words)
    }

    /// Number of shared words, and number of shared words in port units with a port below 1024.
    #[inline(always)]
    fn low_shared(&self) -> (usize, usize) {
        let Geometry {
            first_unit,
            unit,
            shared,
            ..
        } = self.geometry;
        let low = (LOW_BLOCKS.div_ceil(unit) / 2).saturating_sub(first_unit / 2) * unit;
        ((low as usize).min(shared), shared)
    }

    /// Mask of the pool's ports in a block.
    pub(super) fn owned(&self, block: u32) -> u64 {
        let Some((first, last)) = self.pool.dynamic_range() else {
            return 0;
        };
        let from = block * BLOCK;
        let below = |port: u32| match port.saturating_sub(from) {
            bits @ 0..BLOCK => (1u64 << bits) - 1,
            _ => u64::MAX,
        };
        let within = |first: u16, last: u16| below(u32::from(last) + 1) & !below(first.into());
        let reserved = self.pool.reserved().iter();
        reserved.fold(within(first, last), |ports, &(first, last)| {
            ports & !within(first, last)
        })
    }

    /// Sets the bits of all ports that the shard owns, and no other bits.
    fn free_all(&self, memory: &mut [u64], shards: Shards, shard: u32) {
        memory[self.start..][..self.length()].fill(0);
        if !self.geometry.stored {
            return;
        }
        for address in 0..self.geometry.addresses {
            let outside = self.pool.address(address as u32);
            for class in PortClass::ALL {
                let mut bits = self.bits(memory, class, address);
                for at in 0..self.geometry.words {
                    let ports = self.owned(self.block_at(shards, shard, outside, at));
                    if ports != 0 {
                        bits.release_ports(at, ports);
                    }
                }
            }
            for unit in 0..self.geometry.units {
                let words = self.geometry.unit as usize;
                let whole = (unit * words..(unit + 1) * words)
                    .any(|at| self.owned(self.block_at(shards, shard, outside, at)) != 0);
                if whole {
                    self.release_unit(memory, address, unit);
                }
            }
        }
    }
}
