//! The packet list of the node `ip4-fast-forward`.

use sluice_route::RouterIndex;

use crate::packet::batch::{BufferIndices, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::SlotList;

/// Packets that need only a route lookup. Their fields are stored in separate arrays, as the batched lookup needs them.
#[derive(Clone, Debug)]
pub struct FastForwardList {
    count: usize,
    slots: [BufferIndex; BURST_BUFFERS],
    routers: [RouterIndex; BURST_BUFFERS],
    destinations: [u32; BURST_BUFFERS],
    /// Whether the sources of some packets must be validated.
    pub validated: bool,
    /// Whether some packets have tags.
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
    /// Adds a packet: its slot, the virtual router that routes it, and its IPv4 destination. The list has space for all burst
    /// buffers.
    #[inline(always)]
    pub fn put(&mut self, slot: BufferIndex, router: RouterIndex, destination: u32) {
        let at = self.count;
        if at < BURST_BUFFERS {
            (self.slots[at], self.routers[at], self.destinations[at]) = (slot, router, destination);
            self.count = at + 1;
        }
    }

    /// The slots of the packets.
    #[inline(always)]
    pub fn slots(&self) -> &[BufferIndex] {
        &self.slots[..self.count.min(BURST_BUFFERS)]
    }

    /// The slot of the packet at a position of the list.
    #[inline(always)]
    pub fn slot(&self, place: usize) -> BufferIndex {
        self.slots[place % BURST_BUFFERS]
    }

    /// The virtual routers of the packets.
    #[inline(always)]
    pub fn routers(&self) -> &[RouterIndex] {
        &self.routers[..self.count.min(BURST_BUFFERS)]
    }

    /// The destinations of the packets.
    #[inline(always)]
    pub fn destinations(&self) -> &[u32] {
        &self.destinations[..self.count.min(BURST_BUFFERS)]
    }

    /// Whether the list is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Clears the list.
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
