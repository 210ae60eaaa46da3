//! Time, which callers pass as a parameter. The code of the data plane never reads a clock.

/// Number of session timer ticks per second. A tick is 10 ms. Sessions store the low 32 bits, which wrap around after 497 days
/// and are compared by their difference.
pub const TICKS_PER_SECOND: u64 = 100;

/// Number of ticks in one slot of the timer wheel's middle level (0.64 s).
const SLOT_TICKS: u64 = 64;

/// The time of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the start of the engine or of the capture.
    pub nanoseconds: u64,
    /// The time in ticks.
    pub tick: u64,
}

impl Now {
    /// The time `nanoseconds` after the start.
    #[inline(always)]
    pub fn at(nanoseconds: u64) -> Self {
        Self {
            nanoseconds,
            tick: nanoseconds / (1_000_000_000 / TICKS_PER_SECOND),
        }
    }

    /// The tick after `seconds` seconds, rounded as in [`Now::due_in`].
    #[inline(always)]
    pub fn due(self, seconds: u32) -> u64 {
        let timeout = u64::from(seconds) * TICKS_PER_SECOND;
        self.due_in(timeout, timeout)
    }

    /// The tick at which to check a session that may expire in `remaining` ticks; `timeout` is its whole timeout. If
    /// the timeout is long compared with [`SLOT_TICKS`], the tick is rounded up to a multiple of [`SLOT_TICKS`]. The
    /// session then doesn't use the finest level of the timer wheel.
    #[inline(always)]
    pub fn due_in(self, remaining: u64, timeout: u64) -> u64 {
        let due = self.tick + remaining;
        let coarse = timeout >= 64 * SLOT_TICKS;
        if coarse { due.next_multiple_of(SLOT_TICKS) } else { due }
    }

    /// The low 32 bits of the tick, in the form that sessions store.
    #[inline(always)]
    pub fn stamp(self) -> u32 {
        self.tick as u32
    }

    /// Number of ticks since a stamp.
    #[inline(always)]
    pub fn since(self, stamp: u32) -> u32 {
        self.stamp().wrapping_sub(stamp)
    }

    /// Milliseconds since the start.
    pub fn milliseconds(self) -> u64 {
        self.nanoseconds / 1_000_000
    }
}
