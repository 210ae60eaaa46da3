//! Packets that do not come from a device: handed over by another worker, or back from waiting.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::layers::{self, Class, Fragment};

use super::Resume;
use crate::batch::{Batch, Complaint, Lists, Meta, Note, Origin, Stage, put};
use crate::context::{Ctx, Waiting};
use crate::family::{Family, V4, V6};
use crate::inspection::Told;
use crate::io::{BATCH, Carried, HAND, PortIndex, Slot};
use crate::nodes::complain::own;
use crate::nodes::parse::again;
use crate::nodes::{bridge, cross, host};
use crate::policy::Interface;
use crate::reason::{Own, Reason};
use crate::unsolicited;

/// Runs of packets that nobody has parsed yet: their slots, and the port that they came from.
pub type Runs = ArrayVec<(PortIndex, Range<usize>), BATCH>;

/// Put packets that other workers handed over where their notes say, and those that are still to be parsed into `runs`.
pub fn from_workers(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    carried: &ArrayVec<Carried, BATCH>,
    runs: &mut Runs,
) {
    for (slot, words) in carried.iter().enumerate() {
        let meta = &mut batch.meta[slot];
        let packet = &mut batch.packets[slot];
        let place = slot as Slot;
        let note = Note::unpack(words);
        // Most are plain packets of IPv4 whose session is here.
        if let Some(note) = &note
            && note.stage == Stage::Session
            && let Some(layers) = packet
                .bytes()
                .first_chunk()
                .and_then(|head| layers::short(head, packet.len()))
        {
            *meta = Meta {
                layers,
                interface: note.interface,
                origin: note.origin,
                identification: note.identification,
                crossed: note.crossed,
                ..Meta::default()
            };
            put(V4::lookups(lists), place);
            continue;
        }
        match note.as_ref().map(|note| note.stage) {
            Some(Stage::Received(port)) => {
                match runs.last_mut() {
                    Some((last, slots)) if *last == port && slots.end == slot => slots.end += 1,
                    _ => put(runs, (port, slot..slot + 1)),
                }
                continue;
            }
            Some(Stage::Finished(interface)) => {
                *meta = Meta {
                    interface: note.map_or(0, |note| note.interface),
                    ..Meta::default()
                };
                leave(place, interface, packet.len(), meta, lists, ctx);
                continue;
            }
            _ => {}
        }
        let (Some(note), Ok(mut layers)) = (note, layers::parse(packet.bytes())) else {
            lists.discard(place, Own::Forgotten);
            continue;
        };
        if layers.fragment == Fragment::Later && note.stage == Stage::Session {
            (layers.source_port, layers.destination_port) = note.ports;
        }
        meta.layers = layers;
        meta.interface = note.interface;
        meta.origin = note.origin;
        meta.identification = note.identification;
        meta.crossed = note.crossed;
        match note.stage {
            Stage::Session if layers.class == Class::Ipv4 => put(V4::lookups(lists), place),
            Stage::Session => put(V6::lookups(lists), place),
            Stage::Fragment => put(&mut lists.fragments, place),
            Stage::Wait(wanted) => lists.wait(place, Some(wanted)),
            Stage::Gateway if layers.class == Class::Arp || is_discovery(&layers, packet.bytes()) => {
                put(&mut lists.neighbour, place);
            }
            Stage::Gateway => put(&mut lists.gateway, place),
            Stage::Complain(complaint, reason) => lists.complain(place, complaint, reason),
            Stage::Forward if layers.class == Class::Ipv4 => put(V4::forwards(lists), place),
            Stage::Forward => put(V6::forwards(lists), place),
            Stage::Finished(_) | Stage::Received(_) => lists.discard(place, Own::Forgotten),
        }
    }
    let parsed: usize = runs.iter().map(|(_, slots)| slots.len()).sum();
    ctx.counters.unparsed.remove(parsed as u64);
}

/// A finished packet leaves by its interface.
#[inline(always)]
fn leave(place: Slot, interface: u16, length: usize, meta: &mut Meta, lists: &mut Lists, ctx: &Ctx<'_, '_>) {
    let Some(egress) = ctx.policy.interface(interface) else {
        return lists.discard(place, Own::InterfaceGone);
    };
    if let Some(counters) = ctx.counters.interfaces.get(interface as usize) {
        counters.sent.add(1);
        counters.sent_bytes.add(length as u64);
    }
    meta.egress = interface;
    lists.send(egress.port, place);
}

fn is_discovery(layers: &layers::Layers, frame: &[u8]) -> bool {
    layers.class == Class::Ipv6 && matches!(sluice_wire::ndp::read(frame, layers), Ok(Some(_)) | Err(_))
}

/// Let packets that have waited go on.
pub fn from_parking(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    resumed: &mut ArrayVec<(Waiting, Resume), HAND>,
) {
    let count = batch.packets.len();
    for (slot, (waiting, resume)) in resumed.drain(..count.min(resumed.len())).enumerate() {
        let place = slot as Slot;
        let meta = &mut batch.meta[slot];
        meta.interface = waiting.interface;
        meta.origin = waiting.origin;
        (meta.identification, meta.crossed) = (0, 0);
        if resume == Resume::Tunnelled {
            meta.crossed = 1;
            let length = batch.packets[slot].len();
            leave(place, waiting.interface, length, meta, lists, ctx);
            continue;
        }
        if resume == Resume::Crossed {
            cross::arrive(place, waiting.interface, 1, batch, lists, ctx);
            continue;
        }
        let Ok(layers) = layers::parse(batch.packets[slot].bytes()) else {
            lists.discard(place, Own::Forgotten);
            continue;
        };
        meta.layers = layers;
        if let Resume::Fragment(told, passed) = resume {
            fragment(place, told, passed, meta, lists, ctx);
            continue;
        }
        let reason = Reason::from(sluice_route::Reason::NeighbourUnresolved);
        match (resume, ctx.policy.interface(waiting.interface)) {
            (Resume::Unsolicited(reason), Some(_)) => unsolicited::answer(place, reason, batch, lists, ctx),
            (Resume::Fragment(..) | Resume::Crossed | Resume::Tunnelled, _) => lists.discard(place, Own::Forgotten),
            (Resume::Unsolicited(_), None) => lists.discard(place, Own::InterfaceGone),
            (Resume::Failed, _) => lists.complain(place, Complaint::HostUnreachable, reason),
            (Resume::Ready, None) => lists.discard(place, Own::InterfaceGone),
            (Resume::Ready, Some(interface)) if waiting.origin == Origin::Own => {
                // What a host sends may be an answer of a session.
                let is_hosts = interface.host && layers.class == Class::Ipv4;
                match is_hosts && host::may_answer(ctx.policy, waiting.interface) {
                    true => put(&mut lists.host, place),
                    false => own(place, batch, lists),
                }
            }
            (Resume::Ready, Some(_)) if waiting.origin == Origin::Hairpinned => match layers.class {
                Class::Ipv6 => put(V6::lookups(lists), place),
                _ => put(V4::lookups(lists), place),
            },
            (
                Resume::Ready,
                Some(&Interface {
                    bridge: Some(bridge), ..
                }),
            ) => {
                bridge::again(place, bridge, batch, lists, ctx);
            }
            (Resume::Ready, Some(interface)) => {
                again(place, &batch.packets[slot], &layers, (interface, waiting.origin), lists);
            }
        }
    }
}

/// A fragment that inspection let wait finds its session again.
fn fragment(place: Slot, told: Told, passed: bool, meta: &mut Meta, lists: &mut Lists, ctx: &Ctx<'_, '_>) {
    if ctx.policy.interface(meta.interface).is_none() {
        return lists.discard(place, Own::InterfaceGone);
    }
    (meta.layers.source_port, meta.layers.destination_port) = told.ports;
    meta.identification = told.identification;
    lists.passed |= u128::from(passed) << (place as usize % HAND);
    match meta.layers.class {
        Class::Ipv6 => put(V6::lookups(lists), place),
        _ => put(V4::lookups(lists), place),
    }
}
