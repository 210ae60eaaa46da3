//! Release of ports.

use sluice_table::prefetch::prefetch_all_at;

use super::{Lease, PortClass, Ports};
use crate::{Address, PoolIndex};

impl<A: Address> Ports<'_, A> {
    /// Releases a port. Returns false, without effect, if this shard has not allocated the port. `pool` is the pool
    /// that allocated the port. If another pool contains the port now, the port becomes free in that pool.
    #[inline]
    pub fn release(&mut self, pool: PoolIndex, class: PortClass, lease: Lease<A>) -> bool {
        match self.place(pool, lease) {
            Some(place) => self.put(pool, class, place),
            None => self.release_beyond_pool(pool, class, lease),
        }
    }

    #[inline(never)]
    pub(super) fn release_beyond_pool(&mut self, pool: PoolIndex, class: PortClass, lease: Lease<A>) -> bool {
        if let Some(place) = self.place_shared(pool, lease) {
            return self.put_shared(pool, class, place);
        }
        let Some(pool) = self.layout.holder(lease) else {
            return false;
        };
        self.release_quarantined(pool, class, lease)
    }

    /// Releases an unused port after its quarantine. If another pool contains the port now, the port becomes free in
    /// that pool.
    pub(crate) fn release_quarantined(&mut self, pool: PoolIndex, class: PortClass, lease: Lease<A>) -> bool {
        if let Some(place) = self.place(pool, lease) {
            return self.put(pool, class, place);
        }
        self.place_shared(pool, lease)
            .is_some_and(|place| self.put_shared(pool, class, place))
    }

    #[inline(always)]
    pub(super) fn put(&mut self, pool: PoolIndex, class: PortClass, (address, at, bit): (usize, usize, u32)) -> bool {
        let region = &self.layout.regions[usize::from(pool)];
        let word = &mut self.memory[region.word(class, address) + at];
        if *word >> bit & 1 != 0 {
            return false;
        }
        if *word != 0 {
            // The summary stays unchanged, because the word already has a free port.
            *word |= 1 << bit;
        } else {
            region.bits(self.memory, class, address).put(at, bit);
        }
        self.memory[region.start + class as usize] -= 1;
        true
    }

    /// Prefetches the line that [`Ports::release`] will write.
    #[inline(always)]
    pub fn prefetch_release(&self, pool: PoolIndex, class: PortClass, lease: Lease<A>) {
        if let Some((address, at, _)) = self.place(pool, lease)
            && let Some(region) = self.layout.regions.get(usize::from(pool))
        {
            prefetch_all_at(self.memory, region.word(class, address) + at);
        }
    }
}
