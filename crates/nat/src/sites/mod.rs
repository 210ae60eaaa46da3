//! Subscribers' sites: what packets of their terminals are translated to, and where answers lead.
//!
//! A site's number is in the context of its inside keys, so that terminals of two sites may have one address. Workers read
//! [`Sites`] without locks; one thread changes it, entry by entry, through a [`SiteWriter`].

mod context;
mod index;
mod table;
mod writer;

/// The atomics of the table; the model test builds the same source on those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
use crate::keyed;

pub use context::{MAX_ROUTERS, MAX_SITES, POOLED, SITES, context, is_pooled, is_site, outer, site};
pub use table::{MAX_TERMINALS, NOBODY, Network, RequestKind, Sites, View, word_of};
pub use writer::{OtherSite, SiteWriter, Terminal, TerminalsFull};

#[cfg(test)]
mod tests;
