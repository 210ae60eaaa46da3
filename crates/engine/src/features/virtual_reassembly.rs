//! Virtual reassembly: determines the ports of later fragments, assigns one IP ID to all fragments of a datagram, and parks
//! fragments that arrive before the first fragment.
//!
//! The table has a fixed size; the hash of a datagram selects [`PROBES`] entries, and the datagram is stored in one of
//! them. A fragment creates at most one entry, and at most [`WAITING`] fragments of a datagram are parked (RFC 4787,
//! REQ-14: fragments in any order, with bounded resources).

use arrayvec::ArrayVec;
use sluice_table::hash::Hasher;
use sluice_wire::{FlowKey6, Tuple6};

use crate::features::context::WaitingPacket;
use crate::packet::time::Now;
use crate::session::ip_id::FragmentIpIds;
use crate::snapshot::fragment_limits::FragmentLimits;

/// Number of entries in which a datagram can be stored.
const PROBES: usize = 8;

/// Maximum number of fragments of a datagram that wait for its first fragment.
pub const WAITING: usize = 8;

/// The fields that all fragments of a datagram have in common.
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
    /// Context of the interface: virtual router.
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
        hasher.one6(&FlowKey6::new(tuple, self.protocol))
    }
}

/// The values that the first fragment of a datagram determines for the other fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFragment {
    /// Source and destination port of the datagram.
    pub ports: (u16, u16),
    /// IP ID that the fragments get if they are translated.
    pub identification: u16,
}

#[derive(Debug, Default)]
struct Entry {
    key: DatagramKey,
    ports: Option<(u16, u16)>,
    identification: u16,
    /// Time at which the entry expires, in nanoseconds; 0 if the entry is free.
    until: u64,
    waiting: ArrayVec<WaitingPacket, WAITING>,
}

/// Receiver of a fragment that may be processed. If the receiver is full, it returns the fragment.
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
    /// The ports of the datagram are known.
    Known(FirstFragment),
    /// The first fragment has not arrived. Park the fragment in this entry.
    Wait(u32),
    /// The table is full.
    Full,
}

impl VirtualReassembly {
    /// Creates a table for at least [`FragmentLimits::datagrams`] datagrams.
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

    /// The entry of a datagram. The entry is created if it doesn't exist; `None` if the table is full.
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
            // An expired entry can be reused when no fragment is parked in it.
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
            until: now.nanoseconds + self.limits.timeout,
            ports: None,
            identification,
            waiting: ArrayVec::new(),
        };
        Some(place)
    }

    /// Processes a first fragment with these ports. The parked fragments of its datagram are passed to `ready`. If
    /// `ready` is full, a later [`VirtualReassembly::sweep`] passes the remaining fragments. Returns `None` if the
    /// table is full.
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

    /// Processes a later fragment.
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

    /// Parks a fragment in an entry that [`VirtualReassembly::later`] returned. If the first fragment has arrived in the same
    /// burst, the fragment is passed to `ready`. If the entry is full, the fragment is returned.
    pub fn wait(&mut self, place: u32, waiting: WaitingPacket, ready: &mut Ready<'_>) -> Result<(), WaitingPacket> {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return Err(waiting);
        };
        // Other fragments of the same burst may have used up the capacity.
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

    /// Examines `budget` entries. Fragments whose first fragment has arrived are passed to `ready`, and fragments that
    /// have waited too long are passed to `expired`.
    pub fn sweep(&mut self, now: Now, budget: usize, ready: &mut Ready<'_>, expired: &mut impl FnMut(WaitingPacket)) {
        // Usually no fragment is parked. The scan, which would read large entries, is then skipped.
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
    /// The values that the first fragment has determined; `None` until it has arrived.
    fn datagram(&self) -> Option<FirstFragment> {
        let identification = self.identification;
        self.ports.map(|ports| FirstFragment { ports, identification })
    }

    /// Releases parked fragments in the order of arrival. Returns their number.
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
