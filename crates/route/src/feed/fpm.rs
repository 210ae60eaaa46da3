//! FPM framing: a four-byte header before netlink messages, over TCP (FRR, `fpm/fpm.h`).

/// Maximum frame length.
pub const MAX_FRAME: usize = 32 * 1024;

const HEADER: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;

/// Why a connection's byte stream is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame has another version.
    #[error("version {0} of FPM: 1 is spoken here")]
    Version(u8),
    /// The frame does not contain netlink messages.
    #[error("messages of type {0}: those of netlink (1) are spoken here; load zebra's module dplane_fpm_nl")]
    Kind(u8),
    /// The length is invalid.
    #[error("a frame of {0} bytes: 4 to {MAX_FRAME} are taken")]
    Length(usize),
}

/// Received bytes of a connection that are not consumed yet.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameBuffer {
    /// Reserve space for received bytes after those that are not consumed yet.
    pub fn reserve(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// Append received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).extend_from_slice(bytes);
    }

    /// Whether the next frame is complete.
    ///
    /// # Errors
    /// The stream is invalid, and the connection must be closed.
    pub fn is_whole(&self) -> Result<bool, FrameError> {
        Ok(self.length()?.is_some())
    }

    /// The messages of the next complete frame; `None` if the frame is incomplete.
    ///
    /// # Errors
    /// The stream is invalid, and the connection must be closed.
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let begin = self.taken + HEADER;
        self.taken += length;
        Ok(self.bytes.get(begin..self.taken))
    }

    /// Length of the next frame in bytes, if it is complete.
    fn length(&self) -> Result<Option<usize>, FrameError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some(&[version, kind, high, low]) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if kind != NETLINK {
            return Err(FrameError::Kind(kind));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if !(HEADER..=MAX_FRAME).contains(&length) {
            return Err(FrameError::Length(length));
        }
        Ok((rest.len() >= length).then_some(length))
    }

    /// Whether an incomplete frame is buffered.
    pub fn is_cut(&self) -> bool {
        self.taken < self.bytes.len()
    }
}
