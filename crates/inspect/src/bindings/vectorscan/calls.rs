//! Records scans. A replay of the record measures the cost of the search alone.

use std::ops::Range;

/// Recorded scans in order, with their data. The log is for measurements only, because recording allocates memory.
#[derive(Debug, Default)]
pub struct ScanLog {
    calls: Vec<ScanRecord>,
    bytes: Vec<u8>,
}

/// One scan.
#[derive(Clone, Debug)]
struct ScanRecord {
    /// Serial number of the database.
    database: u64,
    /// Number of the stream, and whether the scan started at the beginning of the stream; `None` in block mode.
    stream: Option<(u32, bool)>,
    bytes: Range<usize>,
}

impl ScanLog {
    pub(super) fn record(&mut self, database: u64, stream: Option<(u32, bool)>, data: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        self.calls.push(ScanRecord {
            database,
            stream,
            bytes: start..self.bytes.len(),
        });
    }

    /// Number of scans.
    pub fn count(&self) -> usize {
        self.calls.len()
    }

    /// Number of scanned bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Database, stream and data of each scan.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Option<(u32, bool)>, &[u8])> {
        let call = |call: &ScanRecord| (call.database, call.stream, &self.bytes[call.bytes.clone()]);
        self.calls.iter().map(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_back_in_order_with_their_bytes() {
        let mut calls = ScanLog::default();
        calls.record(1, None, b"one");
        calls.record(2, Some((7, true)), b"");
        calls.record(1, None, b"two");
        let all: Vec<_> = calls.iter().collect();
        assert_eq!(
            vec![(1, None, &b"one"[..]), (2, Some((7, true)), b""), (1, None, b"two")],
            all
        );
        assert_eq!((3, 6), (calls.count(), calls.bytes()));
    }
}
