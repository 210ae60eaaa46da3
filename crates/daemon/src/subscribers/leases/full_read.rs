//! Reads a file from its beginning, and compares its final content with the current leases.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::fault::Reason;
use super::table::Table;
use super::{Change, Entry, Lost};

/// Time in nanoseconds after which a file that does not grow counts as complete. A program that copies over the
/// existing file makes shorter pauses.
const QUIET: u64 = 1_000_000_000;

/// Maximum wait in nanoseconds for a file that is being copied. If the file still grows after this time, the added
/// bytes count as new entries.
const PATIENCE: u64 = 10_000_000_000;

/// Last entry of each address read so far.
#[derive(Debug)]
pub struct FullRead {
    /// `None` means that the entry of the address has already been applied.
    entries: HashMap<Ipv4Addr, Option<Entry>>,
    limit: usize,
    /// Whether the end of the file has been reached at least once.
    caught_up: bool,
    started_at: u64,
    grown: u64,
}

impl FullRead {
    /// Start to read a file. `now` is the time in nanoseconds, and `limit` the maximum number of leases.
    pub fn start(limit: usize, now: u64) -> Self {
        Self {
            entries: HashMap::new(),
            limit,
            caught_up: false,
            started_at: now,
            grown: now,
        }
    }

    /// Record that bytes were read.
    pub fn grow(&mut self, now: u64) {
        self.grown = now;
    }

    /// Whether the file counts as complete. Leases that are missing in a complete file are lost.
    pub fn is_settled(&self, now: u64) -> bool {
        self.caught_up && (now.saturating_sub(self.grown) >= QUIET || now.saturating_sub(self.started_at) >= PATIENCE)
    }

    /// Add an entry. Once the end of the file has been reached, new entries are applied immediately.
    ///
    /// # Errors
    /// [`Reason::Full`] if the maximum number of leases is exceeded.
    pub fn add(&mut self, entry: Entry, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> Result<(), Reason> {
        let address = entry.address();
        if self.caught_up && is_current(table, &entry) && !table.is_full_for(&entry) {
            let applied = table.apply(entry, now, changes);
            // Only the address of a current lease must be recorded, because only a current lease can be missing in the
            // file.
            match table.get(address) {
                Some(_) => drop(self.entries.insert(address, None)),
                None => drop(self.entries.remove(&address)),
            }
            return applied;
        }
        let known = self.entries.contains_key(&address);
        match &entry {
            // The address has no lease, so the entry would change nothing.
            Entry::Free { .. } if !known && table.get(address).is_none() => {}
            Entry::Leased(_) if !known && self.entries.len() >= self.limit.saturating_add(table.len()) => {
                return Err(Reason::Full);
            }
            Entry::Leased(_) | Entry::Free { .. } => drop(self.entries.insert(address, Some(entry))),
        }
        Ok(())
    }

    /// Apply new entries when the end of the file is reached for the first time. An entry that is older than the
    /// current lease is not applied yet, since a newer entry may follow. Entries beyond the maximum number of leases
    /// are not applied yet either, since the removal of missing leases may free capacity.
    pub fn catch_up(&mut self, table: &mut Table, now: u64, changes: &mut Vec<Change>) {
        self.caught_up = true;
        let current = |place: &&mut Option<Entry>| place.as_ref().is_some_and(|entry| is_current(table, entry));
        let current = self.entries.values_mut().filter(current);
        let current: Vec<Entry> = current.filter_map(Option::take).collect();
        for refused in apply_all(current, table, now, changes) {
            self.entries.insert(refused.address(), Some(refused));
        }
    }

    /// Complete the reading: remove the leases that are missing in the file, and apply the remaining entries. Returns
    /// the number of leases beyond the maximum.
    pub fn settle(self, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> usize {
        let leased_addresses = table.leases().map(|lease| lease.address);
        let mut removed: Vec<Ipv4Addr> = leased_addresses
            .filter(|address| !self.entries.contains_key(address))
            .collect();
        removed.sort_unstable();
        for address in removed {
            table.lose(address, Lost::Vanished, changes);
        }
        let older: Vec<Entry> = self.entries.into_values().flatten().collect();
        apply_all(older, table, now, changes).len()
    }
}

/// Apply entries in the order of their addresses. Returns the entries beyond the maximum number.
fn apply_all(mut entries: Vec<Entry>, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> Vec<Entry> {
    entries.sort_unstable_by_key(Entry::address);
    let mut refused = Vec::new();
    for entry in entries {
        match table.is_full_for(&entry) {
            true => refused.push(entry),
            false => drop(table.apply(entry, now, changes)),
        }
    }
    refused
}

/// Whether an entry is at least as recent as the current lease.
fn is_current(table: &Table, entry: &Entry) -> bool {
    table
        .get(entry.address())
        .is_none_or(|lease| lease.renewed <= entry.renewed())
}
