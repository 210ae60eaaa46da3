//! Datagrams in fragments: which ports the later fragments belong to, which identification all leave with, and which
//! fragments wait for the first.
//!
//! A fixed table; a datagram is in one of [`PROBES`] places. A fragment never makes more than one entry, and no
//! datagram parks more than [`WAITING`] fragments (RFC 4787 REQ-14: any order, bounded).

use arrayvec::ArrayVec;
use sluice_table::hash::Hasher;
use sluice_wire::{FlowKey6, Tuple6};

use crate::features::context::WaitingPacket;
use crate::packet::time::Now;
use crate::session::ip_id::FragmentIpIds;
use crate::snapshot::fragment_limits::FragmentLimits;

/// Places where a datagram can be.
const PROBES: usize = 8;

/// Most fragments of a datagram that wait for its first.
pub const WAITING: usize = 8;

/// What all fragments of a datagram share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramKey {
    /// Source address.
    pub source: [u64; 2],
    /// Destination address.
    pub destination: [u64; 2],
    /// Identification.
    pub identification: u32,
    /// Protocol.
    pub protocol: u8,
    /// Virtual router.
    pub context: u32,
}

impl DatagramKey {
    /// Of it all.
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

/// What a fragment is told of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFragment {
    /// Its ports.
    pub ports: (u16, u16),
    /// Identification that its fragments leave with where they are translated.
    pub identification: u16,
}

#[derive(Debug, Default)]
struct Entry {
    key: DatagramKey,
    ports: Option<(u16, u16)>,
    identification: u16,
    /// Nanosecond at which it is forgotten; 0: free.
    until: u64,
    waiting: ArrayVec<WaitingPacket, WAITING>,
}

/// Takes a fragment that may go on, or gives it back.
pub type Ready<'r> = dyn FnMut(WaitingPacket) -> Result<(), WaitingPacket> + 'r;

/// The table.
#[derive(Debug)]
pub struct VirtualReassembly {
    entries: Box<[Entry]>,
    hasher: Hasher,
    numbers: FragmentIpIds,
    limits: FragmentLimits,
    /// Fragments that wait.
    parked: usize,
    next: usize,
}

/// Where a fragment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// Its datagram is known.
    Known(FirstFragment),
    /// Its first fragment has not come: park it in this entry.
    Wait(u32),
    /// No place in the table.
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

    /// The entry of a datagram, made where there is none; none where the table is full.
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
            // An entry that is out of date is used again once nothing waits in it.
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

    /// A first fragment has come with these ports. What has waited for it is moved to `ready` as long as that takes
    /// it; [`VirtualReassembly::sweep`] brings the rest. None where the table is full.
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

    /// A later fragment has come.
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

    /// Let a parked fragment wait in an entry that [`VirtualReassembly::later`] named. It goes to `ready` where the first
    /// fragment has come within the same burst, and comes back where there is no place.
    pub fn wait(&mut self, place: u32, waiting: WaitingPacket, ready: &mut Ready<'_>) -> Result<(), WaitingPacket> {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return Err(waiting);
        };
        // Others of the same burst may have taken the last place.
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

    /// Look at `budget` entries: fragments whose first has come go to `ready`, those that have waited too long to
    /// `expired`.
    pub fn sweep(&mut self, now: Now, budget: usize, ready: &mut Ready<'_>, expired: &mut impl FnMut(WaitingPacket)) {
        // As a rule nothing waits, and entries are large.
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
    /// What is known of the datagram since its first fragment came.
    fn datagram(&self) -> Option<FirstFragment> {
        let identification = self.identification;
        self.ports.map(|ports| FirstFragment { ports, identification })
    }

    /// Let what waits go on, in the order of arrival; how many did.
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
