//! Packets that the gateway makes in new buffers: neighbour requests, router advertisements, fragments.

use sluice_route::Address;
use sluice_route::neighbour::{Action, NeighbourIndex};
use sluice_wire::ethernet::{Link, multicast6};
use sluice_wire::{Packet, arp, ndp};

use super::state::BurstState;
use super::{ResumeReason, Worker};
use crate::features::context::NodeContext;
use crate::nodes::fragmentation;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::copies::Copies;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, NO_PORT, Packets};
use crate::packet::lists::Lists;
use crate::packet::task::AddressPosition;
use crate::packet::task::Task;
use crate::packet::time::Now;
use crate::snapshot::Interface;

impl Worker<'_> {
    /// Executes the tasks that need new buffers.
    pub(super) fn run_tasks(&mut self, now: Now) {
        self.take_actions();
        if !self.parts.lists.has_tasks() {
            return;
        }
        let tasks = std::mem::take(&mut self.parts.lists.tasks);
        // The list of copies is put back after the copies were sent, so that its memory is reused.
        let mut copies = std::mem::replace(&mut self.parts.lists.copies, Copies::NONE);
        let snapshot = self.snapshot.load();
        let BurstState {
            mut ctx, lists, meta, ..
        } = self.parts.for_burst(snapshot, now);
        let mut wanted = 0;
        let mut allocated = Packets::new();
        self.io.packets(&mut allocated);
        let first = allocated.len();
        let batch = Batch {
            packets: &mut allocated,
            meta: &mut *meta,
        };
        for task in &tasks {
            wanted += match *task {
                Task::Cut(slot, hop) => fragmentation::fragments_needed(&batch, slot, hop, &ctx),
                _ => 1,
            };
        }
        wanted += copies.len();
        drop(allocated);
        let made = self.io.allocate(wanted);
        let mut allocated = Packets::new();
        self.io.packets(&mut allocated);
        let mut batch = Batch {
            packets: &mut allocated,
            meta,
        };
        let mut next = first;
        let end = first + made;
        for task in tasks {
            next += execute(task, &mut batch, lists, &mut ctx, next, next < end);
        }
        for (interface, frame) in copies.iter() {
            if next < end && copy(&mut batch, lists, &ctx, interface, frame, next) {
                next += 1;
            } else {
                ctx.counters.copies_lost.add(1);
            }
        }
        copies.clear();
        lists.copies = copies;
        for slot in next..end {
            put(&mut lists.used, slot as BufferIndex);
        }
        if let Some(tap) = &mut self.tap {
            tap.leaving(&batch, lists, first, now);
        }
    }

    /// Converts the actions of the neighbour writer into tasks and unparked packets.
    fn take_actions(&mut self) {
        loop {
            let Some(owner) = self.parts.owner.as_deref_mut() else {
                return;
            };
            let Some(action) = owner.actions.pop_at(0) else { return };
            let tasks = &mut self.parts.lists.tasks;
            let (index, resume) = match action {
                Action::Request { index } => {
                    put(
                        tasks,
                        Task::Solicit {
                            neighbour: index,
                            probe: false,
                        },
                    );
                    continue;
                }
                Action::Probe { index } => {
                    put(
                        tasks,
                        Task::Solicit {
                            neighbour: index,
                            probe: true,
                        },
                    );
                    continue;
                }
                Action::Resolved { index } => (index, ResumeReason::Ready),
                Action::Failed { index } => (index, ResumeReason::Failed),
            };
            while let Some(owner) = self.parts.owner.as_deref_mut()
                && let Some(waiting) = owner.parking.take_first(index)
            {
                self.resume(waiting, resume);
            }
        }
    }
}

/// Executes a task with the buffers from slot `next` on. `is_left` is true if there is still a buffer for the task.
/// Returns the number of used buffers.
fn execute(
    task: Task,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    next: usize,
    is_left: bool,
) -> usize {
    let made = match task {
        Task::Cut(slot, hop) => return fragmentation::fragment(batch, lists, ctx, (slot, hop), next),
        Task::Solicit { neighbour, probe } if is_left => solicit_neighbour(batch, lists, ctx, neighbour, probe, next),
        Task::Advertise(interface) if is_left => advertise(batch, lists, ctx, interface, next),
        Task::Announce { interface, place } if is_left => announce(batch, lists, ctx, (interface, place), next),
        Task::Probe if is_left => probe(batch, lists, ctx, next),
        // A probe that can't be sent is treated as lost.
        Task::Probe => {
            _ = ctx.owner.as_deref_mut().map(|owner| owner.probe.take());
            false
        }
        // Each announcement is sent twice, so one announcement may be lost.
        Task::Announce { .. } => false,
        // The request is repeated later, and the advertisement is sent again at the next interval.
        Task::Solicit { .. } | Task::Advertise(_) => false,
    };
    usize::from(made)
}

/// Sends the packet that was made in slot `place` through `interface`.
fn send(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    (number, interface): (u16, &Interface),
    place: usize,
) -> bool {
    if !interface.push_tags(&mut batch.packets[place]) {
        return false;
    }
    let slot = place as BufferIndex;
    let meta = &mut batch.meta[place % BURST_BUFFERS];
    (meta.interface, meta.egress, meta.origin) = (number, number, Origin::Gateway);
    let Some(counters) = ctx.counters.interfaces.get(number as usize) else {
        return false;
    };
    counters.originated.add(1);
    match ctx.snapshot.sender(interface.port, ctx.own) {
        Some(sender) => lists.hand_over(slot, sender, HandOffNote::new(EntryPoint::Finished(number), meta)),
        None => {
            counters.sent.add(1);
            counters.sent_bytes.add(batch.packets[place].len() as u64);
            lists.send(interface.port, slot);
        }
    }
    true
}

/// Sends an unchanged copy of a frame. Returns whether the buffer was used.
fn copy(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    number: u16,
    frame: &[u8],
    place: usize,
) -> bool {
    let Some(interface) = ctx.snapshot.interface(number) else {
        return false;
    };
    let packet = &mut batch.packets[place];
    if frame.len() > usize::from(interface.mtu) + LINK_HEADER || !packet.set_len(frame.len()) {
        return false;
    }
    packet.bytes_mut().copy_from_slice(frame);
    batch.meta[place % BURST_BUFFERS] = Meta::default();
    send(batch, lists, ctx, (number, interface), place)
}

/// Length of an Ethernet header with the maximum number of tags.
const LINK_HEADER: usize = 14 + 8;

/// Sends a neighbour request or a reachability probe. Returns whether the buffer was used.
fn solicit_neighbour(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    neighbour: NeighbourIndex,
    probe: bool,
    place: usize,
) -> bool {
    let snapshot = ctx.snapshot;
    let Some(entry) = ctx.forwarding.neighbours.snapshot(neighbour) else {
        return false;
    };
    let Some(interface) = snapshot.interface(entry.interface) else {
        return false;
    };
    let packet = &mut batch.packets[place];
    let queried = match entry.address {
        Address::V4(target) => snapshot.source4(interface, target).is_some_and(|source| {
            if probe {
                arp::emit_probe(
                    packet,
                    Link {
                        source: interface.mac,
                        destination: entry.mac,
                    },
                    source,
                    target,
                )
            } else {
                arp::emit_request(packet, interface.mac, source, target)
            }
        }),
        Address::V6(target) => solicit(packet, interface, target, probe.then_some(entry.mac)),
    };
    queried && send(batch, lists, ctx, (entry.interface, interface), place)
}

fn solicit(packet: &mut Packet<'_>, interface: &Interface, target: u128, mac: Option<[u8; 6]>) -> bool {
    let group = ndp::solicited_node(target);
    let (destination, to) = match mac {
        Some(mac) => (mac, target),
        None => (multicast6(group), group),
    };
    let source = interface.source6(target).unwrap_or(ndp::link_local(interface.mac));
    let link = Link {
        source: interface.mac,
        destination,
    };
    ndp::emit_solicitation(packet, link, source, to, target)
}

/// Sends an echo request to a host that is reached through a gateway. Returns whether the buffer was used.
fn probe(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, place: usize) -> bool {
    let snapshot = ctx.snapshot;
    let taken = ctx.owner.as_deref_mut().and_then(|owner| owner.probe.take());
    let Some((probe, gateway)) = taken else { return false };
    let Some(interface) = snapshot.interface(probe.interface).filter(|one| one.port != NO_PORT) else {
        return false;
    };
    let Some(destination) = ctx.forwarding.neighbours.mac_for_sending(gateway) else {
        return false;
    };
    let link = Link {
        source: interface.mac,
        destination,
    };
    let packet = &mut batch.packets[place];
    let source = interface.link.source_for(probe.gateway);
    let made = match (probe.target, source) {
        (Address::V4(target), Some(Address::V4(source))) => probe.echo.emit4(packet, link, source, target),
        (Address::V6(target), _) => {
            // The source address is selected for the target. If it were selected for a link-local gateway, it would be
            // link-local itself.
            let source = interface.link.source_for(probe.target);
            matches!(source, Some(Address::V6(source)) if probe.echo.emit6(packet, link, source, target))
        }
        _ => false,
    };
    let sent = made && send(batch, lists, ctx, (probe.interface, interface), place);
    if sent {
        snapshot.probes.sent(probe.number, ctx.now.nanoseconds);
    }
    sent
}

/// Announces an address of the gateway to all hosts of a link (RFC 5227, 2.3; RFC 4861, 7.2.6). Returns whether the buffer was used.
fn announce(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (number, address): (u16, AddressPosition),
    place: usize,
) -> bool {
    let snapshot = ctx.snapshot;
    let Some(interface) = snapshot.interface(number) else {
        return false;
    };
    let packet = &mut batch.packets[place];
    let made = match address.address(interface, snapshot) {
        Some(Address::V4(own)) => arp::emit_request(packet, interface.mac, own, own),
        Some(Address::V6(own)) => {
            let link = Link {
                source: interface.mac,
                destination: multicast6(ndp::ALL_NODES),
            };
            let flags = ndp::Advertised {
                router: true,
                solicited: false,
                overriding: true,
            };
            ndp::emit_advertisement(packet, link, (own, ndp::ALL_NODES), own, flags)
        }
        None => false,
    };
    let sent = made && send(batch, lists, ctx, (number, interface), place);
    ctx.counters.announcements.add(sent.into());
    sent
}

/// Sends a router advertisement to all hosts of a link (RFC 4861, 6.2). Returns whether the buffer was used.
fn advertise(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    number: u16,
    place: usize,
) -> bool {
    let snapshot = ctx.snapshot;
    let Some(interface) = snapshot.interface(number) else {
        return false;
    };
    let Some(advertise) = interface.advertise else {
        return false;
    };
    let mut prefixes = arrayvec::ArrayVec::<ndp::Prefix, 8>::new();
    for &(address, length) in &interface.link.addresses {
        let Address::V6(address) = address else { continue };
        if address >> 118 == 0xfe80 >> 6 {
            continue;
        }
        let prefix = sluice_route::Prefix::new(Address::V6(address), length);
        put(
            &mut prefixes,
            ndp::Prefix {
                address: prefix.address().number(),
                length,
                on_link: true,
                autonomous: advertise.autonomous && length == 64,
                valid: advertise.valid,
                preferred: advertise.preferred,
            },
        );
    }
    let router = ndp::Router {
        hop_limit: 64,
        managed: advertise.managed,
        other: advertise.other,
        lifetime: advertise.lifetime,
        mtu: Some(interface.mtu.into()),
        prefixes: &prefixes,
    };
    let link = Link {
        source: interface.mac,
        destination: multicast6(ndp::ALL_NODES),
    };
    let addresses = (ndp::link_local(interface.mac), ndp::ALL_NODES);
    let made = ndp::emit_router(&mut batch.packets[place], link, addresses, &router);
    made && send(batch, lists, ctx, (number, interface), place)
}
