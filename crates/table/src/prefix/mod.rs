//! Longest-prefix-match tables of many routers. One control thread changes individual routes while workers look up
//! addresses.
//!
//! The routes of a router form a trie with 8 bits per level. The nodes of all routers share one memory. A node is a
//! compressed block: a run of equal slots is stored as one entry, and a bitmap contains the starts of runs. If a router
//! has more than some thousand routes, an array over the first 16 address bits replaces the first two levels. For a
//! full IPv4 Internet table, the array covers 24 bits. The default route is a separate word, so that a change takes a
//! single store for any table size.
//!
//! All words are atomic. The writer never modifies the runs of a published block. Instead it publishes a new block with
//! one store into the parent, and frees the old block when every reader has passed a quiescent point ([`Quiescence`]).
//! A lookup returns the route before or after a concurrent modification, never an intermediate state. Lookups take no
//! lock, never wait and never panic.

mod address;
mod list;
mod memory;
mod node;
mod quiescence;
mod reader;
mod table;

/// Atomics of the module. The model test compiles this module with the atomics of the model checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub use crate::prefetch::prefetch_read_at;

    /// Allocates zeroed words without an access to the memory. Large allocations use huge pages, because lookups access
    /// the words in random order.
    pub fn zeros(count: usize) -> Box<[AtomicU32]> {
        let words = bytemuck::zeroed_slice_box(count);
        crate::pages::prefer_huge(&words);
        words
    }
}

pub use address::Address;
pub use quiescence::Quiescence;
pub use reader::{LongestMatch, MAX_ROUTERS, NO_ROUTE, PrefixReader, RouterIndex};
pub use table::{MAX_VALUE, PrefixError, PrefixTable};
