//! The last pass: checks, translates, tracks and sends a packet. A packet that fails a check is left unchanged.

use arrayvec::ArrayVec;
use sluice_nat::tracking::Segment;
use sluice_table::flow::RecordIndex;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Direction, ethernet};

use core::hint::select_unpredictable;

use crate::features::context::OutputContext;
use crate::features::revalidation::is_carried_over;
use crate::nodes::output::{Adjacency, AdjacencyCache};
use crate::packet::batch::{Meta, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::session::family::Session;
use crate::session::shard::Shard;

use super::head::{Head, Heads, LaneFamily};
use super::{Ingress, LaneArrays, Slots};

/// The state of the last pass.
pub(super) struct Step<'s, 'c, 'm> {
    pub(super) ingress: &'s Ingress,
    pub(super) exit: &'s OutputContext<'c>,
    pub(super) adjacencies: &'s mut AdjacencyCache,
    pub(super) meta: &'s mut [Meta; BURST_BUFFERS],
    /// Slot of the first packet.
    pub(super) first: usize,
    pub(super) sent: SentPorts,
    pub(super) shards: &'s mut [Option<Box<Shard<'m>>>],
    /// Sessions of which a packet was left to the graph. The graph then processes the later packets of these sessions,
    /// too, so that it tracks them in the order in which they arrived.
    pub(super) left: ArrayVec<(u16, RecordIndex), BURST_SIZE>,
    /// Bytes of the received frames that were taken.
    pub(super) received: u64,
    /// Packets whose frames have padding or a trailer.
    pub(super) trailers: Slots,
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
        i: usize,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> bool {
        let Some(Some(shard)) = self.shards.get_mut(usize::from(work.shards[i])) else {
            return false;
        };
        let found = F::table(shard).confirm_mut(work.hashes[i], work.candidates[i], &work.key(i));
        let (Some(((index, direction), session)), Some(head)) = (found, heads[i].as_deref_mut()) else {
            return false;
        };
        let (length, frame) = (work.lengths[i], usize::from(work.frames[i]));
        let number = (work.shards[i], index);
        let follows = !self.left.is_empty() && self.left.contains(&number);
        let out = (self.ingress, self.exit, &mut *self.adjacencies);
        let adjacency = match follows {
            false => process::<F, IS_TCP>(session, direction, head, length, out),
            true => None,
        };
        let Some(adjacency) = adjacency else {
            put(&mut self.left, number);
            return false;
        };
        let end = ethernet::LENGTH + usize::from(length);
        let mut sent = frame;
        if end != frame {
            self.trailers |= 1 << i;
            sent = end.max(frame.min(ethernet::MIN_FRAME));
        }
        if let Some(link) = head.first_chunk_mut() {
            adjacency.rewrite_link(link, sent);
        }
        self.received += frame as u64;
        let slot = self.first + i;
        let meta = &mut self.meta[slot % BURST_BUFFERS];
        (meta.interface, meta.egress) = (self.ingress.number, adjacency.egress());
        self.sent.add(slot, adjacency.port());
        true
    }
}

/// Translates and tracks a packet of a session if it needs nothing unusual. Returns the adjacency to which it has to be
/// sent. Otherwise returns `None` without an effect on the packet and on the session's state.
#[inline(always)]
fn process<'a, F: LaneFamily, const IS_TCP: bool>(
    session: &mut F::Session,
    direction: Direction,
    head: &mut Head,
    length: u16,
    (ingress, exit, adjacencies): (&Ingress, &OutputContext<'_>, &'a mut AdjacencyCache),
) -> Option<&'a mut Adjacency> {
    if session.bound_interface(direction) != ingress.number || session.diverts() {
        return None;
    }
    if session.generation() != exit.snapshot.generation && !is_carried_over::<F>(session, exit.snapshot) {
        return None;
    }
    let adjacency = adjacencies.of(session.adjacency(direction), exit)?;
    if !adjacency.is_direct_for(length) || !is_well_formed::<F, IS_TCP>(head, length) {
        return None;
    }
    let is_usual = F::is_atomic(head) || !(session.nat().translates() && session.nat().outbound(direction));
    let segment = match IS_TCP {
        true => F::segment(head, length),
        false => Segment::default(),
    };
    let refreshes = session.refreshes(direction);
    let track = session.track_mut();
    if !track.tracking.track_fast(direction, IS_TCP, &segment, is_usual) {
        return None;
    }
    track.count(direction, length);
    track.last_seen = select_unpredictable(refreshes, exit.now.stamp(), track.last_seen);
    F::translate::<IS_TCP>(head, session, direction);
    Some(adjacency)
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
