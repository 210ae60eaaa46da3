//! Subscriber sites: translation of their terminals' packets, and forwarding of answers.
//!
//! A site's number is part of the context of its inside keys, so terminals of different sites may have the same
//! address. Workers read [`Sites`] without locks; one thread changes individual entries through a [`SiteWriter`].

mod context;
mod index;
mod table;
mod writer;

/// Atomics of the table. The model test compiles the same source with the atomics of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
use crate::keyed;

pub use context::{MAX_ROUTERS, MAX_SITES, POOLED, SITES, context, is_pooled, is_site, outer, site};
pub use table::{MAX_TERMINALS, NOBODY, Network, RequestKind, Sites, View, word_of};
pub use writer::{OtherSite, SiteWriter, Terminal, TerminalsFull};

#[cfg(test)]
mod tests;
