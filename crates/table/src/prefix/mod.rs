//! Longest-prefix tables of many routers: changed route by route by one control thread while workers look up.
//!
//! A router's routes are a trie of 8 bits per level; the nodes of all routers share one memory. A node is a compressed block: runs of equal slots are stored once, found
//! by rank in a bitmap, so small tables are small. A router that grows past some thousand routes gets an array over its first 16 bits in
//! the place of the first two levels, one with a full Internet table of IPv4 an array over 24 bits. Its default route is a word
//! of its own, so that changing it costs one store whatever it holds.
//!
//! Every word is an atomic. The writer never changes what a run of a published block covers: it publishes a new
//! block by one store into the parent and gives the old one back once every reader has passed a quiescent point
//! ([`Quiescence`]). A lookup sees, for its address, the table before a change or after it, nothing between.
//! Lookups take no lock, never wait and never panic.

mod address;
mod list;
mod memory;
mod node;
mod quiescence;
mod reader;
mod table;

/// The atomics that the module is built on; the model test builds the same sources on those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub use crate::prefetch::prefetch_read_at;

    /// So many words that nobody has touched yet, on huge pages where they are many: lookups go all over them.
    pub fn zeros(count: usize) -> Box<[AtomicU32]> {
        let words = bytemuck::zeroed_slice_box(count);
        crate::pages::prefer_huge(&words);
        words
    }
}

pub use address::Address;
pub use quiescence::Quiescence;
pub use reader::{MAX_ROUTERS, Match, NO_ROUTE, PrefixReader, RouterIndex};
pub use table::{MAX_VALUE, PrefixError, PrefixTable};
