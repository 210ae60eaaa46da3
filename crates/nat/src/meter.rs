//! Limits that all shards share: sessions, and the rate of new ones, of a pool or a virtual router.
//!
//! Only what is limited is counted: a session that was admitted while there was a limit is counted until it ends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sluice_wire::Context;

use crate::behaviour::Limits;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// Sessions.
    Sessions,
    /// New sessions a second.
    Rate,
}

/// Counts sessions, and limits the rate of new ones.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Meter {
    sessions: AtomicU32,
    /// Word of the rate's token bucket.
    full_at: AtomicU64,
}

impl Meter {
    /// Count a new session at a moment in nanoseconds, if the limits allow it.
    pub fn admit(&self, limits: &Limits, now: u64) -> Result<(), Exceeded> {
        let most = limits.sessions.unwrap_or(u32::MAX);
        let counted = self
            .sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sessions| {
                (sessions < most).then_some(sessions + 1)
            });
        counted.map_err(|_| Exceeded::Sessions)?;
        let Some(rate) = limits.rate else { return Ok(()) };
        if rate.take_shared(&self.full_at, now) {
            return Ok(());
        }
        self.release();
        Err(Exceeded::Rate)
    }

    /// A session that was counted has ended.
    pub fn release(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sessions that are counted.
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Ordering::Relaxed)
    }
}

/// Meters of the pools and of the virtual routers, by index.
#[derive(Debug)]
pub struct Meters {
    pools: Box<[Meter]>,
    routers: Box<[Meter]>,
}

/// Virtual routers with a lower number can be limited.
pub const LIMITED_ROUTERS: usize = 4096;

/// Pools with a lower index can be limited.
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
    /// A pool's; none from [`LIMITED_POOLS`] on.
    pub fn pool(&self, pool: crate::PoolIndex) -> Option<&Meter> {
        self.pools.get(usize::from(pool))
    }

    /// A virtual router's; none from [`LIMITED_ROUTERS`] on.
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
