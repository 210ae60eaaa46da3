//! A digest of a released segment: enough to tell whether a segment with the same borders has the same bytes.

use bytemuck::{Pod, Zeroable};
use sluice_table::hash::Hasher;

/// Bytes that one block of the hash takes, beside its place.
const STRIDE: usize = 24;
/// Blocks hashed at a time.
const BLOCKS: usize = 16;

/// What an entry says.
mod kind {
    pub const NONE: u16 = 0;
    pub const LATER: u16 = 1;
    pub const VALUE: u16 = 2;
}

/// An entry of a window's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Digest {
    pub value: u64,
    pub sequence: u32,
    pub length: u16,
    kind: u16,
}

const _: () = assert!(size_of::<Digest>() == 16);

impl Digest {
    /// Of no segment.
    pub const NONE: Self = Self {
        value: 0,
        sequence: 0,
        length: 0,
        kind: kind::NONE,
    };

    /// Of a segment whose bytes are still here.
    #[inline(always)]
    pub fn later(sequence: u32, length: usize) -> Self {
        Self {
            value: 0,
            sequence,
            length: length as u16,
            kind: kind::LATER,
        }
    }

    /// Of these bytes.
    pub fn now(hasher: &Hasher, sequence: u32, bytes: &[u8]) -> Self {
        Self {
            value: digest(hasher, sequence, bytes),
            kind: kind::VALUE,
            ..Self::later(sequence, bytes.len())
        }
    }

    pub fn is_later(&self) -> bool {
        self.kind == kind::LATER
    }

    /// Whether it has the value of a segment that begins here.
    pub fn is_of(&self, sequence: u32) -> bool {
        self.kind == kind::VALUE && self.sequence == sequence
    }

    /// The sequence number behind the segment.
    pub fn end(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.length))
    }
}

/// The exclusive or of a keyed hash of every 24 bytes and their place. Nobody outside sees the value, and who does not
/// know the key can't choose two segments of one length that agree.
pub(super) fn digest(hasher: &Hasher, sequence: u32, bytes: &[u8]) -> u64 {
    let mut value = 0;
    for (batch, bytes) in bytes.chunks(STRIDE * BLOCKS).enumerate() {
        let (mut blocks, mut out) = ([[0u64; 4]; BLOCKS], [0u64; BLOCKS]);
        let count = bytes.len().div_ceil(STRIDE);
        for (number, (block, chunk)) in blocks.iter_mut().zip(bytes.chunks(STRIDE)).enumerate() {
            let place = (batch * BLOCKS + number) as u64;
            let block: &mut [u8] = bytemuck::bytes_of_mut(block);
            block[..chunk.len()].copy_from_slice(chunk);
            block[STRIDE..].copy_from_slice(&(u64::from(sequence) << 32 | place).to_le_bytes());
        }
        hasher.double_blocks(&blocks[..count], &mut out[..count]);
        value = out[..count].iter().fold(value, |value, hash| value ^ hash);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_segments_that_differ_in_one_byte_or_place_differ() {
        let hasher = Hasher::new([1, 2]);
        let bytes: Vec<u8> = (0..1460).map(|k| k as u8).collect();
        let value = digest(&hasher, 7, &bytes);
        assert_eq!(value, digest(&hasher, 7, &bytes));
        assert_ne!(value, digest(&hasher, 8, &bytes));
        assert_ne!(value, digest(&Hasher::new([1, 3]), 7, &bytes));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(value, digest(&hasher, 7, &other), "byte {at}");
        }
        let mut exchanged = bytes.clone();
        exchanged[..48].rotate_left(24);
        assert_ne!(value, digest(&hasher, 7, &exchanged));
    }
}
