//! Budget of the work that the packets of a flow cause, so that a sender can't make inspection expensive.
//!
//! Work that costs much more than the scan of a packet's bytes is charged in units. Examples are decoded bytes of a
//! content encoding, tables of a decoder, and steps of a rule evaluation. A packet may cause [`PACKET_BUDGET`] units. A
//! flow earns [`TOKENS_PER_BYTE`] units for each byte that it carries, and may accumulate up to [`MAX_TOKENS`] units.
//! Once the budget is exhausted, work for the current packet is given up; the next packet has a new budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Units of work that a packet may cause. A unit is the cost of one decoded and searched byte: 3 ns for text, and 1 to
/// 2 ns for long repetitions, which are typical of highly compressed packets (`cargo bench -p sluice-inspect --bench
/// work`). The budget is therefore about 50 µs; the most expensive known packet takes four times as long
/// (docs/performance.md).
pub const PACKET_BUDGET: u32 = 48 << 10;
/// Units that a flow earns for each byte that it carries. Text typically compresses to a tenth of its size at best.
pub const TOKENS_PER_BYTE: u32 = 16;
/// Units that a flow earns for each packet with payload. These units cover the usual cost of buffers and rules, which does not
/// depend on the packet's size.
pub const TOKENS_PER_PACKET: u32 = 4 << 10;
/// Maximum number of units that a flow can accumulate, and initial number of units of a flow.
pub const MAX_TOKENS: u32 = 1 << 20;

/// Accumulated units of a flow; at most [`MAX_TOKENS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTokens(u32);

impl Default for WorkTokens {
    fn default() -> Self {
        Self(MAX_TOKENS)
    }
}

impl WorkTokens {
    /// Number of units.
    pub fn units(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
struct Account {
    remaining: AtomicU32,
    spent: AtomicBool,
    /// Whether no packet is being processed. Parsers that run outside of a packet are not limited.
    unlimited: AtomicBool,
}

/// Work budget of the current packet. Each shard has a budget, and the components of the shard have clones of it. Only
/// the worker that processes the packet uses the budget. Its fields are atomics only because the clones share them; the
/// worker accesses them like plain words.
#[derive(Clone, Debug)]
pub struct WorkBudget(Arc<Account>);

impl Default for WorkBudget {
    /// The budget is unlimited until [`WorkBudget::start`].
    fn default() -> Self {
        Self(Arc::new(Account {
            remaining: AtomicU32::new(u32::MAX),
            spent: AtomicBool::new(false),
            unlimited: AtomicBool::new(true),
        }))
    }
}

impl WorkBudget {
    /// Whether two handles refer to the same budget.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Begins a packet of a flow with this payload length. Returns the tokens that the flow has left if the packet causes
    /// no work.
    pub fn start(&self, tokens: WorkTokens, bytes: usize) -> WorkTokens {
        let added = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(TOKENS_PER_BYTE);
        let added = added.saturating_add(if bytes > 0 { TOKENS_PER_PACKET } else { 0 });
        let tokens = WorkTokens(tokens.0.saturating_add(added).min(MAX_TOKENS));
        self.0.remaining.store(tokens.0.min(PACKET_BUDGET), Relaxed);
        self.0.spent.store(false, Relaxed);
        self.0.unlimited.store(false, Relaxed);
        tokens
    }

    /// Ends the packet. Returns the remaining tokens of the flow. `tokens` is the result of [`WorkBudget::start`].
    pub fn end(&self, tokens: WorkTokens) -> WorkTokens {
        let caused = tokens.0.min(PACKET_BUDGET).saturating_sub(self.remaining());
        WorkTokens(tokens.0 - caused)
    }

    /// Charges units before the work is done. Returns false if fewer units are left. In this case the budget is
    /// exhausted, and the work must not be done.
    #[inline]
    pub fn charge(&self, units: u32) -> bool {
        if self.0.unlimited.load(Relaxed) {
            return true;
        }
        match self.remaining().checked_sub(units) {
            Some(remaining) if !self.is_exhausted() => {
                self.0.remaining.store(remaining, Relaxed);
                true
            }
            _ => {
                self.0.remaining.store(0, Relaxed);
                self.0.spent.store(true, Relaxed);
                false
            }
        }
    }

    /// Exhausts the budget, so that no more work is done for the packet.
    #[cold]
    pub fn exhaust(&self) {
        if !self.0.unlimited.load(Relaxed) {
            self.0.remaining.store(0, Relaxed);
            self.0.spent.store(true, Relaxed);
        }
    }

    /// Whether more units were charged than were left.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.0.spent.load(Relaxed)
    }

    /// Number of units left.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.0.remaining.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_not_limited_until_a_packet_begins() {
        let work = WorkBudget::default();
        assert!((0..3).all(|_| work.charge(u32::MAX)));
        assert!(!work.is_exhausted());
    }

    #[test]
    fn packet_spends_its_share_and_no_more() {
        let work = WorkBudget::default();
        let tokens = work.start(WorkTokens::default(), 100);
        assert!(work.charge(PACKET_BUDGET) && !work.is_exhausted());
        assert!(!work.charge(1) && work.is_exhausted());
        assert!(!work.charge(0), "it stays spent");
        assert_eq!(MAX_TOKENS - PACKET_BUDGET, work.end(tokens).units());
        work.start(WorkTokens::default(), 100);
        assert!(!work.is_exhausted() && work.charge(1), "the next packet has its own");
    }

    #[test]
    fn charge_that_does_not_fit_takes_what_is_left() {
        let work = WorkBudget::default();
        let tokens = work.start(WorkTokens::default(), 0);
        assert!(!work.charge(PACKET_BUDGET + 1));
        assert_eq!(MAX_TOKENS - PACKET_BUDGET, work.end(tokens).units());
    }

    #[test]
    fn flow_that_goes_on_spending_gets_what_its_bytes_earn() {
        let work = WorkBudget::default();
        let (mut tokens, mut caused) = (WorkTokens::default(), 0);
        for _ in 0..1000 {
            let packet = work.start(tokens, 1000);
            while work.charge(100) {
                caused += 100;
            }
            tokens = work.end(packet);
        }
        assert_eq!(0, tokens.units());
        let added = 1000 * (TOKENS_PER_PACKET + 1000 * TOKENS_PER_BYTE);
        assert!(caused <= MAX_TOKENS + added, "{caused}");
        assert!(caused >= added, "{caused}");
    }

    #[test]
    fn credit_comes_back_and_does_not_grow_beyond_the_burst() {
        let work = WorkBudget::default();
        let mut tokens = work.start(WorkTokens::default(), 0);
        work.charge(PACKET_BUDGET);
        tokens = work.end(tokens);
        for _ in 0..100 {
            tokens = work.end(work.start(tokens, 1000));
        }
        assert_eq!(MAX_TOKENS, tokens.units());
    }

    #[test]
    fn clones_share_one_account() {
        let work = WorkBudget::default();
        let other = work.clone();
        work.start(WorkTokens::default(), 0);
        assert!(other.charge(PACKET_BUDGET));
        assert!(!work.charge(1) && other.is_exhausted());
    }
}
