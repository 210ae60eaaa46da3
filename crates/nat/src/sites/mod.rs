//! Subscribers' sites: what packets of their terminals are translated to, and where answers lead.
//!
//! A site's number is in the context of its inside keys, so that terminals of two sites may have one address. Workers read
//! [`Sites`] without locks; one thread changes it, entry by entry, through a [`Keeper`].

mod context;
mod index;
mod keeper;
mod table;

/// The atomics of the table; the model test builds the same source on those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
use crate::keyed;

pub use context::{MOST, MOST_ROUTERS, POOLED, SITES, context, is_pooled, is_site, outer, site};
pub use keeper::{Full, Keeper, Taken, Terminal};
pub use table::{Call, MOST_TERMINALS, NOBODY, Network, Sites, View, word_of};

#[cfg(test)]
mod tests;
