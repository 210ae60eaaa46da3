//! Mapping of an outside address and port to the shard that owns it. The mapping is a pure function, which is evaluated
//! for every packet from outside.

use core::fmt;

use sluice_table::toeplitz::{self, Key};

use crate::Address;

/// Number of consecutive ports of an address that always belong to one shard.
pub const BLOCK: u32 = 64;

/// Number of blocks of an address.
pub const BLOCKS: u32 = 65_536 / BLOCK;

/// Distribution of outside addresses and ports over shards. The number of shards is a power of two, at most [`BLOCKS`].
/// The distribution equals the RSS distribution of a NIC that hashes destination address and port with this key
/// ([`toeplitz::draw_for_blocks`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    count: u32,
    /// Bits of the key that apply to IPv4 addresses.
    v4: u64,
    /// Bits of the key that apply to IPv6 addresses.
    v6: [u64; 3],
    /// Whether a separate hash of the address, instead of the NIC's RSS hash, determines the shard of an address's
    /// first port unit.
    apart: bool,
}

impl Shards {
    /// A single shard.
    pub const ONE: Self = Self {
        count: 1,
        v4: 0,
        v6: [0; 3],
        apart: false,
    };

    /// Creates the distribution with a fixed public key. `None` if the count is not a power of two from 1 to
    /// [`BLOCKS`].
    pub fn new(count: u32) -> Option<Self> {
        let valid = count.is_power_of_two() && count <= BLOCKS;
        valid.then(|| {
            let bits = count.trailing_zeros();
            let mut numbers = (1u64..).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
            let together = BLOCK.trailing_zeros();
            let random = || numbers.next().unwrap_or_default();
            let key = toeplitz::draw_for_blocks(toeplitz::Blocks { bits, together }, random);
            Self::of_key(count, &key)
        })
    }

    /// Creates the distribution with a key from [`toeplitz::draw_for_blocks`].
    pub fn keyed(count: u32, key: &Key) -> Option<Self> {
        (count.is_power_of_two() && count <= BLOCKS).then(|| Self::of_key(count, key))
    }

    fn of_key(count: u32, key: &Key) -> Self {
        Self {
            count,
            v4: key.window(0),
            v6: [key.window(0), key.window(64), key.window(128)],
            apart: false,
        }
    }

    /// Returns the distribution for pools that have fewer port units per address than there are shards. With the NIC's
    /// RSS hash, consecutive addresses would all belong to a few shards.
    #[must_use]
    #[inline(always)]
    pub fn spread_over(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Number of shards.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.count
    }

    /// Binary logarithm of the number of shards.
    #[inline(always)]
    pub fn bits(self) -> u32 {
        self.count.trailing_zeros()
    }

    /// The shard that owns an outside address and port. If there are S shards, each shard owns 1/S of the blocks of
    /// every address.
    #[inline(always)]
    pub fn shard_of<A: Address>(self, address: A, port: u16) -> u32 {
        self.shard_of_unit(address, u32::from(port) / BLOCK)
    }

    /// The shard that owns a port unit of an address, for pools with port units larger than [`BLOCK`].
    #[inline(always)]
    pub fn shard_of_unit<A: Address>(self, address: A, unit: u32) -> u32 {
        match self.apart {
            true => unit.wrapping_add(mix(address)) & (self.count - 1),
            false => toeplitz::unit_part(unit, self.bits()) ^ self.of_address(address),
        }
    }

    /// First port unit of an address, at or after `from`, that `shard` owns. Further port units of the shard follow at
    /// intervals of [`Shards::count`].
    #[inline(always)]
    pub(crate) fn first_unit<A: Address>(self, address: A, from: u32, shard: u32) -> u32 {
        let unit = match self.apart {
            true => shard.wrapping_sub(mix(address)),
            false => toeplitz::unit_part(shard ^ self.of_address(address), self.bits()),
        };
        from + (unit.wrapping_sub(from) & (self.count - 1))
    }

    /// Whether a port unit is shared. One of two consecutive port units is shared. Among the port units that the
    /// distribution assigns to one shard, every second port unit is also shared.
    #[inline(always)]
    pub(crate) fn is_shared(self, unit: u32) -> bool {
        ((unit >> self.bits()) ^ unit) & 1 != 0
    }

    /// Contribution of an address to the shard number of its ports: the low bits of the address's hash.
    #[inline(always)]
    fn of_address<A: Address>(self, address: A) -> u32 {
        let [high, low] = address.words();
        let [first, second, third] = self.v6;
        let mut part = 0;
        for bit in 0..self.bits() {
            let chosen = if A::BITS == 32 {
                low & u64::from((self.v4 >> (1 + bit)) as u32)
            } else {
                let row = |word: u64, next: u64| word << (31 - bit) | next >> (33 + bit);
                high & row(first, second) ^ low & row(second, third)
            };
            part |= (chosen.count_ones() & 1) << bit;
        }
        part
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shards", self.count)
    }
}

/// Hash of an address that determines the shard of the address's first port unit.
#[inline(always)]
fn mix<A: Address>(address: A) -> u32 {
    let [high, low] = address.words();
    ((low ^ high.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_count_not_a_power_of_two_is_refused() {
        assert_eq!(None, Shards::new(0));
        assert_eq!(None, Shards::new(3));
        assert_eq!(None, Shards::new(BLOCKS * 2));
        assert_eq!(Some(8), Shards::new(8).map(Shards::count));
    }

    #[test]
    fn shard_of_each_address_owns_an_equal_share() {
        for count in [1, 2, 16, 1024] {
            let shards = Shards::new(count).unwrap();
            for address in [0u32, 0xcb00_7101, u32::MAX] {
                let mut owned = vec![0; count as usize];
                for port in 0..=u16::MAX {
                    owned[shards.shard_of(address, port) as usize] += 1;
                }
                assert_eq!(vec![65_536 / count; count as usize], owned);
            }
        }
    }

    #[test]
    fn shard_of_one_block_of_many_addresses_spreads() {
        let shards = Shards::new(16).unwrap();
        let mut owned = [0; 16];
        for low in 0..4096u64 {
            owned[shards.shard_of([0x2001_0db8 << 32, low], 1024) as usize] += 1;
        }
        assert!(owned.iter().all(|&n| (192..=320).contains(&n)), "{owned:?}");
    }

    #[test]
    fn shard_of_an_outside_address_and_port_is_what_a_card_hashes() {
        let key = toeplitz::draw_for_blocks(toeplitz::Blocks { bits: 5, together: 6 }, || 0x1234_5678_9abc_def1);
        let shards = Shards::keyed(32, &key).unwrap();
        for (number, port) in (0..5000u32).zip((0..=u16::MAX).step_by(13)) {
            let v4 = number.wrapping_mul(0x9e37_79b9);
            let input = [&v4.to_be_bytes()[..], &port.to_be_bytes()].concat();
            assert_eq!(key.hash(&input) & 31, shards.shard_of(v4, port));
            let v6 = [u64::from(v4) << 20 | 7, u64::from(v4) ^ 0x5555];
            let parts = [&v6[0].to_be_bytes()[..], &v6[1].to_be_bytes(), &port.to_be_bytes()];
            assert_eq!(key.hash(&parts.concat()) & 31, shards.shard_of(v6, port));
        }
    }

    #[test]
    fn first_unit_any_shard_is_its_own() {
        let shards = Shards::new(32).unwrap();
        for shard in 0..32 {
            for from in [0, 16, 77] {
                let block = shards.first_unit(0xcb00_7101u32, from, shard);
                assert!((from..from + 32).contains(&block));
                assert_eq!(shard, shards.shard_of(0xcb00_7101u32, (block * BLOCK) as u16));
            }
        }
    }
}
