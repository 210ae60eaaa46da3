//! Order in which an overloaded worker serves the ports of several routers. The order depends on the weights and on the
//! cycles that each router has used.

use super::{Source, Worker};
use crate::packet::io::{BURST_SIZE, PortIndex};
use crate::packet::time::Now;
use crate::snapshot::Snapshot;

/// Fixed-point unit of weighted cycles. The unit is small enough that the share of the largest weight is represented
/// with an error of at most 0.1 %.
const FINE: u64 = 1 << 20;

/// Maximum credit of an account that has used less than its share, in bursts. With this credit, a few packets of such
/// an account don't have to wait behind a flood.
const MAX_CREDIT_BURSTS: u64 = 8;

/// Schedule of a worker's ports.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The commit for which the schedule was built.
    committed: Option<u32>,
    /// Whether there are several accounts, so that weights apply.
    is_on: bool,
    accounts: Vec<Account>,
    /// For each receive position: index of its account.
    of: Vec<usize>,
    /// Moving average of the cycles that a full burst takes.
    burst: u64,
}

/// Account of used cycles. An account belongs to the queues of one router, or to one queue that several routers share.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Weighted cost of one cycle.
    price: u64,
    /// Number of weighted cycles used.
    spent: u64,
    /// Whether more packets of the account may be waiting.
    waits: bool,
    /// Whether the worker may serve the account in this round.
    may: bool,
}

impl Schedule {
    /// Creates a schedule for a number of receive positions.
    pub fn new(places: usize) -> Self {
        Self {
            committed: None,
            is_on: false,
            accounts: Vec::with_capacity(places),
            of: Vec::with_capacity(places),
            burst: 0,
        }
    }

    /// Forces a rebuild of the schedule, because the set of ports has changed.
    pub fn forget(&mut self) {
        self.committed = None;
    }

    /// Rebuilds the schedule after a new commit. Returns whether weights apply.
    #[inline(always)]
    pub fn follow(&mut self, snapshot: &Snapshot, receives: &[PortIndex]) -> bool {
        if self.committed != Some(snapshot.committed) {
            self.renew(snapshot, receives);
        }
        self.is_on
    }

    #[cold]
    fn renew(&mut self, snapshot: &Snapshot, receives: &[PortIndex]) {
        self.committed = Some(snapshot.committed);
        self.accounts.clear();
        self.of.clear();
        let shares = snapshot.shares.as_deref().filter(|shares| shares.weighted);
        let port = |place: usize| shares?.port(*receives.get(place)?);
        for place in 0..receives.len() {
            let own = port(place).and_then(|port| port.own);
            let mut before = 0..place;
            let same = before.find(|&other| own.is_some() && port(other).and_then(|port| port.own) == own);
            let account = match same.and_then(|other| self.of.get(other)) {
                Some(&account) => account,
                None => {
                    self.accounts.push(Account {
                        price: FINE / port(place).map_or(1, |port| port.weight.clamp(1, FINE)),
                        spent: 0,
                        waits: false,
                        may: true,
                    });
                    self.accounts.len() - 1
                }
            };
            self.of.push(account);
        }
        self.is_on = shares.is_some() && self.accounts.len() > 1;
    }

    /// Starts a round. Among the accounts that have waiting packets, the round finds the one that has used the fewest
    /// cycles. It serves all accounts that have used at most one burst more than this account.
    fn begin(&mut self) {
        let waiting = self.accounts.iter().filter(|account| account.waits);
        let min = waiting.map(|account| account.spent).min();
        for account in &mut self.accounts {
            let burst = self.burst * account.price;
            account.may = min.is_none_or(|min| account.spent <= min + burst);
            account.waits &= !account.may;
        }
    }

    fn may(&self, place: usize) -> bool {
        let account = self.of.get(place).and_then(|&number| self.accounts.get(number));
        account.is_none_or(|account| account.may)
    }

    /// Charges a burst to the account of a receive position. If the burst was full, more packets may be waiting.
    fn charge(&mut self, place: usize, cycles: u64, is_full: bool) {
        if is_full {
            self.burst = (3 * self.burst + cycles) / 4;
        }
        let account = self.of.get(place).and_then(|&number| self.accounts.get_mut(number));
        if let Some(account) = account {
            account.spent += cycles * account.price;
            account.waits |= is_full;
        }
    }

    /// Ends a round. The credit of accounts that used less than their share is limited to [`MAX_CREDIT_BURSTS`] bursts. If no
    /// packets wait, all credit is removed.
    fn end_round(&mut self) {
        let waiting = self.accounts.iter().filter(|account| account.waits);
        let Some(min) = waiting.map(|account| account.spent).min() else {
            self.accounts.iter_mut().for_each(|account| account.spent = 0);
            return;
        };
        for account in &mut self.accounts {
            let kept = MAX_CREDIT_BURSTS * self.burst * account.price;
            account.spent = account.spent.max(min.saturating_sub(kept));
        }
        let base = self.accounts.iter().map(|account| account.spent).min().unwrap_or(0);
        self.accounts.iter_mut().for_each(|account| account.spent -= base);
    }
}

impl Worker<'_> {
    /// Receives a burst from each port that may be served. Returns the number of packets, and the number of ports with full
    /// bursts.
    #[inline(never)]
    pub(super) fn receive_scheduled(&mut self, now: Now) -> (usize, usize) {
        self.schedule.begin();
        let (mut packets, full, passed_over) = self.receive_ports(true, now);
        // No served port delivered a full burst, so the worker has time for the skipped ports.
        let (more, full_too, _) = match passed_over > 0 && full == 0 {
            true => self.receive_ports(false, now),
            false => (0, 0, 0),
        };
        packets += more;
        self.schedule.end_round();
        (packets, (full + full_too).max(passed_over))
    }

    /// Receives a burst from each port that may be served, or, if `is_eligible` is `false`, from each port that may not
    /// be served. Also returns the number of skipped ports.
    fn receive_ports(&mut self, is_eligible: bool, now: Now) -> (usize, usize, usize) {
        let (mut packets, mut full, mut passed_over) = (0, 0, 0);
        for place in 0..self.receives.len() {
            if self.schedule.may(place) != is_eligible {
                passed_over += 1;
                continue;
            }
            let count = self.port_burst(place, now);
            self.schedule.charge(place, self.took, count == BURST_SIZE);
            packets += count;
            full += usize::from(count == BURST_SIZE);
        }
        (packets, full, passed_over)
    }

    pub(super) fn port_burst(&mut self, place: usize, now: Now) -> usize {
        let port = Source::Port(self.receives[place]);
        if !self.is_moving() {
            return self.burst(port, now);
        }
        self.lift();
        let count = self.burst(port, now);
        self.restore_shard();
        self.came(Some(place), count);
        count
    }
}
