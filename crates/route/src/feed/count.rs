//! What a feed has counted.

use super::Refused;

/// What a feed has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedCounts {
    /// Messages.
    pub messages: u64,
    /// Routes offered, those that were offered before too.
    pub offered: u64,
    /// Routes taken back.
    pub withdrawn: u64,
    /// Next hops and groups of them set.
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
    /// Messages, or next hops of one, that were not followed for this reason.
    pub fn refused(&self, reason: Refused) -> u64 {
        self.refused[reason as usize]
    }

    pub(super) fn refuse(&mut self, reason: Refused) {
        self.refused[reason as usize] += 1;
    }
}
