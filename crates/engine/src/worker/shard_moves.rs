//! Moves of a shard from one worker to another; see [`crate::snapshot::shard_owners`]. The control thread controls the
//! steps of a move. In assistance, the two workers control the steps themselves; see [`crate::snapshot::assist`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Source, Worker};
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, NoteWords, Parked, WorkerIndex};
use crate::packet::reason::EngineReason;
use crate::packet::time::Now;
use crate::session::shard::Shard;
use crate::snapshot::shard_owners::ShardExchange;
use crate::snapshot::shared_capacity::SharedCapacity;
use crate::worker::request::Reply;

/// Maximum number of packets that a worker holds for a moving shard. The limit applies separately to packets from
/// devices and to packets from rings.
pub const MAX_HELD: usize = 4096;

/// After this number of frames was received from a device queue, all frames that were in it before have been received.
/// No queue has as many descriptors.
const IN_QUEUE: usize = 16_384;

/// Number of bursts of held packets that one round processes.
const AT_ONCE: usize = 4;

/// State of a worker for the move of a shard. Only one shard moves at a time.
#[derive(Default)]
pub(super) struct Moving<'m> {
    exchange: Option<Arc<ShardExchange<'m>>>,
    releasing: Option<ShardRelease<'m>>,
    expected: Option<Expected<'m>>,
    /// Packets that are held for the expected shard: packets from rings, and packets from devices.
    held: [VecDeque<Held>; 2],
    /// For each worker: its round at the time when the last change that all workers must see was published.
    rounds: Box<[u64]>,
}

struct ShardRelease<'m> {
    shard: u16,
    to: WorkerIndex,
    /// The shard, removed from this worker while packets from devices are processed. These packets belong to the other
    /// worker, so the nodes must not find the shard here.
    lifted: Option<Box<Shard<'m>>>,
    /// Number of packets that must still come from each port, and from the rings, until all packets that arrived before
    /// the change are processed. `None` until every worker has seen the change.
    remaining: Option<(Vec<usize>, usize)>,
    /// The shard, after all packets that arrived before the change were processed. Rings to other workers may still
    /// contain packets of the shard.
    leaving: Option<Box<Shard<'m>>>,
    /// Whether the workers move the shard without the control thread.
    is_direct_move: bool,
    /// Number of packets in this worker's own queue that must still be processed. The number is set when the worker
    /// stops receiving packets of the shard, and then counted down.
    queued: Option<usize>,
    /// Whether other workers have taken all packets that were handed to them.
    is_drained: bool,
}

struct Expected<'m> {
    shard: u16,
    /// The shard after its arrival, and the number of held packets from rings. These are processed before the held
    /// packets from devices.
    come: Option<(Box<Shard<'m>>, usize)>,
    /// Whether the shard is borrowed or is being returned.
    is_borrowed: bool,
}

/// A packet that is held for an expected shard, or queued for a borrowed shard.
pub(super) struct Held {
    pub(super) parked: Parked,
    pub(super) interface: u16,
    pub(super) carried: NoteWords,
}

impl Moving<'_> {
    fn is_idle(&self) -> bool {
        self.releasing.is_none() && self.expected.is_none() && self.exchange.is_some()
    }

    /// Cancels the expected move.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = None;
    }

    /// Held packets of the expected shard: packets from rings, and packets from devices.
    pub(super) fn held(&mut self) -> &mut [VecDeque<Held>; 2] {
        &mut self.held
    }

    /// Number of packets from devices that wait for a shard.
    pub(super) fn held_from_devices(&self) -> usize {
        self.held[1].len()
    }

    /// Records that packets of the worker's own queue were processed.
    pub(super) fn record_processed(&mut self, count: usize) {
        if let Some(ShardRelease {
            queued: Some(remaining),
            ..
        }) = &mut self.releasing
        {
            *remaining = remaining.saturating_sub(count);
        }
    }
}

impl<'m> Worker<'m> {
    /// Enables moves of shards from and to other workers, through a [`ShardExchange`] that all workers share.
    pub fn join(&mut self, exchange: Arc<ShardExchange<'m>>) {
        if let Some(work) = &mut self.assisting {
            work.join(exchange.ring);
        }
        let workers = self.parts.start.assist.as_ref().map_or(0, |assist| assist.workers());
        self.moving.rounds = vec![0; workers].into();
        self.moving.exchange = Some(exchange);
        self.moving.held = [(); 2].map(|()| VecDeque::with_capacity(MAX_HELD));
    }

    /// Permits the initial shards to take shared capacity when their tables are full.
    pub fn share(&mut self, reserves: &SharedCapacity<'m>) {
        for shard in self.parts.shards.iter_mut().flatten() {
            reserves.share(shard);
        }
    }

    /// Starts to hold packets of a shard that is expected from another worker.
    pub(super) fn expect(&mut self, shard: u16) -> Reply {
        match self.expect_for(shard, false) {
            true => Reply::Done,
            false => Reply::Refused,
        }
    }

    /// Starts to hold packets of a shard. `is_borrowed` means that the workers move the shard without the control thread.
    pub(super) fn expect_for(&mut self, shard: u16, is_borrowed: bool) -> bool {
        let has = self.parts.shards.get(usize::from(shard)).is_none_or(Option::is_some);
        let can = !has && self.moving.is_idle();
        if can {
            self.moving.expected = Some(Expected {
                shard,
                come: None,
                is_borrowed,
            });
        }
        can
    }

    /// Starts to release a shard. From then on, this worker hands packets of the shard from devices to the other
    /// worker.
    pub(super) fn give(&mut self, shard: u16, to: WorkerIndex) -> Reply {
        match self.start_release(shard, to, false) {
            true => Reply::Done,
            false => Reply::Refused,
        }
    }

    /// Starts to release a shard without the control thread. The shard moves when every worker has seen the change.
    pub(super) fn release_directly(&mut self, shard: u16, to: WorkerIndex) -> bool {
        let is_releasing = self.start_release(shard, to, true);
        if is_releasing && let Some(assist) = &self.parts.start.assist {
            assist.observe_rounds(&mut self.moving.rounds);
        }
        is_releasing
    }

    fn start_release(&mut self, shard: u16, to: WorkerIndex, is_direct_move: bool) -> bool {
        let has = self.parts.shards.get(usize::from(shard)).is_some_and(Option::is_some);
        if !has || to == self.parts.own || !self.moving.is_idle() {
            return false;
        }
        self.moving.releasing = Some(ShardRelease {
            shard,
            to,
            lifted: None,
            remaining: None,
            leaving: None,
            is_direct_move,
            queued: None,
            is_drained: false,
        });
        self.parts.start.owners.set(shard, to);
        true
    }

    /// Whether shards may move.
    pub(super) fn can_move(&self) -> bool {
        self.moving.exchange.is_some()
    }

    /// Whether every other worker has completed its recorded round.
    fn have_completed(&self) -> bool {
        let assist = self.parts.start.assist.as_ref();
        assist.is_none_or(|assist| assist.have_completed(self.parts.own, &self.moving.rounds))
    }

    /// Continues a release after every worker and device has seen the change: the shard moves when all earlier packets
    /// are processed. If this worker expects a shard instead, the move is cancelled.
    pub(super) fn release(&mut self) -> Reply {
        let ports = self.receives.len();
        let rings = self.in_rings();
        match &mut self.moving.releasing {
            Some(releasing) => {
                releasing.remaining = Some((vec![IN_QUEUE; ports], rings));
                Reply::Done
            }
            None if self.moving.expected.take().is_some() => Reply::Done,
            None => Reply::Refused,
        }
    }

    /// Completes a release after devices have stopped: the shard moves when the rings are empty.
    pub(super) fn complete_release(&mut self) {
        let rings = self.in_rings();
        if let Some(releasing) = &mut self.moving.releasing {
            releasing.remaining.get_or_insert((Vec::new(), rings));
        }
    }

    /// Number of packets to take from the rings until all earlier packets are processed, even if the rings were full.
    fn in_rings(&self) -> usize {
        self.moving.exchange.as_ref().map_or(0, |exchange| exchange.in_rings())
    }

    /// Number of packets that must be taken from the rings until all packets that they contain now are processed.
    fn ring_packets(&self) -> usize {
        let waiting = self.io.waiting();
        self.moving
            .exchange
            .as_ref()
            .map_or(0, |exchange| exchange.of_waiting(waiting))
    }

    /// Whether a shard is moving.
    #[inline(always)]
    pub(super) fn is_moving(&self) -> bool {
        self.moving.releasing.is_some() || self.moving.expected.is_some()
    }

    /// Removes the moving shard from this worker before a burst from a device is processed, because packets from
    /// devices belong to the other worker.
    pub(super) fn lift(&mut self) {
        if let Some(releasing) = &mut self.moving.releasing
            && let Some(place) = self.parts.shards.get_mut(usize::from(releasing.shard))
        {
            releasing.lifted = place.take();
        }
    }

    /// Restores the moving shard after a burst from a device was processed.
    pub(super) fn restore_shard(&mut self) {
        if let Some(releasing) = &mut self.moving.releasing
            && let Some(place) = self.parts.shards.get_mut(usize::from(releasing.shard))
            && releasing.lifted.is_some()
        {
            *place = releasing.lifted.take();
        }
    }

    /// Records packets that were received from the port with this position, or from the rings.
    pub(super) fn came(&mut self, port: Option<usize>, count: usize) {
        let releasing = self
            .moving
            .releasing
            .as_mut()
            .and_then(|releasing| releasing.remaining.as_mut());
        match (releasing, port) {
            // A device may deliver fewer packets than its queue contains, but an empty burst means that the queue is empty.
            (Some((ports, _)), Some(place)) => {
                if let Some(remaining) = ports.get_mut(place) {
                    *remaining = if count == 0 { 0 } else { remaining.saturating_sub(count) };
                }
            }
            (Some((_, remaining)), None) => count_down(remaining, count),
            (None, _) => {}
        }
        if let Some(Expected {
            come: Some((_, remaining)),
            ..
        }) = &mut self.moving.expected
            && port.is_none()
        {
            count_down(remaining, count);
        }
    }

    /// Called at the end of a round: releases the shard after all its packets were processed, and takes the shard that
    /// has arrived. Returns the number of held packets that were processed.
    pub(super) fn move_on(&mut self, now: Now) -> usize {
        let Some(exchange) = self.moving.exchange.clone() else {
            return 0;
        };
        if let Some(ShardRelease {
            is_direct_move: true,
            remaining: None,
            ..
        }) = self.moving.releasing
            && self.have_completed()
        {
            // The devices were not steered, so packets of the shard still arrive at this worker, which hands them over.
            let remaining = Some((Vec::new(), self.ring_packets()));
            if let Some(releasing) = &mut self.moving.releasing {
                releasing.remaining = remaining;
            }
        }
        if let Some(releasing) = &self.moving.releasing
            && let Some((ports, 0)) = &releasing.remaining
            && ports.iter().take(self.receives.len()).all(|&remaining| remaining == 0)
            && self.is_backlog_done()
        {
            self.leave(now);
        }
        if let Some(ShardRelease { leaving: Some(_), .. }) = self.moving.releasing
            && self.is_drained()
        {
            self.release_shard(&exchange);
        }
        let in_rings = match &self.moving.expected {
            Some(Expected { is_borrowed: true, .. }) => self.ring_packets(),
            _ => exchange.in_rings(),
        };
        match &mut self.moving.expected {
            Some(expected) if expected.come.is_none() => {
                expected.come = exchange
                    .take(expected.shard, self.parts.own)
                    .map(|shard| (shard, in_rings));
                0
            }
            Some(Expected { come: Some((_, 0)), .. }) => self.process_held(now),
            _ => 0,
        }
    }

    /// Whether all packets of the shard that waited in this worker before the release have been processed.
    fn is_backlog_done(&mut self) -> bool {
        let queued = self.assisting.as_ref().map_or(0, |work| work.queue.len());
        let releasing = self.moving.releasing.as_mut();
        releasing.is_none_or(|releasing| *releasing.queued.get_or_insert(queued) == 0)
    }

    /// Whether other workers have taken the packets that this worker handed to them. If the new worker may use other
    /// workers to transmit, the handed packets must also have been sent.
    fn is_drained(&mut self) -> bool {
        let Some(releasing) = &mut self.moving.releasing else {
            return false;
        };
        if !releasing.is_drained {
            releasing.is_drained = self.io.has_arrived();
            if !releasing.is_drained || !releasing.is_direct_move {
                return releasing.is_drained;
            }
            if let Some(assist) = &self.parts.start.assist {
                assist.observe_rounds(&mut self.moving.rounds);
            }
        }
        self.have_completed()
    }

    /// Removes the shard from this worker. After this, the worker processes no packets of the shard.
    fn leave(&mut self, now: Now) {
        if let Some(releasing) = &self.moving.releasing
            && releasing.leaving.is_none()
        {
            let shard = releasing.shard;
            self.give_up_applications(shard, now);
            self.free_held(usize::from(shard));
        }
        if let Some(releasing) = &mut self.moving.releasing
            && let Some(place) = self.parts.shards.get_mut(usize::from(releasing.shard))
            && releasing.leaving.is_none()
        {
            releasing.leaving = place.take();
            // Fragments that are parked in the shard are sent before the shard leaves.
            self.resume_all(now);
            self.io.mark();
        }
    }

    fn release_shard(&mut self, exchange: &ShardExchange<'m>) {
        if let Some(ShardRelease {
            shard: number,
            to,
            leaving: Some(shard),
            ..
        }) = self.moving.releasing.take()
        {
            self.shard_returned(number);
            let [v4, v6] = shard.sessions();
            let counters = &self.parts.counters;
            counters.sessions_moved.remove(v4 + v6);
            counters.sessions_v6.remove(v6);
            exchange.put(shard, to);
        }
    }

    /// Processes held packets, a few bursts per round, while later packets of the shard are held behind them. The move
    /// is complete when the last held packet is processed.
    fn process_held(&mut self, now: Now) -> usize {
        let Some(Expected {
            shard,
            come: Some((moved, _)),
            is_borrowed,
        }) = self.moving.expected.take()
        else {
            return 0;
        };
        let place = usize::from(shard);
        self.parts.shards[place] = Some(moved);
        if self.assisting.is_some() {
            self.take_over_shard(shard);
            self.complete_arrival(place, is_borrowed);
            return 0;
        }
        let mut packets = 0;
        for _ in 0..AT_ONCE {
            if !self.next_stage_has_capacity() {
                break;
            }
            let count = self.burst(Source::Held, now);
            packets += count;
            if count == 0 {
                break;
            }
        }
        if self.moving.held.iter().all(VecDeque::is_empty) {
            self.complete_arrival(place, is_borrowed);
        } else if let Some(moved) = self.parts.shards[place].take() {
            let come = Some((moved, 0));
            self.moving.expected = Some(Expected {
                shard,
                come,
                is_borrowed,
            });
        }
        packets
    }

    fn complete_arrival(&mut self, place: usize, is_borrowed: bool) {
        if is_borrowed && let Some(assist) = &self.parts.start.assist {
            assist.arrive();
        }
        if let Some(Some(shard)) = self.parts.shards.get(place) {
            let [v4, v6] = shard.sessions();
            let counters = &self.parts.counters;
            counters.sessions_moved.add(v4 + v6);
            counters.sessions_v6.add(v6);
            counters.shards_taken.add(1);
        }
    }

    /// Moves held packets back to the burst buffers, packets from rings first. Returns their number.
    pub(super) fn resume_held(&mut self) -> usize {
        self.carried.clear();
        let [rings, devices] = &mut self.moving.held;
        while self.carried.len() < BURST_SIZE {
            let from = if rings.is_empty() { &mut *devices } else { &mut *rings };
            let Some(held) = from.pop_front() else { break };
            match self.io.unpark(held.parked) {
                Ok(_) => self.carried.push(held.carried),
                Err(parked) => {
                    from.push_front(Held { parked, ..held });
                    break;
                }
            }
            if let Some(counters) = self.parts.counters.interfaces.get(usize::from(held.interface)) {
                counters.unparked.add(1);
            }
        }
        self.carried.len()
    }

    /// Holds packets of a shard that has not arrived.
    pub(super) fn hold(&mut self, source: Source) {
        let expects = self.moving.expected.is_some();
        for slot in std::mem::take(&mut self.parts.lists.hold) {
            let meta = &self.parts.meta[usize::from(slot) % BURST_BUFFERS];
            let (interface, carried) = (meta.interface, HandOffNote::new(EntryPoint::Session, meta).pack());
            let held = &mut self.moving.held[usize::from(matches!(source, Source::Port(_)))];
            let parked = (expects && held.len() < MAX_HELD).then(|| self.io.park(slot)).flatten();
            let Some(parked) = parked else {
                self.parts.lists.drop_packet(slot, EngineReason::MovingFull);
                continue;
            };
            held.push_back(Held {
                parked,
                interface,
                carried,
            });
            if let Some(counters) = self.parts.counters.interfaces.get(usize::from(interface)) {
                counters.parked.add(1);
            }
        }
    }
}

/// Subtracts packets from the number that remains in the rings. If a burst is not full, the rings are empty.
fn count_down(remaining: &mut usize, count: usize) {
    *remaining = if count < BURST_SIZE {
        0
    } else {
        remaining.saturating_sub(count)
    };
}
