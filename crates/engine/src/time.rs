//! Time, passed in: nobody in the data plane asks a clock.

/// Ticks of the session timers per second. A tick is 10 ms; a u32 of them lasts 497 days and is compared
/// by difference.
pub const TICKS_PER_SECOND: u32 = 100;

/// The moment of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the start of the engine (or of the capture).
    pub nanoseconds: u64,
    /// The same in ticks.
    pub tick: u32,
}

impl Now {
    /// The moment `nanoseconds` after the start.
    #[inline(always)]
    pub fn at(nanoseconds: u64) -> Self {
        Self { nanoseconds, tick: (nanoseconds / (1_000_000_000 / TICKS_PER_SECOND as u64)) as u32 }
    }

    /// Milliseconds since the start.
    pub fn milliseconds(self) -> u64 {
        self.nanoseconds / 1_000_000
    }
}
