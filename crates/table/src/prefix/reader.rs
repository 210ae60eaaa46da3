//! Lookup of routes in prefix tables.

use std::sync::Arc;

use super::Address;
use super::memory::{CachedSegments, Position, Segments};
use super::node::{EMPTY, VALUE, entry, entry_index, header, is_branch, position, rank_of_length, step};
use super::sync::{AtomicU32, Ordering, prefetch_read_at};

/// Value that [`PrefixReader::lookup_batch`] returns if no route matches.
pub const NO_ROUTE: u32 = u32::MAX;

/// Number of addresses that a batch lookup processes together.
const LANES: usize = 64;

/// Number of a virtual router.
pub type RouterIndex = u16;

/// Maximum number of routers in a table.
pub const MAX_ROUTERS: usize = 4096;

/// Root of the routes of one router.
#[derive(Debug)]
pub(super) struct Root {
    /// Leaf entry of the default route.
    pub default: AtomicU32,
    /// Reference to the array that replaces the first levels; 0 if the router has no routes except the default route.
    pub front: AtomicU32,
}

/// The array that replaces the first 1 to 3 levels of a router's trie. The array has one entry for each value of the
/// first 8, 16 or 24 address bits.
#[derive(Clone, Copy)]
pub(super) struct Front<'s> {
    pub entries: &'s [AtomicU32],
    pub levels: u8,
}

impl Front<'_> {
    /// Value of [`Root::front`] for the array at a position.
    pub fn word(place: Position, levels: u8) -> u32 {
        place << 2 | u32::from(levels)
    }

    /// Position of the array.
    pub fn place(word: u32) -> Option<Position> {
        (word != 0).then_some(word >> 2)
    }

    /// Number of levels that the array replaces.
    pub fn levels(word: u32) -> u8 {
        word as u8 & 3
    }

    /// Number of words in an array.
    pub fn words(levels: u8) -> u32 {
        1 << (8 * levels)
    }

    /// Entry of an address in the array.
    #[inline(always)]
    pub fn entry<A: Address>(self, address: A) -> u32 {
        entry(self.entries, address.high(self.levels))
    }
}

/// State that the readers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Roots by router number. The roots are allocated at start.
    pub roots: Box<[Root]>,
    /// Memory of the blocks of all routers.
    pub segments: Segments,
}

impl Shared {
    /// Creates the state for `routers` routers without routes.
    pub fn new(routers: usize) -> Self {
        let root = |_| Root {
            default: AtomicU32::new(EMPTY),
            front: AtomicU32::new(0),
        };
        Self {
            roots: (0..routers.min(MAX_ROUTERS)).map(root).collect(),
            segments: Segments::new(),
        }
    }

    /// Prefetches two places in the block of a branch: the header word of a slot, and the probable position of the
    /// slot's entry.
    #[inline(always)]
    fn prefetch_branch(&self, entry: u32, slot: usize) {
        if is_branch(entry) {
            prefetch_read_at(self.segments.at(position(entry)), slot >> 4);
        }
    }

    /// The array to which a root refers; `None` if the root has no array.
    #[inline(always)]
    pub fn front(&self, root: &Root) -> Option<Front<'_>> {
        let word = root.front.load(Ordering::Acquire);
        let (place, levels) = (Front::place(word)?, Front::levels(word));
        let entries = self.segments.at(place);
        Some(Front {
            entries: entries.get(..Front::words(levels) as usize).unwrap_or_default(),
            levels,
        })
    }
}

/// The longest route that matches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestMatch {
    /// Value of the route.
    pub value: u32,
    /// Prefix length in bits.
    pub length: u8,
}

/// A worker's access to a table. A clone is cheap. Each lookup reads the current routes.
///
/// During a lookup, the reader must be online in its [`super::Quiescence`] and must not pass a quiescent point.
/// Otherwise the result may be invalid.
#[derive(Debug)]
pub struct PrefixReader<A> {
    pub(super) shared: Arc<Shared>,
    pub(super) family: std::marker::PhantomData<A>,
}

impl<A> Clone for PrefixReader<A> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            family: self.family,
        }
    }
}

impl<A: Address> PrefixReader<A> {
    /// Value of the longest route of `router` that matches `address`.
    #[inline]
    pub fn lookup(&self, router: RouterIndex, address: A) -> Option<u32> {
        let leaf = self.leaf(router, address);
        (leaf != EMPTY).then_some(leaf & VALUE)
    }

    /// The longest route of `router` that matches `address`.
    #[inline]
    pub fn find(&self, router: RouterIndex, address: A) -> Option<LongestMatch> {
        let leaf = self.leaf(router, address);
        let length = rank_of_length(leaf).checked_sub(1)? as u8;
        Some(LongestMatch {
            value: leaf & VALUE,
            length,
        })
    }

    #[inline(always)]
    fn leaf(&self, router: RouterIndex, address: A) -> u32 {
        let shared = &*self.shared;
        let Some(root) = shared.roots.get(router as usize) else {
            return EMPTY;
        };
        let (mut at, mut level) = start_entry(shared, root, address);
        while is_branch(at) && level < A::BITS / 8 {
            at = step(&shared.segments, at, address.byte(level.into()));
            level += 1;
        }
        if at == EMPTY {
            root.default.load(Ordering::Acquire)
        } else {
            at
        }
    }

    /// Looks up each of the `addresses` in the routes of its router, and writes its value or [`NO_ROUTE`] to `values`.
    /// If the slices differ in length, only as many addresses are looked up as the shortest slice has elements. In each
    /// pass, the independent loads of one trie level are made for all addresses, so that cache misses overlap.
    pub fn lookup_batch(&self, routers: &[RouterIndex], addresses: &[A], values: &mut [u32]) {
        let count = values.len().min(addresses.len()).min(routers.len());
        let lanes = routers[..count].chunks(LANES).zip(addresses[..count].chunks(LANES));
        for ((routers, addresses), values) in lanes.zip(values[..count].chunks_mut(LANES)) {
            self.lookup_lanes(routers, addresses, values);
        }
    }

    #[inline]
    fn lookup_lanes(&self, routers: &[RouterIndex], addresses: &[A], values: &mut [u32]) {
        let shared = &*self.shared;
        // Fast path for batches with addresses of only one router.
        let first = routers.first().copied().unwrap_or(0);
        let same = routers.iter().fold(0, |all, router| all | (router ^ first)) == 0;
        if let Some(root) = shared.roots.get(first as usize).filter(|_| same) {
            return self.lookup_same_router(root, addresses, values);
        }
        // Until the last pass, `values` contains trie entries. Lane `k` starts at level `started[k]`. The blocks of many
        // routers are scattered in memory, so each block is prefetched one pass before it is read.
        let (mut started, mut level) = ([0u8; LANES], 3);
        for (((router, address), value), started) in
            routers.iter().zip(addresses).zip(values.iter_mut()).zip(&mut started)
        {
            let root = shared.roots.get(*router as usize);
            (*value, *started) = root.map_or((EMPTY, 1), |root| start_entry(shared, root, *address));
            shared.prefetch_branch(*value, address.byte((*started).into()));
            level = level.min(u32::from(*started));
        }
        while level < A::BITS as u32 / 8 && values.iter().fold(0, |all, entry| all | entry) & (1 << 31) != 0 {
            for ((address, value), started) in addresses.iter().zip(values.iter_mut()).zip(&started) {
                if is_branch(*value) && u32::from(*started) <= level {
                    *value = step(&shared.segments, *value, address.byte(level));
                    shared.prefetch_branch(*value, address.byte(level + 1));
                }
            }
            level += 1;
        }
        let default = |router: RouterIndex| {
            let root = shared.roots.get(router as usize);
            root.map_or(EMPTY, |root| root.default.load(Ordering::Acquire))
        };
        for (value, router) in values.iter_mut().zip(routers) {
            let leaf = match *value {
                EMPTY => default(*router),
                entry => entry,
            };
            *value = if leaf == EMPTY { NO_ROUTE } else { leaf & VALUE };
        }
    }

    /// Looks up addresses of a single router.
    #[inline(always)]
    fn lookup_same_router(&self, root: &Root, addresses: &[A], values: &mut [u32]) {
        let mut near = CachedSegments::new(&self.shared.segments);
        let mut level = u32::from(self.start_same_router(root, addresses, values));
        while level < A::BITS as u32 / 8 && values.iter().fold(0, |all, entry| all | entry) & (1 << 31) != 0 {
            for (address, value) in addresses.iter().zip(values.iter_mut()) {
                if is_branch(*value) {
                    let (block, byte) = (near.at(position(*value)), address.byte(level));
                    *value = entry(block, entry_index(header(block, byte), byte));
                }
            }
            level += 1;
        }
        let default = root.default.load(Ordering::Acquire);
        for value in values.iter_mut() {
            let leaf = if *value == EMPTY { default } else { *value };
            *value = if leaf == EMPTY { NO_ROUTE } else { leaf & VALUE };
        }
    }

    /// The first trie entry of each address of one router, and its level.
    #[inline(always)]
    fn start_same_router(&self, root: &Root, addresses: &[A], values: &mut [u32]) -> u8 {
        match self.shared.front(root) {
            Some(front) => {
                for (address, value) in addresses.iter().zip(values.iter_mut()) {
                    *value = front.entry(*address);
                }
                front.levels
            }
            None => {
                values.fill(EMPTY);
                1
            }
        }
    }
}

/// The first trie entry of an address, and its level.
#[inline(always)]
fn start_entry<A: Address>(shared: &Shared, root: &Root, address: A) -> (u32, u8) {
    let front = shared.front(root);
    front.map_or((EMPTY, 1), |front| (front.entry(address), front.levels))
}
