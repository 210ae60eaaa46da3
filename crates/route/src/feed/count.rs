//! Counters of a route feed.

use super::Refused;

/// Counters of a route feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedCounts {
    /// Number of messages.
    pub messages: u64,
    /// Number of routes that were offered, including repeated offers.
    pub offered: u64,
    /// Number of routes that were withdrawn.
    pub withdrawn: u64,
    /// Number of next hops and next-hop groups that were defined or changed.
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
    /// Number of messages, or of single next hops in messages, that were ignored for this reason.
    pub fn refused(&self, reason: Refused) -> u64 {
        self.refused[reason as usize]
    }

    pub(super) fn refuse(&mut self, reason: Refused) {
        self.refused[reason as usize] += 1;
    }
}
