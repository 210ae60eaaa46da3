//! A shard that goes from one worker to another: see [`crate::snapshot::shard_owners`]. The control thread leads from step to step, or the two
//! workers do themselves, where one assists the other: see [`crate::snapshot::assist`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Source, Worker};
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, NoteWords, Parked, WorkerIndex};
use crate::packet::reason::Own;
use crate::packet::time::Now;
use crate::session::shard::Shard;
use crate::snapshot::shard_owners::ShardExchange;
use crate::snapshot::shared_capacity::SharedCapacity;
use crate::worker::request::Reply;

/// Packets that a worker holds for a shard that is on its way, from devices and from rings each.
pub const MAX_HELD: usize = 4096;

/// Frames from a device's queue after which none is left in it of those that were there: more than any has descriptors.
const IN_QUEUE: usize = 16_384;

/// Batches of held packets that go on in one round.
const AT_ONCE: usize = 4;

/// What a worker has to do with a shard that moves: one at a time.
#[derive(Default)]
pub(super) struct Moving<'m> {
    exchange: Option<Arc<ShardExchange<'m>>>,
    giving: Option<Giving<'m>>,
    expected: Option<Expected<'m>>,
    /// What came for it through rings, and from devices.
    held: [VecDeque<Held>; 2],
    /// The round of each worker when something was said that all shall see.
    rounds: Box<[u64]>,
}

struct Giving<'m> {
    shard: u16,
    to: WorkerIndex,
    /// Out of the way of packets from devices, which go to the other worker.
    lifted: Option<Box<Shard<'m>>>,
    /// Packets still to come from each port, and from the rings, until all that came before the change are through; none before
    /// every worker has seen the change.
    left: Option<(Vec<usize>, usize)>,
    /// All of them are through, and what became of them is on its way to other workers.
    leaving: Option<Box<Shard<'m>>>,
    /// The control thread has no part in it.
    by_itself: bool,
    /// Of this worker's own queue, packets that were there when nothing more came for the shard.
    queued: Option<usize>,
    /// Others have taken what was on its way to them.
    is_taken: bool,
}

struct Expected<'m> {
    shard: u16,
    /// The shard, and packets still to come from the rings before any goes on that came from a device.
    come: Option<(Box<Shard<'m>>, usize)>,
    /// It is lent, or comes back.
    is_lent: bool,
}

/// A packet that waits for its shard, or for its turn.
pub(super) struct Held {
    pub(super) parked: Parked,
    pub(super) interface: u16,
    pub(super) carried: NoteWords,
}

impl Moving<'_> {
    fn is_idle(&self) -> bool {
        self.giving.is_none() && self.expected.is_none() && self.exchange.is_some()
    }

    /// What was expected does not come.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = None;
    }

    /// Packets that wait for a shard: those that came through rings, and those from devices.
    pub(super) fn held(&mut self) -> &mut [VecDeque<Held>; 2] {
        &mut self.held
    }

    /// How many came from devices and wait for a shard.
    pub(super) fn held_from_devices(&self) -> usize {
        self.held[1].len()
    }

    /// So many packets of the worker's own queue have gone on.
    pub(super) fn have_gone_on(&mut self, count: usize) {
        if let Some(Giving { queued: Some(left), .. }) = &mut self.giving {
            *left = left.saturating_sub(count);
        }
    }
}

impl<'m> Worker<'m> {
    /// Shards may come from other workers and go to them, by way of this exchange, which all share.
    pub fn join(&mut self, exchange: Arc<ShardExchange<'m>>) {
        if let Some(work) = &mut self.assisting {
            work.join(exchange.ring);
        }
        let workers = self.parts.start.assist.as_ref().map_or(0, |assist| assist.workers());
        self.moving.rounds = vec![0; workers].into();
        self.moving.exchange = Some(exchange);
        self.moving.held = [(); 2].map(|()| VecDeque::with_capacity(MAX_HELD));
    }

    /// Let the shards that it has at first take what all share where they are full.
    pub fn share(&mut self, reserves: &SharedCapacity<'m>) {
        for shard in self.parts.shards.iter_mut().flatten() {
            reserves.share(shard);
        }
    }

    /// Hold what comes for a shard until it comes itself.
    pub(super) fn expect(&mut self, shard: u16) -> Reply {
        match self.expect_for(shard, false) {
            true => Reply::Done,
            false => Reply::Refused,
        }
    }

    /// The same, as the control thread wants it or without that.
    pub(super) fn expect_for(&mut self, shard: u16, is_lent: bool) -> bool {
        let has = self.parts.shards.get(usize::from(shard)).is_none_or(Option::is_some);
        let can = !has && self.moving.is_idle();
        if can {
            self.moving.expected = Some(Expected {
                shard,
                come: None,
                is_lent,
            });
        }
        can
    }

    /// Leave a shard to another worker from now on, as far as packets from devices are concerned.
    pub(super) fn give(&mut self, shard: u16, to: WorkerIndex) -> Reply {
        match self.give_for(shard, to, false) {
            true => Reply::Done,
            false => Reply::Refused,
        }
    }

    /// The same without the control thread: the shard goes over once every worker has seen it.
    pub(super) fn give_by_itself(&mut self, shard: u16, to: WorkerIndex) -> bool {
        let gives = self.give_for(shard, to, true);
        if gives && let Some(assist) = &self.parts.start.assist {
            assist.observe_rounds(&mut self.moving.rounds);
        }
        gives
    }

    fn give_for(&mut self, shard: u16, to: WorkerIndex, by_itself: bool) -> bool {
        let has = self.parts.shards.get(usize::from(shard)).is_some_and(Option::is_some);
        if !has || to == self.parts.own || !self.moving.is_idle() {
            return false;
        }
        self.moving.giving = Some(Giving {
            shard,
            to,
            lifted: None,
            left: None,
            leaving: None,
            by_itself,
            queued: None,
            is_taken: false,
        });
        self.parts.start.owners.set(shard, to);
        true
    }

    /// Whether shards may come and go.
    pub(super) fn can_move(&self) -> bool {
        self.moving.exchange.is_some()
    }

    /// Whether every other worker has ended the round that it was in.
    fn have_ended(&self) -> bool {
        let assist = self.parts.start.assist.as_ref();
        assist.is_none_or(|assist| assist.have_ended(self.parts.own, &self.moving.rounds))
    }

    /// Every worker and device knows: the shard goes over as soon as what came before is through. Whoever expects one expects it
    /// no more.
    pub(super) fn release(&mut self) -> Reply {
        let ports = self.receives.len();
        let rings = self.in_rings();
        match &mut self.moving.giving {
            Some(giving) => {
                giving.left = Some((vec![IN_QUEUE; ports], rings));
                Reply::Done
            }
            None if self.moving.expected.take().is_some() => Reply::Done,
            None => Reply::Refused,
        }
    }

    /// No device brings anything any more: a shard that is being given goes when the rings are through.
    pub(super) fn give_soon(&mut self) {
        let rings = self.in_rings();
        if let Some(giving) = &mut self.moving.giving {
            giving.left.get_or_insert((Vec::new(), rings));
        }
    }

    /// Packets from the rings after which none is left in them of those that were there.
    fn in_rings(&self) -> usize {
        self.moving.exchange.as_ref().map_or(0, |exchange| exchange.in_rings())
    }

    /// The same by what lies in them now, where that is known to be all.
    fn in_rings_now(&self) -> usize {
        let waiting = self.io.waiting();
        self.moving
            .exchange
            .as_ref()
            .map_or(0, |exchange| exchange.of_waiting(waiting))
    }

    /// Whether a shard comes or goes.
    #[inline(always)]
    pub(super) fn is_moving(&self) -> bool {
        self.moving.giving.is_some() || self.moving.expected.is_some()
    }

    /// Before a burst from a device: what it has for the shard that goes is the other worker's.
    pub(super) fn lift(&mut self) {
        if let Some(giving) = &mut self.moving.giving
            && let Some(place) = self.parts.shards.get_mut(usize::from(giving.shard))
        {
            giving.lifted = place.take();
        }
    }

    /// After it.
    pub(super) fn put_back(&mut self) {
        if let Some(giving) = &mut self.moving.giving
            && let Some(place) = self.parts.shards.get_mut(usize::from(giving.shard))
            && giving.lifted.is_some()
        {
            *place = giving.lifted.take();
        }
    }

    /// So many packets came from the port at a place, or from the rings.
    pub(super) fn came(&mut self, port: Option<usize>, count: usize) {
        let giving = self.moving.giving.as_mut().and_then(|giving| giving.left.as_mut());
        match (giving, port) {
            // Devices may bring less than they have: none is none.
            (Some((ports, _)), Some(place)) => {
                if let Some(left) = ports.get_mut(place) {
                    *left = if count == 0 { 0 } else { left.saturating_sub(count) };
                }
            }
            (Some((_, left)), None) => count_down(left, count),
            (None, _) => {}
        }
        if let Some(Expected {
            come: Some((_, left)), ..
        }) = &mut self.moving.expected
            && port.is_none()
        {
            count_down(left, count);
        }
    }

    /// At the end of a round: let the shard go that has nothing left to do, take the one that has come. Returns how many held
    /// packets went on.
    pub(super) fn move_on(&mut self, now: Now) -> usize {
        let Some(exchange) = self.moving.exchange.clone() else {
            return 0;
        };
        if let Some(Giving {
            by_itself: true,
            left: None,
            ..
        }) = self.moving.giving
            && self.have_ended()
        {
            // Devices are told nothing: what they bring comes to who received it before, who hands it on.
            let left = Some((Vec::new(), self.in_rings_now()));
            if let Some(giving) = &mut self.moving.giving {
                giving.left = left;
            }
        }
        if let Some(giving) = &self.moving.giving
            && let Some((ports, 0)) = &giving.left
            && ports.iter().take(self.receives.len()).all(|&left| left == 0)
            && self.is_worked_off()
        {
            self.leave(now);
        }
        if let Some(Giving { leaving: Some(_), .. }) = self.moving.giving
            && self.is_taken()
        {
            self.release_shard(&exchange);
        }
        let in_rings = match &self.moving.expected {
            Some(Expected { is_lent: true, .. }) => self.in_rings_now(),
            _ => exchange.in_rings(),
        };
        match &mut self.moving.expected {
            Some(expected) if expected.come.is_none() => {
                expected.come = exchange
                    .take(expected.shard, self.parts.own)
                    .map(|shard| (shard, in_rings));
                0
            }
            Some(Expected { come: Some((_, 0)), .. }) => self.take_in(now),
            _ => 0,
        }
    }

    /// Whether nothing is left of what waits here for the shard that goes, or for others before it.
    fn is_worked_off(&mut self) -> bool {
        let queued = self.assisting.as_ref().map_or(0, |work| work.queue.len());
        let giving = self.moving.giving.as_mut();
        giving.is_none_or(|giving| *giving.queued.get_or_insert(queued) == 0)
    }

    /// Whether other workers have taken what they were handed, and, where workers that send may be others for who takes the
    /// shard, have sent it.
    fn is_taken(&mut self) -> bool {
        let Some(giving) = &mut self.moving.giving else {
            return false;
        };
        if !giving.is_taken {
            giving.is_taken = self.io.has_arrived();
            if !giving.is_taken || !giving.by_itself {
                return giving.is_taken;
            }
            if let Some(assist) = &self.parts.start.assist {
                assist.observe_rounds(&mut self.moving.rounds);
            }
        }
        self.have_ended()
    }

    /// Nothing goes through the shard here from now on.
    fn leave(&mut self, now: Now) {
        if let Some(giving) = &self.moving.giving
            && giving.leaving.is_none()
        {
            let shard = giving.shard;
            self.give_up_applications(shard, now);
            self.free_held(usize::from(shard));
        }
        if let Some(giving) = &mut self.moving.giving
            && let Some(place) = self.parts.shards.get_mut(usize::from(giving.shard))
            && giving.leaving.is_none()
        {
            giving.leaving = place.take();
            // Segments that waited in it go before it.
            self.resume_all(now);
            self.io.mark();
        }
    }

    fn release_shard(&mut self, exchange: &ShardExchange<'m>) {
        if let Some(Giving {
            shard: number,
            to,
            leaving: Some(shard),
            ..
        }) = self.moving.giving.take()
        {
            self.has_gone_back(number);
            let [four, six] = shard.sessions();
            let counters = &self.parts.counters;
            counters.sessions_moved.remove(four + six);
            counters.sessions_six.remove(six);
            exchange.put(shard, to);
        }
    }

    /// Let held packets go on, a few batches in a round, while what comes meanwhile is held behind them. With the last the shard
    /// is here.
    fn take_in(&mut self, now: Now) -> usize {
        let Some(Expected {
            shard,
            come: Some((moved, _)),
            is_lent,
        }) = self.moving.expected.take()
        else {
            return 0;
        };
        let place = usize::from(shard);
        self.parts.shards[place] = Some(moved);
        if self.assisting.is_some() {
            self.take_over_shard(shard);
            self.has_come(place, is_lent);
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
            self.has_come(place, is_lent);
        } else if let Some(moved) = self.parts.shards[place].take() {
            let come = Some((moved, 0));
            self.moving.expected = Some(Expected { shard, come, is_lent });
        }
        packets
    }

    fn has_come(&mut self, place: usize, is_lent: bool) {
        if is_lent && let Some(assist) = &self.parts.start.assist {
            assist.arrive();
        }
        if let Some(Some(shard)) = self.parts.shards.get(place) {
            let [four, six] = shard.sessions();
            let counters = &self.parts.counters;
            counters.sessions_moved.add(four + six);
            counters.sessions_six.add(six);
            counters.shards_taken.add(1);
        }
    }

    /// Take held packets back into the hand, first those from rings. Returns how many.
    pub(super) fn unhold(&mut self) -> usize {
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

    /// Put packets aside whose shard is still to come.
    pub(super) fn hold(&mut self, source: Source) {
        let expects = self.moving.expected.is_some();
        for slot in std::mem::take(&mut self.parts.lists.hold) {
            let meta = &self.parts.meta[usize::from(slot) % BURST_BUFFERS];
            let (interface, carried) = (meta.interface, HandOffNote::new(EntryPoint::Session, meta).pack());
            let held = &mut self.moving.held[usize::from(matches!(source, Source::Port(_)))];
            let parked = (expects && held.len() < MAX_HELD).then(|| self.io.park(slot)).flatten();
            let Some(parked) = parked else {
                self.parts.lists.drop_packet(slot, Own::MovingFull);
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

/// Count down what is left in rings: a burst that is not full has emptied them.
fn count_down(left: &mut usize, count: usize) {
    *left = if count < BURST_SIZE {
        0
    } else {
        left.saturating_sub(count)
    };
}
