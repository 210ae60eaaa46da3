//! Simultaneous comparison of 64 or 32 bytes. Each implementation needs only the baseline instructions of its architecture.

/// A pattern of 32 bytes. A byte matches if it equals `value` in the bits of `mask`, after it was reduced to `ceiling` if it was
/// greater. Thus a byte with the ceiling n and the value n matches all numbers from n on.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Pattern {
    /// Largest value that is compared.
    pub ceiling: [u8; 32],
    /// Expected values.
    pub value: [u8; 32],
    /// Bits that are compared.
    pub mask: [u8; 32],
}

impl Pattern {
    /// The pattern that matches all bytes.
    pub const ANY: Self = Self {
        ceiling: [0xff; 32],
        value: [0; 32],
        mask: [0; 32],
    };

    /// Expects these bytes from an offset on, in all bits.
    #[must_use]
    pub fn with<const N: usize>(mut self, at: usize, bytes: [u8; N]) -> Self {
        for (k, byte) in bytes.into_iter().enumerate() {
            (self.value[at + k], self.mask[at + k]) = (byte, 0xff);
        }
        self
    }

    /// Expects the bits of `mask` to be those of `value` in the byte at an offset.
    #[must_use]
    pub fn with_bits(mut self, at: usize, mask: u8, value: u8) -> Self {
        (self.value[at], self.mask[at]) = (value, mask);
        self
    }

    /// Expects at least `minimum` in the byte at an offset.
    #[must_use]
    pub fn with_minimum(mut self, at: usize, minimum: u8) -> Self {
        (self.ceiling[at], self.value[at], self.mask[at]) = (minimum, minimum, 0xff);
        self
    }

    /// Whether all bytes match.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub fn matches(&self, bytes: &[u8; 32]) -> bool {
        use std::arch::x86_64::{
            __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128,
            _mm_xor_si128,
        };
        let halves = |bytes: &[u8; 32]| bytemuck::cast::<[u8; 32], [__m128i; 2]>(*bytes);
        let [[a, b], [ceiling_a, ceiling_b], [value_a, value_b], [mask_a, mask_b]] = [
            halves(bytes),
            halves(&self.ceiling),
            halves(&self.value),
            halves(&self.mask),
        ];
        #[allow(unsafe_code)]
        // SAFETY: SSE2 is part of x86-64, and these intrinsics do not access memory.
        unsafe {
            let a = _mm_and_si128(_mm_xor_si128(_mm_min_epu8(a, ceiling_a), value_a), mask_a);
            let b = _mm_and_si128(_mm_xor_si128(_mm_min_epu8(b, ceiling_b), value_b), mask_b);
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(a, b), _mm_setzero_si128())) == 0xffff
        }
    }

    /// Whether all bytes match.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub fn matches(&self, bytes: &[u8; 32]) -> bool {
        self.matches_one_by_one(bytes)
    }

    #[cfg(any(test, miri, not(target_arch = "x86_64")))]
    fn matches_one_by_one(&self, bytes: &[u8; 32]) -> bool {
        (0..32).all(|k| (bytes[k].min(self.ceiling[k]) ^ self.value[k]) & self.mask[k] == 0)
    }
}

/// The positions of `bytes` that contain `value`: bit k is set if the byte at index k does.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn positions_of(bytes: &[u8; 64], value: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};
    let quarters: [[u8; 16]; 4] = bytemuck::cast(*bytes);
    let mut positions = 0;
    for (quarter, number) in quarters.into_iter().zip(0u32..) {
        #[allow(unsafe_code)]
        // SAFETY: SSE2 is part of x86-64, and these intrinsics do not access memory.
        let mask = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(bytemuck::cast(quarter), _mm_set1_epi8(value as i8))) };
        positions |= u64::from(mask as u32) << (16 * number);
    }
    positions
}

/// The positions of `bytes` that contain `value`: bit k is set if the byte at index k does.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub fn positions_of(bytes: &[u8; 64], value: u8) -> u64 {
    one_by_one(bytes, value)
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn one_by_one(bytes: &[u8; 64], value: u8) -> u64 {
    let places = bytes.iter().zip(0u32..);
    places.fold(0, |all, (byte, place)| all | u64::from(*byte == value) << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pattern_matches_the_bytes_that_it_expects() {
        let pattern = Pattern::ANY
            .with(3, [1, 2])
            .with_bits(20, 0xf0, 0x60)
            .with_minimum(31, 2);
        let mut bytes = [0xaa; 32];
        (bytes[3], bytes[4], bytes[20]) = (1, 2, 0x6f);
        assert!(pattern.matches(&bytes));
        for (at, byte) in [(3, 2), (4, 3), (20, 0x70), (20, 0x5f), (31, 1), (31, 0)] {
            let mut other = bytes;
            other[at] = byte;
            assert!(!pattern.matches(&other), "byte {at} is {byte}");
        }
        bytes[31] = 2;
        assert!(pattern.matches(&bytes));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pattern_of_any_bytes_matches_what_it_matches_one_by_one(
            bytes in any::<[u8; 32]>(), ceiling in any::<[u8; 32]>(), mask in any::<[u8; 32]>(), wrong in any::<[Option<(u8, u8)>; 1]>()
        ) {
            let mut pattern = Pattern { ceiling, value: bytes, mask };
            (0..32).for_each(|k| pattern.value[k] = bytes[k].min(ceiling[k]));
            prop_assert!(pattern.matches(&bytes));
            for (at, bits) in wrong.into_iter().flatten() {
                pattern.value[usize::from(at % 32)] ^= bits;
            }
            prop_assert_eq!(pattern.matches_one_by_one(&bytes), pattern.matches(&bytes));
        }

        #[test]
        fn positions_of_any_byte_are_those_found_one_by_one(bytes in any::<[[u8; 32]; 2]>(), narrow in any::<bool>(), value in any::<u8>()) {
            let keep = if narrow { 1 } else { u8::MAX };
            let bytes: [u8; 64] = std::array::from_fn(|k| bytes[k / 32][k % 32] & keep);
            prop_assert_eq!(one_by_one(&bytes, value & keep), positions_of(&bytes, value & keep));
        }
    }
}
