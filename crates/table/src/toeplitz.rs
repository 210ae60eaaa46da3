//! Software implementation of the Toeplitz hash, by which NICs select a receive queue (Microsoft's RSS).
//!
//! Every bit of the hash is the parity of the input, masked with a window of the key, so the hash is linear over bits.
//! Therefore one can compute the value of a field that results in a desired hash, and construct keys with which some
//! input bits have no influence. Linearity also lets anyone with the key choose the queue of packets. The hash
//! distributes packets to cores, but is never used for tables.
//!
//! The input equals a NIC's input: the selected fields among source address, destination address, source port and
//! destination port, as in the packet. Bit 0 is the first bit of the first byte.

mod draw;

use core::fmt;

pub use draw::{Blocks, Hosts, draw_for_blocks, draw_for_flows, draw_for_hosts, unit_part};

/// Size of a key in bytes. The longest input needs 40 bytes; NICs use at most 52.
pub const KEY_BYTES: usize = 52;

/// Maximum number of hash bits that select a shard.
pub const MAX_BITS: u32 = 10;

/// A key of the Toeplitz hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    /// Does not print the key, which is secret: anyone with the key can choose the queue of packets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

impl Key {
    /// The key of Microsoft's RSS verification suite: 40 bytes, padded with zeros.
    pub const VERIFICATION: Self = {
        let known = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
            0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
            0xbe, 0xac, 0x01, 0xfa,
        ];
        let mut bytes = [0; KEY_BYTES];
        let mut at = 0;
        while at < known.len() {
            bytes[at] = known[at];
            at += 1;
        }
        Self(bytes)
    };

    /// Creates a key from its bytes.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key. Some NICs use only the first 40 bytes.
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Value of bit `at`; 0 beyond the end of the key.
    pub(crate) fn bit(&self, at: usize) -> bool {
        self.0.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 != 0)
    }

    /// Sets bit `at` of the key.
    pub(crate) fn set(&mut self, at: usize, bit: bool) {
        let Some(byte) = self.0.get_mut(at / 8) else { return };
        let mask = 1 << (7 - at % 8);
        *byte = if bit { *byte | mask } else { *byte & !mask };
    }

    /// The 64 key bits that start at bit `at`, most significant bit first. Bits beyond the end of the key are 0.
    pub fn window(&self, at: usize) -> u64 {
        (at..at + 64).fold(0, |word, at| word << 1 | u64::from(self.bit(at)))
    }

    /// Hash of an input of at most 48 bytes, equal to the hash that a NIC reports. The function computes the hash bit
    /// by bit.
    pub fn hash(&self, input: &[u8]) -> u32 {
        let bits = input.iter().enumerate().flat_map(|(place, byte)| {
            (0..8)
                .filter(move |bit| byte << bit & 0x80 != 0)
                .map(move |bit| place * 8 + bit)
        });
        bits.fold(0, |hash, at| hash ^ (self.window(at) >> 32) as u32)
    }
}

/// Computes the low bits of the hash for inputs of up to `64 * WORDS` bits. Each hash bit is computed as one parity.
#[derive(Clone, Copy)]
pub struct ParityRows<const WORDS: usize> {
    rows: [[u64; WORDS]; MAX_BITS as usize],
    bits: u32,
}

impl<const WORDS: usize> fmt::Debug for ParityRows<WORDS> {
    /// Does not print the rows, which contain the secret key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("bits", &self.bits).finish_non_exhaustive()
    }
}

impl<const WORDS: usize> ParityRows<WORDS> {
    /// Creates the rows of a key for the low `bits` bits of the hash, at most [`MAX_BITS`].
    pub fn new(key: &Key, bits: u32) -> Self {
        let row = |bit: usize| core::array::from_fn(|word| key.window(word * 64 + 31 - bit));
        Self {
            rows: core::array::from_fn(row),
            bits: bits.min(MAX_BITS),
        }
    }

    /// Low bits of the hash of an input. The first bit of the input is the most significant bit of the first word; bits
    /// after the end of the input are 0.
    #[inline(always)]
    pub fn of(&self, input: [u64; WORDS]) -> u32 {
        let mut hash = 0;
        for bit in 0..self.bits.min(MAX_BITS) {
            let row = &self.rows[bit as usize];
            let mut chosen = 0;
            for word in 0..WORDS {
                chosen ^= input[word] & row[word];
            }
            hash |= (chosen.count_ones() & 1) << bit;
        }
        hash
    }

    /// Number of computed hash bits.
    #[inline(always)]
    pub fn bits(&self) -> u32 {
        self.bits
    }
}

/// Computes the low bits of the hash of four bytes, such as an IPv4 address, with one table lookup per byte. The fast
/// path uses these tables for each packet.
#[derive(Clone)]
pub struct ByteTables(Box<[[u16; 256]; 4]>);

impl fmt::Debug for ByteTables {
    /// Does not print the tables, which contain the secret key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").finish_non_exhaustive()
    }
}

impl ByteTables {
    /// Creates the tables of a key for the low `bits` bits of the hash, at most [`MAX_BITS`].
    pub fn new(key: &Key, bits: u32) -> Self {
        let rows = ParityRows::<1>::new(key, bits);
        let of = |place: usize, byte: usize| rows.of([(byte as u64) << (56 - 8 * place)]) as u16;
        Self(Box::new(core::array::from_fn(|place| {
            core::array::from_fn(|byte| of(place, byte))
        })))
    }

    /// Low bits of the hash of four bytes. The first byte is the most significant byte.
    #[inline(always)]
    pub fn of(&self, input: u32) -> u16 {
        let [first, second, third, fourth] = input.to_be_bytes();
        let tables = &self.0;
        tables[0][usize::from(first)]
            ^ tables[1][usize::from(second)]
            ^ tables[2][usize::from(third)]
            ^ tables[3][usize::from(fourth)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn tuple4(source: &str, source_port: u16, destination: &str, destination_port: u16) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
        let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
        [address(source).to_vec(), address(destination).to_vec(), ports].concat()
    }

    fn tuple6(source: &str, source_port: u16, destination: &str, destination_port: u16) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let ports = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
        [address(source).to_vec(), address(destination).to_vec(), ports].concat()
    }

    /// Test vectors of Microsoft's "Verifying the RSS Hash Calculation", with addresses and ports, and with addresses
    /// only.
    #[test]
    fn hash_of_published_vectors_is_the_published_one() {
        let v4 = [
            ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
            ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
            ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
            ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
            ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
        ];
        for (source, source_port, destination, destination_port, all, addresses) in v4 {
            let input = tuple4(source, source_port, destination, destination_port);
            assert_eq!(all, Key::VERIFICATION.hash(&input), "{source}");
            assert_eq!(addresses, Key::VERIFICATION.hash(&input[..8]), "{source}");
        }
        let v6 = [
            (
                "3ffe:2501:200:1fff::7",
                2794,
                "3ffe:2501:200:3::1",
                1766,
                0x4020_7d3d,
                0x2cc1_8cd5,
            ),
            (
                "3ffe:501:8::260:97ff:fe40:efab",
                14230,
                "ff02::1",
                4739,
                0xdde5_1bbf,
                0x0f0c_461c,
            ),
            (
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                "fe80::200:f8ff:fe21:67cf",
                38024,
                0x02d1_feef,
                0x4b61_e985,
            ),
        ];
        for (source, source_port, destination, destination_port, all, addresses) in v6 {
            let input = tuple6(source, source_port, destination, destination_port);
            assert_eq!(all, Key::VERIFICATION.hash(&input), "{source}");
            assert_eq!(addresses, Key::VERIFICATION.hash(&input[..32]), "{source}");
        }
    }

    proptest! {
        #[test]
        fn rows_of_any_input_give_the_low_bits_of_the_hash(
            key in any::<[[u8; 4]; KEY_BYTES / 4]>(), words in any::<[u64; 5]>(), bits in 0..=MAX_BITS,
        ) {
            let mut bytes = [0; KEY_BYTES];
            bytes.copy_from_slice(&key.concat());
            let key = Key::new(bytes);
            let input: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let low = (1u32 << bits) - 1;
            prop_assert_eq!(key.hash(&input) & low, ParityRows::<5>::new(&key, bits).of(words));
            prop_assert_eq!(key.hash(&input[..4]) & low, ByteTables::new(&key, bits).of((words[0] >> 32) as u32).into());
            prop_assert_eq!(key.hash(&input[..16]) & low, ParityRows::<2>::new(&key, bits).of([words[0], words[1]]));
        }
    }
}
