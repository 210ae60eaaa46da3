//! FPM framing over TCP: each frame has a four-byte header and contains netlink messages (FRR, `fpm/fpm.h`).

/// Maximum length of a frame in bytes.
pub const MAX_FRAME: usize = 32 * 1024;

const HEADER: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;

/// Why a connection's byte stream is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The FPM version of the frame is not supported.
    #[error("FPM version {0} is not supported: only version 1 is supported")]
    Version(u8),
    /// The frame does not contain netlink messages.
    #[error(
        "FPM message type {0} is not supported: load zebra's module dplane_fpm_nl, which sends netlink messages \
         (type 1)"
    )]
    Kind(u8),
    /// The length of the frame is invalid.
    #[error("an FPM frame of {0} bytes is out of range: 4 to {MAX_FRAME}")]
    Length(usize),
}

/// Received but unconsumed bytes of a connection.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameBuffer {
    /// Reserves space for received bytes after the unconsumed bytes.
    pub fn reserve(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).extend_from_slice(bytes);
    }

    /// Whether the buffer contains a complete frame.
    ///
    /// # Errors
    /// The stream is invalid. The caller must close the connection.
    pub fn is_whole(&self) -> Result<bool, FrameError> {
        Ok(self.length()?.is_some())
    }

    /// Removes the next complete frame and returns the frame's messages. `None` if the frame is incomplete.
    ///
    /// # Errors
    /// The stream is invalid. The caller must close the connection.
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let begin = self.taken + HEADER;
        self.taken += length;
        Ok(self.bytes.get(begin..self.taken))
    }

    /// Length of the next frame in bytes; `None` if the frame is incomplete.
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

    /// Whether the buffer contains an incomplete frame.
    pub fn is_cut(&self) -> bool {
        self.taken < self.bytes.len()
    }
}
