//! Clock of the worker and its hosts. The clock stops while the benchmark itself works, and while the process is
//! preempted: a worker runs at most one stage of one burst between two readings, so a gap as long as several whole
//! bursts is excluded. The excluded time is reported with every figure.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sluice_dpdk::tsc;

/// A gap between two readings as long as this number of whole bursts counts as preemption, because no stage of a burst
/// takes that long.
const BURSTS: u64 = 4;

static STOOD_STILL: AtomicU64 = AtomicU64::new(0);
static LAST_LOOK: AtomicU64 = AtomicU64::new(0);
/// Cycles of a whole burst; until this is set, no time counts as preempted.
static BURST: AtomicU64 = AtomicU64::new(u64::MAX / BURSTS);
static GAPS: AtomicU64 = AtomicU64::new(0);
static STOLEN: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// Time for which the process was preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    pub gaps: u64,
    pub cycles: u64,
    /// Longest preemption in cycles.
    pub longest: u64,
    /// Total number of cycles in the observed period.
    pub of: u64,
}

/// Reads the clock, in cycles; only one thread may read it.
pub fn cycles() -> u64 {
    let now = tsc::now();
    let last = LAST_LOOK.swap_by_one(now);
    if last != 0 {
        gap(now.saturating_sub(last));
    }
    now - STOOD_STILL.load(Relaxed)
}

trait OneThread {
    fn swap_by_one(&self, value: u64) -> u64;
    fn add_by_one(&self, value: u64);
}

/// No atomic read-modify-write instructions are needed, because only one thread writes.
impl OneThread for AtomicU64 {
    #[inline(always)]
    fn swap_by_one(&self, value: u64) -> u64 {
        let before = self.load(Relaxed);
        self.store(value, Relaxed);
        before
    }

    fn add_by_one(&self, value: u64) {
        self.store(self.load(Relaxed) + value, Relaxed);
    }
}

/// Processes a gap between two readings: if it is longer than several whole bursts, the part of the gap beyond one
/// whole burst is excluded.
#[inline(always)]
fn gap(gap: u64) {
    let burst = BURST.load(Relaxed);
    let taken = taken_away(gap, burst);
    if taken > 0 {
        GAPS.add_by_one(1);
        STOLEN.add_by_one(taken);
        LONGEST.store(LONGEST.load(Relaxed).max(taken), Relaxed);
        stand_still(taken);
    }
}

fn taken_away(gap: u64, burst: u64) -> u64 {
    if gap > BURSTS * burst { gap - burst } else { 0 }
}

fn stand_still(cycles: u64) {
    STOOD_STILL.add_by_one(cycles);
}

/// Excludes the time since a clock reading, because the benchmark itself used it.
pub fn leave_out(since: u64) {
    let now = tsc::now();
    stand_still((now - STOOD_STILL.load(Relaxed)).saturating_sub(since));
    LAST_LOOK.store(now, Relaxed);
}

/// Sets the number of cycles of a whole burst.
pub fn know(burst: u64) {
    BURST.store(burst.clamp(1, u64::MAX / BURSTS), Relaxed);
}

/// Starts to measure preemption. Calling the returned function returns the values since then.
pub fn watch() -> impl Fn() -> Stolen {
    let (gaps, stolen, since) = (GAPS.load(Relaxed), STOLEN.load(Relaxed), tsc::now());
    LONGEST.store(0, Relaxed);
    move || Stolen {
        gaps: GAPS.load(Relaxed) - gaps,
        cycles: STOLEN.load(Relaxed) - stolen,
        longest: LONGEST.load(Relaxed),
        of: tsc::now() - since,
    }
}

impl Stolen {
    /// Adds the values of another measurement of preemption.
    pub fn add(&mut self, other: Self) {
        self.gaps += other.gaps;
        self.cycles += other.cycles;
        self.longest = self.longest.max(other.longest);
        self.of += other.of;
    }

    /// Share of the observed period for which the process was preempted.
    pub fn share(&self) -> f64 {
        self.cycles as f64 / self.of.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_that_a_burst_explains_counts_and_a_longer_one_counts_as_one_burst() {
        assert_eq!([0, 0, 15_001], [0, 20_000, 20_001].map(|gap| taken_away(gap, 5_000)));
        assert_eq!(0, taken_away(u64::MAX / 2, u64::MAX / BURSTS));
    }
}
