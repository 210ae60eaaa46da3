//! Recent requests of terminals. A reply without a matching request is dropped.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use sluice_wire::Mac;

use super::PATIENCE;
use crate::subscribers::Site;

/// Set of requests, each stored as a keyed hash. A request is removed when its reply is no longer expected.
#[derive(Debug)]
pub struct PendingRequests {
    key: RandomState,
    /// Hashes of the current interval, and of the previous interval.
    recent: [HashSet<u64>; 2],
    since: u64,
    capacity: usize,
}

impl PendingRequests {
    /// Create a set that keeps at most `capacity` requests per interval.
    pub fn new(capacity: usize) -> Self {
        Self {
            key: RandomState::new(),
            recent: Default::default(),
            since: 0,
            capacity,
        }
    }

    fn number(&self, site: Site, transaction: u32, hardware: Mac) -> u64 {
        self.key.hash_one((site, transaction, hardware))
    }

    /// Record a request. `now` is the time in nanoseconds. At the limit, further requests are not recorded, and their
    /// replies are dropped.
    pub fn note(&mut self, site: Site, transaction: u32, hardware: Mac, now: u64) {
        self.forget(now);
        let number = self.number(site, transaction, hardware);
        if self.recent[0].len() < self.capacity {
            self.recent[0].insert(number);
        }
    }

    /// Whether a terminal has a recent request.
    pub fn has(&mut self, site: Site, transaction: u32, hardware: Mac, now: u64) -> bool {
        self.forget(now);
        let number = self.number(site, transaction, hardware);
        self.recent.iter().any(|recent| recent.contains(&number))
    }

    fn forget(&mut self, now: u64) {
        let spans = now.saturating_sub(self.since) / PATIENCE;
        if spans > 0 {
            self.recent.rotate_right(1);
            self.recent[0].clear();
        }
        if spans > 1 {
            self.recent[1].clear();
        }
        self.since += spans * PATIENCE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 5, 1];

    #[test]
    fn question_is_known_as_long_as_an_answer_is_waited_for_and_not_for_ever() {
        let mut pending_requests = PendingRequests::new(9);
        let start = 77 * PATIENCE + 5;
        pending_requests.note(Site(3), 7, MAC, start);
        for (wait, expected) in [(0, true), (PATIENCE, true), (3 * PATIENCE, false)] {
            assert_eq!(expected, pending_requests.has(Site(3), 7, MAC, start + wait), "{wait}");
        }
        pending_requests.note(Site(3), 7, MAC, start + 4 * PATIENCE);
        assert!(!pending_requests.has(Site(3), 7, MAC, start + 400 * PATIENCE));
    }

    #[test]
    fn question_of_another_site_transaction_or_terminal_is_another() {
        let mut pending_requests = PendingRequests::new(9);
        pending_requests.note(Site(3), 7, MAC, 0);
        assert!(pending_requests.has(Site(3), 7, MAC, 0));
        assert!(!pending_requests.has(Site(4), 7, MAC, 0));
        assert!(!pending_requests.has(Site(3), 8, MAC, 0));
        assert!(!pending_requests.has(Site(3), 7, [2, 0, 0, 0, 5, 2], 0));
    }

    #[test]
    fn more_questions_than_there_is_room_for_are_not_kept() {
        let mut pending_requests = PendingRequests::new(2);
        (0..3).for_each(|transaction| pending_requests.note(Site(1), transaction, MAC, 0));
        assert_eq!(
            [true, true, false],
            [0, 1, 2].map(|transaction| pending_requests.has(Site(1), transaction, MAC, 0))
        );
        pending_requests.note(Site(1), 2, MAC, PATIENCE);
        assert!(pending_requests.has(Site(1), 2, MAC, PATIENCE));
    }
}
