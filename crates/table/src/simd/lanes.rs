//! Simultaneous comparison of a number with sixteen ranges, compiled for each instruction set.
//!
//! [`Work`] is code that uses [`Lanes`]. [`Vectors::run`] runs it with the widest instructions of the processor.

/// Comparisons with sixteen numbers or ranges. Bit k of a result is the result for the element at index k.
pub trait Lanes: Copy {
    /// Bit set of the elements of `numbers` that are less than or equal to `value`.
    fn not_below(self, numbers: &[u32; 16], value: u32) -> u16;
    /// Bit set of the ranges that contain `value`. A range consists of its first number and the distance from its first
    /// to its last number.
    fn within32(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16;
    /// Bit set of the pairs of 16-bit ranges that contain `value`. One range of a pair applies to the low 16 bits of
    /// `value`, and the other range to the high 16 bits.
    fn within_pairs(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16;
    /// Bit set of the 8-bit ranges that contain `value`.
    fn within8(self, first: &[u8; 16], span: &[u8; 16], value: u8) -> u16;
    /// Bit set of the numbers that equal `value`, and bit set of the numbers that are greater than `value`.
    fn equal_and_above(self, numbers: &[u64; 16], value: u64) -> [u16; 2];
}

/// Code that uses lanes. `run`, and every function that gets lanes from `run`, must be marked `#[inline(always)]`. A
/// function without this attribute is compiled without the instruction set and is slow.
pub trait Work {
    /// Result type of the code.
    type Output;
    /// Runs the code.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// An instruction set that this processor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// The instruction set for which the whole program is compiled.
    Portable,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2(Proof),
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512(Proof),
}

/// Proof of a successful check that the processor supports the instruction set.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(());

impl Vectors {
    /// All instruction sets that this processor supports, in order of increasing width.
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

    /// The widest supported instruction set.
    pub fn detect() -> Self {
        Self::all().next_back().unwrap_or(Self::Portable)
    }

    /// Runs `work` with this instruction set.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run(Portable),
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: only `all` creates a `Proof`, after a check that the processor has the instructions of
            // `x86::avx2`.
            Self::Avx2(proof) => unsafe { x86::avx2(work, proof) },
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: only `all` creates a `Proof`, after a check that the processor has the instructions of
            // `x86::avx512`.
            Self::Avx512(proof) => unsafe { x86::avx512(work, proof) },
        }
    }
}

/// Portable code without special instructions. The compiler vectorises it as far as possible.
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
    fn within32(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
        bits(|lane| value.wrapping_sub(first[lane]) <= span[lane])
    }

    #[inline(always)]
    fn within_pairs(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
        let half = |first: u32, span: u32, value: u32| (value as u16).wrapping_sub(first as u16) <= span as u16;
        bits(|lane| {
            let (first, span) = (first[lane], span[lane]);
            half(first, span, value) & half(first >> 16, span >> 16, value >> 16)
        })
    }

    #[inline(always)]
    fn within8(self, first: &[u8; 16], span: &[u8; 16], value: u8) -> u16 {
        bits(|lane| value.wrapping_sub(first[lane]) <= span[lane])
    }

    #[inline(always)]
    fn equal_and_above(self, numbers: &[u64; 16], value: u64) -> [u16; 2] {
        [bits(|lane| numbers[lane] == value), bits(|lane| value < numbers[lane])]
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, Proof, Work, bits};

    /// AVX2 implementation.
    #[derive(Clone, Copy, Debug)]
    struct Avx2(#[allow(dead_code)] Proof);
    /// AVX-512 implementation.
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

    // For all following `unsafe` blocks: the instructions are available, because lanes are created from a `Proof`.
    // Loads lie within the array of the pointer, and need no alignment.

    impl Lanes for Avx2 {
        #[inline(always)]
        fn not_below(self, numbers: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let value = _mm256_set1_epi32(value as i32);
                let half = |at: usize| {
                    let numbers = _mm256_loadu_si256(numbers.as_ptr().add(at).cast());
                    let min = _mm256_min_epu32(numbers, value);
                    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(min, numbers))) as u16
                };
                half(0) | half(8) << 8
            }
        }

        #[inline(always)]
        fn within32(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let value = _mm256_set1_epi32(value as i32);
                let half = |at: usize| {
                    let behind = _mm256_sub_epi32(value, _mm256_loadu_si256(first.as_ptr().add(at).cast()));
                    let min = _mm256_min_epu32(behind, _mm256_loadu_si256(span.as_ptr().add(at).cast()));
                    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(min, behind))) as u16
                };
                half(0) | half(8) << 8
            }
        }

        #[inline(always)]
        fn within_pairs(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let value = _mm256_set1_epi32(value as i32);
                let half = |at: usize| {
                    let behind = _mm256_sub_epi16(value, _mm256_loadu_si256(first.as_ptr().add(at).cast()));
                    let min = _mm256_min_epu16(behind, _mm256_loadu_si256(span.as_ptr().add(at).cast()));
                    _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(min, behind))) as u16
                };
                half(0) | half(8) << 8
            }
        }

        #[inline(always)]
        fn within8(self, first: &[u8; 16], span: &[u8; 16], value: u8) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let behind = _mm_sub_epi8(_mm_set1_epi8(value as i8), _mm_loadu_si128(first.as_ptr().cast()));
                let min = _mm_min_epu8(behind, _mm_loadu_si128(span.as_ptr().cast()));
                _mm_movemask_epi8(_mm_cmpeq_epi8(min, behind)) as u16
            }
        }

        #[inline(always)]
        fn equal_and_above(self, numbers: &[u64; 16], value: u64) -> [u16; 2] {
            [bits(|lane| numbers[lane] == value), bits(|lane| value < numbers[lane])]
        }
    }

    impl Lanes for Avx512 {
        #[inline(always)]
        fn not_below(self, numbers: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let numbers = _mm512_loadu_si512(numbers.as_ptr().cast());
                _mm512_cmple_epu32_mask(numbers, _mm512_set1_epi32(value as i32))
            }
        }

        #[inline(always)]
        fn within32(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let first = _mm512_loadu_si512(first.as_ptr().cast());
                let behind = _mm512_sub_epi32(_mm512_set1_epi32(value as i32), first);
                _mm512_cmple_epu32_mask(behind, _mm512_loadu_si512(span.as_ptr().cast()))
            }
        }

        #[inline(always)]
        fn within_pairs(self, first: &[u32; 16], span: &[u32; 16], value: u32) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let first = _mm512_loadu_si512(first.as_ptr().cast());
                let behind = _mm512_sub_epi16(_mm512_set1_epi32(value as i32), first);
                let min = _mm512_min_epu16(behind, _mm512_loadu_si512(span.as_ptr().cast()));
                _mm512_cmpeq_epi32_mask(min, behind)
            }
        }

        #[inline(always)]
        fn within8(self, first: &[u8; 16], span: &[u8; 16], value: u8) -> u16 {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let first = _mm_loadu_si128(first.as_ptr().cast());
                let behind = _mm_sub_epi8(_mm_set1_epi8(value as i8), first);
                _mm_cmple_epu8_mask(behind, _mm_loadu_si128(span.as_ptr().cast()))
            }
        }

        #[inline(always)]
        fn equal_and_above(self, numbers: &[u64; 16], value: u64) -> [u16; 2] {
            // SAFETY: see the comment above `impl Lanes for Avx2`.
            unsafe {
                let value = _mm512_set1_epi64(value as i64);
                let half = |at: usize| {
                    let numbers = _mm512_loadu_si512(numbers.as_ptr().add(at).cast());
                    [
                        _mm512_cmpeq_epu64_mask(numbers, value),
                        _mm512_cmplt_epu64_mask(value, numbers),
                    ]
                    .map(u16::from)
                };
                let ([equal, above], [more_equal, more_above]) = (half(0), half(8));
                [equal | more_equal << 8, above | more_above << 8]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Results of all lane operations, to compare implementations.
    #[derive(Clone, Copy)]
    struct All<'a> {
        words: &'a [[u32; 16]; 2],
        bytes: &'a [[u8; 16]; 2],
        longs: &'a [u64; 16],
        word: u32,
        long: u64,
    }

    impl Work for All<'_> {
        type Output = [u16; 6];

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) -> [u16; 6] {
            let Self {
                words: [a, b],
                bytes: [e, f],
                longs,
                word,
                long,
            } = self;
            let [equal, above] = lanes.equal_and_above(longs, long);
            [
                lanes.not_below(a, word),
                lanes.within32(a, b, word),
                lanes.within_pairs(a, b, word),
                lanes.within8(e, f, word as u8),
                equal,
                above,
            ]
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lanes_of_any_width_find_what_comparing_one_by_one_finds(
            words in any::<[[u32; 16]; 2]>(), bytes in any::<[[u8; 16]; 2]>(), longs in any::<[u64; 16]>(), from in 0usize..16, word in any::<u32>(), one_of in any::<bool>(),
        ) {
            let (word, long) = if one_of { (words[0][from], longs[from]) } else { (word, word.into()) };
            let bits = |bit: &dyn Fn(usize) -> bool| (0..16).map(|lane| u16::from(bit(lane)) << lane).sum::<u16>();
            let expected = [
                bits(&|at| words[0][at] <= word),
                bits(&|at| word.wrapping_sub(words[0][at]) <= words[1][at]),
                bits(&|at| [0, 16].iter().all(|half| {
                    let [word, first, span] = [word, words[0][at], words[1][at]].map(|word| (word >> half) as u16);
                    word.wrapping_sub(first) <= span
                })),
                bits(&|at| (word as u8).wrapping_sub(bytes[0][at]) <= bytes[1][at]),
                bits(&|at| longs[at] == long),
                bits(&|at| long < longs[at]),
            ];
            let all = All { words: &words, bytes: &bytes, longs: &longs, word, long };
            for vectors in Vectors::all() {
                prop_assert_eq!(expected, vectors.run(all), "{:?}", vectors);
            }
        }
    }
}
