//! Limits that all shards share: the number of sessions and the rate of new sessions, for a pool or a virtual router.
//!
//! Sessions are counted only while a limit is configured. A counted session remains counted until its end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sluice_wire::Context;

use crate::behaviour::Limits;

/// The limit that a new session would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The maximum number of sessions.
    Sessions,
    /// The rate limit of new sessions.
    Rate,
}

/// Counts sessions and limits the rate of new sessions.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Meter {
    sessions: AtomicU32,
    /// Time in nanoseconds at which the rate limiter's token bucket will be full.
    full_at: AtomicU64,
}

impl Meter {
    /// Counts a new session at time `now` (nanoseconds), if the limits permit it.
    pub fn admit(&self, limits: &Limits, now: u64) -> Result<(), Exceeded> {
        let max = limits.sessions.unwrap_or(u32::MAX);
        let counted = self
            .sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sessions| {
                (sessions < max).then_some(sessions + 1)
            });
        counted.map_err(|_| Exceeded::Sessions)?;
        let Some(rate) = limits.rate else { return Ok(()) };
        if rate.take_shared(&self.full_at, now) {
            return Ok(());
        }
        self.release();
        Err(Exceeded::Rate)
    }

    /// Removes an ended session from the count.
    pub fn release(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of counted sessions.
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Ordering::Relaxed)
    }
}

/// Meters of all pools and virtual routers, by index.
#[derive(Debug)]
pub struct Meters {
    pools: Box<[Meter]>,
    routers: Box<[Meter]>,
}

/// Number of virtual routers that can have limits. Routers with numbers from this number on can't have limits.
pub const LIMITED_ROUTERS: usize = 4096;

/// Number of pools that can have limits. Pools with indexes from this number on can't have limits.
pub const LIMITED_POOLS: usize = 1024;

impl Default for Meters {
    fn default() -> Self {
        Self {
            pools: (0..LIMITED_POOLS).map(|_| Meter::default()).collect(),
            routers: (0..LIMITED_ROUTERS).map(|_| Meter::default()).collect(),
        }
    }
}

impl Meters {
    /// Meter of a pool; `None` for indexes of at least [`LIMITED_POOLS`].
    pub fn pool(&self, pool: crate::PoolIndex) -> Option<&Meter> {
        self.pools.get(usize::from(pool))
    }

    /// Meter of a virtual router; `None` for numbers of at least [`LIMITED_ROUTERS`].
    pub fn router(&self, router: Context) -> Option<&Meter> {
        self.routers.get(router as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_table::token_bucket::TokenRate;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn meter_counts_to_its_limit_and_again_after_one_left() {
        let meter = Meter::default();
        let limits = Limits {
            sessions: Some(2),
            rate: None,
        };
        assert_eq!(
            [Ok(()), Ok(()), Err(Exceeded::Sessions)],
            [0; 3].map(|now| meter.admit(&limits, now))
        );
        meter.release();
        assert_eq!((Ok(()), 2), (meter.admit(&limits, 0), meter.sessions()));
    }

    #[test]
    fn meter_spaces_sessions_and_counts_none_that_was_refused() {
        let meter = Meter::default();
        let rate = TokenRate::new(10, 3);
        let limits = Limits {
            sessions: None,
            rate: Some(rate),
        };
        let open = |now| (0..20).filter(|_| meter.admit(&limits, now).is_ok()).count();
        assert_eq!(
            [3, 0, 1, 3],
            [5 * SECOND, 5 * SECOND, 5 * SECOND + SECOND / 10, 9 * SECOND].map(open)
        );
        assert_eq!(7, meter.sessions());
    }
}
