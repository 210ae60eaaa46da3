//! Runs at the end of a burst: disposes of every slot and its buffer according to the decisions of the nodes.

use super::{ResumeReason, Worker};
use crate::features::context::WaitingPacket;
use crate::packet::batch::put;
use crate::packet::counters::{CycleStage, HandOffCause};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, NoteWords, Packets, PortIndex};
use crate::packet::reason::{EngineReason, Reason};
use crate::packet::time::Now;
use crate::snapshot::shares::Shares;

use arrayvec::ArrayVec;

impl Worker<'_> {
    /// Disposes of the buffers of a burst. Returns the number of cycles that handing packets to other workers took.
    pub(super) fn dispose(&mut self, now: Now) -> u64 {
        self.parts.lists.clear_slots();
        self.transmit(now);
        self.forward_link_packets();
        self.park(now);
        let mut over = 0;
        if !self.parts.lists.hand_over.is_empty() {
            let start = (self.cycles)();
            self.hand_over();
            over = self.count(CycleStage::HandOver, start).wrapping_sub(start);
        }
        let state = &mut self.parts;
        let lists = &mut *state.lists;
        let mut free = ArrayVec::<BufferIndex, { 3 * BURST_BUFFERS }>::new();
        for (slot, reason) in lists.drop.drain(..) {
            let interface = state.meta[slot as usize % BURST_BUFFERS].interface;
            if let Some(counters) = state.counters.interfaces.get(interface as usize) {
                counters.drop(reason);
            }
            put(&mut free, slot);
        }
        for slot in lists.taken.drain(..) {
            let interface = state.meta[slot as usize % BURST_BUFFERS].interface;
            if let Some(counters) = state.counters.interfaces.get(interface as usize) {
                counters.to_host.add(1);
            }
            put(&mut free, slot);
        }
        let _ = free.try_extend_from_slice(&lists.used);
        lists.used.clear();
        self.io.free(&free);
        let forgotten = self.io.end();
        self.parts.counters.leaked.add(forgotten as u64);
        over
    }

    fn transmit(&mut self, now: Now) {
        let shared = self.snapshot.load().shares.is_some();
        for port in 0..self.parts.lists.to_send.len() {
            if self.parts.lists.to_send[port].is_empty() {
                continue;
            }
            let mut slots = std::mem::take(&mut self.parts.lists.to_send[port]);
            let of = |shares: &Shares| shares.is_link_shared(port);
            let is_link_shared = shared && self.snapshot.load().shares.as_deref().is_some_and(of);
            let is_distributed = is_link_shared && self.share_link(port as PortIndex, &mut slots, now.nanoseconds);
            let taken = self.io.transmit(port as PortIndex, &slots);
            if is_link_shared {
                self.link_sent(port as PortIndex, &slots, taken, is_distributed);
            }
            if taken < slots.len() {
                let reason = match self.io.has_device(port as PortIndex) {
                    true => EngineReason::TransmitFull,
                    false => EngineReason::DeviceGone,
                };
                refused(&mut self.parts, &mut *self.io, &slots[taken..], reason);
            }
        }
    }

    /// Parks packets. If the limits are reached, parked packets are displaced and dropped.
    fn park(&mut self, now: Now) {
        self.park_syns();
        self.park_inspected();
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let lists = &mut *state.lists;
        let Some(owner) = state.owner.as_deref_mut() else {
            return;
        };
        let waiting = lists.park.drain(..).map(|(slot, neighbour)| (slot, Ok(neighbour)));
        let fragments = lists.park_fragment.drain(..).map(|(slot, place)| (slot, Err(place)));
        for (slot, resume) in waiting.chain(fragments) {
            let meta = &state.meta[slot as usize % BURST_BUFFERS];
            let Some(counters) = state.counters.interfaces.get(meta.interface as usize) else {
                continue;
            };
            if !snapshot.may_wait(meta.interface, &state.counters) {
                put(&mut lists.drop, (slot, EngineReason::BufferQuota.into()));
                continue;
            }
            let Some(parked) = self.io.park(slot) else {
                put(&mut lists.drop, (slot, EngineReason::ParkingFull.into()));
                continue;
            };
            counters.parked.add(1);
            let packet = WaitingPacket {
                parked,
                interface: meta.interface,
                origin: meta.origin,
            };
            let (back, reason) = match resume {
                Ok(neighbour) => match owner.parking.park(neighbour, packet, now.nanoseconds) {
                    Ok(replaced) => (replaced, Reason::Route(sluice_route::Reason::ParkedReplaced)),
                    Err((packet, reason)) => (Some(packet), reason.into()),
                },
                Err(place) => {
                    let resumed = &mut |waiting| ready(&mut self.resumed, waiting);
                    let full = owner.datagrams.wait(place, packet, resumed).err();
                    (full, EngineReason::FragmentsFull.into())
                }
            };
            if let Some(back) = back {
                drop_parked(&mut *self.io, &state.counters, back, reason);
            }
        }
    }

    /// Parks fragments that inspection reassembles.
    fn park_inspected(&mut self) {
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let Some(work) = state.inspecting.as_deref_mut() else {
            return;
        };
        for (slot, ticket) in std::mem::take(&mut work.parking) {
            let meta = &state.meta[slot as usize % BURST_BUFFERS];
            let may_wait = snapshot.may_wait(meta.interface, &state.counters);
            let parked = may_wait.then(|| self.io.park(slot)).flatten();
            let is_parked = parked.is_some();
            let waiting = parked.map(|parked| WaitingPacket {
                parked,
                interface: meta.interface,
                origin: meta.origin,
            });
            let passed = work.parked_packets.park(ticket, waiting);
            if !is_parked {
                // If inspection has already let the packet pass, it has already counted the packet.
                let reason = match passed {
                    true if !may_wait => EngineReason::BufferQuota.into(),
                    true => EngineReason::ParkingFull.into(),
                    false => sluice_inspect::Reason::ParkingFull.into(),
                };
                put(&mut state.lists.drop, (slot, reason));
            } else if let Some(counters) = state.counters.interfaces.get(meta.interface as usize) {
                counters.parked.add(1);
            }
        }
    }

    /// Parks unsolicited SYNs.
    fn park_syns(&mut self) {
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let lists = &mut *state.lists;
        for syn in lists.park_syn.drain(..) {
            let meta = &state.meta[syn.slot as usize % BURST_BUFFERS];
            let may_wait = snapshot.may_wait(meta.interface, &state.counters);
            let admitted = may_wait.then(|| self.syns.admit(&syn, meta.shard));
            let admitted = admitted.unwrap_or(Err(EngineReason::BufferQuota.into()));
            let parked = admitted.and_then(|()| {
                let parked = self.io.park(syn.slot);
                parked.ok_or(EngineReason::ParkingFull.into())
            });
            match (parked, state.counters.interfaces.get(meta.interface as usize)) {
                (Ok(parked), counters) => {
                    let packet = WaitingPacket {
                        parked,
                        interface: meta.interface,
                        origin: meta.origin,
                    };
                    self.syns.wait(&syn, meta.shard, packet);
                    if let Some(counters) = counters {
                        counters.parked.add(1);
                    }
                }
                (Err(reason), _) => put(&mut lists.drop, (syn.slot, reason)),
            }
        }
    }

    fn hand_over(&mut self) {
        let state = &mut self.parts;
        let lists = &mut *state.lists;
        while let Some(&(_, to, ..)) = lists.hand_over.first() {
            let mut slots = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
            let mut causes = ArrayVec::<HandOffCause, BURST_BUFFERS>::new();
            let mut carried = ArrayVec::<NoteWords, BURST_BUFFERS>::new();
            lists.hand_over.retain(|&mut (slot, worker, cause, words)| {
                if worker == to {
                    put(&mut slots, slot);
                    put(&mut causes, cause);
                    put(&mut carried, words);
                }
                worker != to
            });
            let taken = self.io.hand_over(to, &slots, &carried);
            for &cause in &causes[..taken] {
                state.counters.handed_off[cause as usize].add(1);
            }
            let is_next = state.role.beyond.contains(&to);
            for &slot in &slots[taken..] {
                lists.drop_packet(
                    slot,
                    if is_next {
                        EngineReason::Shed
                    } else {
                        EngineReason::HandoverFull
                    },
                );
            }
        }
    }

    /// Moves unparked packets back to the burst buffers, up to the free space. Returns their number.
    pub(super) fn unpark(&mut self) -> usize {
        let mut count = 0;
        for (waiting, _) in &mut self.resumed {
            if count == crate::packet::io::BURST_SIZE {
                break;
            }
            let handle = std::mem::replace(&mut waiting.parked, crate::packet::io::Parked(u32::MAX));
            match self.io.unpark(handle) {
                Ok(_) => count += 1,
                Err(handle) => {
                    waiting.parked = handle;
                    break;
                }
            }
            if let Some(counters) = self.parts.counters.interfaces.get(waiting.interface as usize) {
                counters.unparked.add(1);
            }
        }
        count
    }

    /// Drops a parked packet.
    pub(super) fn drop_parked(&mut self, waiting: WaitingPacket, reason: Reason) {
        drop_parked(&mut *self.io, &self.parts.counters, waiting, reason);
    }

    /// Processes a parked packet again. If too many packets are unparked in one burst, drops the packet.
    pub(super) fn resume(&mut self, waiting: WaitingPacket, resume: ResumeReason) {
        if let Err(error) = self.resumed.try_push((waiting, resume)) {
            let (waiting, _) = error.element();
            self.drop_parked(waiting, EngineReason::ParkingFull.into());
        }
    }
}

/// Processes a parked packet again in the next burst, if there is space for it.
pub(super) fn ready(
    resumed: &mut ArrayVec<(WaitingPacket, ResumeReason), BURST_BUFFERS>,
    waiting: WaitingPacket,
) -> Result<(), WaitingPacket> {
    resumed
        .try_push((waiting, ResumeReason::Ready))
        .map_err(|error| error.element().0)
}

/// Corrects the counters for packets that the device did not accept.
#[cold]
fn refused(
    state: &mut super::State<'_>,
    io: &mut dyn crate::packet::io::Handover,
    slots: &[BufferIndex],
    reason: EngineReason,
) {
    let mut allocated = Packets::new();
    io.packets(&mut allocated);
    for &slot in slots {
        let egress = state.meta[slot as usize % BURST_BUFFERS].egress;
        if let Some(counters) = state.counters.interfaces.get(egress as usize) {
            let bytes = allocated.get(slot as usize).map_or(0, |packet| packet.len() as u64);
            counters.sent.add(1u64.wrapping_neg());
            counters.sent_bytes.add(bytes.wrapping_neg());
        }
        state.lists.drop_packet(slot, reason);
    }
}

fn drop_parked(
    io: &mut dyn crate::packet::io::Handover,
    counters: &crate::packet::counters::WorkerCounters,
    waiting: WaitingPacket,
    reason: Reason,
) {
    io.release(waiting.parked);
    if let Some(counters) = counters.interfaces.get(waiting.interface as usize) {
        counters.unparked.add(1);
        counters.drop(reason);
    }
}
