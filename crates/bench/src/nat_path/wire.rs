//! What both families of frames have in common.

use super::flows::{FRAME, Written, write};

/// Length of the longest frames.
pub const LONGEST: usize = 78;

/// A frame to be written.
pub trait Wire: Copy + From<Written> {
    /// 4 or 6.
    const FAMILY: u32;
    /// Length of the frames, without check sequence.
    const LENGTH: usize;
    /// Where the last 32 bits of the source address are.
    const SOURCE: usize;
    /// Where the source port is.
    const SOURCE_PORT: usize;

    /// Write a frame with right checksums.
    fn write(&self, frame: &mut [u8]);
}

impl Wire for Written {
    const FAMILY: u32 = 4;
    const LENGTH: usize = FRAME;
    const SOURCE: usize = 26;
    const SOURCE_PORT: usize = 34;

    #[inline(always)]
    fn write(&self, frame: &mut [u8]) {
        if let Some(frame) = frame.first_chunk_mut() {
            write(frame, self);
        }
    }
}

/// The number that a frame carries: its last four bytes.
pub fn mark(frame: &[u8]) -> u32 {
    frame.last_chunk().map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
}

/// A copy of a frame that came out.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Sample {
    /// A copy of a frame, as far as frames of this bench go.
    pub fn of(frame: &[u8]) -> Self {
        let mut bytes = [0; LONGEST];
        let length = frame.len().min(LONGEST);
        bytes[..length].copy_from_slice(&frame[..length]);
        Self { bytes, length }
    }

    /// The frame.
    pub fn frame(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
