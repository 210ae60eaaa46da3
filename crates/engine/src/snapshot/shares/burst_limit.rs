//! Estimates how many packets of a burst an overloaded worker can process. The estimate is adjusted after each burst.

use super::deficit::Distribution;
use super::senders::RecentSenders;
use crate::packet::io::BURST_SIZE;

/// Number of consecutive full bursts after which a queue counts as overloaded. This number of bursts fills half of a
/// NIC's queue.
const PATIENCE: u32 = 8;

/// As long as no budget was sufficient, the budget is reduced again after this number of full bursts.
const QUICK_REDUCTION_BURSTS: u32 = 4;

/// Once a budget was sufficient, the budget is reduced again only after this number of full bursts. A NIC's queue can
/// hold this number of bursts, and some time passes until the queue is empty.
const REDUCTION_BURSTS: u32 = 16;

/// Minimum budget in packets, so that some packets of every router pass.
const MIN_BUDGET: usize = 8;

/// Budget of a queue: the number of packets of a burst that pass while the worker is overloaded. The remaining packets
/// are dropped, which takes few cycles. When the budget is small enough, the worker keeps up, and bursts are no longer
/// full. After bursts that are not full, the budget grows again, packet by packet.
#[derive(Clone, Copy, Debug)]
pub struct BurstLimit {
    /// State of the distribution of the budget.
    pub distribution: Distribution,
    /// Routers that have recently sent packets to the queue.
    pub senders: RecentSenders,
    /// Number of consecutive full bursts.
    full: u32,
    budget: usize,
    was_sufficient: bool,
}

impl Default for BurstLimit {
    fn default() -> Self {
        Self {
            distribution: Distribution::default(),
            senders: RecentSenders::default(),
            full: 0,
            budget: BURST_SIZE,
            was_sufficient: false,
        }
    }
}

impl BurstLimit {
    /// Records a burst of `count` packets. Returns how many packets may pass.
    #[inline]
    pub fn observe(&mut self, count: usize) -> usize {
        if count < BURST_SIZE {
            self.full = 0;
            if self.is_closed() {
                self.was_sufficient = true;
                self.budget += 1;
            }
            return self.budget;
        }
        self.full += 1;
        let (every, part) = match self.was_sufficient {
            true => (REDUCTION_BURSTS, 8),
            false if self.is_closed() => (QUICK_REDUCTION_BURSTS, 4),
            false => (PATIENCE, 4),
        };
        if self.full.is_multiple_of(every) {
            self.budget = (self.budget - self.budget / part).max(MIN_BUDGET);
        }
        self.budget
    }

    /// Records how many packets of a burst of `count` packets a device has accepted. Reduces the budget, or increases
    /// it by one.
    pub fn sent(&mut self, taken: usize, count: usize) {
        if taken < count {
            self.budget = taken.midpoint(self.budget.min(count)).clamp(MIN_BUDGET, BURST_SIZE);
        } else if self.is_closed() {
            self.budget += 1;
        }
    }

    /// Number of packets of a burst that may pass.
    pub fn budget(&self) -> usize {
        match self.is_closed() {
            true => self.budget,
            false => usize::MAX,
        }
    }

    fn is_closed(&self) -> bool {
        self.budget < BURST_SIZE
    }

    /// Records that no packet was received.
    #[inline(always)]
    pub fn idle(&mut self) {
        if self.full > 0 || self.is_closed() {
            *self = Self {
                distribution: self.distribution,
                senders: self.senders,
                ..Self::default()
            };
        } else {
            self.was_sufficient = false;
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
        // After the budget was sufficient once, it is reduced more slowly.
        let seen: Vec<_> = (0..16).map(|_| gate.observe(BURST_SIZE)).collect();
        assert_eq!((29, 26), (seen[14], seen[15]));
        (0..10_000).for_each(|_| assert!(gate.observe(BURST_SIZE) >= MIN_BUDGET));
        assert_eq!(MIN_BUDGET, gate.observe(BURST_SIZE));
        (0..BURST_SIZE).for_each(|_| assert!(gate.observe(1) > MIN_BUDGET));
        assert_eq!(BURST_SIZE, gate.observe(1));
    }

    #[test]
    fn gate_is_open_once_nothing_comes() {
        let mut gate = BurstLimit::default();
        (0..100).for_each(|_| assert!(gate.observe(BURST_SIZE) >= MIN_BUDGET));
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
