//! Log messages about faults in a lease file. At most one message is written per second.

use std::path::Path;

use super::fault::Fault;

/// Nanoseconds between messages.
const INTERVAL: u64 = 1_000_000_000;

/// Faults that have not been logged yet.
#[derive(Debug, Default)]
pub struct FaultLog {
    first: Option<Fault>,
    more: u64,
    /// Earliest time of the next message.
    due: u64,
}

impl FaultLog {
    /// Add a fault.
    pub fn add(&mut self, fault: Fault) {
        match self.first {
            None => self.first = Some(fault),
            Some(_) => self.more += 1,
        }
    }

    /// Write a message if there are faults and the interval has passed.
    pub fn flush(&mut self, path: &Path, now: u64) {
        if now < self.due {
            return;
        }
        let Some(Fault { line, reason }) = self.first.take() else {
            return;
        };
        let path = path.display();
        match std::mem::take(&mut self.more) {
            0 => tracing::warn!("{path}:{line}: the entry is skipped: {reason}"),
            more => tracing::warn!(
                "{path}:{line}: the entry is skipped: {reason}; {more} further entries of the file \
                 are skipped"
            ),
        }
        self.due = now.saturating_add(INTERVAL);
    }
}
