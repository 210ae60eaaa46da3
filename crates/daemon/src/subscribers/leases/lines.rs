//! Lines of bytes that come in pieces.

/// The longest line, and the longest block of lines.
pub const MOST: usize = 64 * 1024;

/// Puts lines together.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    pending: Vec<u8>,
    /// Lines before it.
    number: u64,
    /// It is too long, and was dropped.
    skipping: bool,
}

impl Lines {
    /// Hand on each line that is whole with these bytes, with its number from 1 and without its end; nothing for one
    /// that is longer than [`MOST`].
    pub fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(u64, Option<&[u8]>)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.number += 1;
            if self.skipping || self.pending.len() + line.len() > MOST {
                each(self.number, None);
            } else if self.pending.is_empty() {
                each(self.number, Some(bare(line)));
            } else {
                self.pending.extend_from_slice(line);
                each(self.number, Some(bare(&self.pending)));
            }
            self.pending.clear();
            self.skipping = false;
            bytes = rest;
        }
        if self.skipping || self.pending.len() + bytes.len() > MOST {
            self.skipping = true;
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(bytes);
        }
    }

    /// Lines that were whole.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the line that has begun without its end having come.
    pub fn begun(&self) -> Option<u64> {
        (self.skipping || !self.pending.is_empty()).then_some(self.number + 1)
    }
}

/// Without what a text editor elsewhere ends lines with.
fn bare(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
