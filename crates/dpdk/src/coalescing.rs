//! Receive coalescing for interfaces that deliver frames without interrupts, such as veth and other virtual interfaces.
//!
//! A virtual interface delivers each frame when it is sent. A worker that polls continuously would forward a single
//! frame per system call, and each call may wake the receiver's core. Therefore the worker waits for a short time after
//! a burst that was not full, as long as frames keep arriving. A frame after a pause is received immediately.

use std::time::Duration;

use sluice_engine::packet::io::BURST_SIZE;

use crate::tsc;

/// Delay before the next burst if the last burst was not full.
const PERIOD: Duration = Duration::from_micros(50);

/// Determines when the worker polls a queue again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coalescing {
    /// Delay in cycles.
    period: u64,
    /// Time of the next poll in cycles; 0 means an immediate poll.
    due: u64,
}

impl Coalescing {
    pub(crate) fn new() -> Self {
        let period = u128::from(tsc::frequency()) * PERIOD.as_nanos() / 1_000_000_000;
        Self {
            period: period as u64,
            due: 0,
        }
    }

    /// Whether the worker should poll now.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// Record that a poll returned `count` frames.
    #[inline(always)]
    pub(crate) fn received(&mut self, count: usize, now: u64) {
        let few = (1..BURST_SIZE).contains(&count);
        self.due = if few { now + self.period } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_left_alone_for_a_period_after_a_burst_that_was_not_full() {
        let mut coalescing = Coalescing { period: 100, due: 0 };
        assert!(coalescing.is_due(7), "the first frame is taken at once");
        coalescing.received(BURST_SIZE - 1, 7);
        assert_eq!([false, true], [106, 107].map(|now| coalescing.is_due(now)));
        coalescing.received(BURST_SIZE, 107);
        assert!(coalescing.is_due(108), "more wait");
        coalescing.received(1, 108);
        coalescing.received(0, 208);
        assert!(coalescing.is_due(209), "what comes after a pause is taken at once");
    }

    #[test]
    fn period_is_counted_in_cycles() {
        let cycles = Coalescing::new().period as f64;
        let expected = tsc::frequency() as f64 * PERIOD.as_secs_f64();
        assert!((cycles - expected).abs() <= 1.0, "{cycles} for {expected}");
    }
}
