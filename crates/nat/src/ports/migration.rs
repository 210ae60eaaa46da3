//! Migration of a shard's allocations from one layout to the next.

use super::layout::{Layout, Region};
use super::{CLASSES, PortClass};
use crate::Address;
use crate::shard::Shards;

/// Allocated ports of a 64-port block, for each class.
type Allocated = [u64; CLASSES];

/// A pool that contains an address in the next layout.
#[derive(Clone, Copy)]
struct Successor<'a, A> {
    to: &'a Region<A>,
    /// Index of the address in its pool.
    address: usize,
    /// Whether the pool index and the allocation settings are unchanged, so that subscribers keep their blocks.
    same: bool,
}

/// An address of a pool in the previous layout.
#[derive(Clone, Copy)]
struct Before<'a, A> {
    from: &'a Region<A>,
    /// Index of the address in its pool.
    address: usize,
    outside: A,
    shards: Shards,
    shard: u32,
}

impl<A: Address> Layout<A> {
    /// Marks as allocated the ports that were allocated in the previous layout and that a pool still contains. Before
    /// the call, all bits represent free ports.
    pub(super) fn migrate_ports(&self, memory: &mut [u64], before: &Self, old: &mut [u64], shard: u32) {
        for (index, from) in before.regions.iter().enumerate() {
            if !from.geometry.stored {
                continue;
            }
            for address in 0..from.geometry.addresses {
                let outside = from.pool.address(address as u32);
                // Usually at most one successor exists, because pools that share an address have different ports.
                let successors = self.regions.iter().enumerate().filter_map(|(successor, to)| {
                    let address = to.pool.index_of(outside)? as usize;
                    // Blocks and mappings refer to their pool, so only ports of sessions may move to another pool.
                    // After a change of the pool's storage format, ports of the old format stay allocated while the
                    // pool lacks their address.
                    let keeps = successor == index;
                    let takes = to.pool.is_plain() && from.pool.is_plain();
                    let same = keeps && to.pool.has_shape_of(&from.pool);
                    (to.geometry.stored && (keeps || takes)).then_some(Successor { to, address, same })
                });
                let before = Before {
                    from,
                    address,
                    outside,
                    shards: self.shards,
                    shard,
                };
                before.migrate_own_units(memory, old, successors.clone());
                before.migrate_claimed(memory, successors);
            }
        }
    }
}

impl<'a, A: Address> Before<'a, A> {
    /// Migrates the allocations of ports that only this shard can own.
    fn migrate_own_units(
        &self,
        memory: &mut [u64],
        old: &mut [u64],
        successors: impl Iterator<Item = Successor<'a, A>> + Clone,
    ) {
        let (from, unit) = (self.from, self.from.geometry.unit);
        for first in (0..from.geometry.words).step_by(unit as usize) {
            let number = from.block_at(self.shards, self.shard, self.outside, first);
            let place = first / unit as usize;
            let is_allocated = from.geometry.units > 0 && !from.is_unit_free(old, self.address, place);
            if is_allocated && let Some(successor) = successors.clone().find(|successor| successor.same) {
                self.migrate_unit(memory, successor, number);
            }
            for block in number..number + unit {
                let at = first + (block - number) as usize;
                let owned = from.owned(block);
                let allocated = PortClass::ALL.map(|class| owned & !from.bits(old, class, self.address).words[at]);
                if allocated != [0; CLASSES] {
                    self.migrate_word(memory, successors.clone(), block, allocated);
                }
            }
        }
    }

    /// Migrates a subscriber's block.
    fn migrate_unit(&self, memory: &mut [u64], successor: Successor<'a, A>, first: u32) {
        let Successor { to, address, .. } = successor;
        if let Some(at) = to.place_of(self.shards, self.shard, self.outside, first) {
            to.take_unit(memory, address, at / to.geometry.unit as usize);
        } else if let Some(at) = to.shared_place(self.shards, first) {
            to.claim_unit(memory, (self.shards, self.shard), address, at);
        }
    }

    /// Migrates the allocated ports of a block to the new pools. If the shard owns the block exclusively in a new pool,
    /// this pool takes over those ports of the block that it contains. If there is only one successor, it may also take
    /// over the ports as a shared block, provided that no other shard has claimed the block.
    fn migrate_word(
        &self,
        memory: &mut [u64],
        successors: impl Iterator<Item = Successor<'a, A>> + Clone,
        block: u32,
        allocated: Allocated,
    ) {
        for Successor { to, address, .. } in successors.clone() {
            if let Some(at) = to.place_of(self.shards, self.shard, self.outside, block) {
                for (class, allocated) in PortClass::ALL.into_iter().zip(allocated) {
                    let ports = allocated & to.owned(block);
                    if ports != 0 {
                        to.bits(memory, class, address).take_all(at, ports);
                        memory[to.start + class as usize] += u64::from(ports.count_ones());
                    }
                }
            }
        }
        let Some(Successor { to, address, .. }) = only(successors, block, allocated) else {
            return;
        };
        if let Some(at) = to.shared_place(self.shards, block) {
            // The shard has already claimed a subscriber's block as a whole.
            if to.geometry.unit == 1 {
                to.claim_unit(memory, (self.shards, self.shard), address, at);
            }
            let shared = to.shared(address);
            if shared.and_then(|shared| shared.owner(block)) == Some(self.shard) {
                self.keep(memory, (to, address), block, allocated);
            }
        }
    }

    /// Migrates the allocations of the shared blocks that this shard has claimed. Releases a block if it is no longer
    /// shared, or if its ports would be divided among several pools.
    fn migrate_claimed(&self, memory: &mut [u64], successors: impl Iterator<Item = Successor<'a, A>> + Clone) {
        let (from, shards) = (self.from, self.shards);
        let Some(shared) = from.shared(self.address) else {
            return;
        };
        for block in from.claimed(shards, self.shard, self.address) {
            let allocated = PortClass::ALL.map(|class| from.owned(block) & !shared.free(class, block));
            let of_subscriber = from.geometry.units > 0;
            let same = successors.clone().find(|successor| of_subscriber && successor.same);
            let successor = same.or_else(|| only(successors.clone(), block, allocated));
            let stays = successor.filter(|&Successor { to, address, .. }| {
                let is_shared = to.shared(address).is_some_and(|other| core::ptr::eq(other, shared));
                is_shared && to.shared_place(shards, block).is_some()
            });
            if let Some(Successor { to, address, .. }) = stays {
                self.keep(memory, (to, address), block, allocated);
                shared.set_borrowed(block, self.shard, to.borrows(shards, self.shard, self.outside, block));
                continue;
            }
            shared.release(block);
            if let Some(successor) = same.filter(|_| block.is_multiple_of(from.geometry.unit)) {
                self.migrate_unit(memory, successor, block);
            }
            self.migrate_word(memory, successors.clone(), block, allocated);
        }
    }

    /// Keeps a claimed block with its allocated ports.
    fn keep(&self, memory: &mut [u64], (to, address): (&Region<A>, usize), block: u32, allocated: Allocated) {
        let owned = to.owned(block);
        to.set_shared(
            memory,
            (self.shards, address),
            block,
            allocated.map(|allocated| owned & !allocated),
        );
        for (class, allocated) in PortClass::ALL.into_iter().zip(allocated) {
            memory[to.start + class as usize] += u64::from((allocated & owned).count_ones());
        }
    }
}

/// The successor that contains the allocated ports of a block. `None` if several successors contain allocated ports of
/// the block.
fn only<'a, A: Address>(
    successors: impl Iterator<Item = Successor<'a, A>>,
    block: u32,
    allocated: Allocated,
) -> Option<Successor<'a, A>> {
    let any = allocated.into_iter().fold(0, |any, allocated| any | allocated);
    let mut receivers = successors.filter(|successor| successor.to.owned(block) & any != 0);
    let first = receivers.next();
    first.filter(|_| receivers.next().is_none())
}
