//! A packet rate, controlled by the time stamp counter.

use std::time::Duration;

use sluice_dpdk::tsc;

/// The sender sleeps until this time before a packet is due, and then busy-waits, because a sleep may end too late by
/// up to this time.
const AWAKE: Duration = Duration::from_micros(100);

/// Maximum time for which the sender makes up for missed packets after it was preempted; a longer time would cause a
/// burst.
const BEHIND: Duration = Duration::from_millis(2);

/// Due times of packets at a constant rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    hz: u64,
    cycles_per_packet: u64,
    due: u64,
}

impl Pace {
    /// Creates the due times for `rate` packets per second; 0 means unlimited.
    pub fn new(rate: u64) -> Self {
        Self::at(tsc::frequency(), rate, tsc::now())
    }

    fn at(hz: u64, rate: u64, now: u64) -> Self {
        Self {
            hz,
            cycles_per_packet: hz.checked_div(rate).unwrap_or(0),
            due: now,
        }
    }

    /// Wait until the next packet is due.
    pub fn wait(&mut self) {
        if self.cycles_per_packet == 0 {
            return;
        }
        loop {
            let now = tsc::now();
            match self.left(now) {
                None => return,
                Some(left) if left > AWAKE => std::thread::sleep(left - AWAKE),
                Some(_) => std::hint::spin_loop(),
            }
        }
    }

    /// Time until the next packet is due; `None` if it is due.
    fn left(&mut self, now: u64) -> Option<Duration> {
        let behind = (self.hz as f64 * BEHIND.as_secs_f64()) as u64;
        self.due = self.due.max(now.saturating_sub(behind));
        let cycles = self.due.checked_sub(now).filter(|&cycles| cycles > 0)?;
        Some(Duration::from_secs_f64(cycles as f64 / self.hz as f64))
    }

    /// Record `packets` packets as sent.
    pub fn sent(&mut self, packets: usize) {
        self.due += self.cycles_per_packet * packets as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_at_the_rate() {
        let mut pace = Pace::at(1_000_000, 1_000, 5_000);
        assert_eq!(None, pace.left(5_000));
        pace.sent(3);
        assert_eq!(Some(Duration::from_millis(3)), pace.left(5_000));
        assert_eq!(Some(Duration::from_millis(1)), pace.left(7_000));
        assert_eq!(None, pace.left(8_000));
    }

    #[test]
    fn sender_that_was_away_makes_up_for_a_short_time_only() {
        let mut pace = Pace::at(1_000_000, 1_000, 0);
        assert_eq!(None, pace.left(500_000));
        pace.sent(3);
        assert_eq!(
            Some(Duration::from_millis(1)),
            pace.left(500_000),
            "two of the 500 that it did not send"
        );
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut pace = Pace::at(1_000_000, 0, 7);
        pace.sent(1_000);
        pace.wait();
        assert_eq!(7, pace.due);
    }
}
