//! The last pass: checks, translates, tracks and sends a packet. A packet that fails a check is left unchanged.

use arrayvec::ArrayVec;
use sluice_nat::tracking::Segment;
use sluice_table::flow::{Found, RecordIndex};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Direction, ethernet};

use core::hint::select_unpredictable;

use crate::features::context::OutputContext;
use crate::features::revalidation::is_carried_over;
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::{Meta, put};
use crate::packet::io::{ALL_SLOTS, BURST_SIZE, BufferIndex, Head, Heads, PortIndex};
use crate::packet::lists::Lists;
use crate::session::family::Session;
use crate::session::shard::Shard;

use super::head::LaneFamily;
use super::{LaneArrays, Slots, each};

/// The state of the last pass.
pub(super) struct Step<'s, 'c, 'm> {
    /// The shards by number; `None` if another worker owns the shard.
    pub(super) shards: &'s mut [Option<Box<Shard<'m>>>],
    /// Packets whose key the probable record does not have. Another record may have it.
    pub(super) missed: Slots,
    pub(super) out: Output<'s, 'c>,
}

/// The part of the state that can be used while a session is borrowed.
pub(super) struct Output<'s, 'c> {
    /// Number of the interface on which the packets arrived.
    pub(super) interface: u16,
    /// Generation of the snapshot.
    pub(super) generation: u32,
    /// Time of the burst.
    pub(super) stamp: u32,
    pub(super) exit: &'s OutputContext<'c>,
    pub(super) adjacencies: AdjacencyCache,
    /// Metadata by position in the burst.
    pub(super) meta: &'s mut [Meta; BURST_SIZE],
    pub(super) sent: SentPorts,
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
    /// The ports by position in the burst.
    ports: [PortIndex; BURST_SIZE],
    /// The conjunction and the disjunction of all ports, which are equal if all ports are equal.
    all: [PortIndex; 2],
}

impl SentPorts {
    /// No packets.
    pub(super) fn new() -> Self {
        Self {
            ports: [0; BURST_SIZE],
            all: [PortIndex::MAX, 0],
        }
    }

    #[inline(always)]
    fn add(&mut self, i: usize, port: PortIndex) {
        self.ports[i] = port;
        self.all[0] &= port;
        self.all[1] |= port;
    }

    /// Puts packets on the lists of their ports, in the order of their slots. `first` is the slot of the first packet of the
    /// burst.
    #[inline(always)]
    pub(super) fn send(&self, taken: Slots, first: usize, lists: &mut Lists) {
        // All packets are taken, or the first ones.
        let is_run = taken & taken.wrapping_add(1) == 0;
        let run = ALL_SLOTS.get(first..first + taken.count_ones() as usize);
        if let Some(run) = run.filter(|_| is_run && self.all[0] == self.all[1]) {
            lists.send_all(self.all[0], run);
            return;
        }
        each(taken, |i| lists.send(self.ports[i], (first + i) as BufferIndex));
    }
}

impl Step<'_, '_, '_> {
    /// Translates and sends those of the packets that need nothing unusual, and returns their slots. The other packets are left
    /// unchanged.
    #[inline(never)]
    pub(super) fn take_all<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        slots: Slots,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> Slots {
        let mut others = 0;
        each(slots, |i| {
            if !self.take::<F, IS_TCP>(i, heads, work) {
                others |= 1 << i;
            }
        });
        slots & !others
    }

    /// The same for one packet. Returns whether the packet was sent.
    #[inline(always)]
    fn take<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        i: usize,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> bool {
        let Some(Some(shard)) = self.shards.get_mut(usize::from(work.shards[i])) else {
            return false;
        };
        let (words, high) = (&work.keys[i], work.high);
        let has_key = |session: &F::Session, direction| F::has_key(session, direction, words, high);
        let Some(found) = F::table(shard).candidate_mut(work.candidates[i], has_key) else {
            self.missed |= 1 << i;
            return false;
        };
        self.out.take_found::<F, IS_TCP>(i, heads, work, found)
    }

    /// Like [`take_all`](Self::take_all), for packets whose key the probable record does not have: searches the records that have
    /// it.
    #[cold]
    #[inline(never)]
    pub(super) fn take_missed<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        slots: Slots,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> Slots {
        let mut taken = 0;
        each(slots & self.missed, |i| {
            if let Some(Some(shard)) = self.shards.get_mut(usize::from(work.shards[i]))
                && !work.candidates[i].is_none()
                && let Some(found) = F::table(shard).search_mut(work.hashes[i], &F::whole_key(work.keys[i], work.high))
            {
                taken |= Slots::from(self.out.take_found::<F, IS_TCP>(i, heads, work, found)) << i;
            }
        });
        taken
    }
}

impl Output<'_, '_> {
    /// Translates and sends a packet of a session if it needs nothing unusual. Otherwise returns `false` without an effect on the
    /// packet.
    #[inline(always)]
    fn take_found<F: LaneFamily, const IS_TCP: bool>(
        &mut self,
        i: usize,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
        ((index, direction), session): (Found, &mut F::Session),
    ) -> bool {
        let Some(head) = heads[i].as_deref_mut() else {
            return false;
        };
        let (length, frame) = (work.lengths[i], usize::from(work.windows[i].length));
        let is_next = self.left.is_empty() || !is_among(&self.left, work.shards[i], index);
        let data = data_of::<F, IS_TCP>(head, length);
        let (true, Some(data)) = (is_next && self.may_take::<F>(session, direction, head), data) else {
            leave(&mut self.left, work.shards[i], index);
            return false;
        };
        let adjacency = self.adjacencies.of(session.adjacency(direction), self.exit);
        let Some(adjacency) = adjacency.filter(|adjacency| adjacency.is_direct_for(length)) else {
            leave(&mut self.left, work.shards[i], index);
            return false;
        };
        if IS_TCP {
            let segment = Segment::of_data(F::transport(head), data);
            session.track_in_lane().tracking.advance(direction, &segment);
        }
        let refreshes = session.refreshes(direction);
        let track = session.track_in_lane();
        track.count(direction, length);
        track.last_seen = select_unpredictable(refreshes, self.stamp, track.last_seen);
        F::translate::<IS_TCP>(head, session, direction);
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
        let meta = &mut self.meta[i];
        (meta.interface, meta.egress) = (self.interface, adjacency.egress());
        self.sent.add(i, adjacency.port());
        true
    }

    /// Whether a packet of a session needs nothing unusual, except perhaps its way out.
    #[inline(always)]
    fn may_take<F: LaneFamily>(&self, session: &mut F::Session, direction: Direction, head: &Head) -> bool {
        if !session.track().passes(direction) && !session.admit_to_lane(direction) {
            return false;
        }
        if session.bound_interface(direction) != self.interface {
            return false;
        }
        if session.generation() != self.generation && !is_carried_over::<F>(session, self.exit.snapshot) {
            return false;
        }
        // What leaves with a shared address and may be fragmented gets an IP ID.
        F::is_atomic(head) || !(session.nat().translates() && session.nat().outbound(direction))
    }
}

#[cold]
#[inline(never)]
fn is_among(left: &[(u16, RecordIndex)], shard: u16, index: RecordIndex) -> bool {
    left.contains(&(shard, index))
}

#[cold]
#[inline(never)]
fn leave(left: &mut ArrayVec<(u16, RecordIndex), BURST_SIZE>, shard: u16, index: RecordIndex) {
    put(left, (shard, index));
}

/// Length of the data of a plain packet. `None` if its transport header is invalid, or if it is a TCP segment that does not carry
/// just data or an acknowledgment.
#[inline(always)]
fn data_of<F: LaneFamily, const IS_TCP: bool>(head: &Head, length: u16) -> Option<u16> {
    let transport = F::transport(head);
    let payload = length.checked_sub(F::NETWORK)?;
    match IS_TCP {
        true => {
            let offset = u16::from(transport[12] >> 4) * 4;
            let is_usual = (offset >= 20) & (transport[13] & (SYN | FIN | RST | ACK) == ACK);
            payload.checked_sub(offset).filter(|_| is_usual)
        }
        false => {
            let claimed = u16::from_be_bytes([transport[4], transport[5]]);
            ((claimed >= 8) & (claimed <= payload)).then_some(0)
        }
    }
}
