//! Packets that inspection lets wait: fragments, for the rest of their datagram.

use std::collections::VecDeque;

use crate::context::Waiting;
use crate::io::Slot;

/// What a fragment was told of its datagram: it comes back from waiting with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Ports.
    pub ports: (u16, u16),
    /// Identification that the fragments leave with.
    pub identification: u16,
}

/// Where a packet that waits is.
#[derive(Debug)]
enum Held {
    /// No packet: the place is free.
    Free,
    /// It is still in the hand, and will be parked at the end of the burst.
    InHand(Slot),
    /// It waits.
    Parked(Waiting),
    /// It could not be parked, and was dropped.
    Lost,
}

#[derive(Debug)]
struct Place {
    held: Held,
    told: Told,
    /// It waits no longer.
    leaves: bool,
    /// It was inspected, and is not looked at again.
    passed: bool,
}

/// A packet that waits no longer.
#[derive(Debug)]
pub struct Leaving {
    /// Where it is.
    pub waiting: Waiting,
    /// What it was told.
    pub told: Told,
    /// It was inspected, and is not looked at again.
    pub passed: bool,
}

/// Packets that wait, by ticket.
#[derive(Debug)]
pub struct Holding {
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
    InHand(Slot),
    /// It goes on in a later burst.
    Later,
    /// It was dropped.
    Gone,
}

impl Holding {
    /// For so many packets.
    pub fn new(most: u32) -> Self {
        let place = |_| Place {
            held: Held::Free,
            told: Told::default(),
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
    pub fn most(&self) -> usize {
        self.places.len()
    }

    /// Packets about which inspection has still to say something.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A ticket for a fragment in the hand.
    pub fn reserve(&mut self, slot: Slot, told: Told) -> Option<u32> {
        let ticket = self.free.pop()?;
        *self.places.get_mut(ticket as usize)? = Place {
            held: Held::InHand(slot),
            told,
            leaves: false,
            passed: false,
        };
        self.waiting += 1;
        Some(ticket)
    }

    /// Its packet waits no longer, or not at all.
    fn leave(&mut self, ticket: u32) {
        if let Some(place) = self.places.get_mut(ticket as usize)
            && !std::mem::replace(&mut place.leaves, true)
        {
            self.waiting -= 1;
        }
    }

    fn clear(&mut self, ticket: u32) -> Held {
        self.leave(ticket);
        let Some(place) = self.places.get_mut(ticket as usize) else {
            return Held::Free;
        };
        let held = std::mem::replace(&mut place.held, Held::Free);
        if !matches!(held, Held::Free) {
            self.free.push(ticket);
        }
        held
    }

    /// The slot of a packet that is still in the hand, whose ticket is used no more; none, and nothing done, where it is not.
    pub fn take_from_hand(&mut self, ticket: u32) -> Option<Slot> {
        let slot = self.in_hand(ticket)?;
        self.clear(ticket);
        Some(slot)
    }

    /// The slot of a packet that is still in the hand.
    pub fn in_hand(&self, ticket: u32) -> Option<Slot> {
        match self.places.get(ticket as usize)?.held {
            Held::InHand(slot) => Some(slot),
            Held::Parked(_) | Held::Lost | Held::Free => None,
        }
    }

    /// The packet is parked now; `None`: it could not be. Whether it was inspected before.
    pub fn park(&mut self, ticket: u32, waiting: Option<Waiting>) -> bool {
        if waiting.is_none() {
            self.leave(ticket);
        }
        let Some(place) = self.places.get_mut(ticket as usize) else {
            return false;
        };
        place.held = waiting.map_or(Held::Lost, Held::Parked);
        place.passed
    }

    /// A ticket came back: its packet waits no longer, and is looked at again.
    pub fn release(&mut self, ticket: u32) -> Released {
        let Some(place) = self.places.get(ticket as usize) else {
            return Released::Gone;
        };
        match place.held {
            Held::InHand(slot) => {
                self.clear(ticket);
                Released::InHand(slot)
            }
            Held::Parked(_) => {
                self.leave(ticket);
                self.released.push_back(ticket);
                Released::Later
            }
            Held::Lost | Held::Free => {
                self.clear(ticket);
                Released::Gone
            }
        }
    }

    /// A packet was inspected while it waited: it goes on in a later burst, and is not looked at again.
    pub fn pass(&mut self, ticket: u32) {
        self.leave(ticket);
        if let Some(place) = self.places.get_mut(ticket as usize) {
            place.passed = true;
            self.released.push_back(ticket);
        }
    }

    /// A parked packet of a ticket that came back, to be freed.
    pub fn take(&mut self, ticket: u32) -> Option<Waiting> {
        match self.clear(ticket) {
            Held::Parked(waiting) => Some(waiting),
            Held::InHand(_) | Held::Lost | Held::Free => None,
        }
    }

    /// The next parked packet that waits no longer.
    pub fn next_released(&mut self) -> Option<Leaving> {
        while let Some(ticket) = self.released.pop_front() {
            let place = self.places.get(ticket as usize)?;
            let (told, passed) = (place.told, place.passed);
            if let Some(waiting) = self.take(ticket) {
                return Some(Leaving { waiting, told, passed });
            }
        }
        None
    }

    /// Whether packets that wait no longer are still here.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }
}
