//! Longest-prefix-match tables of many routers. One control thread changes individual routes while workers look up
//! addresses.
//!
//! A router's routes form a trie with 8 bits per level; the nodes of all routers share one memory. A node is a
//! compressed block: runs of equal slots are stored once and are found by rank in a bitmap, so small tables are small.
//! When a router exceeds some thousand routes, an array over its first 16 bits replaces the first two levels; with a
//! full IPv4 Internet table, an array over 24 bits. Its default route is a separate word, so that changing it is a
//! single store for any table size.
//!
//! Every word is an atomic. The writer never changes the runs of a published block: it publishes a new block by one
//! store into the parent, and frees the old block after every reader has passed a quiescent point ([`Quiescence`]). For
//! its address, a lookup sees the table before or after a change, never an intermediate state. Lookups take no lock,
//! never wait and never panic.

mod address;
mod list;
mod memory;
mod node;
mod quiescence;
mod reader;
mod table;

/// Atomics of the module. The model test compiles the same sources with those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub use crate::prefetch::prefetch_read_at;

    /// Allocate zeroed words without accessing them, on huge pages if there are many, because lookups access them
    /// randomly.
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
