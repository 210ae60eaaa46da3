//! Requirements of prefix tables on addresses.

use std::fmt::Debug;
use std::hash::Hash;

/// An address as a number in host byte order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + Debug + Send + Sync + 'static {
    /// Length in bits.
    const BITS: u8;
    /// The `index`-th byte, starting at the most significant; 0 beyond the end.
    fn byte(self, index: u32) -> usize;
    /// The first `bytes` bytes, 1 to 3.
    fn high(self, bytes: u8) -> usize;
    /// The address whose first 16 bits are `high` and whose other bits are 0.
    fn from_high(high: u16) -> Self;
    /// This address with its `index`-th byte, which must be 0, set to `byte`.
    fn with_byte(self, index: u32, byte: u8) -> Self;
    /// The first `length` bits; the other bits are 0.
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
