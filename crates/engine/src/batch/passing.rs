//! Packets on the short way: what `parse` leaves to `transit`.

use sluice_route::RouterIndex;

use crate::io::{HAND, Slot};

/// Packets that need a route and nothing else, as a lookup wants them: side by side.
#[derive(Clone, Debug)]
pub struct Passing {
    count: usize,
    slots: [Slot; HAND],
    routers: [RouterIndex; HAND],
    destinations: [u32; HAND],
    /// Sources of some are to be validated.
    pub validated: bool,
    /// Some have tags.
    pub tagged: bool,
}

impl Default for Passing {
    fn default() -> Self {
        Self {
            count: 0,
            slots: [0; HAND],
            routers: [0; HAND],
            destinations: [0; HAND],
            validated: false,
            tagged: false,
        }
    }
}

impl Passing {
    /// Add a packet: where it is, the virtual router that routes it, and its IPv4 destination. There is room for the hand.
    #[inline(always)]
    pub fn put(&mut self, slot: Slot, router: RouterIndex, destination: u32) {
        let at = self.count;
        if at < HAND {
            (self.slots[at], self.routers[at], self.destinations[at]) = (slot, router, destination);
            self.count = at + 1;
        }
    }

    /// Where the packets are.
    #[inline(always)]
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..self.count.min(HAND)]
    }

    /// Where the packet at a place of the list is.
    #[inline(always)]
    pub fn slot(&self, place: usize) -> Slot {
        self.slots[place % HAND]
    }

    /// Who routes them.
    #[inline(always)]
    pub fn routers(&self) -> &[RouterIndex] {
        &self.routers[..self.count.min(HAND)]
    }

    /// Where they go.
    #[inline(always)]
    pub fn destinations(&self) -> &[u32] {
        &self.destinations[..self.count.min(HAND)]
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forget all.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.count, self.validated, self.tagged) = (0, false, false);
    }
}
