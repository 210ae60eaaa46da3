//! Virtual reassembly: resolves the ports of later fragments, assigns one IP ID to all fragments of a datagram, and parks
//! fragments that precede the first one.
//!
//! The table has a fixed size; a datagram is in one of [`PROBES`] entries. A fragment never creates more than one entry, and a
//! datagram parks at most [`WAITING`] fragments (RFC 4787 REQ-14: any order, bounded).

use arrayvec::ArrayVec;
use sluice_table::hash::Hasher;
use sluice_wire::{FlowKey6, Tuple6};

use crate::features::context::WaitingPacket;
use crate::packet::time::Now;
use crate::session::ip_id::FragmentIpIds;
use crate::snapshot::fragment_limits::FragmentLimits;

/// Number of entries in which a datagram may be.
const PROBES: usize = 8;

/// Maximum number of fragments of a datagram that wait for its first fragment.
pub const WAITING: usize = 8;

/// What all fragments of a datagram share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramKey {
    /// Source address.
    pub source: [u64; 2],
    /// Destination address.
    pub destination: [u64; 2],
    /// IP ID or IPv6 fragment identification.
    pub identification: u32,
    /// IP protocol.
    pub protocol: u8,
    /// Virtual router.
    pub context: u32,
}

impl DatagramKey {
    /// Keyed hash of all fields of the key.
    pub fn hash(&self, hasher: &Hasher) -> u64 {
        let identification = self.identification;
        let tuple = Tuple6 {
            source: self.source,
            destination: self.destination,
            source_port: (identification >> 16) as u16,
            destination_port: identification as u16,
            context: self.context,
        };
        hasher.one6(&FlowKey6 {
            tuple,
            protocol: self.protocol,
        })
    }
}

/// What a datagram's first fragment determines for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFragment {
    /// Source and destination port of the datagram.
    pub ports: (u16, u16),
    /// IP ID with which its fragments leave if they are translated.
    pub identification: u16,
}

#[derive(Debug, Default)]
struct Entry {
    key: DatagramKey,
    ports: Option<(u16, u16)>,
    identification: u16,
    /// Time of expiry in nanoseconds; 0: free.
    until: u64,
    waiting: ArrayVec<WaitingPacket, WAITING>,
}

/// Takes a fragment that may continue, or returns it.
pub type Ready<'r> = dyn FnMut(WaitingPacket) -> Result<(), WaitingPacket> + 'r;

/// Table of fragmented datagrams.
#[derive(Debug)]
pub struct VirtualReassembly {
    entries: Box<[Entry]>,
    hasher: Hasher,
    numbers: FragmentIpIds,
    limits: FragmentLimits,
    /// Number of parked fragments.
    parked: usize,
    next: usize,
}

/// State of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// The ports of its datagram are known.
    Known(FirstFragment),
    /// The first fragment has not arrived: park the fragment in this entry.
    Wait(u32),
    /// The table is full.
    Full,
}

impl VirtualReassembly {
    /// A table with room for at least [`FragmentLimits::datagrams`].
    pub fn new(limits: FragmentLimits, secret: [u64; 2]) -> Self {
        let entries = (0..limits.datagrams.max(PROBES).next_power_of_two())
            .map(|_| Entry::default())
            .collect();
        Self {
            entries,
            hasher: Hasher::new(secret),
            numbers: FragmentIpIds::default(),
            limits,
            parked: 0,
            next: 0,
        }
    }

    /// The entry of a datagram, created if it doesn't exist. `None` if the table is full.
    fn entry(&mut self, key: &DatagramKey, now: Now) -> Option<usize> {
        let home = key.hash(&self.hasher) as usize;
        let mask = self.entries.len() - 1;
        let mut free = None;
        for probe in 0..PROBES {
            let place = (home + probe) & mask;
            let entry = &self.entries[place];
            if entry.until > now.nanoseconds && entry.key == *key {
                return Some(place);
            }
            // An expired entry is reused once no fragment waits in it.
            if entry.until <= now.nanoseconds && entry.waiting.is_empty() && free.is_none() {
                free = Some(place);
            }
        }
        let place = free?;
        let receiver = DatagramKey {
            destination: key.destination,
            protocol: key.protocol,
            ..DatagramKey::default()
        };
        let identification = self.numbers.next(receiver.hash(&self.hasher));
        self.entries[place] = Entry {
            key: *key,
            until: now.nanoseconds + self.limits.patience,
            ports: None,
            identification,
            waiting: ArrayVec::new(),
        };
        Some(place)
    }

    /// Process a first fragment with these ports. Fragments that waited for it are moved to `ready` as long as that accepts
    /// them; [`VirtualReassembly::sweep`] moves the rest. `None` if the table is full.
    pub fn first(
        &mut self,
        key: &DatagramKey,
        ports: (u16, u16),
        now: Now,
        ready: &mut Ready<'_>,
    ) -> Option<FirstFragment> {
        let place = self.entry(key, now)?;
        let entry = &mut self.entries[place];
        entry.ports = Some(ports);
        self.parked -= entry.release(ready);
        entry.datagram()
    }

    /// Process a later fragment.
    pub fn later(&mut self, key: &DatagramKey, now: Now) -> FragmentState {
        let Some(place) = self.entry(key, now) else {
            return FragmentState::Full;
        };
        match self.entries[place].datagram() {
            Some(datagram) => FragmentState::Known(datagram),
            None if self.entries[place].waiting.is_full() || self.parked >= self.limits.parked => FragmentState::Full,
            None => FragmentState::Wait(place as u32),
        }
    }

    /// Park a fragment in an entry that [`VirtualReassembly::later`] returned. If the first fragment has arrived within the
    /// same burst, the fragment goes to `ready`. If the entry is full, it is returned.
    pub fn wait(&mut self, place: u32, waiting: WaitingPacket, ready: &mut Ready<'_>) -> Result<(), WaitingPacket> {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return Err(waiting);
        };
        // Other fragments of the same burst may have taken the last place.
        if self.parked >= self.limits.parked {
            return Err(waiting);
        }
        entry.waiting.try_push(waiting).map_err(|error| error.element())?;
        self.parked += 1;
        if entry.ports.is_some() {
            self.parked -= entry.release(ready);
        }
        Ok(())
    }

    /// Check `budget` entries: fragments whose first fragment has arrived go to `ready`, those that have waited too long to
    /// `expired`.
    pub fn sweep(&mut self, now: Now, budget: usize, ready: &mut Ready<'_>, expired: &mut impl FnMut(WaitingPacket)) {
        // Usually no fragment waits, and to scan the large entries would be wasted work.
        if self.parked == 0 {
            return;
        }
        for _ in 0..budget.min(self.entries.len()) {
            self.next = (self.next + 1) & (self.entries.len() - 1);
            let entry = &mut self.entries[self.next];
            if entry.ports.is_some() {
                self.parked -= entry.release(ready);
            }
            if entry.until <= now.nanoseconds {
                self.parked -= entry.waiting.len();
                entry.waiting.drain(..).for_each(&mut *expired);
            }
        }
    }
}

impl Entry {
    /// What is known of the datagram once its first fragment has arrived.
    fn datagram(&self) -> Option<FirstFragment> {
        let identification = self.identification;
        self.ports.map(|ports| FirstFragment { ports, identification })
    }

    /// Release parked fragments in the order of arrival. Returns their number.
    fn release(&mut self, ready: &mut Ready<'_>) -> usize {
        let before = self.waiting.len();
        while let Some(waiting) = self.waiting.pop_at(0) {
            if let Err(waiting) = ready(waiting) {
                self.waiting.insert(0, waiting);
                break;
            }
        }
        before - self.waiting.len()
    }
}
