//! Assistance: an I/O worker processes sessions of other workers. Packets of borrowed shards wait in a queue. The I/O
//! worker processes queued packets for a time slice and then receives again. This file also handles the requests for
//! shards between workers; see [`crate::snapshot::assist`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::shard_moves::Held;
use super::{MAX_HELD, Source, Worker};
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, WorkerIndex};
use crate::packet::reason::EngineReason;
use crate::packet::time::Now;
use crate::placement::Part;
use crate::snapshot::StartParameters;
use crate::snapshot::assist::controller::{AssistAction, AssistLoad, Controller};
use crate::snapshot::assist::{Assist, AssistRequest, ShardMove};

/// Maximum number of bursts that an assisting worker receives from a port in one round, if all bursts are full and the
/// queue has space.
const RECEIVES: usize = 8;

/// State of an I/O worker that can assist.
pub(super) struct Assisting {
    shared: Arc<Assist>,
    pub(super) controller: Controller,
    /// Packets of borrowed shards in the order of arrival.
    pub(super) queue: VecDeque<Held>,
    /// Maximum number of packets in the queue.
    limit: usize,
    /// Capacity of the ring to each session worker.
    ring: usize,
    /// The session workers, each with the number of packets in the ring from this worker to it.
    rings: Vec<(WorkerIndex, usize)>,
    /// The pending request, and the worker to which it was sent.
    queried: Option<(AssistRequest, WorkerIndex)>,
    is_answered: bool,
    /// Number of packets that the next burst takes from the queue.
    portion: usize,
    /// Number of cycles per packet in the last burst.
    cost: u64,
}

impl Assisting {
    /// Creates the state if the worker has no sessions itself and distributes packets to session workers; otherwise
    /// `None`.
    pub(super) fn of(start: &StartParameters, own: WorkerIndex) -> Option<Box<Self>> {
        let shared = start.assist.clone()?;
        let has_part = |part| start.stages.has_part(own, part);
        let takes_part = has_part(Part::Receive) && has_part(Part::Parse) && !has_part(Part::Session);
        let sessions = start.stages.workers(Part::Session);
        takes_part.then(|| {
            Box::new(Self {
                controller: Controller::new(shared.settings().threshold, start.owners.len()),
                shared,
                queue: VecDeque::new(),
                limit: 0,
                ring: 0,
                rings: sessions.iter().map(|&worker| (worker, 0)).collect(),
                queried: None,
                is_answered: false,
                portion: 0,
                cost: 0,
            })
        })
    }

    /// Enables moves of shards. `ring` is the capacity of the rings.
    pub(super) fn join(&mut self, ring: usize) {
        (self.ring, self.limit) = (ring, ring.min(MAX_HELD));
        // Packets held for a shard that moves to this worker are appended to the queue.
        self.queue = VecDeque::with_capacity(self.limit + 3 * MAX_HELD);
    }

    /// Whether any shard is borrowed or any packet is queued.
    fn is_active(&self) -> bool {
        !self.queue.is_empty() || !self.controller.borrowed().is_empty()
    }

    /// Whether the worker has work even if no packets arrive.
    pub(super) fn is_answering(&self) -> bool {
        self.queried.is_some() || self.is_active()
    }

    /// Number of packets for which the queue still has space, while shards are borrowed or requested.
    pub(super) fn capacity(&self, held: usize) -> usize {
        match self.is_active() || self.queried.is_some() {
            true => self.limit.saturating_sub(self.queue.len() + held),
            false => 0,
        }
    }
}

impl<'m> Worker<'m> {
    /// Maximum number of receive passes in a round.
    #[inline(always)]
    pub(super) fn max_receive_passes(&self) -> usize {
        let is_busy = self.assisting.as_ref().is_some_and(|work| !work.queue.is_empty());
        if is_busy { RECEIVES } else { 1 }
    }

    /// Queues packets of borrowed shards until they can be processed.
    pub(super) fn enqueue(&mut self) {
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        for slot in std::mem::take(&mut self.parts.lists.queue) {
            let meta = &self.parts.meta[usize::from(slot) % BURST_BUFFERS];
            let (interface, carried) = (meta.interface, HandOffNote::new(EntryPoint::Session, meta).pack());
            let parked = (work.queue.len() < work.limit).then(|| self.io.park(slot)).flatten();
            let Some(parked) = parked else {
                self.parts.lists.drop_packet(slot, EngineReason::Shed);
                continue;
            };
            work.queue.push_back(Held {
                parked,
                interface,
                carried,
            });
            if let Some(counters) = self.parts.counters.interfaces.get(usize::from(interface)) {
                counters.parked.add(1);
            }
        }
    }

    /// Moves queued packets back to the burst buffers. Returns their number.
    pub(super) fn unqueue(&mut self) -> usize {
        self.carried.clear();
        let Some(work) = self.assisting.as_deref_mut() else {
            return 0;
        };
        while self.carried.len() < work.portion.min(BURST_SIZE) {
            let Some(held) = work.queue.pop_front() else { break };
            match self.io.unpark(held.parked) {
                Ok(_) => self.carried.push(held.carried),
                Err(parked) => {
                    work.queue.push_front(Held { parked, ..held });
                    break;
                }
            }
            if let Some(counters) = self.parts.counters.interfaces.get(usize::from(held.interface)) {
                counters.unparked.add(1);
            }
        }
        self.moving.record_processed(self.carried.len());
        self.carried.len()
    }

    /// Processes queued packets of borrowed shards for a time slice. Returns their number.
    pub(super) fn assist(&mut self, now: Now) -> usize {
        let Some(work) = &self.assisting else { return 0 };
        let (slice, mut remaining) = (work.shared.settings().slice, work.queue.len());
        let round_start = (self.cycles)();
        let mut start = round_start;
        let mut packets = 0;
        while remaining > 0 && self.next_stage_has_capacity() {
            let spent = start.wrapping_sub(round_start);
            let Some(work) = &mut self.assisting else { break };
            work.portion = portion(slice.saturating_sub(spent), work.cost, packets == 0).min(remaining);
            if work.portion == 0 {
                self.parts.counters.slices_ended.add(1);
                break;
            }
            let count = self.burst(Source::Queue, now);
            if count == 0 {
                break;
            }
            let end = (self.cycles)();
            if let Some(work) = &mut self.assisting {
                work.cost = end.wrapping_sub(start) / count as u64;
            }
            start = end;
            packets += count;
            remaining -= count.min(remaining);
        }
        if packets > 0 {
            self.parts.counters.assisted.add(packets as u64);
        }
        packets
    }

    /// Called at the end of a round: answers requests of other workers, and continues this worker's request.
    pub(super) fn serve_requests(&mut self, now: Now) {
        let Some(shared) = &self.parts.start.assist else {
            return;
        };
        if let Some(assist_request) = shared.requested(self.parts.own) {
            self.answer(assist_request);
        }
        let Some(work) = &self.assisting else { return };
        self.parts.counters.assist_waiting.set(work.queue.len() as u64);
        match work.queried {
            Some((assist_request, peer)) if !work.is_answered => self.handle_request(assist_request, peer, now),
            // The session worker already expects the shard. The return of the shard therefore starts as soon as no
            // other move is in progress.
            Some((assist_request, peer))
                if assist_request.direction == ShardMove::FromRequester && !self.is_moving() =>
            {
                self.release_directly(assist_request.shard, peer);
            }
            Some(_) => {}
            None => self.decide(now),
        }
    }

    /// Answers a request of another worker.
    #[cold]
    fn answer(&mut self, assist_request: AssistRequest) {
        let Some(shared) = self.parts.start.assist.clone() else {
            return;
        };
        let is_migration_complete = self.is_migration_complete();
        let accepted = is_migration_complete
            && match assist_request.direction {
                ShardMove::ToRequester => self.release_directly(assist_request.shard, assist_request.by),
                ShardMove::FromRequester => self.expect_for(assist_request.shard, true),
            };
        shared.answer(self.parts.own, accepted);
    }

    /// Whether pool migration is complete for the newest snapshot. Until then, no shard moves, because a moving shard
    /// would miss the migration.
    fn is_migration_complete(&mut self) -> bool {
        let generation = self.snapshot.load().leases.generation;
        !self.parts.migrating.is_under_way() && self.parts.migrating.generation() == generation
    }

    /// Continues this worker's request after the other worker has answered.
    #[cold]
    fn handle_request(&mut self, assist_request: AssistRequest, peer: WorkerIndex, now: Now) {
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        let Some(accepted) = work.shared.answered(peer) else {
            return;
        };
        work.is_answered = accepted;
        if accepted {
            if assist_request.direction == ShardMove::FromRequester {
                self.release_directly(assist_request.shard, peer);
            }
            return;
        }
        work.controller.is_refused(now.nanoseconds);
        work.queried = None;
        work.shared.arrive();
        if assist_request.direction == ShardMove::ToRequester {
            self.moving.expect_no_more();
        }
    }

    /// Decides whether to borrow a shard or to return one.
    fn decide(&mut self, now: Now) {
        if self.is_moving() || !self.can_move() || self.receives.is_empty() {
            return;
        }
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        for (worker, waiting) in &mut work.rings {
            *waiting = work.ring.saturating_sub(self.io.free_entries(*worker));
        }
        let facts = AssistLoad {
            now: now.nanoseconds,
            rings: &work.rings,
            queued: work.queue.len(),
        };
        let owners = &self.parts.start.owners;
        if let Some(verdict) = work.controller.decide(&facts, |shard| owners.of(shard)) {
            self.act(verdict, now);
        }
    }

    #[cold]
    fn act(&mut self, verdict: AssistAction, now: Now) {
        let (direction, shard, peer) = match verdict {
            AssistAction::Take(shard, peer) => (ShardMove::ToRequester, shard, peer),
            AssistAction::Return(shard, peer) => (ShardMove::FromRequester, shard, peer),
        };
        let is_migration_complete = self.is_migration_complete();
        let own = self.parts.own;
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        if !is_migration_complete || !work.shared.depart() {
            return work.controller.is_refused(now.nanoseconds);
        }
        // The snapshot may have changed since the request, so the migration is checked again. The snapshot can't change during the move.
        let assist_request = AssistRequest {
            direction,
            shard,
            by: own,
        };
        let shared = work.shared.clone();
        (work.queried, work.is_answered) = (Some((assist_request, peer)), false);
        let requests = self.is_migration_complete()
            && match direction {
                ShardMove::ToRequester => self.expect_for(shard, true),
                ShardMove::FromRequester => true,
            }
            && shared.request(peer, assist_request);
        if requests {
            return;
        }
        if let Some(work) = self.assisting.as_deref_mut() {
            work.queried = None;
            work.controller.is_refused(now.nanoseconds);
        }
        self.moving.expect_no_more();
        shared.arrive();
    }

    /// Takes over a shard that has arrived. Packets that were held for the shard are appended to the queue.
    pub(super) fn take_over_shard(&mut self, shard: u16) {
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        for held in self.moving.held() {
            work.queue.extend(held.drain(..));
        }
        if let Some((_, from)) = work.queried.take() {
            work.controller.shard_arrived(shard, from);
            let allocated = work.controller.borrowed().len() as u64;
            if allocated == 1 {
                self.parts.counters.assists_begun.add(1);
            }
            self.parts.counters.shards_assisted.set(allocated);
        }
    }

    /// Updates the state after a shard was returned.
    pub(super) fn shard_returned(&mut self, shard: u16) {
        let Some(work) = self.assisting.as_deref_mut() else {
            return;
        };
        work.queried = None;
        work.controller.shard_went(shard);
        let allocated = work.controller.borrowed().len() as u64;
        if allocated == 0 {
            self.parts.counters.assists_ended.add(1);
        }
        self.parts.counters.shards_assisted.set(allocated);
    }
}

/// Number of packets that the worker can process in the remaining time slice, estimated from the cost per packet of the
/// last burst. At least one packet per round is processed, so that every queued packet is eventually processed.
fn portion(remaining: u64, cost: u64, is_first: bool) -> usize {
    let fitting = match remaining.checked_div(cost) {
        Some(fitting) => usize::try_from(fitting).unwrap_or(BURST_SIZE),
        None => BURST_SIZE,
    };
    fitting.clamp(usize::from(is_first), BURST_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portion_is_what_fits_the_slice_and_one_packet_at_least() {
        assert_eq!(BURST_SIZE, portion(1000, 0, true));
        assert_eq!(BURST_SIZE, portion(1_000_000, 10, false));
        assert_eq!(9, portion(95, 10, false));
        assert_eq!(1, portion(5, 10, true));
        assert_eq!(0, portion(5, 10, false));
    }
}
