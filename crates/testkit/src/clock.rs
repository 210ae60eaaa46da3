//! A virtual clock, which advances only when a test advances it.

use std::cell::Cell;
use std::time::Duration;

/// A virtual clock. The clock's initial time is 0.
#[derive(Debug, Default)]
pub struct Clock(Cell<Duration>);

impl Clock {
    /// Time since the clock was created.
    pub fn now(&self) -> Duration {
        self.0.get()
    }

    /// Advance the clock. Returns the new time.
    pub fn advance(&self, by: Duration) -> Duration {
        self.0.set(self.0.get() + by);
        self.0.get()
    }

    /// Advance the clock by seconds. Returns the new time.
    pub fn seconds(&self, seconds: u64) -> Duration {
        self.advance(Duration::from_secs(seconds))
    }
}
