//! A lease file's bytes, in pieces as they come, as entries.

use super::Entry;
use super::dhcpd::Dhcpd;
use super::fault::{Fault, Reason};
use super::kea::Kea;
use super::lines::Lines;

/// Whose lease file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Kea's `kea-leases4.csv`.
    Kea,
    /// ISC dhcpd's `dhcpd.leases`.
    Dhcpd,
}

/// Reads a file from its beginning. Where its bytes are cut into pieces makes no difference.
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
    /// Before the first byte.
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

    /// Read more bytes. Entries whose end is not among them are kept until it comes.
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

    /// The last line that was read whole.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }

    /// The entry that has begun without its end having come, as the fault that it is if the end never comes.
    pub fn unfinished(&self) -> Option<Fault> {
        let block = match &self.blocks {
            Blocks::Kea(_) => None,
            Blocks::Dhcpd(dhcpd) => dhcpd.begun(),
        };
        let line = block.or_else(|| self.lines.begun())?;
        let reason = Reason::Unfinished;
        Some(Fault { line, reason })
    }

    /// Whether what was read is a lease file that could end here. Kea's has a header, even without leases.
    pub fn is_whole(&self) -> bool {
        let headed = match &self.blocks {
            Blocks::Kea(kea) => kea.is_headed(),
            Blocks::Dhcpd(_) => true,
        };
        headed && self.unfinished().is_none()
    }
}
