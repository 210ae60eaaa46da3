//! Token buckets (RFC 2697, 2698): a rate of tokens, of which a burst is saved up. Time is passed in, in nanoseconds.
//!
//! A [`TokenBucket`] has one owner and is exact. Where many buckets have one rate, or workers share a bucket, its state is one word,
//! the moment at which it is full again, and a [`TokenRate`] does the arithmetic; a [`SharedTokenBucket`] holds both.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// A token bucket of one owner: `rate` tokens a second, at most `burst` saved up. Exact: a token is a second's worth of
/// `rate`ths of nanoseconds, and nothing is rounded.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: u64,
    /// Tokens times nanoseconds in a second.
    burst: u64,
    level: u64,
    last: u64,
}

impl TokenBucket {
    /// A full bucket. `rate` 0 never refills; `burst` is cut to 18 billion.
    pub const fn new(rate: u64, burst: u64, now: u64) -> Self {
        let burst = burst.saturating_mul(SECOND);
        Self {
            rate,
            burst,
            level: burst,
            last: now,
        }
    }

    /// An empty bucket.
    pub const fn empty(rate: u64, burst: u64, now: u64) -> Self {
        Self {
            level: 0,
            ..Self::new(rate, burst, now)
        }
    }

    /// Take one token; false where there is none. Time that goes back adds nothing.
    #[inline]
    pub fn take(&mut self, now: u64) -> bool {
        self.take_many(1, now)
    }

    /// Take `tokens` together (a packet's bytes), or none and false.
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

    /// Whether there is a token.
    pub fn has_token(&self, now: u64) -> bool {
        self.level(now) >= SECOND
    }

    /// The moment from which on there is a token: `now` where there is one. With `rate` 0 the end of time.
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

/// Binary digits behind the point of a nanosecond in a bucket's word: the time of a packet at 100 Gbit/s is right to a hundredth.
const WORD_DIGITS: u32 = 5;

/// Further digits of the time of a token: rates of bits are as exact as those of packets.
const TOKEN_DIGITS: u32 = 29;

/// What is added to a time before these are cut off.
const ROUND_UP: u64 = (1 << TOKEN_DIGITS) - 1;

/// The longest time that a bucket saves up, or is overdrawn by: two years. The moment of a word that lies further ahead is taken to
/// have passed, since words wrap around after 18 years.
const MAX_TIME: u64 = 1 << 61;

/// The rate and the burst of token buckets whose state is one word: the moment at which the bucket is full again (the theoretical
/// arrival time of the generic cell rate algorithm, ITU-T I.371). A bucket whose word is 0 is full.
///
/// Times are rounded up to 1/32 nanosecond for each taking: never more than the rate passes. The clock may start anywhere and wrap
/// around. Where it goes back, tokens are missing until it is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenRate {
    /// Time of a token, in parts of a nanosecond with all digits.
    token: u64,
    /// Time of the tokens that are saved up, in those of words.
    depth: u64,
}

impl TokenRate {
    /// `per_second` tokens, of which `burst` are saved up: as many pass at once one by one. 0 per second lets none pass.
    #[inline]
    pub const fn new(per_second: u64, burst: u64) -> Self {
        let rate = Self::without_burst(per_second);
        match per_second {
            0 => rate,
            _ => rate.with_depth(rate.time_of_one().saturating_mul(burst)),
        }
    }

    /// As [`TokenRate::new`], for tokens that are taken many at a time, as the bits of a packet are: `burst` are saved up as a whole.
    #[inline]
    pub const fn for_sizes(per_second: u64, burst: u64) -> Self {
        let rate = Self::without_burst(per_second);
        match per_second {
            0 => rate,
            _ => rate.with_depth(rate.time(burst)),
        }
    }

    /// What comes in `nanoseconds` is saved up, and `min_burst` tokens at least.
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

    /// The word once a token has been taken, or none where there is none.
    #[inline]
    pub const fn take(&self, full_at: u64, now: u64) -> Option<u64> {
        self.take_time(full_at, self.time_of_one(), now)
    }

    /// The word once `tokens` have been taken together, or none where there are fewer.
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

    /// The word once `tokens` have been taken, whether they were there or not: what is overdrawn is paid back first.
    #[inline]
    pub const fn charge(&self, full_at: u64, tokens: u64, now: u64) -> u64 {
        let now = now.wrapping_mul(1 << WORD_DIGITS);
        let debt = debt(full_at, now) + self.time(tokens);
        word(now, if debt < MAX_TIME { debt } else { MAX_TIME })
    }

    /// Whole tokens that are there.
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

    /// Whether nothing is missing.
    pub const fn is_full(&self, full_at: u64, now: u64) -> bool {
        debt(full_at, now.wrapping_mul(1 << WORD_DIGITS)) == 0
    }

    /// [`TokenRate::take`] of a word that workers share: whether there was one.
    #[inline]
    pub fn take_shared(&self, full_at: &AtomicU64, now: u64) -> bool {
        full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| self.take(full_at, now))
            .is_ok()
    }

    /// The time of tokens, in parts of a nanosecond as words have them.
    #[inline]
    const fn time(&self, tokens: u64) -> u64 {
        let time = tokens as u128 * self.token as u128 + ROUND_UP as u128;
        match time >> (TOKEN_DIGITS + MAX_TIME.ilog2()) {
            0 => (time >> TOKEN_DIGITS) as u64,
            _ => MAX_TIME,
        }
    }

    /// The time of one token.
    #[inline]
    const fn time_of_one(&self) -> u64 {
        (self.token + ROUND_UP) >> TOKEN_DIGITS
    }
}

/// How far ahead of `now` the moment of a word is.
#[inline]
const fn debt(full_at: u64, now: u64) -> u64 {
    let debt = full_at.wrapping_sub(now);
    if full_at == 0 || debt > 2 * MAX_TIME { 0 } else { debt }
}

/// The word of a moment: any but 0.
#[inline]
const fn word(now: u64, debt: u64) -> u64 {
    match now.wrapping_add(debt) {
        0 => 1,
        word => word,
    }
}

/// A token bucket that workers share, without a lock.
#[derive(Debug)]
pub struct SharedTokenBucket {
    rate: TokenRate,
    full_at: AtomicU64,
}

impl SharedTokenBucket {
    /// A full bucket.
    pub const fn new(rate: TokenRate) -> Self {
        Self {
            rate,
            full_at: AtomicU64::new(0),
        }
    }

    /// Its rate and burst.
    pub fn rate(&self) -> TokenRate {
        self.rate
    }

    /// Take one token; false where there is none.
    #[inline]
    pub fn take(&self, now: u64) -> bool {
        self.rate.take_shared(&self.full_at, now)
    }

    /// Take `tokens` together, or none and false.
    #[inline]
    pub fn take_many(&self, tokens: u64, now: u64) -> bool {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                self.rate.take_many(full_at, tokens, now)
            })
            .is_ok()
    }

    /// Whole tokens that are there. Workers that look at once may all take them with [`SharedTokenBucket::charge`]: what is
    /// overdrawn is paid back later.
    #[inline]
    pub fn tokens(&self, now: u64) -> u64 {
        self.rate.tokens(self.full_at.load(Ordering::Relaxed), now)
    }

    /// Take `tokens`, whether they are there or not.
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
