//! Work between bursts: timers and requests.

use super::Worker;
use sluice_route::neighbour::Resolution;

use crate::features::context::policer;
use crate::features::session_end::SessionTools;
use crate::packet::batch::put;
use crate::packet::io::PortIndex;
use crate::packet::reason::Own;
use crate::packet::task::Task;
use crate::packet::time::Now;
use crate::worker::request::{Reply, Request, portion};

/// Number of neighbour entries, and of fragment entries, that one round checks.
const BUDGET: usize = 16;

impl Worker<'_> {
    /// Does the periodic work of a round in which `packets` packets were processed.
    pub(super) fn housekeep(&mut self, packets: usize, now: Now) {
        self.requests(now);
        let snapshot = self.snapshot.load();
        self.serves_hosts = (snapshot.hosted || snapshot.sites.is_some()) && self.host.is_some();
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
        self.is_behind = false;
        let mut looked_at = None;
        for _ in 0..count {
            let place = self.next_shard % count;
            self.next_shard += 1;
            if let Some(shard) = state.shards[place].as_mut() {
                looked_at = Some(place);
                self.is_behind = shard.expire(now, snapshot, &tools);
                self.stayed = self.is_behind && !self.stayed;
                if self.stayed {
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
        self.drop_given_up(now);
        if self.parts.inspecting.is_some() {
            self.look_after_rules(looked_at, now);
        }
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
            let most = snapshot.routers.iter().map(|router| router.quotas.neighbours);
            owner
                .writer
                .set_quotas(routers, most.map(|most| most.unwrap_or(u32::MAX)));
        }
        let crate::features::context::OwnerState { writer, actions, .. } = owner;
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
        for _ in 0..BUDGET {
            let Some(waiting) = self
                .parts
                .owner
                .as_deref_mut()
                .and_then(|o| o.parking.take_expired(now.nanoseconds))
            else {
                break;
            };
            self.give_up(waiting, sluice_route::Reason::ParkedTooLong.into());
        }
        let mut expired = arrayvec::ArrayVec::<_, 128>::new();
        if let Some(owner) = self.parts.owner.as_deref_mut() {
            let resumed = &mut |waiting| super::dispose::ready(&mut self.resumed, waiting);
            let expire = &mut |waiting| put(&mut expired, waiting);
            owner.datagrams.sweep(now, BUDGET, resumed, expire);
        }
        for waiting in expired {
            self.give_up(waiting, Own::FragmentTimeout.into());
        }
    }

    fn requests(&mut self, now: Now) {
        let Some(request) = self.requests.next() else { return };
        let owner = self.parts.owner.as_deref_mut();
        match request {
            Request::List { cursor, filter, into } => self.requests.list(cursor, filter, into),
            Request::ListBindings { cursor, filter, into } => self.requests.list_bindings(cursor, filter, into),
            Request::Use(mut sum) => {
                self.parts.shards.iter().flatten().for_each(|shard| sum.add(shard));
                self.requests.answer(Reply::Used(sum));
            }
            Request::Clear { cursor, filter, ended } => self.requests.clear(cursor, filter, ended),
            Request::Trace(tracer) => {
                let before = self.tracer.replace(tracer);
                self.requests.answer(Reply::Traced(before));
            }
            Request::EndTrace => self.requests.answer(Reply::Traced(self.tracer.take())),
            Request::Capture(tap) => {
                let before = self.tap.replace(tap);
                self.requests.answer(Reply::Captured(before));
            }
            Request::EndCapture => self.requests.answer(Reply::Captured(self.tap.take())),
            Request::Expect { shard } => {
                let reply = self.expect(shard);
                self.requests.answer(reply);
            }
            Request::Give { shard, to } => {
                let reply = self.give(shard, to);
                self.requests.answer(reply);
            }
            Request::Release => {
                let reply = self.release();
                self.requests.answer(reply);
            }
            Request::ClearNeighbours {
                interface,
                address,
                permanent,
            } => {
                let mut removed = 0;
                if let Some(crate::features::context::OwnerState { writer, actions, .. }) = owner {
                    let table = writer.table().clone();
                    for index in 0..table.capacity() as u32 {
                        let index = sluice_route::neighbour::NeighbourIndex(index);
                        let Some(entry) = table.snapshot(index) else { continue };
                        let meant = interface.is_none_or(|wanted| wanted == entry.interface)
                            && address.is_none_or(|wanted| wanted == entry.address)
                            && (permanent || entry.state != sluice_route::neighbour::State::Permanent);
                        if meant {
                            writer.remove(index, now.nanoseconds, &mut |action| put(actions, action));
                            removed += 1;
                        }
                    }
                }
                self.requests.answer(Reply::Cleared(removed));
            }
            Request::SetNeighbour {
                interface,
                address,
                mac,
            } => {
                let set = owner.map(|crate::features::context::OwnerState { writer, actions, .. }| {
                    writer.set_permanent(interface, address, mac, now.nanoseconds, &mut |a| put(actions, a))
                });
                let done = matches!(set, Some(Ok(_)));
                self.requests.answer(if done { Reply::Done } else { Reply::Refused });
            }
            Request::Probe(probe) => {
                let known = owner.filter(|owner| owner.probe.is_none()).is_some_and(|owner| {
                    let crate::features::context::OwnerState { writer, actions, .. } = owner;
                    let (interface, gateway) = (probe.interface, probe.gateway);
                    let found = writer.resolve(interface, gateway, now.nanoseconds, &mut |a| put(actions, a));
                    if let Resolution::Known(index) = found {
                        owner.probe = Some((probe, index));
                    }
                    owner.probe.is_some()
                });
                if known {
                    put(&mut self.parts.lists.tasks, Task::Probe);
                }
                self.requests.answer(if known { Reply::Done } else { Reply::Refused });
            }
            Request::RenewPort { port, receives } => {
                let done = !self.is_moving() && usize::from(port) < self.parts.start.ports;
                if done {
                    self.renew_port(port, receives);
                }
                self.requests.answer(if done { Reply::Done } else { Reply::Refused });
            }
        }
    }

    /// Attaches or detaches the device of a port. Must not be called while a shard moves, because a move counts the
    /// packets that each port still delivers.
    fn renew_port(&mut self, port: PortIndex, receives: bool) {
        self.io.replace_device(port);
        self.receives.retain(|&other| other != port);
        if receives {
            // The list has space for all ports.
            let place = self.receives.partition_point(|&other| other < port);
            self.receives.insert(place, port);
        }
        self.turns.forget();
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
