//! What both families of frames have in common.

use super::flows::{FRAME, Written, write};

/// A frame to be written.
pub trait Wire: Copy {
    /// 4 or 6.
    const FAMILY: u32;
    /// Length of the shortest frames, without check sequence.
    const LENGTH: usize;
    /// Where the last 32 bits of the source address are.
    const SOURCE: usize;
    /// Where the source port is.
    const SOURCE_PORT: usize;

    /// Length of this frame, without check sequence.
    #[inline(always)]
    fn length(&self) -> usize {
        Self::LENGTH
    }

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
#[derive(Clone, Debug)]
pub struct Sample(Box<[u8]>);

impl Sample {
    /// A copy of a frame.
    pub fn of(frame: &[u8]) -> Self {
        Self(frame.into())
    }

    /// The frame.
    pub fn frame(&self) -> &[u8] {
        &self.0
    }
}
