//! Packets that inspection lets wait: fragments, for the rest of their datagram.

use std::collections::VecDeque;

use crate::features::context::WaitingPacket;
use crate::packet::io::BufferIndex;

/// What a fragment was told of its datagram: it comes back from waiting with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentNote {
    /// Ports.
    pub ports: (u16, u16),
    /// Identification that the fragments leave with.
    pub identification: u16,
}

/// Where a packet that waits is.
#[derive(Debug)]
enum ParkState {
    /// No packet: the place is free.
    Free,
    /// It is still in the hand, and will be parked at the end of the burst.
    InHand(BufferIndex),
    /// It waits.
    Parked(WaitingPacket),
    /// It could not be parked, and was dropped.
    Lost,
}

#[derive(Debug)]
struct Place {
    held: ParkState,
    told: FragmentNote,
    /// It waits no longer.
    leaves: bool,
    /// It was inspected, and is not looked at again.
    passed: bool,
}

/// A packet that waits no longer.
#[derive(Debug)]
pub struct ReleasedPacket {
    /// Where it is.
    pub waiting: WaitingPacket,
    /// What it was told.
    pub told: FragmentNote,
    /// It was inspected, and is not looked at again.
    pub passed: bool,
}

/// Packets that wait, by ticket.
#[derive(Debug)]
pub struct ParkedPackets {
    places: Box<[Place]>,
    free: Vec<u32>,
    /// They wait no longer, in this order.
    released: VecDeque<u32>,
    /// Packets about which inspection has still to say something.
    waiting: usize,
}

/// What has become of a packet whose ticket came back.
#[derive(Debug)]
pub enum Released {
    /// It is in the hand.
    InHand(BufferIndex),
    /// It goes on in a later burst.
    Later,
    /// It was dropped.
    Gone,
}

impl ParkedPackets {
    /// For so many packets.
    pub fn new(most: u32) -> Self {
        let place = |_| Place {
            held: ParkState::Free,
            told: FragmentNote::default(),
            leaves: false,
            passed: false,
        };
        Self {
            places: (0..most).map(place).collect(),
            free: (0..most).rev().collect(),
            released: VecDeque::with_capacity(most as usize),
            waiting: 0,
        }
    }

    /// How many at most.
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Packets about which inspection has still to say something.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A ticket for a fragment in the hand.
    pub fn reserve(&mut self, slot: BufferIndex, told: FragmentNote) -> Option<u32> {
        let ticket = self.free.pop()?;
        *self.places.get_mut(ticket as usize)? = Place {
            held: ParkState::InHand(slot),
            told,
            leaves: false,
            passed: false,
        };
        self.waiting += 1;
        Some(ticket)
    }

    /// Its packet waits no longer, or not at all.
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

    /// The slot of a packet that is still in the hand, whose ticket is used no more; none, and nothing done, where it is not.
    pub fn take_from_burst(&mut self, ticket: u32) -> Option<BufferIndex> {
        let slot = self.in_burst(ticket)?;
        self.clear(ticket);
        Some(slot)
    }

    /// The slot of a packet that is still in the hand.
    pub fn in_burst(&self, ticket: u32) -> Option<BufferIndex> {
        match self.places.get(ticket as usize)?.held {
            ParkState::InHand(slot) => Some(slot),
            ParkState::Parked(_) | ParkState::Lost | ParkState::Free => None,
        }
    }

    /// The packet is parked now; `None`: it could not be. Whether it was inspected before.
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

    /// A ticket came back: its packet waits no longer, and is looked at again.
    pub fn release(&mut self, ticket: u32) -> Released {
        let Some(place) = self.places.get(ticket as usize) else {
            return Released::Gone;
        };
        match place.held {
            ParkState::InHand(slot) => {
                self.clear(ticket);
                Released::InHand(slot)
            }
            ParkState::Parked(_) => {
                self.finish(ticket);
                self.released.push_back(ticket);
                Released::Later
            }
            ParkState::Lost | ParkState::Free => {
                self.clear(ticket);
                Released::Gone
            }
        }
    }

    /// A packet was inspected while it waited: it goes on in a later burst, and is not looked at again.
    pub fn pass(&mut self, ticket: u32) {
        self.finish(ticket);
        if let Some(place) = self.places.get_mut(ticket as usize) {
            place.passed = true;
            self.released.push_back(ticket);
        }
    }

    /// A parked packet of a ticket that came back, to be freed.
    pub fn take(&mut self, ticket: u32) -> Option<WaitingPacket> {
        match self.clear(ticket) {
            ParkState::Parked(waiting) => Some(waiting),
            ParkState::InHand(_) | ParkState::Lost | ParkState::Free => None,
        }
    }

    /// The next parked packet that waits no longer.
    pub fn next_released(&mut self) -> Option<ReleasedPacket> {
        while let Some(ticket) = self.released.pop_front() {
            let place = self.places.get(ticket as usize)?;
            let (told, passed) = (place.told, place.passed);
            if let Some(waiting) = self.take(ticket) {
                return Some(ReleasedPacket { waiting, told, passed });
            }
        }
        None
    }

    /// Whether packets that wait no longer are still here.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }
}
