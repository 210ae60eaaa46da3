//! How the packets leave that the lane has taken.

use sluice_route::Reason;

use crate::features::context::OutputContext;
use crate::nodes::output::{AdjacencyCache, Egress};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex};
use crate::packet::lists::Lists;

use super::{Buffers, Burst, Slots, each};

/// How the taken packets leave. Arrays are indexed by the packet's position.
pub(super) struct Leaving {
    egresses: [Egress; BURST_SIZE],
    /// The conjunction and the disjunction of all, which are equal if all packets leave through one interface.
    all: [Egress; 2],
    /// Packets that leave with more or fewer tags than they arrived with. Their link headers are not written yet.
    moved: Slots,
    /// The adjacencies of these packets.
    hops: [AdjacencyIndex; BURST_SIZE],
}

impl Leaving {
    /// No packets.
    pub(super) fn new() -> Self {
        Self {
            egresses: [Egress(0); BURST_SIZE],
            all: [Egress(u32::MAX), Egress(0)],
            moved: 0,
            hops: [AdjacencyIndex::NONE; BURST_SIZE],
        }
    }

    /// Adds the packet at a position.
    #[inline(always)]
    pub(super) fn add(&mut self, i: usize, egress: Egress) {
        self.egresses[i] = egress;
        self.all[0].0 &= egress.0;
        self.all[1].0 |= egress.0;
    }

    /// Adds consecutive packets from the first one on, which are all that leave.
    #[inline(always)]
    pub(super) fn add_all(&mut self, egress: Egress) {
        self.all = [egress; 2];
    }

    /// Adds the packet at a position. It leaves with more or fewer tags than it arrived with.
    #[cold]
    pub(super) fn add_moved(&mut self, i: usize, hop: AdjacencyIndex) {
        self.moved |= 1 << i;
        self.hops[i] = hop;
    }

    /// Sends the taken packets, which have arrived on `interface` with this number of tags, and counts them.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        mut taken: Slots,
        (slots, interface, tags): (&[BufferIndex], u16, usize),
        burst: &mut Burst<'_, '_>,
        (adjacencies, exit): (&mut AdjacencyCache, &OutputContext<'_>),
    ) {
        if self.moved != 0 {
            let lost = self.relabel(&mut burst.buffers, slots, tags, (&mut *adjacencies, exit));
            drop_lost(lost, (slots, interface), burst.meta, burst.lists);
            taken &= !lost;
        }
        adjacencies.flush(exit);
        self.send(taken, (slots, interface), burst.meta, burst.lists);
    }

    /// Writes the link headers of the packets that leave with another number of tags than `tags`. Returns those whose next hop
    /// has meanwhile been lost.
    #[inline(never)]
    fn relabel(
        &mut self,
        buffers: &mut Buffers<'_, '_>,
        slots: &[BufferIndex],
        tags: usize,
        (adjacencies, exit): (&mut AdjacencyCache, &OutputContext<'_>),
    ) -> Slots {
        let mut lost = 0;
        buffers.with_packets(|packets| {
            each(self.moved, |i| {
                let slot = slots.get(i).copied().unwrap_or(BufferIndex::MAX);
                let (packet, adjacency) = (packets.get_mut(usize::from(slot)), adjacencies.of(self.hops[i], exit));
                if let Some((packet, adjacency)) = packet.zip(adjacency)
                    && adjacency.relabel(packet, tags as u8)
                {
                    self.add(i, adjacency.port_and_interface());
                } else {
                    lost |= 1 << i;
                }
            });
        });
        lost
    }

    /// Stores the interfaces of packets and puts the packets on the lists of their ports, in ascending order. The packets have
    /// arrived on `interface`.
    #[inline(always)]
    fn send(
        &self,
        taken: Slots,
        (slots, interface): (&[BufferIndex], u16),
        meta: &mut [Meta; BURST_BUFFERS],
        lists: &mut Lists,
    ) {
        // All packets are taken, or the first ones.
        let is_run = taken & taken.wrapping_add(1) == 0;
        let [egress, other] = self.all;
        let run = slots.get(..taken.count_ones() as usize);
        if let Some(run) = run.filter(|_| is_run && egress == other) {
            for slot in run {
                let meta = &mut meta[usize::from(*slot) % BURST_BUFFERS];
                (meta.interface, meta.egress) = (interface, egress.interface());
            }
            lists.send_all(egress.port(), run);
            return;
        }
        each(taken, |i| {
            let (egress, slot) = (self.egresses[i], slots.get(i).copied().unwrap_or_default());
            let meta = &mut meta[usize::from(slot) % BURST_BUFFERS];
            (meta.interface, meta.egress) = (interface, egress.interface());
            lists.send(egress.port(), slot);
        });
    }
}

/// Drops packets whose next hop was lost while the burst was processed.
#[cold]
#[inline(never)]
fn drop_lost(
    lost: Slots,
    (slots, interface): (&[BufferIndex], u16),
    meta: &mut [Meta; BURST_BUFFERS],
    lists: &mut Lists,
) {
    each(lost, |i| {
        let slot = slots.get(i).copied().unwrap_or_default();
        meta[usize::from(slot) % BURST_BUFFERS] = Meta {
            interface,
            ..Meta::default()
        };
        lists.drop_packet(slot, Reason::NeighbourUnresolved);
    });
}
