//! FTP data connections that were negotiated on control connections and are not established yet.

use std::net::IpAddr;

use super::{Anomaly, AnomalyCounts};

/// Maximum number of expected data connections in a shard.
pub const MAX_EXPECTATIONS: usize = 256;
/// Units of work charged for a search of the whole table.
pub(super) const LOOKUP_COST: u32 = MAX_EXPECTATIONS as u32;
/// Lifetime of an expectation in seconds.
pub const LIFETIME: u32 = 300;

/// Addresses and port of an expected connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEndpoints {
    /// Address of the host that listens.
    pub listener: IpAddr,
    /// Address of the host that connects.
    pub peer: IpAddr,
    /// Port on which the listener accepts the connection.
    pub port: u16,
}

/// Command on the control connection to which a data connection belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transfer {
    /// No command was received yet, or the command requests a listing.
    #[default]
    Other,
    /// `RETR`
    Retrieve,
    /// `STOR`
    Store,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ends: DataEndpoints,
    transfer: Transfer,
    /// Second in which the data connection was negotiated.
    second: u32,
}

/// A table of fixed size, which evicts the oldest entry when it is full.
#[derive(Debug)]
pub struct Expectations {
    entries: Box<[Option<Entry>]>,
    /// Number of the control connection of each entry. 0 marks a free entry.
    controls: Box<[u64]>,
    next: usize,
    count: usize,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            entries: vec![None; MAX_EXPECTATIONS].into(),
            controls: vec![0; MAX_EXPECTATIONS].into(),
            next: 0,
            count: 0,
        }
    }
}

impl Expectations {
    /// Adds a data connection that a control connection has negotiated.
    pub fn add(&mut self, ends: DataEndpoints, control: u64, second: u32, counts: &mut AnomalyCounts) {
        let entry = Entry {
            ends,
            transfer: Transfer::Other,
            second,
        };
        let (Some(place), Some(of)) = (self.entries.get_mut(self.next), self.controls.get_mut(self.next)) else {
            return;
        };
        *of = control;
        match place.replace(entry) {
            // An expired entry is not counted as evicted, because lookups ignore expired entries.
            Some(old) if second.saturating_sub(old.second) <= LIFETIME => counts.add(Anomaly::ExpectationLost),
            Some(_) => {}
            None => self.count += 1,
        }
        self.next = (self.next + 1) % MAX_EXPECTATIONS;
    }

    /// Sets the command of the latest data connection of a control connection.
    pub fn transfer(&mut self, control: u64, transfer: Transfer) {
        // The latest entry is just before the next free entry.
        let (later, earlier) = self.controls.split_at(self.next);
        let last = |controls: &[u64]| controls.iter().rposition(|&of| of == control);
        let latest = last(later).or_else(|| last(earlier).map(|place| self.next + place));
        if let Some(entry) = latest.and_then(|place| self.entries[place].as_mut()) {
            entry.transfer = transfer;
        }
    }

    /// Finds an expected connection, and removes it from the table.
    pub fn take(&mut self, ends: &DataEndpoints, second: u32) -> Option<Transfer> {
        if self.count == 0 {
            return None;
        }
        let place = self.entries.iter().position(|place| {
            place.is_some_and(|entry| entry.ends == *ends && second.saturating_sub(entry.second) <= LIFETIME)
        })?;
        self.count -= 1;
        self.controls[place] = 0;
        self.entries[place].take().map(|entry| entry.transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> DataEndpoints {
        DataEndpoints {
            listener: [192, 0, 2, 1].into(),
            peer: [10, 0, 0, 1].into(),
            port,
        }
    }

    #[test]
    fn expected_connection_is_found_once_and_not_for_long() {
        let (mut expected, mut counts) = (Expectations::default(), AnomalyCounts::default());
        expected.add(ends(1), 7, 10, &mut counts);
        expected.add(ends(2), 7, 10, &mut counts);
        expected.add(ends(3), 8, 10, &mut counts);
        expected.transfer(7, Transfer::Store);
        assert_eq!(None, expected.take(&ends(4), 10));
        assert_eq!(Some(Transfer::Other), expected.take(&ends(1), 10));
        assert_eq!(None, expected.take(&ends(1), 10));
        assert_eq!(Some(Transfer::Store), expected.take(&ends(2), 10 + LIFETIME));
        assert_eq!(None, expected.take(&ends(3), 11 + LIFETIME));
    }

    #[test]
    fn transfer_is_of_the_latest_connection_whatever_place_it_has() {
        for before in 0..2 * MAX_EXPECTATIONS as u16 {
            let (mut expected, mut counts) = (Expectations::default(), AnomalyCounts::default());
            for port in 0..before {
                expected.add(ends(port), 7, 10, &mut counts);
            }
            for port in [1_000, 1_001] {
                expected.add(ends(port), 8, 10, &mut counts);
            }
            expected.transfer(8, Transfer::Retrieve);
            expected.transfer(9, Transfer::Store);
            assert_eq!(Some(Transfer::Retrieve), expected.take(&ends(1_001), 10), "{before}");
            assert_eq!(Some(Transfer::Other), expected.take(&ends(1_000), 10), "{before}");
        }
    }

    #[test]
    fn oldest_expectation_gives_way_and_is_counted() {
        let (mut expected, mut counts) = (Expectations::default(), AnomalyCounts::default());
        for port in 0..=MAX_EXPECTATIONS as u16 {
            expected.add(ends(port), 7, 10, &mut counts);
        }
        assert_eq!(1, counts.of(Anomaly::ExpectationLost));
        assert_eq!(None, expected.take(&ends(0), 10));
        assert!((1..=MAX_EXPECTATIONS as u16).all(|port| expected.take(&ends(port), 10).is_some()));
        expected.add(ends(1), 7, 10, &mut counts);
        assert!(expected.take(&ends(1), 10).is_some());
    }
}
