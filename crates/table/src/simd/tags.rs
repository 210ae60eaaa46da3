//! Simultaneous comparison of eight 16-bit tags. Each implementation needs only the baseline instructions of its
//! architecture.

/// Set of matching lanes out of eight. Bits 2k and 2k+1 belong to lane k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneMask(u32);

impl LaneMask {
    /// Whether no lane matches.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first matching lane, 0 to 7; 0 without a matching lane.
    #[inline(always)]
    pub fn first(self) -> usize {
        (self.0.trailing_zeros() as usize / 2) & 7
    }

    /// Removes all lanes except the first `count`.
    #[inline(always)]
    pub fn up_to(self, count: u32) -> Self {
        LaneMask(self.0 & ((1 << (2 * count)) - 1))
    }
}

impl Iterator for LaneMask {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let lane = self.first();
        self.0 &= !(3 << (2 * lane));
        Some(lane)
    }
}

/// Lanes of `tags` that equal `tag`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn equal(tags: [u16; 8], tag: u16) -> LaneMask {
    use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_movemask_epi8, _mm_set1_epi16};
    let tags = bytemuck::cast(tags);
    #[allow(unsafe_code)]
    // SAFETY: SSE2 is part of x86-64, and these intrinsics do not access memory.
    let mask = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16))) };
    LaneMask(mask as u32)
}

/// Lanes of `tags` that equal `tag`.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
pub fn equal(tags: [u16; 8], tag: u16) -> LaneMask {
    one_by_one(tags, tag)
}

#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn one_by_one(tags: [u16; 8], tag: u16) -> LaneMask {
    let lane = |k: usize| u32::from(tags[k] == tag) * (3 << (2 * k));
    LaneMask((0..8).map(lane).fold(0, |all, one| all | one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn equal_any_tags_are_those_found_one_by_one(tags in any::<[u16; 8]>(), narrow in any::<bool>(), tag in any::<u16>()) {
            let keep = if narrow { 1 } else { u16::MAX };
            let (tags, tag) = (tags.map(|t| t & keep), tag & keep);
            prop_assert_eq!(one_by_one(tags, tag), equal(tags, tag));
            let expected: Vec<usize> = (0..8).filter(|&k| tags[k] == tag).collect();
            prop_assert_eq!(expected.clone(), equal(tags, tag).collect::<Vec<_>>());
            let few: Vec<usize> = expected.into_iter().filter(|&k| k < 6).collect();
            prop_assert_eq!(few, equal(tags, tag).up_to(6).collect::<Vec<_>>());
        }
    }
}
