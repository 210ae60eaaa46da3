//! Work between bursts: timers and requests.

use crate::features::context::{OwnerState, policer};
use crate::features::session_end::SessionTools;
use crate::packet::batch::put;
use crate::packet::reason::EngineReason;
use crate::packet::task::Task;
use crate::packet::time::Now;
use crate::worker::request::portion;

use super::Worker;

/// Number of neighbour entries that one round checks; it checks the same number of fragment entries.
const BUDGET: usize = 16;

impl Worker<'_> {
    /// Does the periodic work of a round in which `packets` packets were processed.
    pub(super) fn housekeep(&mut self, packets: usize, now: Now) {
        self.requests(now);
        let snapshot = self.snapshot.load();
        self.serves_hosts = (snapshot.hosted || snapshot.sites.is_some()) && self.host.is_some();
        let visited = self.advance_sessions(packets, now);
        self.drop_timed_out(now);
        if self.parts.inspecting.is_some() {
            self.refresh_rules(visited, now);
        }
        if self.parts.owner.is_some() {
            self.advance_owner(now);
            self.drop_expired(now);
        }
    }

    /// Continues pool migration, runs the timers of one shard, sends delayed answers to SYNs, and continues requests
    /// that take several rounds. Returns the index of the shard whose timers were advanced.
    fn advance_sessions(&mut self, packets: usize, now: Now) -> Option<usize> {
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let tools = SessionTools {
            now,
            hasher: &state.hasher,
            forwarding: &state.forwarding,
            counters: &state.counters,
            meters: &state.start.meters,
            events: &state.events,
            records: &state.records,
            recognition: &state.recognition,
        };
        state.migrating.follow(&mut state.shards, snapshot);
        state.migrating.advance(&mut state.shards, snapshot, &tools);
        // One shard is served per round. A busy shard is served in at most two consecutive rounds, so that other shards are served.
        let count = state.shards.len();
        self.has_expiry_backlog = false;
        let mut visited = None;
        for _ in 0..count {
            let place = self.next_shard % count;
            self.next_shard += 1;
            if let Some(shard) = state.shards[place].as_mut() {
                visited = Some(place);
                self.has_expiry_backlog = shard.expire(now, snapshot, &tools);
                self.is_same_shard = self.has_expiry_backlog && !self.is_same_shard;
                if self.is_same_shard {
                    self.next_shard = place;
                }
                break;
            }
        }
        for _ in 0..BUDGET.min(self.resumed.remaining_capacity()) {
            let Some((waiting, reason)) = self.syns.take_due(now.nanoseconds) else {
                break;
            };
            put(&mut self.resumed, (waiting, super::ResumeReason::Unsolicited(reason)));
        }
        self.requests
            .advance(&mut state.shards, portion(packets), snapshot, &tools);
        visited
    }

    /// Advances the owner's work: neighbours, router advertisements, and announcements of addresses.
    fn advance_owner(&mut self, now: Now) {
        let snapshot = self.snapshot.load();
        let state = &mut self.parts;
        let Some(owner) = state.owner.as_deref_mut() else {
            return;
        };
        if owner.quotas != Some(snapshot.committed) {
            if !owner.policer.is_of(&snapshot.limits, snapshot.routers_of()) {
                owner.policer = policer(snapshot, &state.start, now);
            }
            owner.quotas = Some(snapshot.committed);
            let routers = snapshot.routers_of();
            let max = snapshot.routers.iter().map(|router| router.quotas.neighbours);
            owner.writer.set_quotas(routers, max.map(|max| max.unwrap_or(u32::MAX)));
        }
        let OwnerState { writer, actions, .. } = owner;
        if actions.remaining_capacity() >= 2 * BUDGET {
            writer.advance(now.nanoseconds, BUDGET, &mut |action| put(actions, action));
        }
        // Only advertising interfaces are checked, because this code runs in every round, and there may be thousands of interfaces.
        for &number in snapshot.advertising.iter() {
            let advertise = snapshot.interface(number).and_then(|interface| interface.advertise);
            let times = owner.advertise_at.get_mut(usize::from(number));
            let (Some(advertise), Some((next, last))) = (advertise, times) else {
                continue;
            };
            if now.nanoseconds >= *next {
                *last = Some(now.nanoseconds);
                *next = now.nanoseconds + u64::from(advertise.interval.max(3)) * 1_000_000_000;
                put(&mut state.lists.tasks, Task::Advertise(number));
            }
        }
        let tasks = &mut state.lists.tasks;
        owner
            .announcements
            .advance(snapshot, now.nanoseconds, |interface, place| {
                put(tasks, Task::Announce { interface, place });
            });
    }

    /// Drops packets that were parked too long for a neighbour or for fragments.
    fn drop_expired(&mut self, now: Now) {
        for _ in 0..BUDGET {
            let Some(waiting) = self
                .parts
                .owner
                .as_deref_mut()
                .and_then(|o| o.parking.take_expired(now.nanoseconds))
            else {
                break;
            };
            self.drop_parked(waiting, sluice_route::Reason::ParkedTooLong.into());
        }
        let mut expired = arrayvec::ArrayVec::<_, 128>::new();
        if let Some(owner) = self.parts.owner.as_deref_mut() {
            let resumed = &mut |waiting| super::dispose::ready(&mut self.resumed, waiting);
            let expire = &mut |waiting| put(&mut expired, waiting);
            owner.datagrams.sweep(now, BUDGET, resumed, expire);
        }
        for waiting in expired {
            self.drop_parked(waiting, EngineReason::FragmentTimeout.into());
        }
    }

    /// Processes all unparked packets. Returns their number.
    pub(super) fn resume_all(&mut self, now: Now) -> usize {
        let mut packets = 0;
        while self.has_resumed() {
            let count = self.burst(super::Source::Parking, now);
            if count == 0 {
                break;
            }
            packets += count;
        }
        packets
    }
}
