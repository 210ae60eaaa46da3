//! Token buckets (RFC 2697, 2698). Tokens are added to a bucket at a constant rate, up to the burst size. The caller
//! passes the time in nanoseconds.
//!
//! A [`TokenBucket`] has one owner and computes exactly. For many buckets with one rate, and for buckets that workers
//! share, the state of a bucket is one word: the time at which the bucket will be full. [`TokenRate`] contains the rate
//! and the arithmetic. A [`SharedTokenBucket`] contains a rate and a word.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// A token bucket with one owner. The bucket gets `rate` tokens per second, up to `burst` tokens. The level is counted
/// in tokens times 10^9, which avoids rounding.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: u64,
    /// Burst size in tokens times 10^9.
    burst: u64,
    level: u64,
    last: u64,
}

impl TokenBucket {
    /// Creates a full bucket. A bucket with `rate` 0 is never refilled. `burst` is limited to 18 billion tokens.
    pub const fn new(rate: u64, burst: u64, now: u64) -> Self {
        let burst = burst.saturating_mul(SECOND);
        Self {
            rate,
            burst,
            level: burst,
            last: now,
        }
    }

    /// Creates an empty bucket.
    pub const fn empty(rate: u64, burst: u64, now: u64) -> Self {
        Self {
            level: 0,
            ..Self::new(rate, burst, now)
        }
    }

    /// Takes one token. Returns false if no token is available. If `now` is earlier than in a previous call, no tokens
    /// are added.
    #[inline]
    pub fn take(&mut self, now: u64) -> bool {
        self.take_many(1, now)
    }

    /// Takes `tokens` tokens, such as the bytes of a packet. Returns false, without effect, if fewer tokens are
    /// available.
    #[inline]
    pub fn take_many(&mut self, tokens: u64, now: u64) -> bool {
        self.level = self.level(now);
        self.last = self.last.max(now);
        let cost = tokens.saturating_mul(SECOND);
        let taken = self.level >= cost;
        if taken {
            self.level -= cost;
        }
        taken
    }

    /// Whether the bucket has at least one token.
    pub fn has_token(&self, now: u64) -> bool {
        self.level(now) >= SECOND
    }

    /// Time at which the next token is available: `now` if the bucket has a token, `u64::MAX` if `rate` is 0.
    pub fn next_token(&self, now: u64) -> u64 {
        match SECOND.saturating_sub(self.level(now)) {
            0 => now,
            lacking if self.rate > 0 => self.last.max(now).saturating_add(lacking.div_ceil(self.rate)),
            _ => u64::MAX,
        }
    }

    #[inline]
    fn level(&self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.last);
        self.level
            .saturating_add(elapsed.saturating_mul(self.rate))
            .min(self.burst)
    }
}

/// Number of fractional bits in a bucket's word, which counts nanoseconds. The duration of a packet at 100 Gbit/s has
/// an error of at most 1 %.
const WORD_DIGITS: u32 = 5;

/// Number of additional fractional bits in the duration of a token. The additional bits make rates in bits as exact as
/// rates in packets.
const TOKEN_DIGITS: u32 = 29;

/// Value that is added to a duration before the additional bits are removed, so that the duration is rounded up.
const ROUND_UP: u64 = (1 << TOKEN_DIGITS) - 1;

/// Maximum duration that a bucket can accumulate or owe: two years. A word further in the future counts as a past time,
/// because words wrap around after 18 years.
const MAX_TIME: u64 = 1 << 61;

/// Rate and burst of token buckets with a one-word state. The word is the time at which the bucket will be full (the
/// theoretical arrival time of the generic cell rate algorithm, ITU-T I.371). A bucket with the word 0 is full.
///
/// Each duration of taken tokens is rounded up to 1/32 nanosecond, so that the rate is never exceeded. The clock may
/// start at any value and may wrap around. If the clock is set back, tokens are missing until the clock reaches its
/// former value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenRate {
    /// Duration of one token, in nanoseconds with all fractional bits.
    token: u64,
    /// Duration of the burst, in nanoseconds with the fractional bits of a word.
    depth: u64,
}

impl TokenRate {
    /// Creates a rate for tokens that are taken one by one. A full bucket passes a burst of `burst` packets. A
    /// `per_second` of 0 passes no packets.
    #[inline]
    pub const fn new(per_second: u64, burst: u64) -> Self {
        let rate = Self::without_burst(per_second);
        match per_second {
            0 => rate,
            _ => rate.with_depth(rate.time_of_one().saturating_mul(burst)),
        }
    }

    /// Creates a rate for tokens that are taken in large numbers, such as the bits of packets. The duration of a burst
    /// is rounded only once.
    #[inline]
    pub const fn for_sizes(per_second: u64, burst: u64) -> Self {
        let rate = Self::without_burst(per_second);
        match per_second {
            0 => rate,
            _ => rate.with_depth(rate.time(burst)),
        }
    }

    /// Creates a rate whose burst is the number of tokens that are added in `nanoseconds`, but at least `min_burst`
    /// tokens.
    pub const fn with_burst_time(per_second: u64, nanoseconds: u64, min_burst: u64) -> Self {
        let whole = per_second as u128 * nanoseconds as u128 / SECOND as u128;
        let whole = if whole > u64::MAX as u128 {
            u64::MAX
        } else {
            whole as u64
        };
        let burst = if whole > min_burst { whole } else { min_burst };
        let rate = Self::for_sizes(per_second, burst);
        let time = nanoseconds.saturating_mul(1 << WORD_DIGITS);
        if per_second > 0 && time > rate.depth {
            rate.with_depth(time)
        } else {
            rate
        }
    }

    const fn without_burst(per_second: u64) -> Self {
        let token = match per_second {
            0 => u64::MAX - ROUND_UP,
            _ => (SECOND << (WORD_DIGITS + TOKEN_DIGITS)).div_ceil(per_second),
        };
        Self { token, depth: 0 }
    }

    const fn with_depth(self, depth: u64) -> Self {
        let depth = if depth < MAX_TIME { depth } else { MAX_TIME };
        Self { depth, ..self }
    }

    /// The word after one token is taken; `None` if no token is available.
    #[inline]
    pub const fn take(&self, full_at: u64, now: u64) -> Option<u64> {
        self.take_time(full_at, self.time_of_one(), now)
    }

    /// The word after `count` tokens are taken one by one; `None` if fewer tokens are available.
    #[inline]
    pub const fn take_one_by_one(&self, full_at: u64, count: u64, now: u64) -> Option<u64> {
        let time = self.time_of_one().saturating_mul(count);
        self.take_time(full_at, if time < MAX_TIME { time } else { MAX_TIME }, now)
    }

    /// The word after `tokens` tokens are taken; `None` if fewer tokens are available.
    #[inline]
    pub const fn take_many(&self, full_at: u64, tokens: u64, now: u64) -> Option<u64> {
        self.take_time(full_at, self.time(tokens), now)
    }

    #[inline]
    const fn take_time(&self, full_at: u64, time: u64, now: u64) -> Option<u64> {
        let now = now.wrapping_mul(1 << WORD_DIGITS);
        let debt = debt(full_at, now) + time;
        if debt <= self.depth {
            Some(word(now, debt))
        } else {
            None
        }
    }

    /// The word after `tokens` tokens are taken, even if fewer tokens are available. Missing tokens become a debt. New
    /// tokens repay the debt before they are available.
    #[inline]
    pub const fn charge(&self, full_at: u64, tokens: u64, now: u64) -> u64 {
        let now = now.wrapping_mul(1 << WORD_DIGITS);
        let debt = debt(full_at, now) + self.time(tokens);
        word(now, if debt < MAX_TIME { debt } else { MAX_TIME })
    }

    /// Number of whole tokens in the bucket.
    #[inline]
    pub const fn tokens(&self, full_at: u64, now: u64) -> u64 {
        let time = self
            .depth
            .saturating_sub(debt(full_at, now.wrapping_mul(1 << WORD_DIGITS)));
        if time >> (u64::BITS - TOKEN_DIGITS) == 0 {
            return (time << TOKEN_DIGITS) / self.token;
        }
        let tokens = ((time as u128) << TOKEN_DIGITS) / self.token as u128;
        if tokens > u64::MAX as u128 {
            u64::MAX
        } else {
            tokens as u64
        }
    }

    /// Whether the bucket is full.
    pub const fn is_full(&self, full_at: u64, now: u64) -> bool {
        debt(full_at, now.wrapping_mul(1 << WORD_DIGITS)) == 0
    }

    /// Takes one token from a bucket whose word several workers share. Returns false if no token is available.
    #[inline]
    pub fn take_shared(&self, full_at: &AtomicU64, now: u64) -> bool {
        full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| self.take(full_at, now))
            .is_ok()
    }

    /// Duration of `tokens` tokens, in nanoseconds with the fractional bits of a word.
    #[inline]
    const fn time(&self, tokens: u64) -> u64 {
        let time = tokens as u128 * self.token as u128 + ROUND_UP as u128;
        match time >> (TOKEN_DIGITS + MAX_TIME.ilog2()) {
            0 => (time >> TOKEN_DIGITS) as u64,
            _ => MAX_TIME,
        }
    }

    /// Duration of one token, in nanoseconds with the fractional bits of a word.
    #[inline]
    const fn time_of_one(&self) -> u64 {
        (self.token + ROUND_UP) >> TOKEN_DIGITS
    }
}

/// Duration from `now` until the bucket is full.
#[inline]
const fn debt(full_at: u64, now: u64) -> u64 {
    let debt = full_at.wrapping_sub(now);
    if full_at == 0 || debt > 2 * MAX_TIME { 0 } else { debt }
}

/// Word of a bucket that will be full at `now + debt`. The word is never 0.
#[inline]
const fn word(now: u64, debt: u64) -> u64 {
    match now.wrapping_add(debt) {
        0 => 1,
        word => word,
    }
}

/// A token bucket that workers share without a lock.
#[derive(Debug)]
pub struct SharedTokenBucket {
    rate: TokenRate,
    full_at: AtomicU64,
}

impl SharedTokenBucket {
    /// Creates a full bucket.
    pub const fn new(rate: TokenRate) -> Self {
        Self {
            rate,
            full_at: AtomicU64::new(0),
        }
    }

    /// Rate and burst of the bucket.
    pub fn rate(&self) -> TokenRate {
        self.rate
    }

    /// Takes one token. Returns false if no token is available.
    #[inline]
    pub fn take(&self, now: u64) -> bool {
        self.rate.take_shared(&self.full_at, now)
    }

    /// Takes `count` tokens one by one. Returns false, without effect, if fewer tokens are available.
    #[inline]
    pub fn take_one_by_one(&self, count: u64, now: u64) -> bool {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                self.rate.take_one_by_one(full_at, count, now)
            })
            .is_ok()
    }

    /// Takes `tokens` tokens. Returns false, without effect, if fewer tokens are available.
    #[inline]
    pub fn take_many(&self, tokens: u64, now: u64) -> bool {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                self.rate.take_many(full_at, tokens, now)
            })
            .is_ok()
    }

    /// Number of whole tokens in the bucket. Several workers may read the number simultaneously and each take all
    /// tokens with [`SharedTokenBucket::charge`]. New tokens then repay the resulting debt.
    #[inline]
    pub fn tokens(&self, now: u64) -> u64 {
        self.rate.tokens(self.full_at.load(Ordering::Relaxed), now)
    }

    /// Takes `tokens` tokens, even if fewer tokens are available.
    #[inline]
    pub fn charge(&self, tokens: u64, now: u64) {
        let _ = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                Some(self.rate.charge(full_at, tokens, now))
            });
    }
}

#[cfg(test)]
mod tests;
