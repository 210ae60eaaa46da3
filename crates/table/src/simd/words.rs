//! Simultaneous comparison of the sixteen 32-bit words of a cache line. Each implementation needs only the baseline
//! instructions of its architecture.

/// Bit set of the words of a line that equal `wanted` in the bits of `mask`; bit k represents word k.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn equal(line: &[u32; 16], mask: u32, wanted: u32) -> u32 {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
    };
    let quarters: [[u32; 4]; 4] = bytemuck::cast(*line);
    let quarters = quarters.map(bytemuck::cast::<_, std::arch::x86_64::__m128i>);
    #[allow(unsafe_code)]
    // SAFETY: SSE2 is part of x86-64, and these intrinsics do not access memory.
    let found = unsafe {
        let (mask, wanted) = (_mm_set1_epi32(mask as i32), _mm_set1_epi32(wanted as i32));
        let [a, b, c, d] = quarters.map(|quarter| _mm_cmpeq_epi32(_mm_and_si128(quarter, mask), wanted));
        _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d)))
    };
    found as u32
}

/// Bit set of the words of a line that equal `wanted` in the bits of `mask`; bit k represents word k.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub fn equal(line: &[u32; 16], mask: u32, wanted: u32) -> u32 {
    one_by_one(line, mask, wanted)
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn one_by_one(line: &[u32; 16], mask: u32, wanted: u32) -> u32 {
    (0..16).map(|k| u32::from(line[k] & mask == wanted) << k).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn equal_any_words_are_those_found_one_by_one(line in any::<[u32; 16]>(), mask in any::<u32>(), from in 0usize..16) {
            let wanted = line[from] & mask;
            prop_assert_eq!(one_by_one(&line, mask, wanted), equal(&line, mask, wanted));
            prop_assert!(equal(&line, mask, wanted) >> from & 1 != 0);
            let few = line.map(|word| word & 3);
            prop_assert_eq!(one_by_one(&few, 3, 1), equal(&few, 3, 1));
        }
    }
}
