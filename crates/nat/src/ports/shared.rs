//! Ports of one outside address that several shards share.
//!
//! Of every two units of ports in a row one is shared ([`Shards::is_shared`]): no shard has it until one claims it whole, and the
//! shard that computation names has no more right to it than others. The other one of the two is always its shard's. So one shard
//! can have half of an address and its own part of the rest, and none is ever without.
//!
//! A block's owner changes hands by a compare-and-exchange alone, and only its owner touches the bits of its free ports: the
//! release that frees the block and the exchange that claims it order them between two owners. Others read the owner to find out
//! where a packet from outside belongs. What they read may be out of date, but only for packets of nobody: a block is claimed
//! before its first port is allocated, and so before the packet is sent that the answer is for; and it is free only once no port
//! of it is in use or waits to be used again.
//!
//! [`Shards::is_shared`]: crate::shard::Shards

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use super::{CLASSES, PortClass};
use crate::shard::BLOCKS;

/// No shard's.
const FREE: u16 = u16::MAX;

/// Beside the number of a shard: computation names another one.
const BORROWED: u16 = 1 << 15;

/// How many blocks shards have that computation gives to others, at all addresses of a family.
pub(crate) type Borrowed = AtomicU32;

/// Who has which blocks of 64 ports of an address, and which ports of these are free.
pub(crate) struct SharedPorts {
    /// Blocks that shards have borrowed, of this address and of all.
    borrowed: AtomicU32,
    all_borrowed: Arc<Borrowed>,
    owners: Box<[AtomicU16]>,
    /// A bit for each free port, by class and block. Means nothing while the block is free.
    free: Box<[AtomicU64]>,
}

impl SharedPorts {
    /// All blocks are free.
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

    /// The shard that has a block.
    #[inline]
    pub(crate) fn owner(&self, block: u32) -> Option<u32> {
        let owner = self.load(block);
        (owner != FREE).then_some(u32::from(owner & !BORROWED))
    }

    /// The same where that is not the shard that computation names.
    #[inline]
    pub(crate) fn borrower(&self, block: u32) -> Option<u32> {
        if self.borrowed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let owner = self.load(block);
        (owner != FREE && owner & BORROWED != 0).then_some(u32::from(owner & !BORROWED))
    }

    /// Claim blocks in a row for a shard, all of them or none. `borrows` says that computation gives them to another one.
    pub(crate) fn claim(&self, first: u32, count: u32, shard: u32, borrows: bool) -> bool {
        if (first..first + count).any(|block| self.load(block) != FREE || block >= BLOCKS) {
            return false;
        }
        // Counted first: whoever sees a borrowed block sees the count too.
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

    /// Free a block. Only its owner does.
    pub(crate) fn release(&self, block: u32) {
        let Some(cell) = self.owners.get(block as usize) else {
            return;
        };
        let owner = cell.swap(FREE, Ordering::Release);
        self.count(owner != FREE && owner & BORROWED != 0, -1);
    }

    /// Computation gives a block to another shard now, or to its owner, who says so.
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

    /// The free ports of a class in a block. Only its owner asks.
    #[inline]
    pub(crate) fn free(&self, class: PortClass, block: u32) -> u64 {
        self.word(class, block).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Set the free ports of a class in a block. Only its owner does.
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

/// Of each address of a pool what its shards share; nothing where they share none. It follows from everything else of the pool, and
/// makes no difference between two.
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
