//! Packets that inspection parks: fragments of incomplete datagrams.

use std::collections::VecDeque;

use crate::features::context::WaitingPacket;
use crate::packet::io::BufferIndex;

/// Results of virtual reassembly for a fragment, which are kept while the fragment is parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentNote {
    /// Source and destination port of the datagram.
    pub ports: (u16, u16),
    /// IP ID that the fragments get when they are sent.
    pub identification: u16,
}

/// State of a ticket.
#[derive(Debug)]
enum ParkState {
    /// The ticket is free.
    Free,
    /// The packet is in the current burst and will be parked at the end of the burst.
    InBurst(BufferIndex),
    /// The packet is parked.
    Parked(WaitingPacket),
    /// The packet could not be parked, and was dropped.
    Lost,
}

#[derive(Debug)]
struct Place {
    held: ParkState,
    note: FragmentNote,
    /// Whether the packet has been released.
    leaves: bool,
    /// Whether the packet has been inspected, so that it skips inspection.
    passed: bool,
}

/// A released packet.
#[derive(Debug)]
pub struct ReleasedPacket {
    /// The parked packet with its buffer.
    pub waiting: WaitingPacket,
    /// Results of virtual reassembly for the packet.
    pub note: FragmentNote,
    /// Whether the packet has been inspected, so that it skips inspection.
    pub passed: bool,
}

/// Parked packets, by ticket.
#[derive(Debug)]
pub struct ParkedPackets {
    places: Box<[Place]>,
    free: Vec<u32>,
    /// Tickets of released packets, in the order of their release.
    released: VecDeque<u32>,
    /// Number of packets without a verdict.
    waiting: usize,
}

/// Result of releasing a ticket.
#[derive(Debug)]
pub enum Released {
    /// The packet is in the current burst.
    InBurst(BufferIndex),
    /// The packet will be processed in a later burst.
    Later,
    /// The packet was dropped before.
    Dropped,
}

impl ParkedPackets {
    /// Creates space for `max` parked packets.
    pub fn new(max: u32) -> Self {
        let place = |_| Place {
            held: ParkState::Free,
            note: FragmentNote::default(),
            leaves: false,
            passed: false,
        };
        Self {
            places: (0..max).map(place).collect(),
            free: (0..max).rev().collect(),
            released: VecDeque::with_capacity(max as usize),
            waiting: 0,
        }
    }

    /// Maximum number of parked packets.
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Number of packets without a verdict.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Reserves a ticket for a fragment of the current burst.
    pub fn reserve(&mut self, slot: BufferIndex, note: FragmentNote) -> Option<u32> {
        let ticket = self.free.pop()?;
        *self.places.get_mut(ticket as usize)? = Place {
            held: ParkState::InBurst(slot),
            note,
            leaves: false,
            passed: false,
        };
        self.waiting += 1;
        Some(ticket)
    }

    /// Marks a packet as released or lost.
    fn finish(&mut self, ticket: u32) {
        if let Some(place) = self.places.get_mut(ticket as usize)
            && !std::mem::replace(&mut place.leaves, true)
        {
            self.waiting -= 1;
        }
    }

    fn clear(&mut self, ticket: u32) -> ParkState {
        self.finish(ticket);
        let Some(place) = self.places.get_mut(ticket as usize) else {
            return ParkState::Free;
        };
        let held = std::mem::replace(&mut place.held, ParkState::Free);
        if !matches!(held, ParkState::Free) {
            self.free.push(ticket);
        }
        held
    }

    /// Releases the ticket of a packet in the current burst and returns the packet's slot. If the packet is already
    /// parked, does nothing and returns `None`.
    pub fn take_from_burst(&mut self, ticket: u32) -> Option<BufferIndex> {
        let slot = self.in_burst(ticket)?;
        self.clear(ticket);
        Some(slot)
    }

    /// The slot of the packet, if the packet is in the current burst.
    pub fn in_burst(&self, ticket: u32) -> Option<BufferIndex> {
        match self.places.get(ticket as usize)?.held {
            ParkState::InBurst(slot) => Some(slot),
            ParkState::Parked(_) | ParkState::Lost | ParkState::Free => None,
        }
    }

    /// Records the result of parking a packet; `waiting` is `None` if the packet could not be parked. Returns whether
    /// the packet was inspected before.
    pub fn park(&mut self, ticket: u32, waiting: Option<WaitingPacket>) -> bool {
        if waiting.is_none() {
            self.finish(ticket);
        }
        let Some(place) = self.places.get_mut(ticket as usize) else {
            return false;
        };
        place.held = waiting.map_or(ParkState::Lost, ParkState::Parked);
        place.passed
    }

    /// Releases a ticket, so that its packet is processed again.
    pub fn release(&mut self, ticket: u32) -> Released {
        let Some(place) = self.places.get(ticket as usize) else {
            return Released::Dropped;
        };
        match place.held {
            ParkState::InBurst(slot) => {
                self.clear(ticket);
                Released::InBurst(slot)
            }
            ParkState::Parked(_) => {
                self.finish(ticket);
                self.released.push_back(ticket);
                Released::Later
            }
            ParkState::Lost | ParkState::Free => {
                self.clear(ticket);
                Released::Dropped
            }
        }
    }

    /// Releases a packet that was inspected while it was parked. The packet is processed in a later burst and skips
    /// inspection.
    pub fn pass(&mut self, ticket: u32) {
        self.finish(ticket);
        if let Some(place) = self.places.get_mut(ticket as usize) {
            place.passed = true;
            self.released.push_back(ticket);
        }
    }

    /// Removes the parked packet of a ticket, so that it can be freed.
    pub fn take(&mut self, ticket: u32) -> Option<WaitingPacket> {
        match self.clear(ticket) {
            ParkState::Parked(waiting) => Some(waiting),
            ParkState::InBurst(_) | ParkState::Lost | ParkState::Free => None,
        }
    }

    /// The next released packet.
    pub fn next_released(&mut self) -> Option<ReleasedPacket> {
        while let Some(ticket) = self.released.pop_front() {
            let place = self.places.get(ticket as usize)?;
            let (note, passed) = (place.note, place.passed);
            if let Some(waiting) = self.take(ticket) {
                return Some(ReleasedPacket { waiting, note, passed });
            }
        }
        None
    }

    /// Whether any released packets are left.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }
}
