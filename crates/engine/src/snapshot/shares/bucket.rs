//! A rate limit that all workers share.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// Fractions of a nanosecond. At 10 million packets a second, charged one by one, rounding changes the rate by less than a
/// thousandth.
const FINE: u64 = 16;

/// A token bucket in one word, which holds the time at which the bucket is full again. Tokens are charged per burst, so that
/// workers contend once per burst. Two workers that read it at the same time may both take the remaining tokens; the debt is
/// repaid later.
#[derive(Debug)]
pub struct Bucket {
    rate: u64,
    /// Burst size in fractions of nanoseconds.
    ahead: u64,
    full_at: AtomicU64,
}

impl Bucket {
    /// A full bucket of `rate` tokens a second, at least 1. It holds the tokens of `burst` nanoseconds, but at least `least`
    /// tokens.
    pub fn new(rate: u64, burst: u64, least: u64) -> Self {
        let rate = rate.max(1);
        let ahead = u128::from(burst) * u128::from(FINE);
        let ahead = ahead.max(time(least, rate)).min(u128::from(u64::MAX / 4)) as u64;
        Self {
            rate,
            ahead,
            full_at: AtomicU64::new(0),
        }
    }

    /// Whether another bucket has the same settings.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.rate, self.ahead) == (other.rate, other.ahead)
    }

    /// Whole tokens available at a time in nanoseconds.
    pub fn left(&self, now: u64) -> u64 {
        let debt = self
            .full_at
            .load(Ordering::Relaxed)
            .saturating_sub(now.saturating_mul(FINE));
        let room = self.ahead.saturating_sub(debt);
        (u128::from(room) * u128::from(self.rate) / u128::from(SECOND * FINE)) as u64
    }

    /// Take tokens, even if they are not available.
    pub fn charge(&self, tokens: u64, now: u64) {
        let cost = time(tokens, self.rate).min(u128::from(u64::MAX / 4)) as u64;
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.full_at.fetch_update(set, fetch, |full_at| {
            Some(full_at.max(now.saturating_mul(FINE)).saturating_add(cost))
        });
    }
}

/// Time in which this many tokens accrue, in fractions of nanoseconds. It is rounded up, so that the rate is never exceeded.
fn time(tokens: u64, rate: u64) -> u128 {
    (u128::from(tokens) * u128::from(SECOND * FINE)).div_ceil(u128::from(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_any_takings_keep_to_rate_and_burst(
            rate in 1u64..5_000_000, burst in 1u64..SECOND, gaps in proptest::collection::vec((0u64..20_000_000, 0u64..5000), 1..200)
        ) {
            let bucket = Bucket::new(rate, burst, 1);
            let (mut now, mut taken) = (1, 0u64);
            for (gap, wanted) in gaps {
                now += gap;
                let some = wanted.min(bucket.left(now));
                bucket.charge(some, now);
                taken += some;
                let most = u128::from(rate) * u128::from(now + burst) / u128::from(SECOND) + 1;
                prop_assert!(u128::from(taken) <= most, "{taken} of {most}");
            }
        }
    }

    #[test]
    fn bucket_gives_its_burst_at_once_and_then_its_rate_exactly() {
        for rate in [7, 1_000, 333_333, 14_880_952] {
            let bucket = Bucket::new(rate, SECOND / 10, 1);
            let mut now = 5 * SECOND;
            let all = bucket.left(now);
            assert_eq!((rate / 10).max(1), all);
            bucket.charge(all, now);
            let mut taken = 0;
            for _ in 0..10_000 {
                now += SECOND / 10_000;
                let left = bucket.left(now);
                bucket.charge(left, now);
                taken += left;
            }
            assert!(rate.abs_diff(taken) <= 1 + rate / 100_000, "{taken} of {rate}");
        }
    }

    #[test]
    fn bucket_that_is_overdrawn_pays_back() {
        let bucket = Bucket::new(100, SECOND / 10, 1);
        bucket.charge(20, SECOND);
        assert_eq!(
            [0, 0, 10],
            [SECOND, SECOND + SECOND / 10, 2 * SECOND].map(|now| bucket.left(now))
        );
    }
}
