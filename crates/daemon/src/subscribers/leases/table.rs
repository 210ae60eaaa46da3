//! The current leases, and their changes.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as Place;
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::fault::Reason;
use super::{Change, Entry, Expiry, Lease, Lost};

/// Leases by address.
#[derive(Debug, Default)]
pub struct Table {
    leases: HashMap<Ipv4Addr, Held>,
    /// Expiry times, the earliest first. An entry is obsolete if it does not match the `queued` time of its lease.
    ends: BinaryHeap<Reverse<(u64, Ipv4Addr)>>,
    limit: usize,
}

#[derive(Debug)]
struct Held {
    lease: Arc<Lease>,
    /// Time of the next expiry check: the end of the lease, or an earlier time if the lease was extended after the
    /// check was queued.
    queued: Option<u64>,
}

/// Obsolete expiry times are removed when their number exceeds the number of leases by this value.
const SPARE: usize = 1024;

impl Table {
    /// Create an empty table for a maximum number of leases.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there are no leases.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// The lease of an address.
    pub fn get(&self, address: Ipv4Addr) -> Option<&Arc<Lease>> {
        self.leases.get(&address).map(|held| &held.lease)
    }

    /// Whether an entry would exceed the maximum number of leases.
    pub fn is_full_for(&self, entry: &Entry) -> bool {
        let one_more = matches!(entry, Entry::Leased(lease) if !self.leases.contains_key(&lease.address));
        one_more && self.leases.len() >= self.limit
    }

    /// All leases, in unspecified order.
    pub fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.leases.values().map(|held| &held.lease)
    }

    /// Number of queued expiry times.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.ends.len()
    }

    /// Apply an entry of a lease file. `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// [`Reason::Full`] if the maximum number of leases is exceeded.
    pub fn apply(&mut self, entry: Entry, now: u64, changes: &mut Vec<Change>) -> Result<(), Reason> {
        let address = entry.address();
        if self.get(address).is_some_and(|was| was.expires.is_past(now)) {
            self.lose(address, Lost::Expired, changes);
        }
        match entry {
            Entry::Leased(lease) if lease.expires.is_past(now) => self.lose(address, Lost::Expired, changes),
            Entry::Leased(lease) => return self.hold(lease, changes),
            Entry::Free { why, .. } => self.lose(address, why, changes),
        }
        Ok(())
    }

    /// Remove leases that have expired by `now`, a Unix time in seconds.
    pub fn expire(&mut self, now: u64, changes: &mut Vec<Change>) {
        while let Some(&Reverse((end, address))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            let Some(held) = self.leases.get_mut(&address).filter(|held| held.queued == Some(end)) else {
                continue;
            };
            held.queued = None;
            match held.lease.expires {
                Expiry::At(later) if later > now => self.queue(address),
                Expiry::At(_) => self.lose(address, Lost::Expired, changes),
                Expiry::Never => {}
            }
        }
    }

    /// Remove the lease of an address, if there is one.
    pub fn lose(&mut self, address: Ipv4Addr, why: Lost, changes: &mut Vec<Change>) {
        if let Some(Held { lease: was, .. }) = self.leases.remove(&address) {
            changes.push(Change::Lost { was, why });
        }
    }

    fn hold(&mut self, mut lease: Lease, changes: &mut Vec<Change>) -> Result<(), Reason> {
        let (address, full) = (lease.address, self.leases.len() >= self.limit);
        match self.leases.entry(address) {
            Place::Vacant(_) if full => return Err(Reason::Full),
            Place::Vacant(place) => {
                let lease = Arc::new(lease);
                changes.push(Change::Gained(lease.clone()));
                place.insert(Held { lease, queued: None });
            }
            Place::Occupied(mut place) => {
                let was = &place.get().lease;
                // A terminal renews its lease directly with the server. Some servers then discard the relay
                // information, so the old information is kept.
                if lease.relay.is_none() && lease.hardware == was.hardware {
                    lease.relay.clone_from(&was.relay);
                }
                if lease == **was {
                    return Ok(());
                }
                let now = Arc::new(lease);
                let was = std::mem::replace(&mut place.get_mut().lease, now.clone());
                changes.push(match was.maps_like(&now) {
                    true => Change::Renewed(now),
                    false => Change::Changed { was, now },
                });
            }
        }
        self.queue(address);
        Ok(())
    }

    /// Queue the expiry check of a lease.
    fn queue(&mut self, address: Ipv4Addr) {
        let Some(held) = self.leases.get_mut(&address) else {
            return;
        };
        let Expiry::At(end) = held.lease.expires else { return };
        if held.queued.is_none_or(|queued| queued > end) {
            held.queued = Some(end);
            self.ends.push(Reverse((end, address)));
        }
        if self.ends.len() > 2 * self.leases.len() + SPARE {
            let queued = |(address, held): (&Ipv4Addr, &Held)| Some(Reverse((held.queued?, *address)));
            self.ends = self.leases.iter().filter_map(queued).collect();
        }
    }
}
