//! Packets for `ip4-fast-forward`.

use sluice_route::RouterIndex;

use crate::packet::batch::{BufferIndices, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::SlotList;

/// Packets that need a route and nothing else, as a lookup wants them: side by side.
#[derive(Clone, Debug)]
pub struct FastForwardList {
    count: usize,
    slots: [BufferIndex; BURST_BUFFERS],
    routers: [RouterIndex; BURST_BUFFERS],
    destinations: [u32; BURST_BUFFERS],
    /// Sources of some are to be validated.
    pub validated: bool,
    /// Some have tags.
    pub tagged: bool,
}

impl Default for FastForwardList {
    fn default() -> Self {
        Self {
            count: 0,
            slots: [0; BURST_BUFFERS],
            routers: [0; BURST_BUFFERS],
            destinations: [0; BURST_BUFFERS],
            validated: false,
            tagged: false,
        }
    }
}

impl FastForwardList {
    /// Add a packet: where it is, the virtual router that routes it, and its IPv4 destination. There is room for the hand.
    #[inline(always)]
    pub fn put(&mut self, slot: BufferIndex, router: RouterIndex, destination: u32) {
        let at = self.count;
        if at < BURST_BUFFERS {
            (self.slots[at], self.routers[at], self.destinations[at]) = (slot, router, destination);
            self.count = at + 1;
        }
    }

    /// Where the packets are.
    #[inline(always)]
    pub fn slots(&self) -> &[BufferIndex] {
        &self.slots[..self.count.min(BURST_BUFFERS)]
    }

    /// Where the packet at a place of the list is.
    #[inline(always)]
    pub fn slot(&self, place: usize) -> BufferIndex {
        self.slots[place % BURST_BUFFERS]
    }

    /// Who routes them.
    #[inline(always)]
    pub fn routers(&self) -> &[RouterIndex] {
        &self.routers[..self.count.min(BURST_BUFFERS)]
    }

    /// Where they go.
    #[inline(always)]
    pub fn destinations(&self) -> &[u32] {
        &self.destinations[..self.count.min(BURST_BUFFERS)]
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

impl SlotList for FastForwardList {
    #[inline(always)]
    fn len(&self) -> usize {
        self.count
    }
    fn holds(&self, slot: BufferIndex) -> bool {
        self.slots().contains(&slot)
    }
    fn drain_into(&mut self, other: &mut BufferIndices) {
        self.slots().iter().for_each(|&slot| put(other, slot));
        self.clear();
    }
}
