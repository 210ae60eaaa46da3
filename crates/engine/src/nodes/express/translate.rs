//! The last pass: checks, translates, tracks and sends a packet. A packet that fails a check is left unchanged.

use sluice_nat::sites::View;
use sluice_nat::tracking::Segment;
use sluice_table::flow::{Found, RecordIndex};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Direction, ethernet};

use crate::features::context::OutputContext;
use crate::features::revalidation::is_carried_over;
use crate::features::sites;
use crate::nodes::output::AdjacencyCache;
use crate::packet::batch::{Origin, put};
use crate::packet::io::{Head, Heads};
use crate::session::arrival::Arrival;
use crate::session::family::Session;
use crate::session::shard::Shard;

use super::head::{LaneFamily, Untagged, behind, behind_mut};
use super::leaving::Leaving;
use super::{LaneArrays, Slots, each};

/// The state of the last pass.
pub(super) struct Step<'s, 'c, 'm> {
    /// The shards by number; `None` if another worker owns the shard.
    pub(super) shards: &'s mut [Option<Box<Shard<'m>>>],
    pub(super) out: Output<'s, 'c>,
}

/// What happens to a packet that needs nothing unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is checked and sent.
    CheckAndSend,
    /// It is only checked, and counts as taken if it could be sent.
    Check,
    /// It is sent. It has been checked before, so it precedes all packets of its session that are left.
    Send,
}

/// The part of the state that can be used while a session is borrowed.
pub(super) struct Output<'s, 'c> {
    /// What the session knows about the arrival of a packet that may be taken.
    pub(super) arrival: Arrival,
    /// Generation of the snapshot.
    pub(super) generation: u32,
    pub(super) exit: &'s OutputContext<'c>,
    pub(super) adjacencies: AdjacencyCache,
    pub(super) leaving: &'s mut Leaving,
    pub(super) phase: Phase,
    /// Packets whose key the probable record does not have. Another record may have it.
    pub(super) missed: Slots,
    pub(super) tally: Tally,
}

impl Step<'_, '_, '_> {
    /// Translates and sends those of the packets of TCP, and of UDP, that need nothing unusual, and returns their slots.
    #[inline(always)]
    pub(super) fn take_plain<F: LaneFamily, const TAGS: usize, const SITES: bool>(
        &mut self,
        [tcp, udp]: [Slots; 2],
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> Slots {
        self.out.missed = 0;
        let mut taken = self.take_all::<F, true, TAGS, SITES>(tcp, heads, work);
        taken |= self.take_all::<F, false, TAGS, SITES>(udp, heads, work);
        if self.out.missed != 0 {
            taken |= self.take_missed::<F, true, TAGS, SITES>(tcp, heads, work);
            taken |= self.take_missed::<F, false, TAGS, SITES>(udp, heads, work);
        }
        taken
    }

    /// Translates and sends those of the packets that need nothing unusual, and returns their slots. The other packets are left
    /// unchanged.
    #[inline(never)]
    fn take_all<F: LaneFamily, const IS_TCP: bool, const TAGS: usize, const SITES: bool>(
        &mut self,
        slots: Slots,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> Slots {
        let mut others = 0;
        each(slots, |i| {
            if !self.take::<F, IS_TCP, TAGS, SITES>(i, heads, work) {
                others |= 1 << i;
            }
        });
        slots & !others
    }

    /// The same for one packet. Returns whether the packet was sent.
    #[inline(always)]
    fn take<F: LaneFamily, const IS_TCP: bool, const TAGS: usize, const SITES: bool>(
        &mut self,
        i: usize,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> bool {
        let Some(Some(shard)) = self.shards.get_mut(usize::from(work.shards[i])) else {
            return false;
        };
        let words = &work.keys[i];
        let has_words = |session: &F::Session, direction| F::has_words(session, direction, words);
        let Some(found) = F::table(shard).candidate_mut(work.candidates[i], has_words) else {
            self.out.missed |= 1 << i;
            return false;
        };
        self.out.take_found::<F, IS_TCP, TAGS, SITES>(i, heads, work, found)
    }

    /// Like [`take_all`](Self::take_all), for packets whose key the probable record does not have: searches the records that have
    /// it.
    #[cold]
    #[inline(never)]
    fn take_missed<F: LaneFamily, const IS_TCP: bool, const TAGS: usize, const SITES: bool>(
        &mut self,
        slots: Slots,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
    ) -> Slots {
        let mut taken = 0;
        each(slots & self.out.missed, |i| {
            if let Some(Some(shard)) = self.shards.get_mut(usize::from(work.shards[i]))
                && !work.candidates[i].is_none()
                && let Some(found) = F::table(shard).search_mut(work.hashes[i], &F::whole_key(work.keys[i], work.high))
            {
                taken |= Slots::from(self.out.take_found::<F, IS_TCP, TAGS, SITES>(i, heads, work, found)) << i;
            }
        });
        taken
    }
}

impl Output<'_, '_> {
    /// Translates and sends a packet of a session if it needs nothing unusual. Otherwise returns `false` without an effect on the
    /// packet.
    #[inline(always)]
    fn take_found<F: LaneFamily, const IS_TCP: bool, const TAGS: usize, const SITES: bool>(
        &mut self,
        i: usize,
        heads: &mut Heads<'_>,
        work: &LaneArrays<F>,
        ((index, direction), session): (Found, &mut F::Session),
    ) -> bool {
        let Some(head) = heads[i].as_deref_mut() else {
            return false;
        };
        let arrival = session.arrival(direction);
        if !arrival.is_in_lane(self.arrival) {
            if arrival.high() != self.arrival.high() {
                // The session has another context.
                self.missed |= 1 << i;
                return false;
            }
            if !self.admits::<F>(session, direction) {
                return self.leave(work.shards[i], index);
            }
        }
        let may_be_left = !self.leaving.left.is_empty() && self.phase != Phase::Send;
        if may_be_left && self.leaving.left.contains(&(work.shards[i], index)) {
            return false;
        }
        if session.generation() != self.generation && !is_carried_over::<F>(session, self.exit.snapshot) {
            return self.leave(work.shards[i], index);
        }
        let inner = behind::<TAGS>(head);
        // What leaves with a shared address and may be fragmented gets an IP ID.
        if !F::is_atomic(inner) && session.nat().translates() && session.nat().outbound(direction) {
            return self.leave(work.shards[i], index);
        }
        let (length, frame) = (work.lengths[i], usize::from(work.windows[i].length));
        let Some(data) = data_of::<F, IS_TCP>(inner, length) else {
            return self.leave(work.shards[i], index);
        };
        let hop = session.adjacency(direction);
        let lengths = (length, frame, data);
        if SITES {
            let found = ((index, direction), &mut *session);
            if let Some(is_taken) = self.take_of_site::<F, IS_TCP, TAGS>(i, head, work, found, lengths) {
                return is_taken;
            }
        }
        let adjacency = match self.adjacencies.of(hop, self.exit) {
            Some(adjacency) if adjacency.is_direct_for::<TAGS>(length) => adjacency,
            Some(adjacency) if adjacency.is_open_for(length, &work.windows[i]) => {
                if self.phase == Phase::Check {
                    return true;
                }
                self.leaving.add_moved(i, hop);
                self.tally
                    .translate_moved::<F, IS_TCP, TAGS>(i, head, session, direction, lengths);
                return true;
            }
            _ => return self.leave(work.shards[i], index),
        };
        if self.phase == Phase::Check {
            return true;
        }
        let sent = self
            .tally
            .translate::<F, IS_TCP, TAGS>(i, head, session, direction, lengths);
        adjacency.rewrite_head::<TAGS>(head, sent);
        self.leaving.add(i, adjacency.port_and_interface());
        true
    }

    /// Translates a packet if its session belongs to a site, and returns whether it is sent. `None` if the session belongs to no site.
    #[inline(always)]
    fn take_of_site<F: LaneFamily, const IS_TCP: bool, const TAGS: usize>(
        &mut self,
        i: usize,
        head: &mut Head,
        work: &LaneArrays<F>,
        ((index, direction), session): (Found, &mut F::Session),
        lengths: (u16, usize, u16),
    ) -> Option<bool> {
        let key = F::whole_key(work.keys[i], work.high);
        let terminal = match self.terminal::<F>(session, direction, &key, head) {
            Ok(terminal) => terminal?,
            Err(NotTaken) => return Some(self.leave(work.shards[i], index)),
        };
        let hop = session.adjacency(direction).without_terminal();
        let adjacency = self.adjacencies.of(hop, self.exit);
        if !adjacency.is_some_and(|adjacency| adjacency.is_open_for(lengths.0, &work.windows[i])) {
            return Some(self.leave(work.shards[i], index));
        }
        if self.phase != Phase::Check {
            self.leaving.add_for_terminal(i, hop, terminal);
            self.tally
                .translate_moved::<F, IS_TCP, TAGS>(i, head, session, direction, lengths);
        }
        Some(true)
    }

    /// The terminal to which a packet's session belongs, and whether the terminal sent the packet. `None` if the session belongs to
    /// no site. A session without a valid terminal, and a frame to another host, are left to the graph.
    #[inline(always)]
    fn terminal<F: LaneFamily>(
        &self,
        session: &F::Session,
        direction: Direction,
        key: &F::Key,
        head: &Head,
    ) -> Result<Option<(View, bool)>, NotTaken> {
        let interface = self.arrival.interface();
        match sites::terminal::<F>(session, direction, key, (interface, Origin::Received), head, self.exit) {
            Ok(Some(terminal)) => Ok(Some(terminal)),
            Ok(None) => {
                let own = self.exit.snapshot.interface(interface).map(|interface| interface.mac);
                let is_own = own.is_some_and(|own| head.starts_with(&own));
                is_own.then_some(None).ok_or(NotTaken)
            }
            Err(_) => Err(NotTaken),
        }
    }

    /// Decides about a packet of a session of which the lane may not take packets: checks whether it may from now on, unless the
    /// packet has arrived on another interface.
    #[cold]
    #[inline(never)]
    fn admits<F: LaneFamily>(&self, session: &mut F::Session, direction: Direction) -> bool {
        session.admit_to_lane(direction) && session.arrival(direction).is_in_lane(self.arrival)
    }

    /// Records that the graph has to process a packet of this session, and therefore also the later ones. Returns `false`.
    #[cold]
    #[inline(never)]
    fn leave(&mut self, shard: u16, index: RecordIndex) -> bool {
        put(&mut self.leaving.left, (shard, index));
        false
    }
}

/// The graph has to process a packet.
struct NotTaken;

/// What the last pass counts.
pub(super) struct Tally {
    /// Time of the burst.
    stamp: u32,
    /// Bytes of the received frames that were taken.
    pub(super) received: u64,
    /// Packets whose frames have padding or a trailer.
    pub(super) trailers: Slots,
}

impl Tally {
    /// Nothing. `stamp` is the time of the burst.
    pub(super) fn new(stamp: u32) -> Self {
        Self {
            stamp,
            received: 0,
            trailers: 0,
        }
    }

    /// Translates a packet, except for its link header, and tracks its session. The lengths are those of the datagram, of the frame
    /// and of the data. Returns the length of the frame that is sent.
    #[inline(always)]
    fn translate<F: LaneFamily, const IS_TCP: bool, const TAGS: usize>(
        &mut self,
        i: usize,
        head: &mut Head,
        session: &mut F::Session,
        direction: Direction,
        (length, frame, data): (u16, usize, u16),
    ) -> usize {
        let refreshes = session.refreshes(direction);
        let track = session.track_in_lane();
        if IS_TCP {
            let segment = Segment::of_data(F::transport(behind::<TAGS>(head)), data);
            track.tracking.advance(direction, &segment);
        }
        track.count(direction, length);
        if refreshes {
            track.last_seen = self.stamp;
        }
        if let Some(inner) = behind_mut::<TAGS>(head) {
            F::translate::<IS_TCP>(inner, session, direction);
        }
        self.received += frame as u64;
        let end = ethernet::LENGTH + 4 * TAGS + usize::from(length);
        if end == frame {
            return frame;
        }
        self.trailers |= 1 << i;
        end.max(frame.min(ethernet::MIN_FRAME))
    }

    /// The same for a packet whose link header is written later.
    #[inline(never)]
    fn translate_moved<F: LaneFamily, const IS_TCP: bool, const TAGS: usize>(
        &mut self,
        i: usize,
        head: &mut Head,
        session: &mut F::Session,
        direction: Direction,
        lengths: (u16, usize, u16),
    ) {
        self.translate::<F, IS_TCP, TAGS>(i, head, session, direction, lengths);
    }
}

/// Length of the data of a plain packet. `None` if its transport header is invalid, or if it is a TCP segment that does not carry
/// just data or an acknowledgment.
#[inline(always)]
fn data_of<F: LaneFamily, const IS_TCP: bool>(head: &Untagged, length: u16) -> Option<u16> {
    let transport = F::transport(head);
    let payload = i32::from(length) - i32::from(F::NETWORK);
    if !IS_TCP {
        let claimed = i32::from(u16::from_be_bytes([transport[4], transport[5]]));
        return (claimed >= 8 && claimed <= payload).then_some(0);
    }
    let data = payload - i32::from(transport[12] >> 4) * 4;
    let is_usual = transport[12] >= 0x50 && transport[13] & (SYN | FIN | RST | ACK) == ACK;
    (is_usual && data >= 0).then_some(data as u16)
}
