//! Simultaneous comparison of 64 bytes. Each implementation needs only the baseline instructions of its architecture.

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

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn positions_of_any_byte_are_those_found_one_by_one(bytes in any::<[[u8; 32]; 2]>(), narrow in any::<bool>(), value in any::<u8>()) {
            let keep = if narrow { 1 } else { u8::MAX };
            let bytes: [u8; 64] = std::array::from_fn(|k| bytes[k / 32][k % 32] & keep);
            prop_assert_eq!(one_by_one(&bytes, value & keep), positions_of(&bytes, value & keep));
        }
    }
}
