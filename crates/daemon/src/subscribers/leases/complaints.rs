//! What is wrong with a lease file, for the log: one line a second, however much there is.

use std::path::Path;

use super::fault::Fault;

/// Nanoseconds between lines.
const BETWEEN: u64 = 1_000_000_000;

/// Faults that wait for their line.
#[derive(Debug, Default)]
pub struct Complaints {
    first: Option<Fault>,
    more: u64,
    /// When a line may come again.
    due: u64,
}

impl Complaints {
    /// There is one more.
    pub fn add(&mut self, fault: Fault) {
        match self.first {
            None => self.first = Some(fault),
            Some(_) => self.more += 1,
        }
    }

    /// Write a line, if there is something and it is time for it.
    pub fn tell(&mut self, path: &Path, now: u64) {
        if now < self.due {
            return;
        }
        let Some(Fault { line, reason }) = self.first.take() else {
            return;
        };
        let path = path.display();
        match std::mem::take(&mut self.more) {
            0 => tracing::warn!("{path}:{line}: skipped: {reason}"),
            more => tracing::warn!("{path}:{line}: skipped: {reason}; and {more} more of the file"),
        }
        self.due = now.saturating_add(BETWEEN);
    }
}
