//! An account of the work that the packets of a flow cause, so that a sender cannot make inspection expensive.
//!
//! What costs much more than its bytes do is charged in units before it is done, or while it is: bytes that come out of a
//! content encoding, tables of a decoder, steps of an evaluation. A packet may cause [`PACKET`] units. A flow may cause
//! [`BYTE`] units for each byte that it carries, and [`BURST`] units beyond that, which come back as it carries more. Once the
//! account is spent it stays so until the next packet begins, and what was being done for the packet is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Units that a packet may cause. A unit is a byte that is decoded and searched: 1 to 2 ns of a long repetition, which is what
/// there is much of in a packet, 3 ns of text (`cargo bench -p sluice-inspect --bench work`). So it is some 50 µs, four times as
/// much of the dearest known (docs/performance.md, The dearest packet).
pub const PACKET_BUDGET: u32 = 48 << 10;
/// Units that a flow is granted for each byte that it carries. Text is a tenth of its size where it is compressed well.
pub const TOKENS_PER_BYTE: u32 = 16;
/// Units that a flow is granted for each packet that carries some: what its buffers and rules usually cost, however few its
/// bytes.
pub const TOKENS_PER_PACKET: u32 = 4 << 10;
/// Units that a flow may have saved up, and begins with.
pub const MAX_TOKENS: u32 = 1 << 20;

/// What a flow has saved up, in units; at most [`BURST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTokens(u32);

impl Default for WorkTokens {
    fn default() -> Self {
        Self(MAX_TOKENS)
    }
}

impl WorkTokens {
    /// Units.
    pub fn units(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
struct Account {
    left: AtomicU32,
    spent: AtomicBool,
    /// No packet has begun: what parsers do by themselves is not limited.
    unlimited: AtomicBool,
}

/// The account of the packet that is being looked at: one for each shard, whose parts share it by clones. Only the worker
/// that looks at the packet uses it; the atomics are there so that it can be shared, and are read and written as plain words.
#[derive(Clone, Debug)]
pub struct WorkBudget(Arc<Account>);

impl Default for WorkBudget {
    /// Not limited until [`Work::begin`].
    fn default() -> Self {
        Self(Arc::new(Account {
            left: AtomicU32::new(u32::MAX),
            spent: AtomicBool::new(false),
            unlimited: AtomicBool::new(true),
        }))
    }
}

impl WorkBudget {
    /// Whether two are one account.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A packet of a flow begins, with so many bytes of payload. Returns what the flow will have where it causes no work.
    pub fn begin(&self, credit: WorkTokens, bytes: usize) -> WorkTokens {
        let earned = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(TOKENS_PER_BYTE);
        let earned = earned.saturating_add(if bytes > 0 { TOKENS_PER_PACKET } else { 0 });
        let credit = WorkTokens(credit.0.saturating_add(earned).min(MAX_TOKENS));
        self.0.left.store(credit.0.min(PACKET_BUDGET), Relaxed);
        self.0.spent.store(false, Relaxed);
        self.0.unlimited.store(false, Relaxed);
        credit
    }

    /// The packet is over: what its flow has left of the credit that [`Work::begin`] returned.
    pub fn end(&self, credit: WorkTokens) -> WorkTokens {
        let caused = credit.0.min(PACKET_BUDGET).saturating_sub(self.left());
        WorkTokens(credit.0 - caused)
    }

    /// So many units are about to be worked. False where there are not as many left: the account is then spent, and the work
    /// is not to be done.
    #[inline]
    pub fn charge(&self, units: u32) -> bool {
        if self.0.unlimited.load(Relaxed) {
            return true;
        }
        match self.left().checked_sub(units) {
            Some(left) if !self.is_exhausted() => {
                self.0.left.store(left, Relaxed);
                true
            }
            _ => {
                self.0.left.store(0, Relaxed);
                self.0.spent.store(true, Relaxed);
                false
            }
        }
    }

    /// Nothing more is to be done for the packet.
    #[cold]
    pub fn exhaust(&self) {
        if !self.0.unlimited.load(Relaxed) {
            self.0.left.store(0, Relaxed);
            self.0.spent.store(true, Relaxed);
        }
    }

    /// More was asked for than was left.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.0.spent.load(Relaxed)
    }

    /// Units that are left.
    #[inline]
    pub fn left(&self) -> u32 {
        self.0.left.load(Relaxed)
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
        let credit = work.begin(WorkTokens::default(), 100);
        assert!(work.charge(PACKET_BUDGET) && !work.is_exhausted());
        assert!(!work.charge(1) && work.is_exhausted());
        assert!(!work.charge(0), "it stays spent");
        assert_eq!(MAX_TOKENS - PACKET_BUDGET, work.end(credit).units());
        work.begin(WorkTokens::default(), 100);
        assert!(!work.is_exhausted() && work.charge(1), "the next packet has its own");
    }

    #[test]
    fn charge_that_does_not_fit_takes_what_is_left() {
        let work = WorkBudget::default();
        let credit = work.begin(WorkTokens::default(), 0);
        assert!(!work.charge(PACKET_BUDGET + 1));
        assert_eq!(MAX_TOKENS - PACKET_BUDGET, work.end(credit).units());
    }

    #[test]
    fn flow_that_goes_on_spending_gets_what_its_bytes_earn() {
        let work = WorkBudget::default();
        let (mut credit, mut caused) = (WorkTokens::default(), 0);
        for _ in 0..1000 {
            let packet = work.begin(credit, 1000);
            while work.charge(100) {
                caused += 100;
            }
            credit = work.end(packet);
        }
        assert_eq!(0, credit.units());
        let earned = 1000 * (TOKENS_PER_PACKET + 1000 * TOKENS_PER_BYTE);
        assert!(caused <= MAX_TOKENS + earned, "{caused}");
        assert!(caused >= earned, "{caused}");
    }

    #[test]
    fn credit_comes_back_and_does_not_grow_beyond_the_burst() {
        let work = WorkBudget::default();
        let mut credit = work.begin(WorkTokens::default(), 0);
        work.charge(PACKET_BUDGET);
        credit = work.end(credit);
        for _ in 0..100 {
            credit = work.end(work.begin(credit, 1000));
        }
        assert_eq!(MAX_TOKENS, credit.units());
    }

    #[test]
    fn clones_share_one_account() {
        let work = WorkBudget::default();
        let other = work.clone();
        work.begin(WorkTokens::default(), 0);
        assert!(other.charge(PACKET_BUDGET));
        assert!(!work.charge(1) && other.is_exhausted());
    }
}
