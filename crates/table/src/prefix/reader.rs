//! Looking up.

use std::sync::Arc;

use super::Address;
use super::memory::{CachedSegments, Position, Segments};
use super::node::{EMPTY, VALUE, entry, entry_index, header, is_branch, position, rank_of_length, step};
use super::sync::{AtomicU32, Ordering, prefetch_read_at};

/// What [`PrefixReader::lookup_batch`] writes where no route matches.
pub const NO_ROUTE: u32 = u32::MAX;

/// Addresses that go through the levels of the trie together.
const LANES: usize = 64;

/// Number of a virtual router.
pub type RouterIndex = u16;

/// Most routers of a table.
pub const MAX_ROUTERS: usize = 4096;

/// Where a router's routes begin.
#[derive(Debug)]
pub(super) struct Root {
    /// Leaf of the default route.
    pub default: AtomicU32,
    /// The array in front; 0 as long as no route but the default is there.
    pub front: AtomicU32,
}

/// The array in the place of the first levels of a router's trie, 1 to 3 of them: an entry for each value of an address's
/// first 8, 16 or 24 bits.
#[derive(Clone, Copy)]
pub(super) struct Front<'s> {
    pub entries: &'s [AtomicU32],
    pub levels: u8,
}

impl Front<'_> {
    /// What [`Root::front`] is, for an array at a place.
    pub fn word(place: Position, levels: u8) -> u32 {
        place << 2 | u32::from(levels)
    }

    /// Its place.
    pub fn place(word: u32) -> Option<Position> {
        (word != 0).then_some(word >> 2)
    }

    /// Its levels.
    pub fn levels(word: u32) -> u8 {
        word as u8 & 3
    }

    /// Words of one.
    pub fn words(levels: u8) -> u32 {
        1 << (8 * levels)
    }

    /// The entry for an address.
    #[inline(always)]
    pub fn entry<A: Address>(self, address: A) -> u32 {
        entry(self.entries, address.high(self.levels))
    }
}

/// What readers share with the writer.
#[derive(Debug)]
pub(super) struct Shared {
    /// By router, there from the start.
    pub roots: Box<[Root]>,
    /// The blocks of all routers.
    pub segments: Segments,
}

impl Shared {
    /// No routes, for so many routers.
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

    /// Ask for what a branch leads to: the header of a slot, and what is likely to be behind it.
    #[inline(always)]
    fn prefetch_branch(&self, entry: u32, slot: usize) {
        if is_branch(entry) {
            prefetch_read_at(self.segments.at(position(entry)), slot >> 4);
        }
    }

    /// The array in front of a root that has one.
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
pub struct Match {
    /// Its value.
    pub value: u32,
    /// Its length in bits.
    pub length: u8,
}

/// A worker's view of a table: cheap to clone, always the newest state.
///
/// A lookup must lie between two calls of [`super::Quiescence`] by a reader that is online; outside of that the
/// answer may be of no route that ever was.
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
    /// The value of the longest route of `router` that matches `address`.
    #[inline]
    pub fn lookup(&self, router: RouterIndex, address: A) -> Option<u32> {
        let leaf = self.leaf(router, address);
        (leaf != EMPTY).then_some(leaf & VALUE)
    }

    /// The longest route of `router` that matches `address`.
    #[inline]
    pub fn find(&self, router: RouterIndex, address: A) -> Option<Match> {
        let leaf = self.leaf(router, address);
        let length = rank_of_length(leaf).checked_sub(1)? as u8;
        Some(Match {
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
        let (mut at, mut level) = begin(shared, root, address);
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

    /// Look up `addresses`, each among the routes of its router, together and write the value, or [`NO_ROUTE`], of each
    /// to `values`, as far as all three reach. Each level is a pass of loads that do not depend on one another, so that
    /// misses overlap.
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
        // Most batches are one router's.
        let first = routers.first().copied().unwrap_or(0);
        let same = routers.iter().fold(0, |all, router| all | (router ^ first)) == 0;
        if let Some(root) = shared.roots.get(first as usize).filter(|_| same) {
            return self.lookup_alike(root, addresses, values);
        }
        // `values` holds entries until the last pass; those of lane `k` are at level `begun[k]` when it starts. Blocks of many
        // routers lie everywhere: each is asked for as soon as it is known, a pass before it is read.
        let (mut begun, mut level) = ([0u8; LANES], 3);
        for (((router, address), value), begun) in routers.iter().zip(addresses).zip(values.iter_mut()).zip(&mut begun)
        {
            let root = shared.roots.get(*router as usize);
            (*value, *begun) = root.map_or((EMPTY, 1), |root| begin(shared, root, *address));
            shared.prefetch_branch(*value, address.byte((*begun).into()));
            level = level.min(u32::from(*begun));
        }
        while level < A::BITS as u32 / 8 && values.iter().fold(0, |all, entry| all | entry) & (1 << 31) != 0 {
            for ((address, value), begun) in addresses.iter().zip(values.iter_mut()).zip(&begun) {
                if is_branch(*value) && u32::from(*begun) <= level {
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

    /// Lanes that are all of one router.
    #[inline(always)]
    fn lookup_alike(&self, root: &Root, addresses: &[A], values: &mut [u32]) {
        let mut near = CachedSegments::new(&self.shared.segments);
        let mut level = u32::from(self.begin_alike(root, addresses, values));
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

    /// First entries of addresses that are all of one router, and the level that they are at.
    #[inline(always)]
    fn begin_alike(&self, root: &Root, addresses: &[A], values: &mut [u32]) -> u8 {
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

/// The first entry of an address, and the level that it is at.
#[inline(always)]
fn begin<A: Address>(shared: &Shared, root: &Root, address: A) -> (u32, u8) {
    let front = shared.front(root);
    front.map_or((EMPTY, 1), |front| (front.entry(address), front.levels))
}
