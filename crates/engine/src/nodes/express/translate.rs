//! The last pass: checks, translates, tracks and sends a packet. A packet that fails a check is left unchanged.

use arrayvec::ArrayVec;
use sluice_nat::tracking::Segment;
use sluice_table::flow::{Candidate, RecordIndex};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Direction, ethernet};

use core::hint::select_unpredictable;

use crate::features::context::OutputContext;
use crate::features::revalidation::is_carried_over;
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::{Batch, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;

use super::head::{HEAD, Head, LaneFamily};
use super::{Ingress, LaneArrays};

/// The result of the earlier passes for a packet.
pub(super) struct Found<'w, F: Family> {
    key: &'w F::Key,
    length: u16,
    shard: u16,
    hash: u64,
    candidate: Candidate,
}

impl<'w, F: Family> Found<'w, F> {
    #[inline(always)]
    pub(super) fn of(work: &'w LaneArrays<F>, i: usize) -> Self {
        Self {
            key: &work.keys[i],
            length: work.lengths[i],
            shard: work.shards[i],
            hash: work.hashes[i],
            candidate: work.candidates[i],
        }
    }
}

/// The state of the last pass.
pub(super) struct Step<'s, 'c, 'm> {
    pub(super) ingress: &'s Ingress,
    pub(super) exit: &'s OutputContext<'c>,
    pub(super) adjacencies: &'s mut AdjacencyCache,
    pub(super) sent: SentPorts,
    pub(super) shards: &'s mut [Option<Box<Shard<'m>>>],
    /// Sessions of which a packet was left to the graph. The graph then processes the later packets of these sessions,
    /// too, so that it tracks them in the order in which they arrived.
    pub(super) left: ArrayVec<(u16, RecordIndex), BURST_SIZE>,
    /// Bytes of the received frames that were taken.
    pub(super) received: u64,
}

/// The ports on which the taken packets leave.
pub(super) struct SentPorts {
    ports: [PortIndex; BURST_BUFFERS],
    /// The conjunction and the disjunction of all ports, which are equal if all ports are equal.
    all: [PortIndex; 2],
}

impl SentPorts {
    /// No packets.
    pub(super) fn new() -> Self {
        Self {
            ports: [0; BURST_BUFFERS],
            all: [PortIndex::MAX, 0],
        }
    }

    #[inline(always)]
    fn add(&mut self, slot: usize, port: PortIndex) {
        self.ports[slot % BURST_BUFFERS] = port;
        self.all[0] &= port;
        self.all[1] |= port;
    }

    /// Puts packets on the lists of their ports, in the order of their slots.
    #[inline(always)]
    pub(super) fn send(&self, slots: &[BufferIndex], lists: &mut Lists) {
        if self.all[0] == self.all[1] {
            lists.send_all(self.all[0], slots);
            return;
        }
        for &slot in slots {
            lists.send(self.ports[usize::from(slot) % BURST_BUFFERS], slot);
        }
    }
}

impl Step<'_, '_, '_> {
    /// Translates and sends a packet if it needs nothing unusual. Otherwise returns `false` without an effect on the
    /// packet.
    #[inline(always)]
    pub(super) fn take<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        slot: usize,
        batch: &mut Batch<'_, '_>,
        found: &Found<'_, F>,
    ) -> bool {
        let Some(Some(shard)) = self.shards.get_mut(usize::from(found.shard)) else {
            return false;
        };
        let Some((index, direction)) = F::table_ref(shard).confirm(found.hash, found.candidate, found.key) else {
            return false;
        };
        let is_taken =
            !self.follows((found.shard, index)) && self.take_found::<F, IS_TCP>(slot, batch, found, (index, direction));
        if !is_taken {
            put(&mut self.left, (found.shard, index));
        }
        is_taken
    }

    /// Whether an earlier packet of a session was left to the graph.
    #[inline(always)]
    fn follows(&self, session: (u16, RecordIndex)) -> bool {
        !self.left.is_empty() && self.left.contains(&session)
    }

    /// Translates and sends a packet of a session.
    #[inline(always)]
    fn take_found<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        slot: usize,
        batch: &mut Batch<'_, '_>,
        found: &Found<'_, F>,
        (index, direction): (RecordIndex, Direction),
    ) -> bool {
        let Some(Some(shard)) = self.shards.get_mut(usize::from(found.shard)) else {
            return false;
        };
        let Some(session) = F::table(shard).get_mut(index) else {
            return false;
        };
        let (packet, meta) = (&mut batch.packets[slot], &mut batch.meta[slot % BURST_BUFFERS]);
        let exit = self.exit;
        if session.bound_interface(direction) != self.ingress.number || session.diverts() {
            return false;
        }
        if session.generation() != exit.snapshot.generation && !is_carried_over::<F>(session, exit.snapshot) {
            return false;
        }
        let Some(adjacency) = self.adjacencies.of(session.adjacency(direction), exit) else {
            return false;
        };
        let frame = packet.len();
        let length = found.length;
        let Some(head) = packet.head_mut::<{ HEAD }>() else {
            return false;
        };
        if !adjacency.is_direct_for(length) || !is_well_formed::<F, IS_TCP>(head, length) {
            return false;
        }
        let is_usual = F::is_atomic(head) || !(session.nat().translates() && session.nat().outbound(direction));
        let segment = match IS_TCP {
            true => F::segment(head, length),
            false => Segment::default(),
        };
        let refreshes = session.refreshes(direction);
        let track = session.track_mut();
        if !track.tracking.track_fast(direction, IS_TCP, &segment, is_usual) {
            return false;
        }
        track.count(direction, length);
        track.last_seen = select_unpredictable(refreshes, exit.now.stamp(), track.last_seen);
        F::translate::<IS_TCP>(head, session, direction);
        let end = ethernet::LENGTH + usize::from(length);
        if end != frame {
            packet.trim_trailer(end);
        }
        let sent = packet.len();
        if let Some(link) = packet.head_mut() {
            adjacency.rewrite_link(link, sent);
        }
        self.received += frame as u64;
        (meta.interface, meta.egress) = (self.ingress.number, adjacency.egress());
        self.sent.add(slot, adjacency.port());
        true
    }
}

/// Whether a plain packet's transport header is valid, and a TCP segment carries data or an acknowledgment and changes
/// no state.
#[inline(always)]
fn is_well_formed<F: LaneFamily, const IS_TCP: bool>(head: &Head, length: u16) -> bool {
    let transport = F::transport(head);
    let Some(payload) = length.checked_sub(F::NETWORK) else {
        return false;
    };
    match IS_TCP {
        true => {
            let offset = u16::from(transport[12] >> 4) * 4;
            (offset >= 20) & (offset <= payload) & (transport[13] & (SYN | FIN | RST | ACK) == ACK)
        }
        false => {
            let claimed = u16::from_be_bytes([transport[4], transport[5]]);
            (claimed >= 8) & (claimed <= payload)
        }
    }
}
