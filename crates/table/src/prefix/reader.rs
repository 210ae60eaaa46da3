//! Looking up.

use std::sync::{Arc, OnceLock};

use super::Address;
use super::memory::Segments;
use super::node::{EMPTY, VALUE, entry, entry_index, header, is_branch, position, rank_of_length, step};
use super::sync::{AtomicU32, Ordering};

/// What [`PrefixReader::lookup_batch`] writes where no route matches.
pub const NO_ROUTE: u32 = u32::MAX;

/// Addresses that go through the levels of the trie together.
const LANES: usize = 64;

/// What readers share with the writer.
#[derive(Debug)]
pub(super) struct Shared {
    /// Entry over all addresses but for the default route.
    pub root: AtomicU32,
    /// Leaf of the default route.
    pub default: AtomicU32,
    /// Entries at 16 bits, once the table is large: 65,536 of them.
    pub direct: OnceLock<Box<[AtomicU32]>>,
    /// The blocks.
    pub segments: Segments,
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
    /// The value of the longest route that matches `address`.
    #[inline]
    pub fn lookup(&self, address: A) -> Option<u32> {
        let leaf = self.leaf(address);
        (leaf != EMPTY).then_some(leaf & VALUE)
    }

    /// The longest route that matches `address`.
    #[inline]
    pub fn find(&self, address: A) -> Option<Match> {
        let leaf = self.leaf(address);
        let length = rank_of_length(leaf).checked_sub(1)? as u8;
        Some(Match {
            value: leaf & VALUE,
            length,
        })
    }

    #[inline(always)]
    fn leaf(&self, address: A) -> u32 {
        let shared = &*self.shared;
        let (mut at, mut level) = match shared.direct.get() {
            Some(direct) => (entry(direct, address.high()), 2),
            None => (shared.root.load(Ordering::Acquire), 0),
        };
        while is_branch(at) && level < A::BITS as u32 / 8 {
            at = step(&shared.segments, at, address.byte(level));
            level += 1;
        }
        if at == EMPTY {
            shared.default.load(Ordering::Acquire)
        } else {
            at
        }
    }

    /// Look up `addresses` together and write the value, or [`NO_ROUTE`], of each to `values`, as far as both
    /// reach. Each level is a pass of loads that do not depend on one another, so that misses overlap.
    pub fn lookup_batch(&self, addresses: &[A], values: &mut [u32]) {
        let count = values.len().min(addresses.len());
        let values = &mut values[..count];
        for (addresses, values) in addresses.chunks(LANES).zip(values.chunks_mut(LANES)) {
            self.lookup_lanes(addresses, values);
        }
    }

    #[inline]
    fn lookup_lanes(&self, addresses: &[A], values: &mut [u32]) {
        let shared = &*self.shared;
        // `values` holds entries until the last pass.
        let mut level = match shared.direct.get() {
            Some(direct) => {
                for (address, value) in addresses.iter().zip(values.iter_mut()) {
                    *value = entry(direct, address.high());
                }
                2
            }
            None => {
                values.fill(shared.root.load(Ordering::Acquire));
                0
            }
        };
        let mut words = [0u32; LANES];
        while level < A::BITS as u32 / 8 && values.iter().fold(0, |all, entry| all | entry) & (1 << 31) != 0 {
            for ((address, value), word) in addresses.iter().zip(values.iter()).zip(&mut words) {
                if is_branch(*value) {
                    *word = header(shared.segments.at(position(*value)), address.byte(level));
                }
            }
            for ((address, value), word) in addresses.iter().zip(values.iter_mut()).zip(&words) {
                if is_branch(*value) {
                    let block = shared.segments.at(position(*value));
                    *value = entry(block, entry_index(*word, address.byte(level)));
                }
            }
            level += 1;
        }
        let default = shared.default.load(Ordering::Acquire);
        for value in values {
            let leaf = if *value == EMPTY { default } else { *value };
            *value = if leaf == EMPTY { NO_ROUTE } else { leaf & VALUE };
        }
    }
}
