//! Frames of FPM: four bytes ahead of netlink messages, over TCP (FRR, `fpm/fpm.h`).

/// Longest frame taken.
pub const MAX_FRAME: usize = 32 * 1024;

const HEADER: usize = 4;
const VERSION: u8 = 1;
const NETLINK: u8 = 1;

/// Why a connection can't be understood any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another version.
    #[error("version {0} of FPM: 1 is spoken here")]
    Version(u8),
    /// Something else than netlink.
    #[error("messages of type {0}: those of netlink (1) are spoken here; load zebra's module dplane_fpm_nl")]
    Kind(u8),
    /// A length that can't be.
    #[error("a frame of {0} bytes: 4 to {MAX_FRAME} are taken")]
    Length(usize),
}

/// What has come of a connection and is not taken yet.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameBuffer {
    /// Where what comes next is put, after what has not been taken.
    pub fn reserve(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// What came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).extend_from_slice(bytes);
    }

    /// Whether the next frame has come to its end.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn is_whole(&self) -> Result<bool, FrameError> {
        Ok(self.length()?.is_some())
    }

    /// The messages of the next whole frame; none where it has not come to its end.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let begin = self.taken + HEADER;
        self.taken += length;
        Ok(self.bytes.get(begin..self.taken))
    }

    /// Bytes of the next frame, once it is whole.
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

    /// Whether a frame has begun that has not come to its end.
    pub fn is_cut(&self) -> bool {
        self.taken < self.bytes.len()
    }
}
