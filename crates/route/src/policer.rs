//! Rates held by token buckets, in integers.

use crate::{SECOND, Time};

/// A token bucket: `rate` tokens a second, at most `burst` saved up. Exact: a token is a second's worth of
/// `rate`ths of nanoseconds, and nothing is rounded.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: u64,
    /// Tokens times nanoseconds in a second.
    burst: u64,
    level: u64,
    last: Time,
}

impl TokenBucket {
    /// A full bucket. `rate` 0 never refills; `burst` is cut to 18 billion.
    pub const fn new(rate: u64, burst: u64, now: Time) -> Self {
        let burst = burst.saturating_mul(SECOND);
        Self {
            rate,
            burst,
            level: burst,
            last: now,
        }
    }

    /// Take one token; false where there is none. Time that goes back adds nothing.
    #[inline]
    pub fn take(&mut self, now: Time) -> bool {
        self.take_many(1, now)
    }

    /// Take `tokens` together (a packet's bytes), or none and false.
    #[inline]
    pub fn take_many(&mut self, tokens: u64, now: Time) -> bool {
        let elapsed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        self.level = self
            .level
            .saturating_add(elapsed.saturating_mul(self.rate))
            .min(self.burst);
        let cost = tokens.saturating_mul(SECOND);
        let taken = self.level >= cost;
        if taken {
            self.level -= cost;
        }
        taken
    }
}

/// Classes of what is addressed to the gateway itself, or what it answers: one must not starve another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// ARP and neighbour discovery.
    Neighbour,
    /// Echo and other ICMP to the gateway.
    Icmp,
    /// ICMP errors that the gateway sends (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f).
    IcmpError,
    /// Routing protocols: they keep the network together.
    Routing,
    /// The operator's access and services of the gateway.
    Management,
    /// All else.
    Other,
}

impl Class {
    /// Every class, in the order of their numbers.
    pub const ALL: [Class; 6] = [
        Class::Neighbour,
        Class::Icmp,
        Class::IcmpError,
        Class::Routing,
        Class::Management,
        Class::Other,
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Class::Neighbour => "neighbour",
            Class::Icmp => "icmp",
            Class::IcmpError => "icmp-error",
            Class::Routing => "routing",
            Class::Management => "management",
            Class::Other => "other",
        }
    }
}

/// One bucket per class. Each worker has its own.
#[derive(Clone, Debug)]
pub struct Policer {
    buckets: [TokenBucket; Class::ALL.len()],
}

impl Policer {
    /// Buckets with `limits` (packets a second, burst) in the order of [`Class::ALL`].
    pub fn new(limits: [(u64, u64); Class::ALL.len()], now: Time) -> Self {
        Self {
            buckets: limits.map(|(rate, burst)| TokenBucket::new(rate, burst, now)),
        }
    }

    /// Whether a packet of `class` may pass now.
    #[inline]
    pub fn admits(&mut self, class: Class, now: Time) -> bool {
        self.buckets[class as usize].take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_any_arrivals_keep_to_rate_and_burst(
            rate in 1u64..5000, burst in 1u64..100, gaps in proptest::collection::vec(0u64..20_000_000, 1..300)
        ) {
            let mut bucket = TokenBucket::new(rate, burst, 0);
            // Level in exact arithmetic, as a fraction over a second.
            let (mut now, mut level) = (0u64, burst as u128 * SECOND as u128);
            for gap in gaps {
                now += gap;
                level = (level + gap as u128 * rate as u128).min(burst as u128 * SECOND as u128);
                let expected = level >= SECOND as u128;
                if expected {
                    level -= SECOND as u128;
                }
                prop_assert_eq!(expected, bucket.take(now));
            }
        }

        #[test]
        fn bucket_extreme_values_never_overflow(rate: u64, burst: u64, times: [u64; 8], tokens: u64) {
            let mut bucket = TokenBucket::new(rate, burst, times[0]);
            for time in times {
                bucket.take(time);
                bucket.take_many(tokens, time);
            }
        }
    }

    #[test]
    fn policer_flooded_class_leaves_the_others_alone() {
        let mut policer = Policer::new([(10, 5); 6], 0);
        let admitted = (0..1000).filter(|_| policer.admits(Class::Icmp, 0)).count();
        assert_eq!(5, admitted);
        assert!(policer.admits(Class::Management, 0));
        assert!(policer.admits(Class::Icmp, SECOND / 10));
    }
}
