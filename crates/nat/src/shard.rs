//! Which shard an outside address and port belong to: a pure function, asked for every packet from outside.

use core::fmt;

use crate::Address;

/// Ports of one address that always share a shard: a block of consecutive ones.
pub const BLOCK: u32 = 64;

/// Blocks of one address.
pub const BLOCKS: u32 = 65_536 / BLOCK;

/// How many shards there are: a power of two, at most [`BLOCKS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shards(u32);

impl Shards {
    /// One shard for all.
    pub const ONE: Self = Self(1);

    /// `None` where the count is not a power of two from 1 to [`BLOCKS`].
    pub fn new(count: u32) -> Option<Self> {
        (count.is_power_of_two() && count <= BLOCKS).then_some(Self(count))
    }

    /// The count.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.0
    }

    /// Binary logarithm of the count.
    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The shard that owns an outside address and port. Every shard owns 1/S of each address's blocks.
    #[inline(always)]
    pub fn shard_of<A: Address>(self, address: A, port: u16) -> u32 {
        self.shard_of_unit(address, u32::from(port) / BLOCK)
    }

    /// The same where a pool deals ports out to shards in larger units than [`BLOCK`]: of unit `unit`.
    #[inline(always)]
    pub fn shard_of_unit<A: Address>(self, address: A, unit: u32) -> u32 {
        unit.wrapping_add(mix(address)) & (self.0 - 1)
    }

    /// The first unit from `from` on that `shard` owns of an address; the next are each [`Shards::count`] on.
    #[inline(always)]
    pub(crate) fn first_unit<A: Address>(self, address: A, from: u32, shard: u32) -> u32 {
        from + (shard.wrapping_sub(mix(address)).wrapping_sub(from) & (self.0 - 1))
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shards", self.0)
    }
}

/// Moves the first block of each address to another shard, so that short port ranges spread too.
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
