//! A shard that goes from one worker to another: see [`crate::owners`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Resume, Source, Worker};
use crate::context::Waiting;
use crate::io::{BATCH, WorkerIndex};
use crate::owners::Exchange;
use crate::reason::Own;
use crate::request::Reply;
use crate::shard::Shard;
use crate::time::Now;

/// Packets that a worker holds for a shard that is on its way.
pub const HELD: usize = 4096;

/// Packets from a queue or ring after which none is left in it of those that were there: more than any holds.
const DRAINED: usize = 16_384;

/// What a worker has to do with a shard that moves: one at a time.
#[derive(Default)]
pub(super) struct Moving<'m> {
    exchange: Option<Arc<Exchange<'m>>>,
    giving: Option<Giving<'m>>,
    expected: Option<u16>,
    /// What came for it through rings, and from devices.
    held: [VecDeque<Waiting>; 2],
}

struct Giving<'m> {
    shard: u16,
    /// Out of the way of packets from devices, which go to the other worker.
    lifted: Option<Box<Shard<'m>>>,
    /// Packets still to come from each port, and from the rings, until all that came before the change are through; none before
    /// every worker has seen the change.
    left: Option<(Vec<usize>, usize)>,
}

impl<'m> Moving<'m> {
    fn is_idle(&self) -> bool {
        self.giving.is_none() && self.expected.is_none() && self.held.iter().all(VecDeque::is_empty)
    }
}

impl<'m> Worker<'m> {
    /// Shards may come from other workers and go to them, by way of this exchange, which all share.
    pub fn join(&mut self, exchange: Arc<Exchange<'m>>) {
        self.moving.exchange = Some(exchange);
        self.moving.held = [(); 2].map(|()| VecDeque::with_capacity(HELD));
    }

    /// Hold what comes for a shard until it comes itself.
    pub(super) fn expect(&mut self, shard: u16) -> Reply {
        let has = self.parts.shards.get(usize::from(shard)).is_none_or(Option::is_some);
        if has || self.moving.exchange.is_none() || !self.moving.is_idle() {
            return Reply::Refused;
        }
        self.moving.expected = Some(shard);
        Reply::Done
    }

    /// Leave a shard to another worker from now on, as far as packets from devices are concerned.
    pub(super) fn give(&mut self, shard: u16, to: WorkerIndex) -> Reply {
        let has = self.parts.shards.get(usize::from(shard)).is_some_and(Option::is_some);
        if !has || to == self.parts.own || self.moving.exchange.is_none() || !self.moving.is_idle() {
            return Reply::Refused;
        }
        self.moving.giving = Some(Giving {
            shard,
            lifted: None,
            left: None,
        });
        self.parts.setup.owners.set(shard, to);
        Reply::Done
    }

    /// Every worker and device knows: the shard goes over as soon as what came before is through. Whoever expects one expects it
    /// no more.
    pub(super) fn release(&mut self) -> Reply {
        let ports = self.receives.len();
        match &mut self.moving.giving {
            Some(giving) => {
                giving.left = Some((vec![DRAINED; ports], DRAINED));
                Reply::Done
            }
            None if self.moving.expected.take().is_some() => Reply::Done,
            None => Reply::Refused,
        }
    }

    /// Whether a shard comes or goes.
    #[inline(always)]
    pub(super) fn is_moving(&self) -> bool {
        self.moving.giving.is_some() || self.moving.expected.is_some()
    }

    /// Whether what a device would bring can be held: else it stays there.
    pub(super) fn can_hold(&self) -> bool {
        self.moving.expected.is_none() || self.moving.held[1].len() + BATCH <= HELD
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
        let Some((ports, rings)) = self.moving.giving.as_mut().and_then(|giving| giving.left.as_mut()) else {
            return;
        };
        let left = match port {
            Some(place) => ports.get_mut(place),
            None => Some(rings),
        };
        if let Some(left) = left {
            *left = if count < BATCH { 0 } else { left.saturating_sub(count) };
        }
    }

    /// At the end of a round: let the shard go that has nothing left to do, take the one that has come.
    pub(super) fn move_on(&mut self, now: Now) -> usize {
        let Some(exchange) = self.moving.exchange.clone() else {
            return 0;
        };
        if let Some(giving) = &self.moving.giving
            && let Some((ports, 0)) = &giving.left
            && ports.iter().take(self.receives.len()).all(|&left| left == 0)
        {
            self.let_go(&exchange);
        }
        match self.moving.expected.and_then(|shard| exchange.take(shard)) {
            Some(shard) => self.take_in(shard, now),
            None => 0,
        }
    }

    fn let_go(&mut self, exchange: &Exchange<'m>) {
        self.put_back();
        let Some(giving) = self.moving.giving.take() else {
            return;
        };
        let place = self.parts.shards.get_mut(usize::from(giving.shard));
        if let Some(shard) = place.and_then(Option::take) {
            let [sessions, six] = shard.sessions();
            let counters = &self.parts.counters;
            counters.sessions_moved.remove(sessions + six);
            counters.sessions_six.remove(six);
            exchange.put(shard);
        }
    }

    /// Take a shard in: first what is still in the rings is held too, then all that was held goes its way in order.
    fn take_in(&mut self, shard: Box<Shard<'m>>, now: Now) -> usize {
        let mut packets = 0;
        for _ in 0..DRAINED / BATCH {
            let count = self.burst(Source::Workers, now);
            packets += count;
            if count < BATCH {
                break;
            }
        }
        packets += self.resume_all(now);
        self.moving.expected = None;
        let [sessions, six] = shard.sessions();
        let counters = &self.parts.counters;
        counters.sessions_moved.add(sessions + six);
        counters.sessions_six.add(six);
        counters.shards_taken.add(1);
        let place = usize::from(shard.number);
        self.parts.shards[place] = Some(shard);
        while let Some(waiting) = self.next_held() {
            let _ = self.resumed.try_push((waiting, Resume::Ready));
            if self.resumed.len() == BATCH {
                packets += self.resume_all(now);
            }
        }
        packets + self.resume_all(now)
    }

    fn next_held(&mut self) -> Option<Waiting> {
        let [rings, devices] = &mut self.moving.held;
        rings.pop_front().or_else(|| devices.pop_front())
    }

    /// Put packets aside whose shard is still to come.
    pub(super) fn hold(&mut self, source: Source) {
        let expects = self.moving.expected.is_some();
        for slot in std::mem::take(&mut self.parts.lists.hold) {
            let meta = &self.parts.meta[usize::from(slot) % crate::io::HAND];
            let (interface, origin) = (meta.interface, meta.origin);
            let held = &mut self.moving.held[usize::from(matches!(source, Source::Port(_)))];
            let parked = (expects && held.len() < HELD).then(|| self.io.park(slot)).flatten();
            let Some(parked) = parked else {
                self.parts.lists.discard(slot, Own::MovingFull);
                continue;
            };
            held.push_back(Waiting {
                parked,
                interface,
                origin,
            });
            if let Some(counters) = self.parts.counters.interfaces.get(usize::from(interface)) {
                counters.parked.add(1);
            }
        }
    }
}
