//! Inspection, composed: what a commit says of it, what a worker has for it, and what it tells.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_inspect::Ruleset;
use sluice_inspect::inspector::{Settings, Tools};
use sluice_inspect::rates::Rates;
use sluice_inspect::signature::Action;

use crate::context::Waiting;
use crate::counters::WorkerCounters;
use crate::io::{HAND, Slot};
use crate::records::{About, Records};

/// What a session says of inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inspect {
    /// Nothing: it is not inspected.
    #[default]
    Nothing,
    /// It will be, from its next packet on.
    Wanted,
    /// It is: the handle of its flow, in the pool of its shard.
    Flow(u32),
}

impl Inspect {
    /// As a record keeps it. No handle is 0, or the largest number.
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Nothing,
            u32::MAX => Self::Wanted,
            handle => Self::Flow(handle),
        }
    }

    /// As a record keeps it.
    pub fn bits(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Wanted => u32::MAX,
            Self::Flow(handle) => handle,
        }
    }
}

/// What a commit says.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What is configured.
    pub settings: Settings,
    /// How often rules matched, for all workers.
    pub rates: Arc<Rates>,
    /// The rules in force.
    pub rules: Arc<Ruleset>,
    /// Alerts that wait in each worker's queue at most.
    pub alerts: usize,
    /// Records beside them.
    pub records: Records,
    /// By interface: flows that come or go by it are inspected.
    pub interfaces: Vec<bool>,
}

impl Inspection {
    /// Whether an interface's flows are inspected.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }
}

/// A rule has matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The packet, whose flow has a number.
    pub about: About,
    /// Its number in the ruleset.
    pub rule: u32,
    /// Generation of the policy with that ruleset.
    pub generation: u32,
    /// What was done about it.
    pub action: Action,
    /// Packets and bytes of the session so far, the client's first.
    pub packets: [u64; 2],
    /// As `packets`.
    pub bytes: [u64; 2],
}

/// The worker's end of its queue of alerts: bounded, and never waited for.
#[derive(Debug, Default)]
pub struct AlertQueue(Option<rtrb::Producer<Alert>>);

/// The other end.
pub type Alerts = rtrb::Consumer<Alert>;

impl AlertQueue {
    /// A queue for so many, with its other end.
    pub fn new(most: usize) -> (Self, Alerts) {
        let (producer, consumer) = rtrb::RingBuffer::new(most.max(1));
        (Self(Some(producer)), consumer)
    }

    /// Tell of one. What does not fit is counted and lost.
    pub fn tell(&mut self, alert: Alert, counters: &WorkerCounters) {
        match self.0.as_mut().is_some_and(|queue| queue.push(alert).is_ok()) {
            true => counters.alerts.add(1),
            false => counters.alerts_lost.add(1),
        }
    }
}

/// A packet that waits for what comes before it in its stream.
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

/// Packets that wait for what comes before them, by ticket.
#[derive(Debug)]
pub struct Holding {
    places: Box<[Held]>,
    free: Vec<u32>,
    /// They wait no longer, in this order.
    released: std::collections::VecDeque<u32>,
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
        Self {
            places: (0..most).map(|_| Held::Free).collect(),
            free: (0..most).rev().collect(),
            released: std::collections::VecDeque::with_capacity(most as usize),
        }
    }

    /// How many at most.
    pub fn most(&self) -> usize {
        self.places.len()
    }

    /// A ticket for a packet in the hand.
    pub fn reserve(&mut self, slot: Slot) -> Option<u32> {
        let ticket = self.free.pop()?;
        *self.places.get_mut(ticket as usize)? = Held::InHand(slot);
        Some(ticket)
    }

    /// The ticket was not used.
    pub fn cancel(&mut self, ticket: u32) {
        if let Some(place) = self.places.get_mut(ticket as usize) {
            *place = Held::Free;
            self.free.push(ticket);
        }
    }

    /// The packet is parked now; `None`: it could not be.
    pub fn park(&mut self, ticket: u32, waiting: Option<Waiting>) {
        if let Some(place) = self.places.get_mut(ticket as usize) {
            *place = waiting.map_or(Held::Lost, Held::Parked);
        }
    }

    /// A ticket came back: its packet waits no longer.
    pub fn release(&mut self, ticket: u32) -> Released {
        let Some(place) = self.places.get_mut(ticket as usize) else {
            return Released::Gone;
        };
        match place {
            Held::InHand(slot) => {
                let slot = *slot;
                self.cancel(ticket);
                Released::InHand(slot)
            }
            Held::Parked(_) => {
                self.released.push_back(ticket);
                Released::Later
            }
            Held::Lost | Held::Free => {
                self.cancel(ticket);
                Released::Gone
            }
        }
    }

    /// A parked packet of a ticket that came back, to be freed.
    pub fn take(&mut self, ticket: u32) -> Option<Waiting> {
        let held = std::mem::replace(self.places.get_mut(ticket as usize)?, Held::Free);
        self.free.push(ticket);
        match held {
            Held::Parked(waiting) => Some(waiting),
            Held::InHand(_) | Held::Lost | Held::Free => None,
        }
    }

    /// The next parked packet that waits no longer.
    pub fn next_released(&mut self) -> Option<Waiting> {
        while let Some(ticket) = self.released.pop_front() {
            if let Some(waiting) = self.take(ticket) {
                return Some(waiting);
            }
        }
        None
    }

    /// Whether packets that wait no longer are still here.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }
}

/// What a worker inspects with.
pub struct Inspecting {
    /// What rules are asked with.
    pub tools: Tools,
    /// Packets that wait.
    pub holding: Holding,
    /// Where alerts go.
    pub alerts: AlertQueue,
    /// Packets in the hand that are to be parked, with their tickets.
    pub parking: ArrayVec<(Slot, u32), HAND>,
}

impl std::fmt::Debug for Inspecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspecting")
            .field("holding", &self.holding)
            .finish_non_exhaustive()
    }
}
