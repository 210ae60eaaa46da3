//! How the packets leave that the lane has taken.

use arrayvec::ArrayVec;
use sluice_nat::sites::View;
use sluice_route::Reason::NeighbourUnresolved;
use sluice_table::flow::RecordIndex;

use crate::features::context::OutputContext;
use crate::nodes::leave;
use crate::nodes::output::{AdjacencyCache, Egress, OutputResult};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, WorkerIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::Reason;

use super::{Buffers, Burst, Slots, each};

/// The positions of packets that other workers send, with these workers.
type HandedOver = ArrayVec<(usize, WorkerIndex), BURST_SIZE>;

/// How the taken packets leave, and sessions of packets that are left. Arrays are indexed by the packet's position.
pub(super) struct Leaving {
    egresses: [Egress; BURST_SIZE],
    /// The conjunction and the disjunction of all, which are equal if all packets leave through one interface.
    all: [Egress; 2],
    /// Packets that leave with more or fewer tags than they arrived with. Their link headers are not written yet.
    moved: Slots,
    /// The adjacencies of these packets.
    hops: [AdjacencyIndex; BURST_SIZE],
    /// Those of the moved packets that belong to sites, and for each its terminal, and whether the terminal sent it.
    of_sites: Slots,
    terminals: [Option<(View, bool)>; BURST_SIZE],
    /// Sessions of which a packet was left to the graph. The graph then processes the later packets of these sessions,
    /// too, so that it tracks them in the order in which they arrived.
    pub(super) left: ArrayVec<(u16, RecordIndex), BURST_BUFFERS>,
}

impl Default for Leaving {
    fn default() -> Self {
        Self {
            egresses: [Egress(0); BURST_SIZE],
            all: NOTHING,
            moved: 0,
            hops: [AdjacencyIndex::NONE; BURST_SIZE],
            of_sites: 0,
            terminals: [None; BURST_SIZE],
            left: ArrayVec::new(),
        }
    }
}

/// Conjunction and disjunction of no packets.
const NOTHING: [Egress; 2] = [Egress(u32::MAX), Egress(0)];

impl Leaving {
    /// Removes all packets, but keeps the sessions of packets that are left.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.all, self.moved, self.of_sites) = (NOTHING, 0, 0);
    }

    /// Adds the packet at a position.
    #[inline(always)]
    pub(super) fn add(&mut self, i: usize, egress: Egress) {
        self.egresses[i] = egress;
        self.all[0].0 &= egress.0;
        self.all[1].0 |= egress.0;
    }

    /// Records that all packets that leave do so through this interface. They must be the first packets of the burst, without gaps.
    #[inline(always)]
    pub(super) fn add_all(&mut self, egress: Egress) {
        self.all = [egress; 2];
    }

    /// Adds the packet at a position. It leaves with more or fewer tags than it arrived with, or another worker sends it.
    #[inline]
    pub(super) fn add_moved(&mut self, i: usize, hop: AdjacencyIndex) {
        self.moved |= 1 << i;
        self.hops[i] = hop;
    }

    /// Adds the packet at a position, which belongs to a site. `terminal` is the site's terminal, and whether it sent the packet.
    #[inline(always)]
    pub(super) fn add_for_terminal(&mut self, i: usize, hop: AdjacencyIndex, terminal: (View, bool)) {
        self.moved |= 1 << i;
        self.of_sites |= 1 << i;
        (self.hops[i], self.terminals[i]) = (hop, Some(terminal));
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
            let mut handed = HandedOver::new();
            let lost = self.relabel(
                &mut burst.buffers,
                (slots, tags),
                (&mut *adjacencies, exit),
                &mut handed,
            );
            let reason = NeighbourUnresolved.into();
            drop_all(lost, reason, (slots, interface), burst.meta, burst.lists);
            taken &= !lost;
            for (i, sender) in handed {
                taken &= !(1 << i);
                hand_over(self.hops[i], slots[i], sender, interface, burst);
            }
        }
        adjacencies.flush(exit);
        self.send(taken, (slots, interface), burst.meta, burst.lists);
    }

    /// Writes the link headers of the moved packets, which arrived with this number of tags. Adds those that another worker sends to
    /// `handed`. Returns those whose next hop has meanwhile been lost.
    #[inline(never)]
    fn relabel(
        &mut self,
        buffers: &mut Buffers<'_, '_>,
        (slots, tags): (&[BufferIndex], usize),
        (adjacencies, exit): (&mut AdjacencyCache, &OutputContext<'_>),
        handed: &mut HandedOver,
    ) -> Slots {
        let mut lost = 0;
        buffers.with_packets(|packets| {
            each(self.moved, |i| {
                let slot = slots.get(i).copied().unwrap_or(BufferIndex::MAX);
                let (packet, adjacency) = (packets.get_mut(usize::from(slot)), adjacencies.of(self.hops[i], exit));
                let terminal = self.terminals[i].filter(|_| self.of_sites & 1 << i != 0);
                if let Some((packet, adjacency)) = packet.zip(adjacency)
                    && match &terminal {
                        Some((view, upstream)) => adjacency.relabel_as(packet, tags as u8, view, *upstream, false),
                        None => adjacency.relabel(packet, tags as u8),
                    }
                {
                    match adjacency.out() {
                        OutputResult::HandOver(sender, _) => put(handed, (i, sender)),
                        _ => self.add(i, adjacency.port_and_interface()),
                    }
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

/// Hands a finished packet to the worker that has a queue of its port. The packet arrived on `interface`.
#[inline(never)]
fn hand_over(hop: AdjacencyIndex, slot: BufferIndex, sender: WorkerIndex, interface: u16, burst: &mut Burst<'_, '_>) {
    let meta = &mut burst.meta[usize::from(slot) % BURST_BUFFERS];
    *meta = Meta {
        interface,
        ..Meta::default()
    };
    let out = OutputResult::HandOver(sender, hop.interface() as u16);
    leave(slot, out, meta, hop, burst.lists);
}

/// Drops packets that arrived on `interface`.
#[cold]
#[inline(never)]
pub(super) fn drop_all(
    packets: Slots,
    reason: Reason,
    (slots, interface): (&[BufferIndex], u16),
    meta: &mut [Meta; BURST_BUFFERS],
    lists: &mut Lists,
) {
    each(packets, |i| {
        let slot = slots.get(i).copied().unwrap_or_default();
        meta[usize::from(slot) % BURST_BUFFERS] = Meta {
            interface,
            ..Meta::default()
        };
        lists.drop_packet(slot, reason);
    });
}
