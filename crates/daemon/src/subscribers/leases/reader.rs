//! Converts the bytes of a lease file to entries.

use super::Entry;
use super::dhcpd::Dhcpd;
use super::fault::{Fault, Reason};
use super::kea::Kea;
use super::lines::Lines;

/// Format of a lease file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Kea's `kea-leases4.csv`.
    Kea,
    /// ISC dhcpd's `dhcpd.leases`.
    Dhcpd,
}

/// Incremental reader of a file. The result does not depend on how the bytes are split into chunks.
#[derive(Debug)]
pub struct Reader {
    lines: Lines,
    blocks: Blocks,
}

#[derive(Debug)]
enum Blocks {
    Kea(Kea),
    Dhcpd(Dhcpd),
}

impl Reader {
    /// Create a reader at the beginning of a file.
    pub fn new(format: Format) -> Self {
        let blocks = match format {
            Format::Kea => Blocks::Kea(Kea::new()),
            Format::Dhcpd => Blocks::Dhcpd(Dhcpd::default()),
        };
        Self {
            lines: Lines::default(),
            blocks,
        }
    }

    /// Read more bytes. Incomplete entries are kept until their remaining bytes arrive.
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<Result<Entry, Fault>>) {
        let Self { lines, blocks } = self;
        lines.take(bytes, |number, line| match blocks {
            Blocks::Kea(kea) => {
                let read = line.ok_or(Reason::TooLong).and_then(|line| kea.line(line));
                let fault = |reason| Fault { line: number, reason };
                out.extend(read.map_err(fault).transpose());
            }
            Blocks::Dhcpd(dhcpd) => dhcpd.line(number, line, out),
        });
    }

    /// Number of the last complete line.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }

    /// The fault that an incomplete entry causes if no more bytes arrive.
    pub fn unfinished(&self) -> Option<Fault> {
        let block = match &self.blocks {
            Blocks::Kea(_) => None,
            Blocks::Dhcpd(dhcpd) => dhcpd.incomplete_line(),
        };
        let line = block.or_else(|| self.lines.incomplete_line())?;
        let reason = Reason::Unfinished;
        Some(Fault { line, reason })
    }

    /// Whether the bytes read so far form a complete lease file. A Kea file has a header even without leases.
    pub fn is_complete(&self) -> bool {
        let headed = match &self.blocks {
            Blocks::Kea(kea) => kea.is_headed(),
            Blocks::Dhcpd(_) => true,
        };
        headed && self.unfinished().is_none()
    }
}
