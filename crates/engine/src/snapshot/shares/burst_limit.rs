//! How much of a burst a worker can deal with, found out by what follows.

use super::deficit::Distribution;
use super::senders::RecentSenders;
use crate::packet::io::BURST_SIZE;

/// Bursts one after the other that come full before a queue counts as behind: half of what a card's queue holds.
const PATIENCE: u32 = 8;

/// Full bursts after which a budget that has never been enough is cut again.
const HASTE: u32 = 4;

/// Full bursts after which a budget that has been enough before is cut again: a card's queue holds as many, and what has
/// piled up there takes some to go.
const SETTLED: u32 = 16;

/// The smallest budget: something of everybody goes on.
const LEAST: usize = 8;

/// Of a queue: how many packets of a burst go on while more come than the worker can deal with. The rest costs next to nothing,
/// so that bursts come no longer full once the budget is small enough; then it grows again, packet by packet.
#[derive(Clone, Copy, Debug)]
pub struct BurstLimit {
    /// What has been dealt of it.
    pub dealt: Distribution,
    /// Whose packets have come.
    pub company: RecentSenders,
    /// Full bursts without another one between.
    full: u32,
    budget: usize,
    has_settled: bool,
}

impl Default for BurstLimit {
    fn default() -> Self {
        Self {
            dealt: Distribution::default(),
            company: RecentSenders::default(),
            full: 0,
            budget: BURST_SIZE,
            has_settled: false,
        }
    }
}

impl BurstLimit {
    /// A burst of so many packets has come. Returns how many of them may go on.
    #[inline]
    pub fn observe(&mut self, count: usize) -> usize {
        if count < BURST_SIZE {
            self.full = 0;
            if self.is_closed() {
                self.has_settled = true;
                self.budget += 1;
            }
            return self.budget;
        }
        self.full += 1;
        let (every, part) = match self.has_settled {
            true => (SETTLED, 8),
            false if self.is_closed() => (HASTE, 4),
            false => (PATIENCE, 4),
        };
        if self.full.is_multiple_of(every) {
            self.budget = (self.budget - self.budget / part).max(LEAST);
        }
        self.budget
    }

    /// A device took so many packets of a burst of `count`: the next ones may be a bit longer, or just as long.
    pub fn sent(&mut self, taken: usize, count: usize) {
        if taken < count {
            self.budget = taken.midpoint(self.budget.min(count)).clamp(LEAST, BURST_SIZE);
        } else if self.is_closed() {
            self.budget += 1;
        }
    }

    /// How many packets of a burst may go on.
    pub fn budget(&self) -> usize {
        match self.is_closed() {
            true => self.budget,
            false => usize::MAX,
        }
    }

    fn is_closed(&self) -> bool {
        self.budget < BURST_SIZE
    }

    /// Nothing has come at all.
    #[inline(always)]
    pub fn idle(&mut self) {
        if self.full > 0 || self.is_closed() {
            *self = Self {
                dealt: self.dealt,
                company: self.company,
                ..Self::default()
            };
        } else {
            self.has_settled = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_closes_by_full_bursts_alone_and_opens_by_others() {
        let mut gate = BurstLimit::default();
        assert_eq!([BURST_SIZE; 7], [(); 7].map(|()| gate.observe(BURST_SIZE)));
        assert_eq!(BURST_SIZE, gate.observe(BURST_SIZE - 1));
        let seen: Vec<_> = (0..16).map(|_| gate.observe(BURST_SIZE)).collect();
        assert_eq!([64, 48, 48, 36, 36, 27], [6, 7, 10, 11, 14, 15].map(|at| seen[at]));
        assert_eq!([28, 29], [(); 2].map(|()| gate.observe(40)));
        // Now more patiently.
        let seen: Vec<_> = (0..16).map(|_| gate.observe(BURST_SIZE)).collect();
        assert_eq!((29, 26), (seen[14], seen[15]));
        (0..10_000).for_each(|_| assert!(gate.observe(BURST_SIZE) >= LEAST));
        assert_eq!(LEAST, gate.observe(BURST_SIZE));
        (0..BURST_SIZE).for_each(|_| assert!(gate.observe(1) > LEAST));
        assert_eq!(BURST_SIZE, gate.observe(1));
    }

    #[test]
    fn gate_is_open_once_nothing_comes() {
        let mut gate = BurstLimit::default();
        (0..100).for_each(|_| assert!(gate.observe(BURST_SIZE) >= LEAST));
        assert!(gate.observe(BURST_SIZE) < BURST_SIZE);
        gate.idle();
        assert_eq!(BURST_SIZE, gate.observe(BURST_SIZE));
    }

    #[test]
    fn gate_follows_what_a_device_takes() {
        let mut gate = BurstLimit::default();
        assert_eq!(usize::MAX, gate.budget());
        (0..32).for_each(|_| gate.sent(16, 64.min(gate.budget())));
        assert_eq!(16, gate.budget());
        (0..64).for_each(|_| gate.sent(10, 10));
        assert_eq!(usize::MAX, gate.budget());
    }
}
