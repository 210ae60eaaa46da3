//! The internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).

/// A one's-complement sum of 16-bit words, not yet folded.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The change that replaced words make to a checksum: `~m + m'` of RFC 1624, folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(pub u16);

impl Delta {
    /// And a 16-bit word changed from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub fn word(self, old: u16, new: u16) -> Self {
        Self(fold(self.0 as u64 + (!old) as u64 + new as u64))
    }

    /// And a 32-bit word, aligned to 16 bits, changed from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub fn double(self, old: u32, new: u32) -> Self {
        Self(fold(self.0 as u64 + (!old) as u64 + new as u64))
    }

    /// And a 64-bit word, aligned to 16 bits, changed from `old` to `new`.
    #[inline(always)]
    #[must_use]
    pub fn quad(self, old: u64, new: u64) -> Self {
        self.double((old >> 32) as u32, (new >> 32) as u32).double(old as u32, new as u32)
    }

    /// The change that takes this one back.
    #[inline(always)]
    #[must_use]
    pub fn inverse(self) -> Self {
        Self(!self.0)
    }

    /// Both changes.
    #[inline(always)]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(fold(self.0 as u64 + other.0 as u64))
    }

    /// The checksum field after the change (RFC 1624: HC' = ~(~HC + ~m + m')). A wrong checksum stays wrong.
    #[inline(always)]
    #[must_use]
    pub fn apply(self, field: u16) -> u16 {
        !fold((!field) as u64 + self.0 as u64)
    }
}
