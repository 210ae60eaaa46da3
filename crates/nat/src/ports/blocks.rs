//! Port blocks. A whole block is allocated to a subscriber. The subscriber's sessions get ports of the block.

use super::bits::{next, pick, start};
use super::layout::Region;
use super::{Lease, PortClass, Ports, parity_of};
use crate::shard::BLOCK;
use crate::{Address, PoolIndex};

/// A block of ports of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<A> {
    /// Outside address.
    pub address: A,
    /// First port of the block. The number of its ports is configured in the pool.
    pub first: u16,
}

/// Location of a block in memory: index of its address, and index of its first word. The location is valid until the
/// layout changes. If shards share the block, the word index is an index among all words of the address; otherwise it
/// is an index among this shard's words of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    address: u32,
    at: u32,
    shared: bool,
}

impl<A: Address> Ports<'_, A> {
    /// Number of ports in a block of a pool; 0 if the pool has no blocks.
    pub fn block_size(&self, pool: PoolIndex) -> u16 {
        let blocks = self.layout.pool(pool).and_then(|valid| valid.blocks());
        blocks.map_or(0, |blocks| blocks.size)
    }

    /// Number of free blocks of an address.
    pub(crate) fn free_blocks(&mut self, pool: PoolIndex, address: u32) -> u32 {
        let Some(region) = self.layout.regions.get(usize::from(pool)) else {
            return 0;
        };
        if address as usize >= region.geometry.addresses || region.geometry.units == 0 {
            return 0;
        }
        let units = region.units(self.memory, address as usize);
        units.iter().map(|word| word.count_ones()).sum()
    }

    /// Allocates a block of an address: the first free block after a random position. The shard's own blocks and the
    /// shared blocks are searched.
    pub(crate) fn take_block(&mut self, pool: PoolIndex, address: u32, random: u64) -> Option<Block<A>> {
        let shards = self.layout.shards;
        let region = self.layout.regions.get(usize::from(pool))?;
        let (place, count) = (address as usize, region.geometry.units);
        if place >= region.geometry.addresses {
            return None;
        }
        let from = start(random, 0, count);
        let units = region.units(self.memory, place);
        let unit = next(units, from, count).or_else(|| next(units, 0, from));
        let address = region.pool.address(address);
        let Some(unit) = unit else {
            let all = (0, region.geometry.shared);
            let first = region.claim_within(self.memory, (shards, self.shard), place, all, random)?;
            return Some(Block {
                address,
                first: (first * BLOCK) as u16,
            });
        };
        region.take_unit(self.memory, place, unit);
        let words = region.geometry.unit;
        let number = region.block_at(shards, self.shard, address, unit * words as usize);
        Some(Block {
            address,
            first: (number * BLOCK) as u16,
        })
    }

    /// Releases a block. Returns false if the block was not allocated, or if the pool no longer contains it.
    pub(crate) fn put_block(&mut self, pool: PoolIndex, block: Block<A>) -> bool {
        let Some(BlockPlace { address, at, shared }) = self.find_block(pool, block) else {
            return false;
        };
        let region = &self.layout.regions[usize::from(pool)];
        if shared {
            let place = (self.layout.shards, address as usize);
            for block in at..at + region.geometry.unit {
                region.set_shared(self.memory, place, block, [0; 3]);
                if let Some(shared) = region.shared(address as usize) {
                    shared.release(block);
                }
            }
            return true;
        }
        let unit = (at / region.geometry.unit) as usize;
        let word = &mut region.units(self.memory, address as usize)[unit / 64];
        let was_free = *word >> (unit % 64) & 1 != 0;
        *word |= 1 << (unit % 64);
        !was_free
    }

    /// Allocates a port of the block at a location.
    pub(crate) fn allocate_from(
        &mut self,
        pool: PoolIndex,
        class: PortClass,
        (block, place): (Block<A>, BlockPlace),
        flow: u64,
        inside_port: u16,
    ) -> Option<Lease<A>> {
        if place.shared {
            return self.allocate_shared(pool, class, (block, place), flow, inside_port);
        }
        let region = self.layout.regions.get(usize::from(pool))?;
        let (words, preference) = (
            region.geometry.unit as usize,
            parity_of(&region.pool, class, inside_port),
        );
        let from = region.word(class, place.address as usize) + place.at as usize;
        let of_block = self.memory.get_mut(from..from + words)?;
        let first = start(flow, 0, words);
        let find = |preference: u64| {
            let mut order = (first..words).chain(0..first);
            order.find_map(|at| Some((at, of_block[at] & preference)).filter(|&(_, word)| word != 0))
        };
        let (found, word) = find(preference).or_else(|| find(u64::MAX))?;
        let bit = pick(word, flow);
        if of_block[found] & of_block[found].wrapping_sub(1) != 0 {
            // The summary stays unchanged, because the word has another free port.
            of_block[found] &= !(1 << bit);
        } else {
            let mut bits = region.bits(self.memory, class, place.address as usize);
            bits.take(place.at as usize + found, bit);
        }
        self.memory[region.start + class as usize] += 1;
        Some(Lease {
            address: block.address,
            port: block.first + (found as u32 * BLOCK + bit) as u16,
        })
    }

    #[inline(never)]
    fn allocate_shared(
        &mut self,
        pool: PoolIndex,
        class: PortClass,
        (block, place): (Block<A>, BlockPlace),
        flow: u64,
        inside_port: u16,
    ) -> Option<Lease<A>> {
        let region = self.layout.regions.get(usize::from(pool))?;
        let shared = region.shared(place.address as usize)?;
        let (words, preference) = (region.geometry.unit, parity_of(&region.pool, class, inside_port));
        let first = start(flow, 0, words as usize) as u32;
        let find = |preference: u64| {
            let mut order = (first..words).chain(0..first).map(|at| place.at + at);
            order.find_map(|block| Some((block, shared.free(class, block) & preference)).filter(|&(_, word)| word != 0))
        };
        let (found, word) = find(preference).or_else(|| find(u64::MAX))?;
        let at = Self::at(place.address as usize, found, pick(word, flow));
        let lease = self.take_shared(pool, class, at)?;
        debug_assert_eq!(block.address, lease.address);
        Some(lease)
    }

    /// Prefetches the first line that [`Ports::allocate_from`] reads.
    #[inline(always)]
    pub(crate) fn prefetch_block(&self, pool: PoolIndex, class: PortClass, place: BlockPlace, flow: u64) {
        if let Some(region) = self.layout.regions.get(usize::from(pool)).filter(|_| !place.shared) {
            let at = place.at as usize + start(flow, 0, region.geometry.unit as usize);
            let word = region.word(class, place.address as usize) + at;
            sluice_table::prefetch::prefetch_all_at(self.memory, word);
        }
    }

    /// Location of a block. `None` if the pool does not contain the block, or if the block size of the pool has
    /// increased since its allocation.
    #[inline(always)]
    pub(crate) fn find_block(&self, pool: PoolIndex, block: Block<A>) -> Option<BlockPlace> {
        let region = self.layout.regions.get(usize::from(pool))?;
        let address = region.pool.index_of(block.address)?;
        let number = u32::from(block.first) / BLOCK;
        let Some(at) = region.place_of(self.layout.shards, self.shard, block.address, number) else {
            return self.find_shared_block(region, address, number);
        };
        let at = at as u32;
        let starts_unit = at.checked_rem(region.geometry.unit) == Some(0);
        (region.geometry.units > 0 && starts_unit).then_some(BlockPlace {
            address,
            at,
            shared: false,
        })
    }

    #[inline(never)]
    fn find_shared_block(&self, region: &Region<A>, address: u32, first: u32) -> Option<BlockPlace> {
        region.shared_place(self.layout.shards, first)?;
        let (unit, shared) = (region.geometry.unit, region.shared(address as usize)?);
        let claimed = (first..first + unit).all(|block| shared.owner(block) == Some(self.shard));
        (region.geometry.units > 0 && first.is_multiple_of(unit) && claimed).then_some(BlockPlace {
            address,
            at: first,
            shared: true,
        })
    }
}
