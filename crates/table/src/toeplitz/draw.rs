//! Random keys with which selected input bits have no influence on the low bits of the hash. All other input bits
//! influence the low bits. Maestro (NSDI 2024) computes keys with this property.

use super::{KEY_BYTES, Key, MAX_BITS};

/// Requirements for the key of inside interfaces. The NICs of inside interfaces hash the source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Number of hash bits that select a shard.
    pub bits: u32,
    /// Length of a subscriber's prefix in IPv4 and in IPv6.
    pub prefix: [u8; 2],
}

/// Requirements for the key of outside interfaces. The NICs of outside interfaces hash destination address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Number of hash bits that select a shard.
    pub bits: u32,
    /// Binary logarithm of the number of consecutive ports that belong to one shard; with 16, the port has no
    /// influence.
    pub together: u32,
}

/// Maximum number of attempts to find a key. An attempt fails with a probability below one half.
const DRAWS: u64 = 256;

/// Number of bits in a port.
const PORT: usize = 16;

/// Generates a random key for the hash of the source address. Bits after the subscriber's prefix have no influence. The
/// last bits of the prefix select the shard, so that consecutive subscribers belong to different shards, even in small
/// networks.
pub fn draw_for_hosts(wanted: Hosts, random: impl FnMut() -> u64) -> Key {
    let bits = wanted.bits.min(MAX_BITS);
    let prefix = wanted.prefix.map(usize::from);
    let shape = |key: &mut Key| {
        for (length, all) in [(prefix[0], 32), (prefix[1], 128)] {
            clear(key, length..all, bits);
        }
    };
    let last = |length: usize| length.saturating_sub(bits as usize)..length;
    let is_suitable = |key: &Key| prefix.iter().all(|&length| spans(key, last(length), bits));
    draw(random, shape, is_suitable)
}

/// Generates a random key for the hash of destination address and port. The ports are divided into port units of
/// `2^together` ports. The shard of a port is [`unit_part`] of its port unit, XORed with a value that depends only on
/// the address. Consecutive addresses are distributed evenly.
pub fn draw_for_blocks(wanted: Blocks, random: impl FnMut() -> u64) -> Key {
    let bits = wanted.bits.min(MAX_BITS);
    let shape = |key: &mut Key| {
        for address in [32, 128] {
            clear(key, address..address + PORT, bits);
            // Set a single key bit. With this key, each bit of the port unit's number changes exactly one bit of the
            // hash.
            if let Some(at) = (address + PORT + 31).checked_sub((wanted.together + bits) as usize)
                && wanted.together < PORT as u32
                && bits > 0
            {
                key.set(at, true);
            }
            // Each of the last address bits changes a different bit of the hash.
            key.set(address + 31 - bits as usize, true);
        }
    };
    let is_suitable = |key: &Key| [32, 128].iter().all(|&address| spans(key, 0..address, bits));
    draw(random, shape, is_suitable)
}

/// Generates a random key for the hash of addresses and ports. Every field has full rank. The last 6 bits of the
/// destination port also have the highest possible rank, so that a word of 64 ports contains ports of every shard.
pub fn draw_for_flows(bits: u32, random: impl FnMut() -> u64) -> Key {
    let bits = bits.min(MAX_BITS);
    let is_suitable = |key: &Key| {
        [32usize, 128].iter().all(|&address| {
            let ports = 2 * address;
            let fields = [
                0..address,
                address..ports,
                ports..ports + PORT,
                ports + PORT..ports + 2 * PORT,
            ];
            let word = ports + 2 * PORT - 6..ports + 2 * PORT;
            fields.into_iter().all(|field| spans(key, field, bits)) && rank(key, word, bits) == bits.min(6)
        })
    };
    draw(random, |_| {}, is_suitable)
}

/// Contribution of a port unit to the shard number, for keys of [`draw_for_blocks`].
#[inline(always)]
pub fn unit_part(unit: u32, bits: u32) -> u32 {
    match bits {
        0 => 0,
        _ => unit.reverse_bits() >> (32 - bits),
    }
}

fn draw(mut random: impl FnMut() -> u64, shape: impl Fn(&mut Key), is_suitable: impl Fn(&Key) -> bool) -> Key {
    for _ in 1..DRAWS {
        let mut bytes = [0; KEY_BYTES];
        for chunk in bytes.chunks_mut(8) {
            let drawn = random().to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        let mut key = Key::new(bytes);
        shape(&mut key);
        if is_suitable(&key) {
            return key;
        }
    }
    // The random source is broken. Fall back to a known key, which still distributes packets.
    let mut key = Key::VERIFICATION;
    shape(&mut key);
    key
}

/// Removes the influence of these input bits on the low bits of the hash.
fn clear(key: &mut Key, input: core::ops::Range<usize>, bits: u32) {
    if input.is_empty() || bits == 0 {
        return;
    }
    for at in input.start + 32 - bits as usize..input.end + 31 {
        key.set(at, false);
    }
}

/// The low bits of the hash that change with bit `at` of the input.
fn column(key: &Key, at: usize, bits: u32) -> u32 {
    (0..bits).fold(0, |column, bit| {
        column | u32::from(key.bit(at + 31 - bit as usize)) << bit
    })
}

/// Rank of the linear map from these input bits to the low bits of the hash.
fn rank(key: &Key, input: core::ops::Range<usize>, bits: u32) -> u32 {
    let mut base = [0u32; 32];
    for at in input {
        let mut remaining = column(key, at, bits);
        while remaining != 0 {
            let highest = remaining.ilog2() as usize;
            if base[highest] == 0 {
                base[highest] = remaining;
                break;
            }
            remaining ^= base[highest];
        }
    }
    base.iter().filter(|&&column| column != 0).count() as u32
}

/// Whether the map from these input bits to the low bits of the hash has the maximum rank.
fn spans(key: &Key, input: core::ops::Range<usize>, bits: u32) -> bool {
    rank(key, input.clone(), bits) == bits.min(input.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn random(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
        }
    }

    fn low(key: &Key, input: &[u8], bits: u32) -> u32 {
        key.hash(input) & ((1 << bits) - 1)
    }

    proptest! {
        #[test]
        fn key_for_hosts_keeps_a_subscribers_prefix_in_one_shard(
            seed: u64, bits in 0..=MAX_BITS, length in 16u8..=32, address: u32, other: u32,
        ) {
            let key = draw_for_hosts(Hosts { bits, prefix: [length, 56] }, random(seed));
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let neighbour = address & !host | other & host;
            prop_assert_eq!(
                low(&key, &address.to_be_bytes(), bits), low(&key, &neighbour.to_be_bytes(), bits)
            );
            let v6 = u128::from(seed) << 72;
            prop_assert_eq!(
                low(&key, &(v6 | u128::from(other)).to_be_bytes(), bits), low(&key, &v6.to_be_bytes(), bits)
            );
        }

        #[test]
        fn key_for_hosts_gives_consecutive_subscribers_each_shard_in_turn(
            seed: u64, bits in 0..=MAX_BITS, first: u32, length in 24u8..=32,
        ) {
            let key = draw_for_hosts(Hosts { bits, prefix: [length, 64] }, random(seed));
            let host = 32 - u32::from(length);
            let first = first & !((1u32 << bits) - 1);
            let mut seen: Vec<u32> =
                (0..1 << bits).map(|next| low(&key, &((first | next) << host).to_be_bytes(), bits)).collect();
            seen.sort_unstable();
            prop_assert_eq!((0..1 << bits).collect::<Vec<u32>>(), seen);
        }

        #[test]
        fn key_for_blocks_puts_each_port_where_its_unit_says(
            seed: u64, bits in 0..=MAX_BITS, together in 0u32..=16, address: u32, v6: u128, port: u16,
        ) {
            let key = draw_for_blocks(Blocks { bits, together }, random(seed));
            let unit = u32::from(port) >> together;
            for bytes in [address.to_be_bytes().to_vec(), v6.to_be_bytes().to_vec()] {
                let of_address = low(&key, &bytes, bits);
                let of_port = low(&key, &[bytes, port.to_be_bytes().to_vec()].concat(), bits);
                prop_assert_eq!(of_address ^ unit_part(unit, bits), of_port);
            }
        }

        #[test]
        fn key_for_blocks_gives_consecutive_addresses_each_shard_in_turn(seed: u64, bits in 0..=MAX_BITS, first: u32) {
            let key = draw_for_blocks(Blocks { bits, together: 6 }, random(seed));
            let first = first & !((1 << bits) - 1);
            let mut seen: Vec<u32> =
                (0..1 << bits).map(|next| low(&key, &(first | next).to_be_bytes(), bits)).collect();
            seen.sort_unstable();
            prop_assert_eq!((0..1 << bits).collect::<Vec<u32>>(), seen);
        }

        #[test]
        fn key_for_flows_has_a_port_for_each_shard_in_each_word(
            seed: u64, bits in 0u32..=6, remote: u32, public: u32, remote_port: u16, word: u16,
        ) {
            let key = draw_for_flows(bits, random(seed));
            let mut seen = vec![0; 1 << bits];
            for port in (word & !63)..=(word | 63) {
                let parts = [remote.to_be_bytes(), public.to_be_bytes()].concat();
                let ports = [remote_port.to_be_bytes(), port.to_be_bytes()].concat();
                seen[low(&key, &[parts, ports].concat(), bits) as usize] += 1;
            }
            prop_assert_eq!(vec![64 >> bits; 1 << bits], seen);
        }
    }

    #[test]
    fn key_of_a_broken_source_of_numbers_still_has_its_shape() {
        let key = draw_for_blocks(Blocks { bits: 4, together: 6 }, || 0);
        let input = |port: u16| [vec![192, 0, 2, 1], port.to_be_bytes().to_vec()].concat();
        assert_eq!(low(&key, &input(1024), 4), low(&key, &input(1087), 4));
    }
}
