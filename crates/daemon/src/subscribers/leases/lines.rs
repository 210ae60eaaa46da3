//! Splits a byte stream into lines.

/// Maximum length of a line or block in bytes.
pub const MAX_LINE_LENGTH: usize = 64 * 1024;

/// Assembles lines from chunks.
#[derive(Debug, Default)]
pub struct Lines {
    /// The first part of an incomplete line.
    pending: Vec<u8>,
    /// Number of complete lines.
    number: u64,
    /// Whether the incomplete line is too long and was discarded.
    skipping: bool,
}

impl Lines {
    /// Pass each complete line to `each`, without its line end and with its number counted from 1. For a line longer
    /// than [`MAX_LINE_LENGTH`], `each` gets `None`.
    pub fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(u64, Option<&[u8]>)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.number += 1;
            if self.skipping || self.pending.len() + line.len() > MAX_LINE_LENGTH {
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
        if self.skipping || self.pending.len() + bytes.len() > MAX_LINE_LENGTH {
            self.skipping = true;
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(bytes);
        }
    }

    /// Number of complete lines.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Number of the incomplete line. `None` if all lines are complete.
    pub fn incomplete_line(&self) -> Option<u64> {
        (self.skipping || !self.pending.is_empty()).then_some(self.number + 1)
    }
}

/// Remove the carriage return of a DOS line end.
fn bare(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
