//! Where the bits of each pool's ports lie, and how leases move from one layout to another.
//!
//! Per pool how many ports are lent of each class; per class one bit per address that has a free port; then per
//! address a summary, one bit per word that has a free port, and the words of 64 ports, which are the blocks that the
//! shard owns in ascending order.

use std::sync::Arc;

use sluice_table::memory::lines_of;

use super::bits::Bits;
use super::{CLASSES, Lease, PortClass};
use crate::pool::ValidPool;
use crate::shard::{BLOCK, BLOCKS, Shards};
use crate::{Address, PoolIndex, Pools};

/// Blocks of the ports below 1024.
const LOW_BLOCKS: u32 = 1024 / BLOCK;

/// Which ports suit a session (RFC 4787, REQ-3a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Below 1024 rather than others.
    Low,
    /// From 1024 on, where the pool has such.
    High,
    /// All the same.
    Any,
}

/// How the leases of a commit's pools lie in the memory of every shard. Copies share what they hold: a worker takes
/// one over without allocation.
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
    /// A layout of all pools.
    pub fn new(pools: &Pools<A>, shards: Shards) -> Self {
        let mut start = 0;
        let regions = pools.iter().map(|(_, pool)| {
            let region = Region::new(pool, shards, start);
            start += region.length();
            region
        });
        Self {
            regions: regions.collect(),
            shards,
        }
    }

    /// Whether leases are the same in both: addresses, ports and pairing of every pool.
    pub fn is_same(&self, other: &Self) -> bool {
        let pools = self.regions.iter().zip(other.regions.iter());
        Arc::ptr_eq(&self.regions, &other.regions)
            || self.shards == other.shards
                && self.regions.len() == other.regions.len()
                && pools.into_iter().all(|(one, two)| one.pool.lends_as(&two.pool))
    }

    /// Lines of memory that it takes in each shard.
    pub fn lines(&self) -> usize {
        lines_of(self.words() * size_of::<u64>())
    }

    /// Lines of memory that a pool of so many addresses with all ports takes in each shard.
    pub fn lines_of_spare(addresses: u32, shards: Shards) -> usize {
        match addresses {
            0 => 0,
            _ => lines_of(Geometry::new(0, BLOCKS - 1, addresses as usize, shards).length() * size_of::<u64>()),
        }
    }

    pub(super) fn words(&self) -> usize {
        self.regions.last().map_or(0, |last| last.start + last.length())
    }

    /// The pool that lends a port now.
    pub(super) fn holder(&self, lease: Lease<A>) -> Option<PoolIndex> {
        let holds = |region: &Region<A>| region.pool.lends(lease.address, lease.port);
        self.regions.iter().position(holds).map(|place| place as PoolIndex)
    }

    /// Write the bits of a shard: all of its ports are free.
    pub(super) fn write(&self, memory: &mut [u64], shard: u32) {
        for region in self.regions.iter() {
            region.free_all(memory, self.shards, shard);
        }
    }

    /// Lend what the layout before had lent, as far as some pool still has it. The bits are all free at first.
    pub(super) fn inherit(&self, memory: &mut [u64], before: &Self, old: &mut [u64], shard: u32) {
        for from in before.regions.iter() {
            for address in 0..from.geometry.addresses {
                let outside = from.pool.address(address as u32);
                let mut heirs = self.regions.iter().filter_map(|region| {
                    let place = region.pool.index_of(outside)?;
                    Some((region, place as usize))
                });
                // Pools share an address only by ports: mostly there is one heir, or none.
                let (first, others) = (heirs.next(), heirs);
                let Some(first) = first else { continue };
                let block = from.first_block(self.shards, shard, outside);
                for (to, place) in core::iter::once(first).chain(others) {
                    let own = to.first_block(self.shards, shard, outside);
                    for class in PortClass::ALL {
                        let mut lent = 0;
                        for at in 0..from.geometry.words {
                            let number = block + at as u32 * self.shards.count();
                            let word = from.bits(old, class, address).words[at];
                            let ports = from.owned(number) & !word & to.owned(number);
                            let heir = (number.wrapping_sub(own) >> self.shards.shift()) as usize;
                            if ports != 0 && heir < to.geometry.words {
                                to.bits(memory, class, place).take_all(heir, ports);
                                lent += u64::from(ports.count_ones());
                            }
                        }
                        memory[to.start + class as usize] += lent;
                    }
                }
            }
        }
    }
}

/// One pool's place in the memory.
#[derive(Debug)]
pub(super) struct Region<A> {
    pub(super) pool: ValidPool<A>,
    pub(super) geometry: Geometry,
    /// First word: of the counts of ports lent, by class.
    pub(super) start: usize,
}

/// How a pool's words lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// First block of the pool's ports.
    pub(super) first_block: u32,
    pub(super) addresses: usize,
    /// Words of 64 ports per address.
    pub(super) words: usize,
    /// Words of the summary of an address.
    summary: usize,
    /// Words of the addresses that have a free port, per class.
    available: usize,
}

impl Geometry {
    fn new(first_block: u32, last_block: u32, addresses: usize, shards: Shards) -> Self {
        let words = (last_block - first_block + 1).div_ceil(shards.count()) as usize;
        Self {
            first_block,
            addresses,
            words,
            summary: words.div_ceil(64),
            available: addresses.div_ceil(64),
        }
    }

    /// Words per address and class.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.summary + self.words
    }

    /// Words per class.
    #[inline(always)]
    fn class(&self) -> usize {
        self.available + self.addresses * self.stride()
    }

    /// Words of all.
    fn length(&self) -> usize {
        CLASSES + CLASSES * self.class()
    }
}

impl<A: Address> Region<A> {
    fn new(pool: &ValidPool<A>, shards: Shards, start: usize) -> Self {
        let (first, last) = pool.ports();
        let blocks = (u32::from(first) / BLOCK, u32::from(last) / BLOCK);
        Self {
            pool: pool.clone(),
            geometry: Geometry::new(blocks.0, blocks.1, pool.addresses() as usize, shards),
            start,
        }
    }

    /// Words that it takes.
    fn length(&self) -> usize {
        self.geometry.length()
    }

    /// First word of a class.
    #[inline(always)]
    fn class(&self, class: PortClass) -> usize {
        self.start + CLASSES + class as usize * self.geometry.class()
    }

    /// Place in the memory of an address's first word of ports.
    #[inline(always)]
    pub(super) fn word(&self, class: PortClass, address: usize) -> usize {
        let geometry = &self.geometry;
        self.class(class) + geometry.available + address * geometry.stride() + geometry.summary
    }

    /// The bits of one address and class.
    #[inline(always)]
    pub(super) fn bits<'a>(&self, memory: &'a mut [u64], class: PortClass, address: usize) -> Bits<'a> {
        let geometry = &self.geometry;
        let class = &mut memory[self.class(class)..];
        let (available, addresses) = class.split_at_mut(geometry.available);
        let one = &mut addresses[address * geometry.stride()..][..geometry.stride()];
        let (summary, words) = one.split_at_mut(geometry.summary);
        Bits {
            available,
            address,
            summary,
            words,
        }
    }

    /// The first block that a shard owns of an address.
    #[inline(always)]
    pub(super) fn first_block(&self, shards: Shards, shard: u32, address: A) -> u32 {
        shards.first_block(address, self.geometry.first_block, shard)
    }

    /// The first block that a shard owns of an address, the range of words to search first, and the one after.
    #[inline(always)]
    pub(super) fn ranges(
        &self,
        shards: Shards,
        shard: u32,
        address: u32,
        range: Range,
    ) -> (u32, (usize, usize), (usize, usize)) {
        let block = self.first_block(shards, shard, self.pool.address(address));
        let words = self.geometry.words;
        let low = (LOW_BLOCKS.saturating_sub(block) + shards.count() - 1) >> shards.shift();
        let low = (low as usize).min(words);
        match range {
            Range::Low if low > 0 => (block, (0, low), (low, words)),
            Range::High if low < words => (block, (low, words), (0, 0)),
            _ => (block, (0, words), (0, 0)),
        }
    }

    /// The pool's ports among those of a block, as bits.
    fn owned(&self, block: u32) -> u64 {
        let (first, last) = self.pool.ports();
        let from = block * BLOCK;
        let below = |port: u32| match port.saturating_sub(from) {
            bits @ 0..BLOCK => (1u64 << bits) - 1,
            _ => u64::MAX,
        };
        below(u32::from(last) + 1) & !below(first.into())
    }

    /// Set the bits of all ports that the shard owns, and no others.
    fn free_all(&self, memory: &mut [u64], shards: Shards, shard: u32) {
        memory[self.start..][..self.length()].fill(0);
        for class in PortClass::ALL {
            for address in 0..self.geometry.addresses {
                let block = self.first_block(shards, shard, self.pool.address(address as u32));
                let mut bits = self.bits(memory, class, address);
                for at in 0..self.geometry.words {
                    let ports = self.owned(block + at as u32 * shards.count());
                    if ports != 0 {
                        bits.put_all(at, ports);
                    }
                }
            }
        }
    }
}
