//! Ports of one outside address that several shards share.
//!
//! One of two consecutive port units is shared ([`Shards::is_shared`]). A shared port unit belongs to no shard until a
//! shard claims the whole port unit. All shards have equal priority. The distribution assigns each other port unit
//! permanently to one shard. Thus one shard can own, in addition to its permanent ports, all shared ports of an
//! address, which are half of the address's ports. The other shards still keep their permanent ports.
//!
//! Ownership of a block changes only by compare-and-exchange, and only the owner accesses the bits of its free ports.
//! These accesses are ordered by the release store of the previous owner and the exchange of the next owner. Other
//! workers read the owner to determine which shard receives a packet from outside. Workers may read a stale owner, but
//! never for a packet of a session: a shard claims a block before it allocates the block's first port, and therefore
//! before the first reply. A shard releases a block only when none of its ports is in use or quarantined.
//!
//! [`Shards::is_shared`]: crate::shard::Shards

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use super::{CLASSES, PortClass};
use crate::shard::BLOCKS;

/// Owner value of a block that no shard has claimed.
const FREE: u16 = u16::MAX;

/// Flag in an owner value: the distribution assigns the block to a shard other than its owner.
const BORROWED: u16 = 1 << 15;

/// Number of borrowed blocks, over all addresses of a family. A block is borrowed if the shard that has claimed it is
/// not the shard to which the distribution assigns it.
pub(crate) type Borrowed = AtomicU32;

/// Owners of the 64-port blocks of an address, and the free ports of these blocks.
pub(crate) struct SharedPorts {
    /// Number of borrowed blocks of this address.
    borrowed: AtomicU32,
    all_borrowed: Arc<Borrowed>,
    owners: Box<[AtomicU16]>,
    /// Bitmaps of free ports, one for each class and block. The bits of an unclaimed block are undefined.
    free: Box<[AtomicU64]>,
}

impl SharedPorts {
    /// Creates the shared ports of an address. All blocks are unclaimed.
    pub(crate) fn new(all_borrowed: Arc<Borrowed>) -> Self {
        let count = BLOCKS as usize;
        Self {
            borrowed: AtomicU32::new(0),
            all_borrowed,
            owners: (0..count).map(|_| AtomicU16::new(FREE)).collect(),
            free: (0..CLASSES * count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn load(&self, block: u32) -> u16 {
        let owner = self.owners.get(block as usize);
        owner.map_or(FREE, |owner| owner.load(Ordering::Relaxed))
    }

    /// Shard that owns a block; `None` if the block is unclaimed.
    #[inline]
    pub(crate) fn owner(&self, block: u32) -> Option<u32> {
        let owner = self.load(block);
        (owner != FREE).then_some(u32::from(owner & !BORROWED))
    }

    /// Shard that owns a block, if the distribution assigns the block to a different shard.
    #[inline]
    pub(crate) fn borrower(&self, block: u32) -> Option<u32> {
        if self.borrowed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let owner = self.load(block);
        (owner != FREE && owner & BORROWED != 0).then_some(u32::from(owner & !BORROWED))
    }

    /// Claims `count` consecutive blocks for a shard. Either all blocks are claimed or none. `borrows` means that the
    /// distribution assigns the blocks to a different shard.
    pub(crate) fn claim(&self, first: u32, count: u32, shard: u32, borrows: bool) -> bool {
        if (first..first + count).any(|block| self.load(block) != FREE || block >= BLOCKS) {
            return false;
        }
        // Count before claiming, so that the count is visible to every thread that reads a borrowed block.
        self.count(borrows, count as i32);
        let owner = shard as u16 | if borrows { BORROWED } else { 0 };
        for (taken, cell) in self.owners[first as usize..][..count as usize].iter().enumerate() {
            let claimed = cell.compare_exchange(FREE, owner, Ordering::AcqRel, Ordering::Relaxed);
            if claimed.is_err() {
                for cell in &self.owners[first as usize..][..taken] {
                    cell.store(FREE, Ordering::Release);
                }
                self.count(borrows, -(count as i32));
                return false;
            }
        }
        true
    }

    /// Releases a block. Only its owner may call this.
    pub(crate) fn release(&self, block: u32) {
        let Some(cell) = self.owners.get(block as usize) else {
            return;
        };
        let owner = cell.swap(FREE, Ordering::Release);
        self.count(owner != FREE && owner & BORROWED != 0, -1);
    }

    /// Updates the borrowed flag of a block when the distribution has changed. Only the block's owner may call this.
    pub(crate) fn set_borrowed(&self, block: u32, shard: u32, borrows: bool) {
        let Some(cell) = self.owners.get(block as usize) else {
            return;
        };
        let was = cell.load(Ordering::Relaxed) & BORROWED != 0;
        if was != borrows {
            self.count(borrows, 1);
            cell.store(shard as u16 | if borrows { BORROWED } else { 0 }, Ordering::Release);
            self.count(was, -1);
        }
    }

    fn count(&self, borrows: bool, blocks: i32) {
        if borrows {
            self.all_borrowed.fetch_add(blocks as u32, Ordering::Relaxed);
            self.borrowed.fetch_add(blocks as u32, Ordering::Relaxed);
        }
    }

    /// Free ports of a class in a block. Only the block's owner may call this.
    #[inline]
    pub(crate) fn free(&self, class: PortClass, block: u32) -> u64 {
        self.word(class, block).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets the free ports of a class in a block. Only the block's owner may call this.
    #[inline]
    pub(crate) fn set_free(&self, class: PortClass, block: u32, ports: u64) {
        if let Some(word) = self.word(class, block) {
            word.store(ports, Ordering::Relaxed);
        }
    }

    fn word(&self, class: PortClass, block: u32) -> Option<&AtomicU64> {
        self.free.get(class as usize * BLOCKS as usize + block as usize)
    }
}

impl fmt::Debug for SharedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} borrowed blocks", self.borrowed.load(Ordering::Relaxed))
    }
}

/// Shared ports of each address of a pool; `None` if no ports are shared. Comparisons of pools ignore shared ports,
/// because the other settings of the pool determine them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedOf(pub(crate) Option<Arc<[Arc<SharedPorts>]>>);

impl PartialEq for SharedOf {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedOf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_of_blocks_is_all_or_nothing_and_counts_those_of_others() {
        let all = Arc::new(Borrowed::new(0));
        let ports = SharedPorts::new(all.clone());
        assert!(ports.claim(8, 1, 3, false));
        assert_eq!(
            (Some(3), None, 0),
            (ports.owner(8), ports.borrower(8), all.load(Ordering::Relaxed))
        );
        assert!(!ports.claim(8, 1, 4, true) && !ports.claim(6, 4, 4, true));
        assert_eq!([None; 2], [6, 7].map(|block| ports.owner(block)));
        assert!(ports.claim(4, 4, 4, true));
        assert_eq!((Some(4), 4), (ports.borrower(7), all.load(Ordering::Relaxed)));
        (4..8).for_each(|block| ports.release(block));
        ports.release(4);
        assert_eq!((None, 0), (ports.owner(7), all.load(Ordering::Relaxed)));
        assert!(!ports.claim(BLOCKS - 1, 2, 0, true));
    }

    #[test]
    fn claim_by_many_at_once_gives_every_block_to_one() {
        let ports = SharedPorts::new(Arc::default());
        let claimed: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let claim = |shard: u32| {
                let ports = &ports;
                scope.spawn(move || {
                    (0..BLOCKS)
                        .filter(|&block| ports.claim(block, 1, shard, true))
                        .collect()
                })
            };
            let threads: Vec<_> = (0..4).map(claim).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(BLOCKS as usize, claimed.iter().map(Vec::len).sum::<usize>());
        for (shard, blocks) in (0..).zip(claimed) {
            assert!(blocks.into_iter().all(|block| ports.borrower(block) == Some(shard)));
        }
    }
}
