//! Keyed permutation of `0..count` that differs for each outside address (RFC 6431, section 2.2).
//!
//! The permutation is a Feistel network over two digits with the bases `high` and `low`, whose product is at least
//! `count` (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Results outside of `0..count` are
//! permuted again (cycle walking). If `count` is at least some thousand, less than 1 % of the results lie outside of
//! `0..count`. The number of results outside never exceeds 256.

use crate::keyed::{Secret, reduce, sip};

const ROUNDS: u32 = 6;

/// Bases of the two digits. The low base is at most 256, because `count` is at most 65,536.
#[inline(always)]
fn bases(count: u32) -> (u32, u32) {
    let low = (count - 1).isqrt() + 1;
    (count.div_ceil(low), low)
}

/// Value that a round adds to a digit: a keyed hash of the tweak, the round and the digit that the round does not
/// change.
#[inline(always)]
fn added(key: Secret, tweak: u32, round: u32, digit: u32, base: u32) -> u32 {
    let tail = u64::from(tweak) << 24 | u64::from(round) << 16 | u64::from(digit);
    reduce((sip::<1, 3>(key, &[], tail) >> 32) as u32, base)
}

/// Result of the permutation for `place`.
#[inline]
pub(super) fn image_of(key: Secret, tweak: u32, count: u32, place: u32) -> u32 {
    let (high, low) = bases(count);
    let mut at = place;
    loop {
        let (mut h, mut l) = (at / low, at % low);
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                h = (h + added(key, tweak, round, l, high)) % high;
            } else {
                l = (l + added(key, tweak, round, h, low)) % low;
            }
        }
        at = h * low + l;
        if at < count {
            return at;
        }
    }
}

/// Result of the inverse permutation for `image`.
#[inline]
pub(super) fn preimage_of(key: Secret, tweak: u32, count: u32, image: u32) -> u32 {
    let (high, low) = bases(count);
    let mut at = image;
    loop {
        let (mut h, mut l) = (at / low, at % low);
        for round in (0..ROUNDS).rev() {
            if round % 2 == 0 {
                h = (h + high - added(key, tweak, round, l, high)) % high;
            } else {
                l = (l + low - added(key, tweak, round, h, low)) % low;
            }
        }
        at = h * low + l;
        if at < count {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Secret = Secret([7, 11]);

    #[test]
    fn permutation_any_count_is_one_and_turns_back() {
        for count in [1, 2, 3, 5, 64, 255, 256, 257, 1000, 4032, 56_448, 65_535, 65_536] {
            let mut seen = vec![false; count as usize];
            for place in 0..count {
                let image = image_of(KEY, 3, count, place);
                assert!(!seen[image as usize], "{image} of {count} twice");
                seen[image as usize] = true;
                assert_eq!(place, preimage_of(KEY, 3, count, image));
            }
        }
    }

    #[test]
    fn permutation_keys_and_tweaks_differ() {
        let list = |key, tweak| {
            (0..56_448)
                .map(|place| image_of(key, tweak, 56_448, place))
                .collect::<Vec<_>>()
        };
        let same = |one: &[u32], other: &[u32]| one.iter().zip(other).filter(|(a, b)| a == b).count();
        let one = list(KEY, 0);
        // On average, two independent permutations agree in about one position.
        assert!(same(&one, &list(KEY, 1)) < 20);
        assert!(same(&one, &list(Secret([7, 12]), 0)) < 20);
        assert!(same(&one, &(0..56_448).collect::<Vec<_>>()) < 20);
    }
}
