//! Executes the requests of the control thread.

use sluice_route::neighbour::Resolution;
use sluice_route::{Address, InterfaceIndex};

use crate::features::context::OwnerState;
use crate::packet::batch::put;
use crate::packet::io::PortIndex;
use crate::packet::task::Task;
use crate::packet::time::Now;
use crate::snapshot::probes::Probe;
use crate::worker::request::{Reply, Request};

use super::Worker;

impl Worker<'_> {
    /// Executes the next request, if there is one.
    pub(super) fn requests(&mut self, now: Now) {
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
            Request::StartRelease { shard, to } => {
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
                let removed = owner.map_or(0, |owner| clear_neighbours(owner, (interface, address), permanent, now));
                self.requests.answer(Reply::Cleared(removed));
            }
            Request::SetNeighbour {
                interface,
                address,
                mac,
            } => {
                let set = owner.map(|OwnerState { writer, actions, .. }| {
                    writer.set_permanent(interface, address, mac, now.nanoseconds, &mut |a| put(actions, a))
                });
                let done = matches!(set, Some(Ok(_)));
                self.requests.answer(if done { Reply::Done } else { Reply::Refused });
            }
            Request::Probe(probe) => {
                let known = owner.is_some_and(|owner| begin_probe(owner, probe, now));
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
        self.schedule.forget();
    }
}

/// Removes the neighbours that match the interface and the address, if these are given, and returns the number of
/// removed neighbours. Static neighbours are kept unless `permanent` is set.
fn clear_neighbours(
    owner: &mut OwnerState,
    (interface, address): (Option<InterfaceIndex>, Option<Address>),
    permanent: bool,
    now: Now,
) -> u64 {
    let mut removed = 0;
    let OwnerState { writer, actions, .. } = owner;
    let table = writer.table().clone();
    for index in 0..table.capacity() as u32 {
        let index = sluice_route::neighbour::NeighbourIndex(index);
        let Some(entry) = table.snapshot(index) else { continue };
        let selected = interface.is_none_or(|wanted| wanted == entry.interface)
            && address.is_none_or(|wanted| wanted == entry.address)
            && (permanent || entry.state != sluice_route::neighbour::State::Permanent);
        if selected {
            writer.remove(index, now.nanoseconds, &mut |action| put(actions, action));
            removed += 1;
        }
    }
    removed
}

/// Schedules an echo request, if none is scheduled and its gateway is resolved. Returns whether it is scheduled.
fn begin_probe(owner: &mut OwnerState, probe: Probe, now: Now) -> bool {
    if owner.probe.is_some() {
        return false;
    }
    let OwnerState { writer, actions, .. } = owner;
    let (interface, gateway) = (probe.interface, probe.gateway);
    let found = writer.resolve(interface, gateway, now.nanoseconds, &mut |a| put(actions, a));
    if let Resolution::Known(index) = found {
        owner.probe = Some((probe, index));
    }
    owner.probe.is_some()
}
