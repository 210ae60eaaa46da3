use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Number of word increments per nanosecond.
const PARTS: u128 = 1 << WORD_DIGITS;

const YEAR: u64 = 365 * 86_400 * SECOND;

/// Sequences of packets. A packet consists of the gap before it (0 to four years) and its number of tokens (small,
/// typical or arbitrary).
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0), 0..2_000u64, 0..50_000_000u64, 0..4 * YEAR];
    let tokens = prop_oneof![Just(1), 0..10u64, 0..80_000u64, any::<u64>()];
    vec((gap, tokens), 1..200)
}

/// Rates and bursts: typical for configurations, or arbitrary.
fn rates() -> impl Strategy<Value = (u64, u64)> {
    let rate = prop_oneof![0..10u64, 1..20_000_000u64, 1..4_000_000_000_000u64, any::<u64>()];
    let burst = prop_oneof![0..5u64, 0..5_000u64, 0..1_000_000_000u64, any::<u64>()];
    (rate, burst)
}

/// A bucket with exact arithmetic, without overflow or saturation. The level is counted in tokens times 10^9.
struct Exact {
    rate: u128,
    burst: u128,
    level: u128,
}

impl Exact {
    fn new(rate: u64, burst: u64) -> Self {
        let burst = u128::from(burst) * u128::from(SECOND);
        Self {
            rate: rate.into(),
            burst,
            level: burst,
        }
    }

    fn take(&mut self, tokens: u64, gap: u64) -> bool {
        self.level = (self.level + u128::from(gap) * self.rate).min(self.burst);
        let cost = u128::from(tokens) * u128::from(SECOND);
        let taken = self.level >= cost;
        self.level -= if taken { cost } else { 0 };
        taken
    }
}

proptest! {
    #[test]
    fn bucket_any_arrivals_keep_to_rate_and_burst(
        rate in 1u64..5000, burst in 1u64..100, gaps in vec(0u64..20_000_000, 1..300)
    ) {
        let mut bucket = TokenBucket::new(rate, burst, 0);
        // Level in exact arithmetic, in tokens times 10^9.
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
    fn bucket_any_sizes_are_those_of_the_exact_model(
        (rate, burst) in (0u64..4_000_000_000_000, 0u64..18_000_000_000), start in 0..u64::MAX / 2, arrivals in arrivals()
    ) {
        let (mut bucket, mut model) = (TokenBucket::new(rate, burst, start), Exact::new(rate, burst));
        let mut now = start;
        for (gap, tokens) in arrivals {
            // The gap must not exceed the remaining range of the clock.
            let gap = gap.min(u64::MAX - now);
            now += gap;
            // Limit the tokens to a number above the capacity of any bucket.
            let tokens = tokens.min(u64::MAX / SECOND);
            prop_assert_eq!(model.take(tokens, gap), bucket.take_many(tokens, now));
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

    #[test]
    fn bucket_clock_that_goes_back_adds_nothing(
        (rate, burst) in (0u64..1_000_000, 0u64..1_000), times in vec(0..100 * SECOND, 1..200)
    ) {
        let (mut bucket, mut model) = (TokenBucket::new(rate, burst, 0), Exact::new(rate, burst));
        let mut latest = 0;
        for time in times {
            let gap = time.saturating_sub(latest);
            latest = latest.max(time);
            prop_assert_eq!(model.take(1, gap), bucket.take(time));
        }
    }

    #[test]
    fn bucket_next_token_is_the_first_moment_with_one(rate in 1u64..50_000_000, burst in 1u64..50, gaps in vec(0u64..SECOND, 1..50)) {
        let mut bucket = TokenBucket::empty(rate, burst, 0);
        let mut now = 0;
        for gap in gaps {
            let next = bucket.next_token(now);
            prop_assert_eq!(next == now, bucket.has_token(now));
            prop_assert!(next == now || !bucket.has_token(next - 1));
            prop_assert!(bucket.has_token(next) && bucket.clone().take(next));
            now += gap;
            bucket.take(now);
        }
    }

    /// Whatever value the clock starts with, a one-word bucket gives the same results as a bucket whose level never
    /// wraps around.
    #[test]
    fn rate_any_arrivals_are_those_of_a_level_that_never_wraps((rate, burst) in rates(), start: u64, arrivals in arrivals()) {
        let rate = TokenRate::for_sizes(rate, burst);
        let depth = u128::from(rate.depth);
        let (mut word, mut level, mut now, mut idle) = (0, depth, start, 0);
        for (gap, tokens) in arrivals {
            // A word is valid for 13 years.
            let gap = gap.min(13 * YEAR - idle);
            (now, idle) = (now.wrapping_add(gap), idle + gap);
            level = (level + u128::from(gap) * PARTS).min(depth);
            let fits = level << TOKEN_DIGITS >= u128::from(tokens) * u128::from(rate.token);
            prop_assert_eq!(level << TOKEN_DIGITS >= u128::from(rate.token), rate.tokens(word, now) >= 1);
            prop_assert_eq!(level == depth, rate.is_full(word, now));
            // Only a full bucket with the maximum duration of two years accepts more tokens than its level.
            let fits = fits || rate.depth == MAX_TIME && level == depth && rate.time(tokens) == MAX_TIME;
            let taken = rate.take_many(word, tokens, now);
            prop_assert_eq!(fits, taken.is_some());
            if let Some(taken) = taken {
                level -= u128::from(rate.time(tokens));
                (word, idle) = (taken, 0);
            }
        }
    }

    /// A bucket passes at most the tokens of an exact bucket, and passes a whole burst.
    #[test]
    fn rate_any_arrivals_pass_no_more_than_the_exact_rate(
        rate in 1u64..20_000_000, burst in 1u64..5_000, start: u64, gaps in vec(prop_oneof![Just(0), 0..2_000u64, 0..50_000_000u64], 1..300)
    ) {
        let bucket = SharedTokenBucket::new(TokenRate::new(rate, burst));
        let (mut passed, mut elapsed) = (0u64, 0u64);
        for gap in gaps {
            elapsed += gap;
            passed += u64::from(bucket.take(start.wrapping_add(elapsed)));
            let max = u128::from(burst) * u128::from(SECOND) + u128::from(rate) * u128::from(elapsed);
            prop_assert!(u128::from(passed) * u128::from(SECOND) <= max);
        }
        let now = start.wrapping_add(elapsed + 6_000 * SECOND);
        let at_once = (0..=burst).filter(|_| bucket.take(now)).count() as u64;
        prop_assert_eq!(burst, at_once);
    }

    /// For any clock values, the passed tokens don't exceed the burst plus the tokens between the earliest and the
    /// latest time.
    #[test]
    fn rate_hostile_clock_earns_no_more_than_its_span(
        (rate, burst) in (1u64..1_000_000, 1u64..1_000), start: u64, times in vec((0..1_000 * SECOND, any::<bool>()), 1..300)
    ) {
        let bucket = SharedTokenBucket::new(TokenRate::new(rate, burst));
        let (mut passed, mut first, mut last) = (0u64, u64::MAX, 0);
        for (time, charges) in times {
            (first, last) = (first.min(time), last.max(time));
            let now = start.wrapping_add(time);
            let taken = match charges {
                true => bucket.tokens(now).min(3),
                false => u64::from(bucket.take(now)),
            };
            if charges {
                bucket.charge(taken, now);
            }
            passed += taken;
            let max = u128::from(burst + 3) * u128::from(SECOND) + u128::from(rate) * u128::from(last - first);
            prop_assert!(u128::from(passed) * u128::from(SECOND) <= max);
        }
    }

    #[test]
    fn rate_extreme_values_never_overflow(rates: [(u64, u64); 2], word: u64, values in vec((any::<u64>(), any::<u64>()), 8)) {
        let kinds = [
            TokenRate::new(rates[0].0, rates[0].1),
            TokenRate::for_sizes(rates[0].0, rates[0].1),
            TokenRate::with_burst_time(rates[0].0, rates[0].1, rates[1].0),
        ];
        for rate in kinds {
            let mut word = word;
            for (tokens, now) in &values {
                word = rate.charge(word, *tokens, *now);
                word = rate.take_many(word, rate.tokens(word, *now), *now).unwrap_or(word);
            }
            prop_assert_ne!(0, word);
        }
    }

    #[test]
    fn shared_bucket_any_takings_keep_to_rate_and_burst(
        rate in 1u64..5_000_000, burst in 1u64..SECOND, gaps in vec((0u64..20_000_000, 0u64..5000), 1..200)
    ) {
        let bucket = SharedTokenBucket::new(TokenRate::with_burst_time(rate, burst, 1));
        let (mut now, mut taken) = (1, 0u64);
        for (gap, wanted) in gaps {
            now += gap;
            let some = wanted.min(bucket.tokens(now));
            bucket.charge(some, now);
            taken += some;
            let max = u128::from(rate) * u128::from(now + burst) / u128::from(SECOND) + 1;
            prop_assert!(u128::from(taken) <= max, "{taken} of {max}");
        }
    }

    #[test]
    fn rate_of_a_burst_in_time_holds_all_whole_tokens_of_it(rate in 1u64..4_000_000_000, burst in 0..2 * SECOND, min in 0u64..20_000) {
        let whole = (u128::from(rate) * u128::from(burst) / u128::from(SECOND)) as u64;
        let tokens = TokenRate::with_burst_time(rate, burst, min).tokens(0, 7);
        prop_assert!((whole.max(min)..=whole.max(min) + 1).contains(&tokens), "{} of {}", tokens, whole);
    }
}

#[test]
fn bucket_without_a_rate_gives_its_burst_once() {
    let mut bucket = TokenBucket::new(0, 2, 0);
    assert_eq!([true, true, false], [0, 1, u64::MAX].map(|now| bucket.take(now)));
    assert_eq!(u64::MAX, bucket.next_token(7));
}

#[test]
fn bucket_packet_above_its_burst_never_passes_and_takes_nothing() {
    let mut bucket = TokenBucket::new(1_000, 1_500, 0);
    assert!(!bucket.take_many(1_501, 0) && !bucket.take_many(1_501, 100 * SECOND));
    assert!(bucket.take_many(1_500, 100 * SECOND));
    let rate = TokenRate::for_sizes(1_000, 1_500);
    assert_eq!(None, rate.take_many(0, 1_501, 100 * SECOND));
    assert!(rate.take_many(0, 1_500, 100 * SECOND).is_some());
}

#[test]
fn rate_of_none_lets_nothing_pass() {
    for rate in [
        TokenRate::new(0, 100),
        TokenRate::for_sizes(0, 100),
        TokenRate::with_burst_time(0, SECOND, 1),
    ] {
        assert_eq!((None, 0), (rate.take(0, SECOND), rate.tokens(0, SECOND)));
    }
}

#[test]
fn rate_longer_than_years_of_silence_is_full_again() {
    let bucket = SharedTokenBucket::new(TokenRate::new(1_000, 20));
    let passed = |now| (0..100).filter(|_| bucket.take(now)).count();
    assert_eq!([20, 20, 20], [0, 4 * YEAR, 17 * YEAR].map(passed));
}

#[test]
fn shared_bucket_threads_take_no_more_than_is_there() {
    let bucket = SharedTokenBucket::new(TokenRate::new(1, 1_000));
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1_000).filter(|_| bucket.take(SECOND)).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a count")).sum()
    });
    assert_eq!(1_000, taken);
}

#[test]
fn shared_bucket_gives_its_burst_at_once_and_then_its_rate_exactly() {
    for rate in [7, 1_000, 333_333, 14_880_952] {
        let bucket = SharedTokenBucket::new(TokenRate::with_burst_time(rate, SECOND / 10, 1));
        let mut now = 5 * SECOND;
        let all = bucket.tokens(now);
        assert_eq!((rate / 10).max(1), all);
        bucket.charge(all, now);
        let mut taken = 0;
        for _ in 0..10_000 {
            now += SECOND / 10_000;
            let remaining = bucket.tokens(now);
            bucket.charge(remaining, now);
            taken += remaining;
        }
        assert!(rate.abs_diff(taken) <= 1 + rate / 100_000, "{taken} of {rate}");
    }
}

#[test]
fn shared_bucket_that_is_overdrawn_pays_back() {
    let bucket = SharedTokenBucket::new(TokenRate::with_burst_time(100, SECOND / 10, 1));
    bucket.charge(20, SECOND);
    assert_eq!(
        [0, 0, 10],
        [SECOND, SECOND + SECOND / 10, 2 * SECOND].map(|now| bucket.tokens(now))
    );
}
