//! Reassembly of fragmented datagrams of inspected sessions. The bytes of a fragment are copied on arrival, and the fragment is
//! parked.
//!
//! No byte is accepted twice. If fragments overlap, the whole datagram and all its further fragments are dropped, in
//! both address families (RFC 5722; RFC 8200, 4.5). If a fragment is an exact repetition, only the repetition is
//! dropped.

use arrayvec::ArrayVec;
use sluice_inspect::Reason;
use sluice_inspect::source_quota::{Source, SourceQuota};
use sluice_table::hash::Hasher;
use sluice_wire::layers::{Class, Layers};
use sluice_wire::{ipv4, ipv6};

use crate::features::virtual_reassembly::DatagramKey;
use crate::snapshot::fragment_limits::ReassemblyLimits;

/// Maximum number of fragments of a datagram.
pub const FRAGMENTS: usize = 64;

/// Maximum length of a datagram in bytes.
const LONGEST: usize = 65_535;

/// The bytes of a fragment and their position in the payload of the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentSpan<'a> {
    /// Offset of the fragment's first byte in the payload.
    pub from: usize,
    /// Whether the fragment is the last of its datagram.
    pub is_last: bool,
    /// The fragment's bytes.
    pub bytes: &'a [u8],
}

impl<'a> FragmentSpan<'a> {
    /// Reads the fragment of a frame; `None` if extension headers follow the fragment header.
    pub fn read(layers: &Layers, frame: &'a [u8]) -> Option<Self> {
        let datagram = layers.datagram(frame);
        let start = layers.l4.checked_sub(layers.l3)? as usize;
        let (from, more) = match layers.class {
            Class::Ipv4 => {
                let field = ipv4::Ipv4::new(datagram)?;
                (field.fragment_offset(), field.fragment() & ipv4::MORE_FRAGMENTS != 0)
            }
            Class::Ipv6 => {
                let at = ipv6::walk(datagram).ok()?.fragment?;
                if at + ipv6::fragment::LENGTH != start {
                    return None;
                }
                let field = ipv6::fragment::Fragment::new(datagram.get(at..)?)?;
                (field.offset(), field.more())
            }
            Class::Arp | Class::Other => return None,
        };
        let bytes = datagram.get(start..)?;
        (from + bytes.len() <= LONGEST).then_some(Self {
            from,
            is_last: !more,
            bytes,
        })
    }
}

/// A received fragment.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u16,
    to: u16,
    /// Ticket of the fragment; `None` while the fragment is in the current burst.
    ticket: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Some fragments of the datagram have not arrived.
    #[default]
    Gathering,
    /// The datagram is refused for this reason, and its further fragments are dropped.
    Invalid(Reason),
}

#[derive(Debug, Default)]
struct Entry {
    key: DatagramKey,
    source: Source,
    shard: u16,
    /// Time at which the datagram times out, in nanoseconds.
    until: u64,
    state: State,
    /// Length of the payload; `None` until the last fragment has arrived.
    end: Option<usize>,
    /// Number of received bytes.
    there: usize,
    /// Fragments in the order of arrival.
    parts: ArrayVec<Part, FRAGMENTS>,
}

/// Result of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentOutcome {
    /// Other fragments are missing. The caller parks this fragment and [keeps](Reassembly::keep) its ticket.
    Incomplete(u32),
    /// The datagram is complete. The value is its entry.
    Whole(u32),
    /// The fragment must be dropped for this reason. If an entry is given, the parked fragments of that entry must be
    /// dropped as well.
    Refused(Reason, Option<u32>),
}

/// Fragmented datagrams of a worker.
#[derive(Debug)]
pub struct Reassembly {
    /// Hashes of the datagrams' keys; 0 if the entry is free.
    tags: Box<[u64]>,
    entries: Box<[Entry]>,
    free: Vec<u32>,
    bytes: Box<[u8]>,
    copy: Box<[u8]>,
    limits: ReassemblyLimits,
    hasher: Hasher,
    waiting: usize,
    next: usize,
    /// Limits the number of datagrams per source: a source may occupy at most as many entries as are still free.
    shares: SourceQuota,
}

impl Reassembly {
    /// Creates an empty table, and allocates all of its memory.
    pub fn new(limits: ReassemblyLimits, secret: [u64; 2]) -> Self {
        let count = limits.datagrams;
        Self {
            tags: vec![0; count].into(),
            entries: (0..count).map(|_| Entry::default()).collect(),
            free: (0..count as u32).rev().collect(),
            bytes: vec![0; count * LONGEST].into(),
            copy: vec![0; LONGEST].into(),
            limits,
            hasher: Hasher::new(secret),
            waiting: 0,
            next: 0,
            shares: SourceQuota::new(1),
        }
    }

    /// The datagram that must be evicted to make space for a fragment of another datagram, if no entry or no bytes are
    /// left. The result is the oldest incomplete datagram. The caller must call [`Self::take_tickets`] and then
    /// [`Self::clear`] for it.
    pub fn victim(&self, key: &DatagramKey, piece: &FragmentSpan<'_>) -> Option<u32> {
        let fits = self.waiting + piece.bytes.len() <= self.limits.bytes;
        if fits && !self.free.is_empty() {
            return None;
        }
        let tag = key.hash(&self.hasher) | 1;
        let is_known = self.find(key, tag).is_some();
        if fits && is_known || !is_known && self.is_source_full(key) {
            return None;
        }
        let others = self.tags.iter().zip(&self.entries).enumerate();
        let others = others.filter(|(_, (tag, entry))| **tag != 0 && entry.key != *key);
        // A refused datagram uses no bytes. It is kept until its entry is needed, so that its further fragments are dropped.
        let others = others.filter(|(_, (_, entry))| fits || entry.there > 0);
        let oldest = others.min_by_key(|(_, (_, entry))| entry.until);
        oldest.map(|(place, _)| place as u32)
    }

    fn source(&self, key: &DatagramKey) -> Source {
        Source::by_hash(self.hasher.block(key.source))
    }

    fn is_source_full(&self, key: &DatagramKey) -> bool {
        !self.shares.permits(self.source(key), 1, self.free.len().max(1))
    }

    fn find(&self, key: &DatagramKey, tag: u64) -> Option<u32> {
        let mut places = self.tags.iter().zip(&self.entries);
        places
            .position(|(&of, entry)| of == tag && entry.key == *key)
            .map(|place| place as u32)
    }

    /// Adds a fragment that belongs to a session of the shard `shard`.
    pub fn place(&mut self, key: &DatagramKey, shard: u16, piece: FragmentSpan<'_>, now: u64) -> FragmentOutcome {
        let tag = key.hash(&self.hasher) | 1;
        let known = self.find(key, tag);
        let fits = self.waiting + piece.bytes.len() <= self.limits.bytes;
        let place = match known {
            Some(place) => place,
            None if !fits => return FragmentOutcome::Refused(Reason::FragmentsFull, None),
            None if self.is_source_full(key) => return FragmentOutcome::Refused(Reason::FragmentsFull, None),
            None => {
                let Some(place) = self.free.pop() else {
                    return FragmentOutcome::Refused(Reason::FragmentsFull, None);
                };
                let source = self.source(key);
                self.shares.charge(source, 1);
                self.tags[place as usize] = tag;
                self.entries[place as usize] = Entry {
                    key: *key,
                    source,
                    shard,
                    until: now.saturating_add(self.limits.timeout),
                    ..Entry::default()
                };
                place
            }
        };
        let entry = &mut self.entries[place as usize];
        let (from, to) = (piece.from, piece.from + piece.bytes.len());
        let offset = place as usize * LONGEST;
        let bytes = &mut self.bytes[offset..offset + LONGEST];
        match entry.state {
            State::Invalid(reason) => return FragmentOutcome::Refused(reason, None),
            State::Gathering => {}
        }
        if entry.parts.iter().any(|part| part.is(from, to)) && bytes[from..to] == *piece.bytes {
            return FragmentOutcome::Refused(Reason::FragmentCopy, None);
        }
        let invalidate = |entry: &mut Entry, reason| {
            entry.state = State::Invalid(reason);
            FragmentOutcome::Refused(reason, Some(place))
        };
        if entry.parts.iter().any(|part| part.overlaps(from, to)) {
            return invalidate(entry, Reason::FragmentOverlap);
        }
        let reach = entry.parts.iter().map(|part| part.to as usize).max().unwrap_or(0);
        let ends_match = match (piece.is_last, entry.end) {
            (true, end) => end.is_none() && reach <= to,
            (false, end) => from < to && end.is_none_or(|end| to <= end),
        };
        if !ends_match {
            return invalidate(entry, Reason::FragmentInconsistent);
        }
        if !fits || entry.parts.is_full() {
            return FragmentOutcome::Refused(Reason::FragmentsFull, None);
        }
        bytes[from..to].copy_from_slice(piece.bytes);
        entry.parts.push(Part {
            from: from as u16,
            to: to as u16,
            ticket: None,
        });
        if piece.is_last {
            entry.end = Some(to);
        }
        entry.there += to - from;
        self.waiting += to - from;
        if entry.end == Some(entry.there) {
            return FragmentOutcome::Whole(place);
        }
        FragmentOutcome::Incomplete(place)
    }

    /// Stores the ticket of the fragment that arrived last. `None` means that the fragment could not be parked; the
    /// fragment is then removed.
    pub fn keep(&mut self, place: u32, ticket: Option<u32>) {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return;
        };
        match (ticket, entry.parts.last_mut()) {
            (Some(_), Some(last)) => last.ticket = ticket,
            (None, Some(last)) => {
                let length = usize::from(last.to - last.from);
                if entry.end == Some(last.to.into()) {
                    entry.end = None;
                }
                (entry.there, self.waiting) = (entry.there - length, self.waiting - length);
                entry.parts.pop();
                if entry.parts.is_empty() {
                    self.clear(place);
                }
            }
            (_, None) => {}
        }
    }

    /// The payload of a complete datagram, and a copy of it.
    pub fn payload(&mut self, place: u32) -> (&mut [u8], &[u8]) {
        let end = self
            .entries
            .get(place as usize)
            .and_then(|entry| entry.end)
            .unwrap_or(0);
        let from = place as usize * LONGEST;
        match (self.bytes.get_mut(from..from + end), self.copy.get_mut(..end)) {
            (Some(payload), Some(copy)) => {
                copy.copy_from_slice(payload);
                (payload, copy)
            }
            _ => (&mut [], &[]),
        }
    }

    /// Removes and returns the tickets of the parked fragments, in the order of arrival.
    pub fn take_tickets(&mut self, place: u32) -> ArrayVec<u32, FRAGMENTS> {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return ArrayVec::new();
        };
        self.waiting -= entry.there;
        entry.there = 0;
        entry.parts.drain(..).filter_map(|part| part.ticket).collect()
    }

    /// Removes a datagram. The tickets of the datagram must have been taken.
    pub fn clear(&mut self, place: u32) {
        if let Some(tag) = self.tags.get_mut(place as usize)
            && std::mem::take(tag) != 0
        {
            let entry = std::mem::take(&mut self.entries[place as usize]);
            self.waiting -= entry.there;
            self.shares.release(entry.source, 1);
            self.free.push(place);
        }
    }

    /// Examines the next `budget` datagrams, and removes those that have timed out. The tickets of their fragments are
    /// passed to `give`.
    pub fn sweep(&mut self, now: u64, budget: usize, mut give: impl FnMut(u32)) {
        if self.free.len() == self.entries.len() {
            return;
        }
        for _ in 0..budget.min(self.entries.len()) {
            self.next = (self.next + 1) % self.entries.len();
            if self.tags[self.next] != 0 && self.entries[self.next].until <= now {
                self.take_tickets(self.next as u32).into_iter().for_each(&mut give);
                self.clear(self.next as u32);
            }
        }
    }

    /// Removes the datagrams of a shard. The tickets of their fragments are passed to `give`.
    pub fn drop_parked(&mut self, shard: u16, mut give: impl FnMut(u32)) {
        for place in 0..self.entries.len() {
            if self.tags[place] != 0 && self.entries[place].shard == shard {
                self.take_tickets(place as u32).into_iter().for_each(&mut give);
                self.clear(place as u32);
            }
        }
    }
}

impl Part {
    fn is(&self, from: usize, to: usize) -> bool {
        (usize::from(self.from), usize::from(self.to)) == (from, to)
    }

    fn overlaps(&self, from: usize, to: usize) -> bool {
        from < self.to.into() && to > self.from.into()
    }
}
