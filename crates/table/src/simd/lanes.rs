//! Sixteen ranges compared with a number at once, in code that is made once for each set of instructions.
//!
//! [`Work`] says what to do with [`Lanes`]; [`Vectors::run`] does it with the widest that the processor has.

/// Words of 32 bits that ranges are of.
pub type Words = [u32; 16];

/// Sixteen boxes as far as few bits of three words say what they are. Each of these words is sorted into 256 buckets: what
/// it is behind a base, without its last bits, and the last bucket for all that is further behind.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Looks {
    /// Of each word and box the first bucket.
    pub first: [[u8; 16]; 3],
    /// How far the last one is behind it.
    pub span: [[u8; 16]; 3],
    /// Of each word the base; the fourth of these counts for nothing, and who has the looks may keep something there.
    pub base: [u32; 4],
    /// How many bits are left out, below 32; the fourth counts for nothing.
    pub shift: [u8; 4],
    /// Which word it is; the fourth counts for nothing.
    pub word: [u8; 4],
    /// For who has the looks.
    pub rest: [u16; 4],
}

impl Looks {
    /// The bucket of a value.
    #[inline(always)]
    pub fn bucket(base: u32, shift: u8, value: u32) -> u8 {
        (value.wrapping_sub(base) >> (shift & 31)).min(255) as u8
    }
}

/// A box of two words of 32 bits, two of 16 and two of 8, in this order: the first values, or the last ones less those. Bytes
/// 14 and 15 don't count.
pub type Small = [u32; 4];

/// How it is compared. Bit k of what is found is for number k.
pub trait Lanes: Copy {
    /// Which numbers `value` is not below.
    fn not_below(self, numbers: &[u32; 16], value: u32) -> u16;
    /// Which boxes may have the words.
    fn may_have(self, looks: &Looks, words: &Words) -> u16;
    /// Whether a box has the values.
    fn has(self, first: &Small, span: &Small, values: &Small) -> bool;
}

/// What is done with lanes. `run` has to be inlined always, and all that it calls with lanes, or it is slow.
pub trait Work {
    /// What comes out.
    type Output;
    /// Do it.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// A set of instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// What the whole program may use.
    Portable,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2(Proof),
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512(Proof),
}

/// The processor was asked, and has them.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(());

impl Vectors {
    /// All that this processor has, the widest last.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let more = {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt");
            let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            [
                avx2.then_some(Self::Avx2(Proof(()))),
                avx512.then_some(Self::Avx512(Proof(()))),
            ]
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let more = [None, None];
        [Some(Self::Portable)].into_iter().chain(more).flatten()
    }

    /// The widest.
    pub fn detect() -> Self {
        Self::all().next_back().unwrap_or(Self::Portable)
    }

    /// Do it.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run(Portable),
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: a `Proof` is made in `all` alone, after the processor said that it has what `x86::avx2` needs.
            Self::Avx2(proof) => unsafe { x86::avx2(work, proof) },
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: as above, and what `x86::avx512` needs.
            Self::Avx512(proof) => unsafe { x86::avx512(work, proof) },
        }
    }
}

/// Without instructions of its own: the compiler finds what there is.
#[derive(Clone, Copy, Debug)]
struct Portable;

#[inline(always)]
fn bits(bit: impl Fn(usize) -> bool) -> u16 {
    let mut held = [0u16; 16];
    for (lane, held) in held.iter_mut().enumerate() {
        *held = u16::from(bit(lane)) << lane;
    }
    held.iter().fold(0, |all, one| all | one)
}

impl Lanes for Portable {
    #[inline(always)]
    fn not_below(self, numbers: &[u32; 16], value: u32) -> u16 {
        bits(|lane| numbers[lane] <= value)
    }

    #[inline(always)]
    fn may_have(self, looks: &Looks, words: &Words) -> u16 {
        each_look(looks, words, |first, span, value| {
            bits(|lane| value.wrapping_sub(first[lane]) <= span[lane])
        })
    }

    #[inline(always)]
    fn has(self, first: &Small, span: &Small, values: &Small) -> bool {
        let words = |at: usize| values[at].wrapping_sub(first[at]) <= span[at];
        let half = |shift: u32| {
            let [first, span, value] = [first, span, values].map(|of| (of[2] >> shift) as u16);
            value.wrapping_sub(first) <= span
        };
        let byte = |shift: u32| {
            let [first, span, value] = [first, span, values].map(|of| (of[3] >> shift) as u8);
            value.wrapping_sub(first) <= span
        };
        words(0) & words(1) & half(0) & half(16) & byte(0) & byte(8)
    }
}

/// One word after the other.
#[inline(always)]
fn each_look(looks: &Looks, words: &Words, within: impl Fn(&[u8; 16], &[u8; 16], u8) -> u16) -> u16 {
    let mut held = u16::MAX;
    for at in 0..3 {
        let value = words[usize::from(looks.word[at] & 15)];
        let bucket = Looks::bucket(looks.base[at], looks.shift[at], value);
        held &= within(&looks.first[at], &looks.span[at], bucket);
    }
    held
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, Looks, Proof, Small, Words, Work, each_look};

    /// With AVX2.
    #[derive(Clone, Copy, Debug)]
    struct Avx2(#[allow(dead_code)] Proof);
    /// With AVX-512.
    #[derive(Clone, Copy, Debug)]
    struct Avx512(#[allow(dead_code)] Proof);

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn avx2<W: Work>(work: W, proof: Proof) -> W::Output {
        work.run(Avx2(proof))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn avx512<W: Work>(work: W, proof: Proof) -> W::Output {
        work.run(Avx512(proof))
    }

    // In all that follows: the instructions are there, as lanes are made of a `Proof`; what is loaded lies within the array
    // or structure that the pointer is of, and need not be aligned.

    #[inline(always)]
    fn has(first: &Small, span: &Small, values: &Small) -> bool {
        // SAFETY: see above.
        unsafe {
            let [first, span, values] = [first, span, values].map(|of| _mm_loadu_si128(of.as_ptr().cast()));
            let words = _mm_sub_epi32(values, first);
            let words = _mm_cmpeq_epi32(_mm_min_epu32(words, span), words);
            let halves = _mm_sub_epi16(values, first);
            let halves = _mm_cmpeq_epi16(_mm_min_epu16(halves, span), halves);
            let bytes = _mm_sub_epi8(values, first);
            let bytes = _mm_cmpeq_epi8(_mm_min_epu8(bytes, span), bytes);
            let held = _mm_blend_epi16::<0b0100_0000>(_mm_blend_epi16::<0b0011_0000>(words, halves), bytes);
            _mm_movemask_epi8(held) & 0x3fff == 0x3fff
        }
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn not_below(self, numbers: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see above.
            unsafe {
                let value = _mm256_set1_epi32(value as i32);
                let half = |at: usize| {
                    let numbers = _mm256_loadu_si256(numbers.as_ptr().add(at).cast());
                    let least = _mm256_min_epu32(numbers, value);
                    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(least, numbers))) as u16
                };
                half(0) | half(8) << 8
            }
        }

        #[inline(always)]
        fn may_have(self, looks: &Looks, words: &Words) -> u16 {
            each_look(looks, words, |first, span, value| {
                // SAFETY: see above.
                unsafe {
                    let behind = _mm_sub_epi8(_mm_set1_epi8(value as i8), _mm_loadu_si128(first.as_ptr().cast()));
                    let least = _mm_min_epu8(behind, _mm_loadu_si128(span.as_ptr().cast()));
                    _mm_movemask_epi8(_mm_cmpeq_epi8(least, behind)) as u16
                }
            })
        }

        #[inline(always)]
        fn has(self, first: &Small, span: &Small, values: &Small) -> bool {
            has(first, span, values)
        }
    }

    impl Lanes for Avx512 {
        #[inline(always)]
        fn not_below(self, numbers: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see above.
            unsafe {
                let numbers = _mm512_loadu_si512(numbers.as_ptr().cast());
                _mm512_cmple_epu32_mask(numbers, _mm512_set1_epi32(value as i32))
            }
        }

        #[inline(always)]
        fn may_have(self, looks: &Looks, words: &Words) -> u16 {
            let last: *const Looks = looks;
            // SAFETY: see above. `span` and what follows it are longer than what is loaded.
            unsafe {
                let small = |bytes: [u8; 4]| _mm_cvtepu8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(bytes)));
                let (shift, word) = (small(looks.shift), small(looks.word));
                let base = _mm_loadu_si128(looks.base.as_ptr().cast());
                let all = _mm512_loadu_si512(words.as_ptr().cast());
                let values = _mm512_permutexvar_epi32(_mm512_castsi128_si512(word), all);
                let values = _mm_srlv_epi32(_mm_sub_epi32(_mm512_castsi512_si128(values), base), shift);
                let buckets = _mm512_castsi128_si512(_mm_min_epu32(values, _mm_set1_epi32(255)));
                // Each bucket sixteen times.
                let quarters = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
                let buckets = _mm512_permutexvar_epi32(quarters, buckets);
                let buckets = _mm512_shuffle_epi8(buckets, _mm512_setzero_si512());
                let first = _mm512_loadu_si512(last.cast());
                let span = _mm512_loadu_si512((&raw const (*last).span).cast());
                let held = _mm512_cmple_epu8_mask(_mm512_sub_epi8(buckets, first), span);
                (held & held >> 16 & held >> 32) as u16
            }
        }

        #[inline(always)]
        fn has(self, first: &Small, span: &Small, values: &Small) -> bool {
            has(first, span, values)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that lanes find.
    #[derive(Clone, Copy)]
    struct All<'a> {
        numbers: &'a [u32; 16],
        looks: &'a Looks,
        small: &'a [Small; 3],
    }

    impl Work for All<'_> {
        type Output = (u16, u16, bool);

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) -> Self::Output {
            let Self {
                numbers,
                looks,
                small: [first, span, values],
            } = self;
            (
                lanes.not_below(numbers, values[0]),
                lanes.may_have(looks, numbers),
                lanes.has(first, span, values),
            )
        }
    }

    fn in_bytes(small: &Small) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (bytes, word) in bytes.chunks_mut(4).zip(small) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lanes_of_any_width_find_what_comparing_one_by_one_finds(
            numbers in any::<[u32; 16]>(), first in any::<[[u8; 16]; 3]>(), span in any::<[[u8; 16]; 3]>(),
            shift in [0u8..32, 0u8..32, 0u8..32], word in [0u8..16, 0u8..16, 0u8..16],
            back in prop::array::uniform3(0u32..512), small in any::<[Small; 3]>(), wide in 0u32..7, from in 0usize..16,
        ) {
            let base = [0, 1, 2].map(|at: usize| numbers[usize::from(word[at])].wrapping_sub(back[at] << (shift[at] % 24)));
            let four = |of: [u8; 3]| [of[0], of[1], of[2], 0xff];
            let looks = Looks {
                first, span, base: [base[0], base[1], base[2], 7], shift: four(shift), word: four(word), rest: [0xffff; 4],
            };
            // Boxes that have most of it, so that both answers come up.
            let mut small = small;
            small[2][0] = if back[0] & 1 == 0 { numbers[from] } else { small[2][0] };
            for (at, span) in small[1].iter_mut().enumerate() {
                *span |= 0u32.wrapping_sub(u32::from(wide != at as u32));
            }
            let expected_numbers = (0..16).map(|at| u16::from(numbers[at] <= small[2][0]) << at).sum::<u16>();
            let looked = (0..16).filter(|&at| {
                (0..3).all(|look| {
                    let value = numbers[usize::from(word[look])].wrapping_sub(base[look]) >> shift[look];
                    (value.min(255) as u8).wrapping_sub(first[look][at]) <= span[look][at]
                })
            });
            let expected_looks = looked.map(|at| 1u16 << at).sum::<u16>();
            let bytes = small.map(|of| in_bytes(&of));
            let number = |at: usize, length: usize| bytes.map(|of| {
                of[at..at + length].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
            });
            let has = [(0, 4), (4, 4), (8, 2), (10, 2), (12, 1), (13, 1)].into_iter().all(|(at, length)| {
                let [first, span, value] = number(at, length);
                value.wrapping_sub(first) & (u64::MAX >> (64 - 8 * length)) <= span
            });
            let all = All { numbers: &numbers, looks: &looks, small: &small };
            for vectors in Vectors::all() {
                prop_assert_eq!((expected_numbers, expected_looks, has), vectors.run(all), "{:?}", vectors);
            }
        }
    }
}
