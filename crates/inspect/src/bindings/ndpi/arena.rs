//! A buddy allocator: memory of fixed size, divided into blocks by halving. Every block belongs to an owner; releasing
//! an owner frees all of its blocks.

/// Size in bytes of the smallest block.
pub const BLOCK_UNIT: usize = 64;

/// Maximum number of bytes per owner. This suffices to store a TLS handshake as long as a jumbo frame in a buffer that
/// grows by doubling.
pub const MAX_OWNER_BYTES: usize = 256 << 10;

const NONE: u32 = u32::MAX;
const ORDERS: usize = 26;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The unit is inside a larger block.
    Within,
    Free,
    Taken,
}

/// State of the block that begins at a unit. `next` and `previous` link the free blocks of one size, or the blocks of
/// one owner.
#[derive(Clone, Copy)]
struct Block {
    next: u32,
    previous: u32,
    owner: u32,
    order: u8,
    state: State,
}

#[derive(Clone, Copy)]
struct Owner {
    first: u32,
    bytes: u32,
}

/// Metadata of an arena. The metadata contains offsets, but not the memory itself.
pub struct Arena {
    blocks: Box<[Block]>,
    free: [u32; ORDERS],
    owners: Box<[Owner]>,
    used: usize,
    peak: usize,
    refused: u64,
    /// Number of allocations until an allocation is refused, for tests.
    #[cfg(test)]
    pub refuse_in: Option<u32>,
}

impl Arena {
    /// Creates an arena of `units` times [`BLOCK_UNIT`] bytes.
    pub fn new(units: u32, owners: u32) -> Self {
        let block = Block {
            next: NONE,
            previous: NONE,
            owner: NONE,
            order: 0,
            state: State::Within,
        };
        let mut arena = Self {
            blocks: vec![block; units as usize].into(),
            free: [NONE; ORDERS],
            owners: vec![Owner { first: NONE, bytes: 0 }; owners as usize].into(),
            used: 0,
            peak: 0,
            refused: 0,
            #[cfg(test)]
            refuse_in: None,
        };
        let mut at = 0;
        while at < units {
            let aligned = if at == 0 { 31 } else { at.trailing_zeros() };
            let order = aligned.min((units - at).ilog2()).min(ORDERS as u32 - 1);
            arena.push(at, order as u8);
            at += 1 << order;
        }
        arena
    }

    /// Returns the allocated bytes (rounded up to blocks), their maximum so far, and the number of failed allocations.
    pub fn usage(&self) -> (usize, usize, u64) {
        (self.used, self.peak, self.refused)
    }

    /// Number of failed allocations.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Allocates a block of at least `bytes` bytes for an owner, and returns the offset of the block.
    pub fn allocate(&mut self, owner: u32, bytes: usize) -> Option<usize> {
        let taken = self.take(owner, bytes);
        self.refused += u64::from(taken.is_none());
        taken
    }

    fn take(&mut self, owner: u32, bytes: usize) -> Option<usize> {
        #[cfg(test)]
        if let Some(remaining) = &mut self.refuse_in {
            *remaining = remaining.checked_sub(1)?;
        }
        let order = order_of(bytes)?;
        let bytes = BLOCK_UNIT << order;
        if self.owners[owner as usize].bytes as usize + bytes > MAX_OWNER_BYTES {
            return None;
        }
        let found = (order..ORDERS).find(|&order| self.free[order] != NONE)?;
        let at = self.free[found];
        self.unlink_free(at);
        for half in (order..found).rev() {
            self.push(at + (1 << half), half as u8);
        }
        let Owner { first, .. } = self.owners[owner as usize];
        self.blocks[at as usize] = Block {
            next: first,
            previous: NONE,
            owner,
            order: order as u8,
            state: State::Taken,
        };
        if first != NONE {
            self.blocks[first as usize].previous = at;
        }
        self.owners[owner as usize].first = at;
        self.owners[owner as usize].bytes += bytes as u32;
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Some(at as usize * BLOCK_UNIT)
    }

    /// Size in bytes of the block at this offset; `None` if no block is allocated there.
    pub fn size(&self, offset: usize) -> Option<usize> {
        let block = self.blocks.get(offset / BLOCK_UNIT)?;
        (offset.is_multiple_of(BLOCK_UNIT) && block.state == State::Taken).then(|| BLOCK_UNIT << block.order)
    }

    /// Frees a block. Returns false if no block is allocated at this offset.
    pub fn free(&mut self, offset: usize) -> bool {
        let Some(bytes) = self.size(offset) else {
            return false;
        };
        let mut at = (offset / BLOCK_UNIT) as u32;
        let Block {
            next,
            previous,
            owner,
            mut order,
            ..
        } = self.blocks[at as usize];
        match previous {
            NONE => self.owners[owner as usize].first = next,
            previous => self.blocks[previous as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        self.owners[owner as usize].bytes -= bytes as u32;
        self.used -= bytes;
        while usize::from(order) + 1 < ORDERS {
            let twin = at ^ (1 << order);
            match self.blocks.get(twin as usize) {
                Some(block) if block.state == State::Free && block.order == order => {}
                _ => break,
            }
            self.unlink_free(twin);
            self.blocks[at.max(twin) as usize].state = State::Within;
            at = at.min(twin);
            order += 1;
        }
        self.push(at, order);
        true
    }

    /// Frees all blocks of an owner.
    pub fn release(&mut self, owner: u32) {
        while self.owners[owner as usize].first != NONE {
            self.free(self.owners[owner as usize].first as usize * BLOCK_UNIT);
        }
    }

    fn push(&mut self, at: u32, order: u8) {
        let next = self.free[usize::from(order)];
        self.blocks[at as usize] = Block {
            next,
            previous: NONE,
            owner: NONE,
            order,
            state: State::Free,
        };
        if next != NONE {
            self.blocks[next as usize].previous = at;
        }
        self.free[usize::from(order)] = at;
    }

    fn unlink_free(&mut self, at: u32) {
        let Block {
            next, previous, order, ..
        } = self.blocks[at as usize];
        match previous {
            NONE => self.free[usize::from(order)] = next,
            previous => self.blocks[previous as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        self.blocks[at as usize].state = State::Within;
    }
}

fn order_of(bytes: usize) -> Option<usize> {
    let units = bytes.max(1).div_ceil(BLOCK_UNIT).checked_next_power_of_two()?;
    let order = units.trailing_zeros() as usize;
    (order < ORDERS).then_some(order)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arena_whole_and_returned_hands_out_the_whole_again() {
        let mut arena = Arena::new(96, 2);
        let whole = |arena: &mut Arena| {
            let sizes = [64 * BLOCK_UNIT, 32 * BLOCK_UNIT];
            sizes.map(|size| arena.allocate(0, size))
        };
        assert_eq!([Some(0), Some(64 * BLOCK_UNIT)], whole(&mut arena));
        assert_eq!(None, arena.allocate(1, 1));
        arena.release(0);
        let small: Vec<_> = (0..96).map(|_| arena.allocate(1, BLOCK_UNIT)).collect();
        assert!(small.iter().all(Option::is_some));
        arena.release(1);
        assert_eq!([Some(0), Some(64 * BLOCK_UNIT)], whole(&mut arena));
        assert_eq!((96 * BLOCK_UNIT, 96 * BLOCK_UNIT, 1), arena.usage());
    }

    #[test]
    fn arena_with_room_refuses_an_owner_more_than_its_share() {
        let mut arena = Arena::new(1 << 14, 2);
        assert!(arena.allocate(0, MAX_OWNER_BYTES).is_some());
        assert_eq!(None, arena.allocate(0, 1));
        assert!(arena.allocate(1, MAX_OWNER_BYTES).is_some());
        assert_eq!(None, arena.allocate(1, usize::MAX));
    }

    #[test]
    fn arena_takes_back_only_what_it_handed_out() {
        let mut arena = Arena::new(8, 1);
        let at = arena.allocate(0, 2 * BLOCK_UNIT).unwrap();
        assert_eq!(
            [false, false, false],
            [at + 1, at + BLOCK_UNIT, 8 * BLOCK_UNIT].map(|at| arena.free(at))
        );
        assert!(arena.free(at));
        assert!(!arena.free(at));
    }

    proptest! {
        #[test]
        fn arena_under_any_requests_keeps_blocks_apart(steps in vec((0..4u32, 0..2000usize, any::<bool>()), 1..200)) {
            let mut arena = Arena::new(200, 4);
            let mut held: Vec<(u32, usize, usize)> = Vec::new();
            for (owner, size, free) in steps {
                if free && !held.is_empty() {
                    let (_, at, _) = held.swap_remove(size % held.len());
                    prop_assert!(arena.free(at));
                } else if size == 0 {
                    arena.release(owner);
                    held.retain(|&(other, ..)| other != owner);
                } else if let Some(at) = arena.allocate(owner, size) {
                    prop_assert!(at + size <= 200 * BLOCK_UNIT);
                    let apart = |&(_, other, length): &(u32, usize, usize)| at + size <= other || other + length <= at;
                    prop_assert!(held.iter().all(apart));
                    held.push((owner, at, size));
                }
            }
            for owner in 0..4 {
                arena.release(owner);
            }
            prop_assert_eq!(0, arena.usage().0);
            prop_assert_eq!(Some(0), arena.allocate(0, 128 * BLOCK_UNIT));
        }
    }
}
