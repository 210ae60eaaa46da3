//! Requirements of prefix tables for addresses.

use std::fmt::Debug;
use std::hash::Hash;

/// An address as a number in host byte order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + Debug + Send + Sync + 'static {
    /// Length of an address in bits.
    const BITS: u8;
    /// The byte at `index`. Index 0 is the most significant byte. The result is 0 for an index beyond the last byte.
    fn byte(self, index: u32) -> usize;
    /// The first `bytes` bytes as a number. `bytes` is 1 to 3.
    fn high(self, bytes: u8) -> usize;
    /// The address with `high` as its first 16 bits and zeros as its other bits.
    fn from_high(high: u16) -> Self;
    /// This address with the byte at `index` set to `byte`. The byte must be 0 before.
    fn with_byte(self, index: u32, byte: u8) -> Self;
    /// This address with all bits after the first `length` bits set to 0.
    fn masked(self, length: u8) -> Self;
}

macro_rules! address {
    ($number:ty) => {
        impl Address for $number {
            const BITS: u8 = <$number>::BITS as u8;

            #[inline(always)]
            fn byte(self, index: u32) -> usize {
                (self.checked_shl(8 * index).unwrap_or(0) >> (<$number>::BITS - 8)) as usize & 0xff
            }

            #[inline(always)]
            fn high(self, bytes: u8) -> usize {
                (self >> (<$number>::BITS - 8 * bytes as u32)) as usize
            }

            #[inline(always)]
            fn from_high(high: u16) -> Self {
                (high as $number) << (<$number>::BITS - 16)
            }

            #[inline(always)]
            fn with_byte(self, index: u32, byte: u8) -> Self {
                self | (byte as $number) << (<$number>::BITS - 8 - 8 * index)
            }

            #[inline(always)]
            fn masked(self, length: u8) -> Self {
                let host = <$number>::BITS.saturating_sub(length as u32);
                self & <$number>::MAX.checked_shl(host).unwrap_or(0)
            }
        }
    };
}
address!(u32);
address!(u128);
