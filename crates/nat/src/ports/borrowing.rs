//! Shared ports. A shard claims and releases shared ports in port units, which are ranges of consecutive ports.

use super::bits::{next, start};
use super::layout::Region;
use super::{Lease, PortClass, Ports, SharedPorts};
use crate::shard::{BLOCK, Shards};
use crate::{Address, PoolIndex};

/// Location of a shared port: address index, block number, and bit in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedPlace {
    address: usize,
    block: u32,
    bit: u32,
}

impl<A: Address> Region<A> {
    /// Shared ports of the address with this index.
    pub(super) fn shared(&self, address: usize) -> Option<&SharedPorts> {
        let shared = (self.geometry.shared > 0).then(|| self.pool.shared(address as u32))?;
        shared.map(AsRef::as_ref)
    }

    /// Port unit that contains the shared word with this index. One of two consecutive port units is shared.
    fn shared_unit(&self, shards: Shards, at: usize) -> u32 {
        let first = (self.geometry.first_unit / 2 + at as u32 / self.geometry.unit) * 2;
        if shards.is_shared(first) { first } else { first + 1 }
    }

    /// Number of the 64-port block at an index among the shared blocks.
    pub(super) fn shared_block(&self, shards: Shards, at: usize) -> u32 {
        let unit = self.geometry.unit;
        self.shared_unit(shards, at) * unit + at as u32 % unit
    }

    /// Index of a 64-port block among the shared blocks; `None` if the block is not shared.
    pub(super) fn shared_place(&self, shards: Shards, block: u32) -> Option<usize> {
        let unit = self.geometry.unit;
        let pair = (block / unit / 2).checked_sub(self.geometry.first_unit / 2)?;
        let at = (pair * unit + block % unit) as usize;
        (at < self.geometry.shared && shards.is_shared(block / unit)).then_some(at)
    }

    /// Whether the distribution assigns a block to a different shard than `shard`.
    pub(super) fn borrows(&self, shards: Shards, shard: u32, outside: A, block: u32) -> bool {
        let port = (block * BLOCK).min(u16::MAX.into()) as u16;
        self.pool.shard_of(shards, outside, port) != shard
    }

    /// Claims the port unit of a shared word for a shard. All ports of the port unit become free ports of the shard.
    pub(super) fn claim_unit(
        &self,
        memory: &mut [u64],
        (shards, shard): (Shards, u32),
        address: usize,
        at: usize,
    ) -> Option<u32> {
        let (unit, shared) = (self.geometry.unit, self.shared(address)?);
        let first = self.shared_unit(shards, at) * unit;
        let blocks = first..first + unit;
        if shared.owner(first).is_some() || blocks.clone().all(|block| self.owned(block) == 0) {
            return None;
        }
        let borrows = self.borrows(shards, shard, self.pool.address(address as u32), first);
        if !shared.claim(first, unit, shard, borrows) {
            return None;
        }
        for block in blocks {
            self.set_shared(memory, (shards, address), block, [self.owned(block); 3]);
        }
        Some(first)
    }

    /// Claims an unclaimed port unit in a range of words. Prefers port units for which RSS delivers replies to this
    /// shard. Replies to other port units need a hand-off between workers.
    pub(super) fn claim_within(
        &self,
        memory: &mut [u64],
        (shards, shard): (Shards, u32),
        address: usize,
        (from, to): (usize, usize),
        flow: u64,
    ) -> Option<u32> {
        let (unit, outside) = (self.geometry.unit as usize, self.pool.address(address as u32));
        if from >= to || self.geometry.shared == 0 {
            return None;
        }
        let mut claim = |at| self.claim_unit(memory, (shards, shard), address, at);
        let mut own = self.pool.first_unit(shards, outside, self.geometry.first_unit, shard);
        if !shards.is_shared(own) {
            own += shards.count();
        }
        let places = (own..).step_by(2 * shards.count() as usize);
        let places = places.map_while(|own| self.shared_place(shards, own * self.geometry.unit));
        if let Some(first) = places.filter(|at| (from..to).contains(at)).find_map(&mut claim) {
            return Some(first);
        }
        let first = from + start(flow, from / unit, to / unit) * unit;
        (first..to).chain(from..first).step_by(unit).find_map(claim)
    }

    /// Stores the free ports of a claimed block, for each class.
    pub(super) fn set_shared(
        &self,
        memory: &mut [u64],
        (shards, address): (Shards, usize),
        block: u32,
        free: [u64; 3],
    ) {
        let (Some(shared), Some(at)) = (self.shared(address), self.shared_place(shards, block)) else {
            return;
        };
        for (class, free) in PortClass::ALL.into_iter().zip(free) {
            shared.set_free(class, block, free);
            let bits = self.bits(memory, class, address);
            match free {
                0 => bits.claimed[at / 64] &= !(1 << (at % 64)),
                _ => bits.claimed[at / 64] |= 1 << (at % 64),
            }
        }
    }

    /// The blocks of an address that a shard has claimed.
    pub(super) fn claimed(&self, shards: Shards, shard: u32, address: usize) -> impl Iterator<Item = u32> {
        let shared = self.shared(address);
        let blocks = (0..self.geometry.shared).map(move |at| self.shared_block(shards, at));
        blocks.filter(move |&block| shared.and_then(|shared| shared.owner(block)) == Some(shard))
    }

    /// Finds a free port in a range of the shard's claimed blocks. Returns the block number and the block's free
    /// preferred ports.
    pub(super) fn find_shared(
        &self,
        memory: &mut [u64],
        (shards, address): (Shards, usize),
        class: PortClass,
        ((from, to), flow): ((usize, usize), u64),
        preference: impl Fn(u32) -> u64,
    ) -> Option<(u32, u64)> {
        let shared = self.shared(address).filter(|_| from < to)?;
        let bits = self.bits(memory, class, address);
        let first = from + start(flow, from, to);
        for (from, to) in [(first, to), (from, first)] {
            let mut at = from;
            while let Some(found) = next(bits.claimed, at, to) {
                let block = self.shared_block(shards, found);
                let ports = shared.free(class, block) & self.owned(block) & preference(block);
                if ports != 0 {
                    return Some((block, ports));
                }
                at = found + 1;
            }
        }
        None
    }
}

impl<A: Address> Ports<'_, A> {
    /// Location of a pool's shared port, if this shard has claimed it.
    #[inline(never)]
    pub(super) fn place_shared(&self, pool: PoolIndex, lease: Lease<A>) -> Option<SharedPlace> {
        let region = self.layout.regions.get(usize::from(pool))?;
        let address = region.pool.index_of(lease.address)? as usize;
        let block = u32::from(lease.port) / BLOCK;
        region.shared_place(self.layout.shards, block)?;
        let claimed = region.shared(address)?.owner(block) == Some(self.shard);
        (claimed && region.pool.has_port(lease.port)).then_some(SharedPlace {
            address,
            block,
            bit: u32::from(lease.port) % BLOCK,
        })
    }

    /// Frees a shared port. If the port was the last one in use in its block and no subscriber has the block, the block
    /// is released.
    pub(super) fn put_shared(&mut self, pool: PoolIndex, class: PortClass, place: SharedPlace) -> bool {
        let SharedPlace { address, block, bit } = place;
        let shards = self.layout.shards;
        let region = &self.layout.regions[usize::from(pool)];
        let Some(shared) = region.shared(address) else {
            return false;
        };
        let mut free = PortClass::ALL.map(|class| shared.free(class, block));
        if free[class as usize] >> bit & 1 != 0 {
            return false;
        }
        free[class as usize] |= 1 << bit;
        region.set_shared(self.memory, (shards, address), block, free);
        self.memory[region.start + class as usize] -= 1;
        if region.geometry.units == 0 {
            self.release_if_free(pool, address, block);
        }
        true
    }

    /// Releases a block if none of its ports is in use.
    fn release_if_free(&mut self, pool: PoolIndex, address: usize, block: u32) {
        let region = &self.layout.regions[usize::from(pool)];
        let Some(shared) = region.shared(address) else { return };
        let owned = region.owned(block);
        let is_free = |class| shared.free(class, block) & owned == owned;
        if PortClass::ALL.into_iter().all(is_free) {
            region.set_shared(self.memory, (self.layout.shards, address), block, [0; 3]);
            shared.release(block);
        }
    }

    /// Releases the block that contains a port, if no subscriber has this block any more because the pool's block size
    /// has changed.
    #[cold]
    pub(crate) fn release_stray(&mut self, pool: PoolIndex, lease: Lease<A>) {
        if let Some(place) = self.place_shared(pool, lease) {
            self.release_if_free(pool, place.address, place.block);
        }
    }

    /// Allocates a specific shared port. Returns false if the pool does not contain the port, if it is already
    /// allocated, or if another shard owns it.
    #[cold]
    pub(super) fn claim_shared(&mut self, pool: PoolIndex, class: PortClass, lease: Lease<A>) -> bool {
        let (shards, shard) = (self.layout.shards, self.shard);
        let Some(region) = self.layout.regions.get(usize::from(pool)) else {
            return false;
        };
        let (Some(address), Some(at)) = (
            region.pool.index_of(lease.address),
            region.shared_place(shards, u32::from(lease.port) / BLOCK),
        ) else {
            return false;
        };
        if region.pool.is_of(shards, shard, lease.address, lease.port) {
            // Claim the port unit. Nothing changes if this shard has already claimed the port unit.
            region.claim_unit(self.memory, (shards, shard), address as usize, at);
        }
        let Some(place) = self.place_shared(pool, lease) else {
            return false;
        };
        self.take_shared(pool, class, place).is_some()
    }

    /// Allocates a free port of a claimed block.
    pub(super) fn take_shared(&mut self, pool: PoolIndex, class: PortClass, place: SharedPlace) -> Option<Lease<A>> {
        let SharedPlace { address, block, bit } = place;
        let shards = self.layout.shards;
        let region = self.layout.regions.get(usize::from(pool))?;
        let shared = region.shared(address)?;
        let free = shared.free(class, block);
        if free >> bit & 1 == 0 {
            return None;
        }
        let remaining = free & !(1 << bit);
        shared.set_free(class, block, remaining);
        if remaining == 0
            && let Some(at) = region.shared_place(shards, block)
        {
            region.bits(self.memory, class, address).claimed[at / 64] &= !(1 << (at % 64));
        }
        self.memory[region.start + class as usize] += 1;
        Some(Lease {
            address: region.pool.address(address as u32),
            port: (block * BLOCK + bit) as u16,
        })
    }

    /// Location of a port in a block.
    pub(super) fn at(address: usize, block: u32, bit: u32) -> SharedPlace {
        SharedPlace { address, block, bit }
    }
}
