//! One AES round (FIPS 197: ShiftRows, SubBytes, MixColumns, AddRoundKey). One implementation uses AES instructions,
//! and the other uses table lookups for processors without AES instructions. The results of both implementations are
//! identical.

use super::super::hash::Keys;
use sluice_wire::key::{FlowKey4, FlowKey6};

/// Implementation of the hash for this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Table lookups, for any processor.
    Software,
    /// AES instructions of x86-64.
    #[cfg(target_arch = "x86_64")]
    Instructions(Proof),
}

/// Proof of a successful check that the processor has AES instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof(());

impl Unit {
    /// The fastest implementation on this processor.
    pub fn detect() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("aes") {
            return Unit::Instructions(Proof(()));
        }
        Unit::Software
    }

    /// Sets `out[k]` to the hash of the key at position k. If the numbers of elements differ, the smallest number applies.
    #[inline]
    pub fn hash4(self, round_keys: &Keys, keys: impl Iterator<Item = FlowKey4>, out: &mut [u64]) {
        match self {
            Unit::Software => {
                for (out, key) in out.iter_mut().zip(keys) {
                    *out = software::hash4(round_keys, &key);
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: only `detect` creates a `Proof`, after a check that the processor has AES instructions.
            Unit::Instructions(Proof(())) => unsafe { instructions::hash4(round_keys, keys, out) },
        }
    }

    /// Sets `out[k]` to the hash of the key at position k. If the numbers of elements differ, the smallest number applies.
    #[inline]
    pub fn hash6(self, round_keys: &Keys, keys: impl Iterator<Item = FlowKey6>, out: &mut [u64]) {
        match self {
            Unit::Software => {
                for (out, key) in out.iter_mut().zip(keys) {
                    *out = software::hash6(round_keys, &key);
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: as in `hash4`.
            Unit::Instructions(Proof(())) => unsafe { instructions::hash6(round_keys, keys, out) },
        }
    }

    /// Sets `out[k]` to the hash of `blocks[k]`. If the slices differ in length, the shortest length applies.
    #[inline]
    pub fn blocks(self, round_keys: &Keys, blocks: &[[u64; 2]], out: &mut [u64]) {
        match self {
            Unit::Software => {
                for (out, block) in out.iter_mut().zip(blocks) {
                    *out = software::block(round_keys, *block);
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: as in `hash4`.
            Unit::Instructions(Proof(())) => unsafe { instructions::blocks(round_keys, blocks, out) },
        }
    }

    /// Hash of one block. The words of the block are passed in registers, because store forwarding delays a load of a
    /// whole block after two word stores.
    #[inline(always)]
    pub fn block(self, round_keys: &Keys, block: [u64; 2]) -> u64 {
        match self {
            Unit::Software => software::block(round_keys, block),
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: as in `hash4`.
            Unit::Instructions(Proof(())) => unsafe { instructions::block(round_keys, block[0], block[1]) },
        }
    }

    /// Sets `out[k]` to the hash of `blocks[k]`. If the slices differ in length, the shortest length applies.
    #[inline]
    pub fn double_blocks(self, round_keys: &Keys, blocks: &[[u64; 4]], out: &mut [u64]) {
        match self {
            Unit::Software => {
                for (out, block) in out.iter_mut().zip(blocks) {
                    *out = software::double_block(round_keys, *block);
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            // SAFETY: as in `hash4`.
            Unit::Instructions(Proof(())) => unsafe { instructions::double_blocks(round_keys, blocks, out) },
        }
    }
}

/// The block contains the high bits of a context in all four columns. A difference between the words of two keys in one
/// column therefore can't cancel a difference between these bits. A key without such bits has the hash of its words.
fn high_block(high: u8) -> [u32; 4] {
    [u32::from(high); 4]
}

/// The words of an IPv6 key as three blocks, the last with the high bits of the context.
fn blocks_of(key: &FlowKey6) -> [[u64; 2]; 3] {
    let [a, b, c, d, e] = key.words.words();
    [[a, b], [c, d], [e, u64::from(key.high)]]
}

pub mod software {
    //! AES rounds with table lookups.

    use super::{FlowKey4, FlowKey6, Keys, blocks_of, high_block};

    type Block = [u32; 4];

    /// Product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1.
    const fn product(mut a: u8, mut b: u8) -> u8 {
        let mut sum = 0;
        while b != 0 {
            if b & 1 != 0 {
                sum ^= a;
            }
            a = (a << 1) ^ (0x1b * (a >> 7));
            b >>= 1;
        }
        sum
    }

    /// SubBytes: computes the inverse (x^254), then the affine transformation.
    const fn substitute(x: u8) -> u8 {
        let mut inverse = 1;
        let mut k = 0;
        while k < 254 {
            inverse = product(inverse, x);
            k += 1;
        }
        let y = inverse;
        y ^ y.rotate_left(1) ^ y.rotate_left(2) ^ y.rotate_left(3) ^ y.rotate_left(4) ^ 0x63
    }

    /// Contribution of a byte in row 0 to its column. For a byte in another row, the value must be rotated.
    const COLUMNS: [u32; 256] = {
        let mut columns = [0; 256];
        let mut x = 0;
        while x < 256 {
            let s = substitute(x as u8);
            columns[x] = u32::from_le_bytes([product(s, 2), s, s, product(s, 3)]);
            x += 1;
        }
        columns
    };

    /// Bitwise XOR of two blocks.
    pub fn xor(a: Block, b: Block) -> Block {
        [a[0] ^ b[0], a[1] ^ b[1], a[2] ^ b[2], a[3] ^ b[3]]
    }

    /// Computes one AES round and adds `key`.
    pub fn round(state: Block, key: Block) -> Block {
        let part = |column: usize, row: usize| {
            let byte = state[(column + row) & 3].to_le_bytes()[row];
            COLUMNS[usize::from(byte)].rotate_left(8 * row as u32)
        };
        let column = |c: usize| part(c, 0) ^ part(c, 1) ^ part(c, 2) ^ part(c, 3);
        xor([column(0), column(1), column(2), column(3)], key)
    }

    fn low_half(state: Block) -> u64 {
        u64::from(state[0]) | u64::from(state[1]) << 32
    }

    pub fn hash4(k: &Keys, key: &FlowKey4) -> u64 {
        let state = round(
            xor(bytemuck::cast(key.words), k.0[0]),
            xor(k.0[1], high_block(key.high)),
        );
        low_half(round(round(state, k.0[2]), k.0[3]))
    }

    pub fn block(k: &Keys, block: [u64; 2]) -> u64 {
        low_half(round(
            round(round(xor(bytemuck::cast(block), k.0[0]), k.0[1]), k.0[2]),
            k.0[3],
        ))
    }

    pub fn double_block(k: &Keys, block: [u64; 4]) -> u64 {
        let [first, second]: [Block; 2] = bytemuck::cast(block);
        let state = round(round(xor(first, k.0[0]), k.0[1]), xor(second, k.0[2]));
        low_half(round(round(round(state, k.0[3]), k.0[4]), k.0[1]))
    }

    pub fn hash6(k: &Keys, key: &FlowKey6) -> u64 {
        let [first, second, third] = blocks_of(key);
        let [first, second, third] = [bytemuck::cast(first), bytemuck::cast(second), bytemuck::cast(third)];
        let state = round(xor(first, k.0[0]), k.0[1]);
        let state = round(state, xor(second, k.0[2]));
        let state = round(round(state, k.0[3]), xor(third, k.0[4]));
        low_half(round(round(round(state, k.0[1]), k.0[2]), k.0[3]))
    }
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    //! AES rounds with AES instructions. The rounds for one key depend on each other, but the rounds for different keys
    //! are independent. The speed of a batch is therefore limited by the throughput of the AES unit, not by its
    //! latency.

    use super::{FlowKey4, FlowKey6, Keys, blocks_of, high_block};
    use std::arch::x86_64::{__m128i, _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128};

    #[target_feature(enable = "aes")]
    pub fn hash4(round_keys: &Keys, keys: impl Iterator<Item = FlowKey4>, out: &mut [u64]) {
        let k: [__m128i; 5] = bytemuck::cast(round_keys.0);
        for (out, key) in out.iter_mut().zip(keys) {
            let high = bytemuck::cast(high_block(key.high));
            let state = _mm_xor_si128(bytemuck::cast(key.words), k[0]);
            let state = _mm_aesenc_si128(state, _mm_xor_si128(k[1], high));
            let state = _mm_aesenc_si128(_mm_aesenc_si128(state, k[2]), k[3]);
            *out = _mm_cvtsi128_si64(state) as u64;
        }
    }

    #[target_feature(enable = "aes")]
    pub fn blocks(round_keys: &Keys, blocks: &[[u64; 2]], out: &mut [u64]) {
        let k: [__m128i; 5] = bytemuck::cast(round_keys.0);
        for (out, block) in out.iter_mut().zip(blocks) {
            let state = _mm_xor_si128(bytemuck::cast(*block), k[0]);
            let state = _mm_aesenc_si128(_mm_aesenc_si128(_mm_aesenc_si128(state, k[1]), k[2]), k[3]);
            *out = _mm_cvtsi128_si64(state) as u64;
        }
    }

    #[target_feature(enable = "aes")]
    #[inline(never)]
    pub fn block(round_keys: &Keys, low: u64, high: u64) -> u64 {
        let k: [__m128i; 5] = bytemuck::cast(round_keys.0);
        let state = _mm_xor_si128(_mm_set_epi64x(high as i64, low as i64), k[0]);
        let state = _mm_aesenc_si128(_mm_aesenc_si128(_mm_aesenc_si128(state, k[1]), k[2]), k[3]);
        _mm_cvtsi128_si64(state) as u64
    }

    #[target_feature(enable = "aes")]
    pub fn double_blocks(round_keys: &Keys, blocks: &[[u64; 4]], out: &mut [u64]) {
        let k: [__m128i; 5] = bytemuck::cast(round_keys.0);
        for (out, block) in out.iter_mut().zip(blocks) {
            let [first, second]: [__m128i; 2] = bytemuck::cast(*block);
            let state = _mm_aesenc_si128(_mm_xor_si128(first, k[0]), k[1]);
            let state = _mm_aesenc_si128(state, _mm_xor_si128(second, k[2]));
            let state = _mm_aesenc_si128(_mm_aesenc_si128(_mm_aesenc_si128(state, k[3]), k[4]), k[1]);
            *out = _mm_cvtsi128_si64(state) as u64;
        }
    }

    #[target_feature(enable = "aes")]
    pub fn hash6(round_keys: &Keys, keys: impl Iterator<Item = FlowKey6>, out: &mut [u64]) {
        let k: [__m128i; 5] = bytemuck::cast(round_keys.0);
        for (out, key) in out.iter_mut().zip(keys) {
            let [first, second, third] = blocks_of(&key);
            let state = _mm_xor_si128(bytemuck::cast(first), k[0]);
            let state = _mm_aesenc_si128(state, k[1]);
            let state = _mm_aesenc_si128(state, _mm_xor_si128(bytemuck::cast(second), k[2]));
            let state = _mm_aesenc_si128(state, k[3]);
            let state = _mm_aesenc_si128(state, _mm_xor_si128(bytemuck::cast(third), k[4]));
            let state = _mm_aesenc_si128(_mm_aesenc_si128(state, k[1]), k[2]);
            *out = _mm_cvtsi128_si64(_mm_aesenc_si128(state, k[3])) as u64;
        }
    }
}
