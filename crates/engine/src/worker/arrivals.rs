//! Packets that don't come from a device: packets that another worker handed over, and parked packets.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::layers::{self, Class, Fragment};

use super::ResumeReason;
use crate::features::context::{NodeContext, WaitingPacket};
use crate::features::inspection::FragmentNote;
use crate::features::pending_syns;
use crate::nodes::icmp_error::reinject;
use crate::nodes::parse::again;
use crate::nodes::{bridge, host, inter_router_link};
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, NoteWords, PortIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::{EngineReason, Reason};
use crate::snapshot::Interface;

/// Ranges of slots with unparsed packets, each with the port that received the packets.
pub type Runs = ArrayVec<(PortIndex, Range<usize>), BURST_SIZE>;

/// Puts packets from other workers on the lists that their notes specify. Packets that must be parsed are added to `runs`.
pub fn from_workers(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    carried: &ArrayVec<NoteWords, BURST_SIZE>,
    runs: &mut Runs,
) {
    for (slot, words) in carried.iter().enumerate() {
        let meta = &mut batch.meta[slot];
        let packet = &mut batch.packets[slot];
        let place = slot as BufferIndex;
        let note = HandOffNote::unpack(words);
        // Fast path for plain IPv4 packets of sessions that this worker owns.
        if let Some(note) = &note
            && note.stage == EntryPoint::Session
            && let Some(layers) = packet
                .bytes()
                .first_chunk()
                .and_then(|head| layers::parse_fast(head, packet.len()))
        {
            *meta = Meta {
                layers,
                interface: note.interface,
                origin: note.origin,
                identification: note.identification,
                link_passes: note.link_passes,
                ..Meta::default()
            };
            put(&mut lists.session_lookup.v4, place);
            continue;
        }
        match note.as_ref().map(|note| note.stage) {
            Some(EntryPoint::Received(port)) => {
                match runs.last_mut() {
                    Some((last, slots)) if *last == port && slots.end == slot => slots.end += 1,
                    _ => put(runs, (port, slot..slot + 1)),
                }
                continue;
            }
            Some(EntryPoint::Finished(interface)) => {
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
            lists.drop_packet(place, EngineReason::Forgotten);
            continue;
        };
        if layers.fragment == Fragment::Later && note.stage == EntryPoint::Session {
            (layers.source_port, layers.destination_port) = note.ports;
        }
        meta.layers = layers;
        meta.interface = note.interface;
        meta.origin = note.origin;
        meta.identification = note.identification;
        meta.link_passes = note.link_passes;
        match note.stage {
            EntryPoint::Session if layers.class == Class::Ipv4 => put(&mut lists.session_lookup.v4, place),
            EntryPoint::Session => put(&mut lists.session_lookup.v6, place),
            EntryPoint::Fragment => put(&mut lists.virtual_reassembly, place),
            EntryPoint::Wait(wanted) => lists.wait_for_neighbour(place, Some(wanted)),
            EntryPoint::Gateway if layers.class == Class::Arp || is_discovery(&layers, packet.bytes()) => {
                put(&mut lists.neighbour_discovery, place);
            }
            EntryPoint::Gateway => put(&mut lists.local_delivery, place),
            EntryPoint::SendIcmpError(icmp_error, reason) => lists.icmp_error(place, icmp_error, reason),
            EntryPoint::Forward if layers.class == Class::Ipv4 => put(&mut lists.forward.v4, place),
            EntryPoint::Forward => put(&mut lists.forward.v6, place),
            EntryPoint::Finished(_) | EntryPoint::Received(_) => lists.drop_packet(place, EngineReason::Forgotten),
        }
    }
    let parsed: usize = runs.iter().map(|(_, slots)| slots.len()).sum();
    ctx.counters.unparsed.remove(parsed as u64);
}

/// Sends a finished packet through its interface.
#[inline(always)]
fn leave(
    place: BufferIndex,
    interface: u16,
    length: usize,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let Some(egress) = ctx.snapshot.interface(interface) else {
        return lists.drop_packet(place, EngineReason::InterfaceGone);
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

/// Puts unparked packets on the lists of their next nodes.
pub fn from_parking(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    resumed: &mut ArrayVec<(WaitingPacket, ResumeReason), BURST_BUFFERS>,
) {
    let count = batch.packets.len();
    for (slot, (waiting, resume)) in resumed.drain(..count.min(resumed.len())).enumerate() {
        let place = slot as BufferIndex;
        let meta = &mut batch.meta[slot];
        meta.interface = waiting.interface;
        meta.origin = waiting.origin;
        (meta.identification, meta.link_passes) = (0, 0);
        if resume == ResumeReason::Tunnelled {
            meta.link_passes = 1;
            let length = batch.packets[slot].len();
            leave(place, waiting.interface, length, meta, lists, ctx);
            continue;
        }
        if resume == ResumeReason::InterRouterLink {
            inter_router_link::arrive(place, waiting.interface, 1, batch, lists, ctx);
            continue;
        }
        let Ok(layers) = layers::parse(batch.packets[slot].bytes()) else {
            lists.drop_packet(place, EngineReason::Forgotten);
            continue;
        };
        meta.layers = layers;
        if let ResumeReason::Fragment(note, passed) = resume {
            fragment(place, note, passed, meta, lists, ctx);
            continue;
        }
        let reason = Reason::from(sluice_route::Reason::NeighbourUnresolved);
        match (resume, ctx.snapshot.interface(waiting.interface)) {
            (ResumeReason::Unsolicited(reason), Some(_)) => pending_syns::answer(place, reason, batch, lists, ctx),
            (ResumeReason::Fragment(..) | ResumeReason::InterRouterLink | ResumeReason::Tunnelled, _) => {
                lists.drop_packet(place, EngineReason::Forgotten)
            }
            (ResumeReason::Unsolicited(_), None) => lists.drop_packet(place, EngineReason::InterfaceGone),
            (ResumeReason::Failed, _) => lists.icmp_error(place, IcmpError::HostUnreachable, reason),
            (ResumeReason::Ready, None) => lists.drop_packet(place, EngineReason::InterfaceGone),
            (ResumeReason::Ready, Some(interface)) if waiting.origin == Origin::Gateway => {
                // A packet that a router's host has sent may belong to a session.
                let is_hosts = interface.host && layers.class == Class::Ipv4;
                match is_hosts && host::may_answer(ctx.snapshot, waiting.interface) {
                    true => put(&mut lists.host, place),
                    false => reinject(place, batch, lists),
                }
            }
            (ResumeReason::Ready, Some(_)) if waiting.origin == Origin::Hairpinned => match layers.class {
                Class::Ipv6 => put(&mut lists.session_lookup.v6, place),
                _ => put(&mut lists.session_lookup.v4, place),
            },
            (
                ResumeReason::Ready,
                Some(&Interface {
                    bridge: Some(bridge), ..
                }),
            ) => {
                bridge::again(place, bridge, batch, lists, ctx);
            }
            (ResumeReason::Ready, Some(interface)) => {
                again(place, &batch.packets[slot], &layers, (interface, waiting.origin), lists);
            }
        }
    }
}

/// Puts a fragment that inspection has parked back on the list of its session.
fn fragment(
    place: BufferIndex,
    note: FragmentNote,
    passed: bool,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    if ctx.snapshot.interface(meta.interface).is_none() {
        return lists.drop_packet(place, EngineReason::InterfaceGone);
    }
    (meta.layers.source_port, meta.layers.destination_port) = note.ports;
    meta.identification = note.identification;
    lists.passed |= u128::from(passed) << (place as usize % BURST_BUFFERS);
    match meta.layers.class {
        Class::Ipv6 => put(&mut lists.session_lookup.v6, place),
        _ => put(&mut lists.session_lookup.v4, place),
    }
}

/// Bit mask of the slots in these ranges.
pub fn slots_of(runs: &Runs) -> u128 {
    runs.iter().fold(0, |all, (_, slots)| all | mask_of(slots))
}

/// Bit mask of a range of slots.
fn mask_of(slots: &Range<usize>) -> u128 {
    let below = |end: usize| 1u128.checked_shl(end as u32).map_or(u128::MAX, |bit| bit - 1);
    below(slots.end) & !below(slots.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_a_bit_for_each_slot() {
        assert_eq!(0, mask_of(&(5..5)));
        assert_eq!(0b1110, mask_of(&(1..4)));
        assert_eq!(u128::MAX, mask_of(&(0..128)));
        assert_eq!(1 << 127, mask_of(&(127..128)));
    }
}
