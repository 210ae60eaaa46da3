//! Subscriber sites: translation of packets from terminals, and forwarding of replies to terminals.
//!
//! The context of inside keys includes the site number, so terminals of different sites may have equal addresses.
//! Workers read [`Sites`] without locks, while one thread modifies individual entries with a [`SiteWriter`].

mod context;
mod index;
mod table;
mod writer;

/// Atomics of the table. The model test compiles this module with the atomics of the model checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
use crate::keyed;

pub use context::{MAX_ROUTERS, MAX_SITES, POOLED, SITES, context, is_pooled, is_site, outer, site};
pub use table::{MAX_TERMINALS, NO_SITE, Network, RequestKind, Sites, View, word_of};
pub use writer::{OtherSite, SiteWriter, Terminal, TerminalsFull};

#[cfg(test)]
mod tests;
