//! A file that is read from its beginning: what it says in the end is compared with the leases that stand.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::fault::Reason;
use super::table::Table;
use super::{Change, Entry, Lost};

/// How long a file must not have grown to be whole, in nanoseconds: who copies one over another one is done by then.
const QUIET: u64 = 1_000_000_000;

/// How long one that keeps growing is waited for: by then, it grows by what is new.
const PATIENCE: u64 = 10_000_000_000;

/// The last entry of each address, as far as the file was read.
#[derive(Debug)]
pub struct Whole {
    /// None of one that was told.
    entries: HashMap<Ipv4Addr, Option<Entry>>,
    most: usize,
    /// Its end was reached once.
    caught_up: bool,
    began: u64,
    grown: u64,
}

impl Whole {
    /// A reading begins, at a time in nanoseconds, of a file that may have so many leases.
    pub fn begin(most: usize, now: u64) -> Self {
        Self {
            entries: HashMap::new(),
            most,
            caught_up: false,
            began: now,
            grown: now,
        }
    }

    /// Bytes were read.
    pub fn grow(&mut self, now: u64) {
        self.grown = now;
    }

    /// Whether the file has been as it is for long enough that what it lacks is gone.
    pub fn is_settled(&self, now: u64) -> bool {
        self.caught_up && (now.saturating_sub(self.grown) >= QUIET || now.saturating_sub(self.began) >= PATIENCE)
    }

    /// The file says something; once its end was reached, that is told at once.
    ///
    /// # Errors
    /// [`Reason::Full`] for one more lease than there is room for.
    pub fn hear(&mut self, entry: Entry, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> Result<(), Reason> {
        let address = entry.address();
        if self.caught_up && is_news(table, &entry) && !table.is_full_for(&entry) {
            let told = table.apply(entry, now, changes);
            // Only what stands could be missed in the end.
            match table.get(address) {
                Some(_) => drop(self.entries.insert(address, None)),
                None => drop(self.entries.remove(&address)),
            }
            return told;
        }
        let known = self.entries.contains_key(&address);
        match &entry {
            // It would change nothing.
            Entry::Free { .. } if !known && table.get(address).is_none() => {}
            Entry::Leased(_) if !known && self.entries.len() >= self.most.saturating_add(table.len()) => {
                return Err(Reason::Full);
            }
            Entry::Leased(_) | Entry::Free { .. } => drop(self.entries.insert(address, Some(entry))),
        }
        Ok(())
    }

    /// Its end was reached: tell what is new. What is older than a lease that stands may only be on its way to the file,
    /// and what finds no room may find it where something vanishes.
    pub fn catch_up(&mut self, table: &mut Table, now: u64, changes: &mut Vec<Change>) {
        self.caught_up = true;
        let news = |place: &&mut Option<Entry>| place.as_ref().is_some_and(|entry| is_news(table, entry));
        let news = self.entries.values_mut().filter(news);
        let news: Vec<Entry> = news.filter_map(Option::take).collect();
        for refused in tell(news, table, now, changes) {
            self.entries.insert(refused.address(), Some(refused));
        }
    }

    /// It is whole: what it lacks is gone, and what it says is so. Gives how many leases found no room.
    pub fn settle(self, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> usize {
        let lacking = table.leases().map(|lease| lease.address);
        let mut gone: Vec<Ipv4Addr> = lacking.filter(|address| !self.entries.contains_key(address)).collect();
        gone.sort_unstable();
        for address in gone {
            table.lose(address, Lost::Vanished, changes);
        }
        let older: Vec<Entry> = self.entries.into_values().flatten().collect();
        tell(older, table, now, changes).len()
    }
}

/// Tell entries in the order of their addresses. Gives those that find no room.
fn tell(mut entries: Vec<Entry>, table: &mut Table, now: u64, changes: &mut Vec<Change>) -> Vec<Entry> {
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

/// Whether an entry is no older than the lease that stands.
fn is_news(table: &Table, entry: &Entry) -> bool {
    table
        .get(entry.address())
        .is_none_or(|lease| lease.renewed <= entry.renewed())
}
