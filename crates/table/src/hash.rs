//! Keyed hashes of flow keys.
//!
//! Because attackers can choose flow keys, the hash has a secret seed and is not linear. It applies AES rounds to the
//! key. Keys that collide under CRC32 or Toeplitz with any seed are distributed evenly. For one seed, every
//! little-endian processor computes identical hashes, with or without AES instructions.

use crate::simd::aes::{Unit, software};
use sluice_wire::key::{FlowKey4, FlowKey6, KeyWords4, KeyWords6};

/// Round keys of the hash.
#[derive(Clone, Copy)]
pub(crate) struct Keys(pub(crate) [[u32; 4]; 5]);

/// Hashes flow keys to 64 bits with a seed.
#[derive(Clone, Copy)]
pub struct Hasher {
    keys: Keys,
    unit: Unit,
}

impl std::fmt::Debug for Hasher {
    /// Does not print the round keys, which are secret: colliding flows can be computed from them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasher")
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

impl Hasher {
    /// Creates a hasher from 128 random bits.
    pub fn new(seed: [u64; 2]) -> Self {
        Hasher {
            keys: Self::expand(seed),
            unit: Unit::detect(),
        }
    }

    /// Creates a hasher without AES instructions, which is slower and computes identical hashes.
    pub fn in_software(seed: [u64; 2]) -> Self {
        Hasher {
            keys: Self::expand(seed),
            unit: Unit::Software,
        }
    }

    /// Derives independent round keys from one seed: four AES rounds over the seed and a counter, with the seed as the
    /// key.
    fn expand(seed: [u64; 2]) -> Keys {
        let seed: [u32; 4] = bytemuck::cast(seed);
        let mut keys = [[0; 4]; 5];
        for (number, key) in (1u32..).zip(&mut keys) {
            // XOR digits of pi, so that zero seeds and repeated columns don't result in symmetric keys.
            let mut state = software::xor(seed, [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344 ^ number]);
            for _ in 0..4 {
                state = software::round(state, seed);
            }
            *key = state;
        }
        Keys(keys)
    }

    /// Sets `out[k]` to the hash of `keys[k]`. If the slices differ in length, the shortest length applies.
    #[inline]
    pub fn hash4(&self, keys: &[FlowKey4], out: &mut [u64]) {
        self.unit.hash4(&self.keys, keys.iter().copied(), out);
    }

    /// Sets `out[k]` to the hash of `keys[k]`. If the slices differ in length, the shortest length applies.
    #[inline]
    pub fn hash6(&self, keys: &[FlowKey6], out: &mut [u64]) {
        self.unit.hash6(&self.keys, keys.iter().copied(), out);
    }

    /// Sets `out[k]` to the hash of the key that has the words `keys[k]`, and whose context has the high bits `high`. If the
    /// slices differ in length, the shortest length applies.
    #[inline]
    pub fn words4(&self, keys: &[KeyWords4], high: u8, out: &mut [u64]) {
        let keys = keys.iter().map(|&words| FlowKey4 { words, high });
        self.unit.hash4(&self.keys, keys, out);
    }

    /// Sets `out[k]` to the hash of the key that has the words `keys[k]`, and whose context has the high bits `high`. If the
    /// slices differ in length, the shortest length applies.
    #[inline]
    pub fn words6(&self, keys: &[KeyWords6], high: u8, out: &mut [u64]) {
        let keys = keys.iter().map(|&words| FlowKey6 { words, high });
        self.unit.hash6(&self.keys, keys, out);
    }

    /// Sets `out[k]` to the hash of `blocks[k]`, for small keys other than flow keys. If the slices differ in length,
    /// the shortest length applies.
    #[inline]
    pub fn blocks(&self, blocks: &[[u64; 2]], out: &mut [u64]) {
        self.unit.blocks(&self.keys, blocks, out);
    }

    /// Hash of one block, equal to the hash in a batch, with lower latency.
    #[inline(always)]
    pub fn block(&self, block: [u64; 2]) -> u64 {
        self.unit.block(&self.keys, block)
    }

    /// Sets `out[k]` to the hash of `blocks[k]`. If the slices differ in length, the shortest length applies.
    #[inline]
    pub fn double_blocks(&self, blocks: &[[u64; 4]], out: &mut [u64]) {
        self.unit.double_blocks(&self.keys, blocks, out);
    }

    /// Hash of one key. For several keys, the batch function takes less time per key.
    #[inline]
    pub fn one4(&self, key: &FlowKey4) -> u64 {
        let mut out = [0];
        self.hash4(std::slice::from_ref(key), &mut out);
        out[0]
    }

    /// Hash of one key. For several keys, the batch function takes less time per key.
    #[inline]
    pub fn one6(&self, key: &FlowKey6) -> u64 {
        let mut out = [0];
        self.hash6(std::slice::from_ref(key), &mut out);
        out[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_wire::key::{Tuple4, Tuple6};

    fn key4() -> impl Strategy<Value = FlowKey4> {
        any::<(u32, u32, u16, u16, u32, u8)>().prop_map(
            |(source, destination, source_port, destination_port, context, protocol)| {
                let tuple = Tuple4 {
                    source,
                    destination,
                    source_port,
                    destination_port,
                    context,
                };
                FlowKey4::new(tuple, protocol)
            },
        )
    }

    fn key6() -> impl Strategy<Value = FlowKey6> {
        any::<([u64; 2], [u64; 2], u16, u16, u32, u8)>().prop_map(
            |(source, destination, source_port, destination_port, context, protocol)| {
                let tuple = Tuple6 {
                    source,
                    destination,
                    source_port,
                    destination_port,
                    context,
                };
                FlowKey6::new(tuple, protocol)
            },
        )
    }

    #[test]
    fn round_of_fips_197_example_is_its_second_state() {
        // Test vector of FIPS 197, appendix B: the state at the start of round 1, the round key of round 1, and the
        // state at the start of round 2.
        let block = |bytes: [u8; 16]| bytemuck::cast::<_, [u32; 4]>(bytes);
        let start = 0x193d_e3be_a0f4_e22b_9ac6_8d2a_e9f8_4808_u128.to_be_bytes();
        let key = 0xa0fa_fe17_8854_2cb1_23a3_3939_2a6c_7605_u128.to_be_bytes();
        let expected = 0xa49c_7ff2_689f_352b_6b5b_ea43_026a_5049_u128.to_be_bytes();
        assert_eq!(block(expected), software::round(block(start), block(key)));
    }

    #[test]
    fn hasher_that_is_printed_shows_no_key() {
        let text = format!("{:?}", Hasher::in_software([1, 2]));
        assert_eq!("Hasher { unit: Software, .. }", text);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hash_of_any_key_is_the_same_with_and_without_instructions(
            seed in any::<[u64; 2]>(), keys4 in prop::collection::vec(key4(), 1..70), keys6 in prop::collection::vec(key6(), 1..70)
        ) {
            let (here, software) = (Hasher::new(seed), Hasher::in_software(seed));
            let mut values = vec![0; keys4.len()];
            here.hash4(&keys4, &mut values);
            prop_assert_eq!(keys4.iter().map(|key| software.one4(key)).collect::<Vec<_>>(), values);
            let mut values = vec![0; keys6.len()];
            here.hash6(&keys6, &mut values);
            prop_assert_eq!(keys6.iter().map(|key| software.one6(key)).collect::<Vec<_>>(), values);
        }

        #[test]
        fn hash_of_words_is_the_hash_of_the_key_that_has_them(
            seed in any::<[u64; 2]>(), high in any::<u8>(), keys4 in prop::collection::vec(key4(), 1..70), keys6 in prop::collection::vec(key6(), 1..70)
        ) {
            for hasher in [Hasher::new(seed), Hasher::in_software(seed)] {
                let words: Vec<_> = keys4.iter().map(|key| key.words).collect();
                let mut values = vec![0; words.len()];
                hasher.words4(&words, high, &mut values);
                let whole = words.iter().map(|&words| hasher.one4(&FlowKey4 { words, high }));
                prop_assert_eq!(whole.collect::<Vec<_>>(), values);
                let words: Vec<_> = keys6.iter().map(|key| key.words).collect();
                let mut values = vec![0; words.len()];
                hasher.words6(&words, high, &mut values);
                let whole = words.iter().map(|&words| hasher.one6(&FlowKey6 { words, high }));
                prop_assert_eq!(whole.collect::<Vec<_>>(), values);
            }
        }

        #[test]
        fn hash_of_any_blocks_is_the_same_with_and_without_instructions(
            seed in any::<[u64; 2]>(), blocks in prop::collection::vec(any::<[u64; 4]>(), 1..70)
        ) {
            let (here, software) = (Hasher::new(seed), Hasher::in_software(seed));
            let (mut one, mut other) = (vec![0; blocks.len()], vec![0; blocks.len()]);
            here.double_blocks(&blocks, &mut one);
            software.double_blocks(&blocks, &mut other);
            prop_assert_eq!(&one, &other);
            let blocks: Vec<[u64; 2]> = blocks.iter().map(|&[a, b, ..]| [a, b]).collect();
            here.blocks(&blocks, &mut one);
            software.blocks(&blocks, &mut other);
            prop_assert_eq!(&one, &other);
            prop_assert_eq!(one, blocks.iter().map(|block| here.block(*block)).collect::<Vec<_>>());
        }

        #[test]
        fn hash_of_blocks_that_differ_in_one_bit_differs(seed in any::<[u64; 2]>(), block in any::<[u64; 4]>(), bit in 0usize..256) {
            let mut changed = block;
            changed[bit / 64] ^= 1 << (bit % 64);
            let hasher = Hasher::new(seed);
            let mut out = [0; 2];
            hasher.double_blocks(&[block, changed], &mut out);
            prop_assert_ne!(out[0], out[1]);
            let small = |[a, b, c, d]: [u64; 4]| if bit < 128 { [a, b] } else { [c, d] };
            hasher.blocks(&[small(block), small(changed)], &mut out);
            prop_assert_ne!(out[0], out[1]);
        }

        #[test]
        fn hash_of_keys_that_differ_in_one_bit_differs(seed in any::<[u64; 2]>(), key in key4(), bit in 0usize..136) {
            let mut bytes = [0; 17];
            bytes[..16].copy_from_slice(bytemuck::bytes_of(&key.words));
            bytes[16] = key.high;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let other = FlowKey4 { words: bytemuck::pod_read_unaligned(&bytes[..16]), high: bytes[16] };
            let hasher = Hasher::new(seed);
            prop_assert_ne!(hasher.one4(&key), hasher.one4(&other));
        }
    }
}
