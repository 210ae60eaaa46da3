//! Time that passes only when a test says so.

use std::cell::Cell;
use std::time::Duration;

/// A virtual clock, at 0 when made.
#[derive(Debug, Default)]
pub struct Clock(Cell<Duration>);

impl Clock {
    /// Time since the clock was made.
    pub fn now(&self) -> Duration {
        self.0.get()
    }

    /// Let time pass. Returns the new time.
    pub fn advance(&self, by: Duration) -> Duration {
        self.0.set(self.0.get() + by);
        self.0.get()
    }

    /// Let seconds pass. Returns the new time.
    pub fn seconds(&self, seconds: u64) -> Duration {
        self.advance(Duration::from_secs(seconds))
    }
}
