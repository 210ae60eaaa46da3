//! The internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).

/// Folds a one's-complement sum to 16 bits.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Folded one's-complement sum of the bytes as big-endian 16-bit words. An odd last byte is padded with zero. If the
/// data contains a correct checksum field, the sum is 0xffff.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, tail) = bytes.as_chunks::<8>();
    let (mut even, mut odd) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        even += word & 0xffff_ffff;
        odd += word >> 32;
    }
    let mut tail = tail;
    if let Some((double, rest)) = tail.split_first_chunk::<4>() {
        even += u32::from_ne_bytes(*double) as u64;
        tail = rest;
    }
    if let Some((word, rest)) = tail.split_first_chunk::<2>() {
        odd += u16::from_ne_bytes(*word) as u64;
        tail = rest;
    }
    if let [last] = tail {
        odd += u16::from_ne_bytes([*last, 0]) as u64;
    }
    // The words are summed in native byte order, and the bytes of the sum are swapped if necessary. The result is
    // correct, because a one's-complement sum doesn't depend on the byte order.
    u16::from_be(fold(
        (even & 0xffff_ffff) + (even >> 32) + (odd & 0xffff_ffff) + (odd >> 32),
    ))
}

/// Internet checksum of bytes. The checksum field in the bytes must be zero.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// One's-complement sum of two folded sums.
#[inline(always)]
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

/// Sum of the IPv4 pseudo-header (RFC 9293, section 3.1). `length` is the number of bytes of transport header and data.
#[inline]
pub fn pseudo4(source: u32, destination: u32, protocol: u8, length: u16) -> u16 {
    fold(source as u64 + destination as u64 + protocol as u64 + length as u64)
}

/// Sum of the IPv6 pseudo-header (RFC 8200, section 8.1). `length` is the number of bytes of transport header and data.
#[inline]
pub fn pseudo6(source: u128, destination: u128, protocol: u8, length: u16) -> u16 {
    let word = |address: u128, place: u32| (address >> (32 * place)) as u32 as u64;
    let sum = |address| word(address, 0) + word(address, 1) + word(address, 2) + word(address, 3);
    fold(sum(source) + sum(destination) + protocol as u64 + length as u64)
}

/// Change of a checksum caused by replaced words: `~m + m'` of RFC 1624, folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(pub u16);

impl Delta {
    /// Adds the effect of replacing the 16-bit word `old` by `new`.
    #[inline(always)]
    #[must_use]
    pub fn word(self, old: u16, new: u16) -> Self {
        Self(fold(self.0 as u64 + (!old) as u64 + new as u64))
    }

    /// Adds the effect of replacing the 32-bit word `old` by `new`. The word must be at an even offset.
    #[inline(always)]
    #[must_use]
    pub fn double(self, old: u32, new: u32) -> Self {
        Self(fold(self.0 as u64 + (!old) as u64 + new as u64))
    }

    /// Adds the effect of replacing the 64-bit word `old` by `new`. The word must be at an even offset.
    #[inline(always)]
    #[must_use]
    pub fn quad(self, old: u64, new: u64) -> Self {
        self.double((old >> 32) as u32, (new >> 32) as u32)
            .double(old as u32, new as u32)
    }

    /// The change that cancels this change.
    #[inline(always)]
    #[must_use]
    pub fn inverse(self) -> Self {
        Self(!self.0)
    }

    /// The sum of two changes.
    #[inline(always)]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(add(self.0, other.0))
    }

    /// Applies the change to a checksum field (RFC 1624: HC' = ~(~HC + ~m + m')). An incorrect checksum stays
    /// incorrect.
    #[inline(always)]
    #[must_use]
    pub fn apply(self, field: u16) -> u16 {
        !add(!field, self.0)
    }

    /// Applies the change and `other`, which is not 0, to a checksum field: like `self.and(Delta(other)).apply(field)`.
    #[inline(always)]
    #[must_use]
    pub fn apply_with(self, other: u16, field: u16) -> u16 {
        let sum = u32::from(!field) + u32::from(self.0) + u32::from(other);
        // The sum of the halves is in the high half, with the carry of the low half.
        !(sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
    }
}
