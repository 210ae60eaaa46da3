//! Counters of a route feed.

use super::Refused;

/// Counters of a route feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedCounts {
    /// Number of messages.
    pub messages: u64,
    /// Number of offered routes, including repeated offers.
    pub offered: u64,
    /// Number of withdrawn routes.
    pub withdrawn: u64,
    /// Number of additions and changes of next hops and next-hop groups.
    pub next_hops: u64,
    refused: [u64; Refused::ALL.len()],
}

impl Default for FeedCounts {
    fn default() -> Self {
        Self {
            messages: 0,
            offered: 0,
            withdrawn: 0,
            next_hops: 0,
            refused: [0; Refused::ALL.len()],
        }
    }
}

impl FeedCounts {
    /// Number of messages and single next hops that were ignored for this reason.
    pub fn refused(&self, reason: Refused) -> u64 {
        self.refused[reason as usize]
    }

    pub(super) fn refuse(&mut self, reason: Refused) {
        self.refused[reason as usize] += 1;
    }
}
