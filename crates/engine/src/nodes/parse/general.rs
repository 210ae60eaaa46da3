//! Parses packets that no fast path can process.

use sluice_wire::layers::{self, Class, Flags, Layers};
use sluice_wire::validity::{self, Validity};
use sluice_wire::{Checksums, Fault, Packet, plain6};

use crate::features::context::NodeContext;
use crate::packet::batch::{Meta, Origin, put};
use crate::packet::io::{BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::{EngineReason, Reason};
use crate::snapshot::{Interface, Snapshot};

use super::end_frame;
use super::next_node::{classify, is_tunnelled, place};
use super::priority_tags::{has_priority_tag, pop_priority_tags};
use super::tally::ReceiveTally;

/// Parses a packet that none of the fast paths can process. `untagged` is the interface of untagged frames on the packet's port.
#[inline(never)]
pub(in crate::nodes) fn parse_other(
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    (port, untagged): (PortIndex, Option<u16>),
    tally: &mut ReceiveTally,
) {
    if parse_plain6(slot, packet, meta, lists, ctx, untagged, tally) {
        return;
    }
    let snapshot = ctx.snapshot;
    let checksums = packet.checksums();
    let frame = packet.bytes();
    let length = frame.len() as u64;
    if has_priority_tag(frame, snapshot) {
        pop_priority_tags(packet, snapshot);
    }
    let frame = packet.bytes();
    let layers = match layers::parse(frame) {
        Ok(layers) => layers,
        Err(fault) => {
            tally.count(ctx, tally.interface, length);
            (meta.interface, meta.layers, meta.link_passes) = (tally.interface, Layers::default(), 0);
            return lists.drop_packet(slot, fault);
        }
    };
    let number = interface_of(frame, &layers, (port, untagged), snapshot);
    meta.layers = layers;
    meta.interface = number.unwrap_or(tally.interface);
    meta.origin = Origin::Received;
    (meta.identification, meta.link_passes) = (0, 0);
    tally.count(ctx, meta.interface, length);
    let Some(interface) = number.and_then(|number| snapshot.interface(number)) else {
        return lists.drop_packet(slot, EngineReason::UnknownVlan);
    };
    let checked = check(frame, checksums, &layers, interface, snapshot);
    if matches!(layers.class, Class::Ipv4 | Class::Ipv6) {
        end_frame(packet, packet.len(), layers.end);
    }
    match checked {
        Ok(Validity::Valid) => {
            clear_bad_checksum(packet);
            place(slot, packet, &layers, interface, lists, snapshot);
        }
        Ok(Validity::PartialChecksum) if interface.complete_checksums => {
            complete_checksum(packet, &layers, ctx);
            place(slot, packet, &layers, interface, lists, snapshot);
        }
        Ok(Validity::PartialChecksum) => lists.drop_packet(slot, EngineReason::PartialChecksum),
        // Session lookup finds the flow of the packet, and inspection applies its bad-checksum policy.
        Err(Reason::Wire(fault)) if is_for_inspection(snapshot, meta, fault) => {
            packet.set_checksums(Checksums::BadL4);
            classify(slot, packet, &layers, interface, lists);
        }
        Err(reason) => lists.drop_packet(slot, reason),
    }
}

/// Parses a plain IPv6 packet without tags. If the packet isn't such a packet, returns `false` without an effect.
#[inline(always)]
fn parse_plain6(
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    untagged: Option<u16>,
    tally: &mut ReceiveTally,
) -> bool {
    let snapshot = ctx.snapshot;
    let frame = packet.bytes();
    let Some(number) = untagged else { return false };
    let Some(interface) = snapshot.interface(number) else {
        return false;
    };
    let Some(layers) = plain6(frame, 0, packet.checksums(), &interface.mac) else {
        return false;
    };
    *meta = Meta {
        layers,
        interface: number,
        ..Meta::default()
    };
    tally.count(ctx, number, frame.len() as u64);
    let is_outer = is_tunnelled(snapshot, interface, &layers, frame);
    end_frame(packet, packet.len(), layers.end);
    let list = if is_outer {
        &mut lists.decapsulate
    } else if interface.stateful[1] {
        &mut lists.session_lookup.v6
    } else {
        &mut lists.forward.v6
    };
    put(list, slot);
    true
}

/// The interface to which a frame's tags belong.
#[inline(always)]
fn interface_of(
    frame: &[u8],
    layers: &Layers,
    (port, untagged): (PortIndex, Option<u16>),
    snapshot: &Snapshot,
) -> Option<u16> {
    let tags = [layers.tag(frame, 0), layers.tag(frame, 1)];
    if tags.iter().flatten().all(|tag| tag.is_priority()) {
        return untagged;
    }
    let tagged = snapshot.tagged(port, &tags);
    // Whether the frame has the tags of a site on this interface.
    let site = |number: &u16| {
        let sites = snapshot.sites.as_deref();
        sites.is_some_and(|sites| sites.context(*number, layers, frame).is_some())
    };
    tagged.or_else(|| untagged.filter(site))
}

#[cold]
fn is_for_inspection(snapshot: &Snapshot, meta: &Meta, fault: Fault) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|inspection| inspection.is_on(meta.interface) && inspection.takes_wrong_checksums(fault))
}

/// Completes a partial checksum in software. The NIC must not compute it again, because it would include the finished
/// checksum in the sum.
pub(in crate::nodes) fn complete_checksum(packet: &mut Packet<'_>, layers: &Layers, ctx: &NodeContext<'_, '_>) {
    validity::complete_checksum(packet.bytes_mut(), layers);
    packet.set_checksums(Checksums::Vouched);
    ctx.counters.checksums_completed.add(1);
}

/// Clears the device's report of a bad transport checksum if the packet has no checksum.
pub(in crate::nodes) fn clear_bad_checksum(packet: &mut Packet<'_>) {
    if packet.checksums() == Checksums::BadL4 {
        packet.set_checksums(Checksums::Unverified);
    }
}

/// Checks that the frame is addressed to this interface and valid. A router that only routes doesn't check TCP and UDP headers.
#[inline(always)]
fn check(
    frame: &[u8],
    checksums: Checksums,
    layers: &Layers,
    interface: &Interface,
    snapshot: &Snapshot,
) -> Result<Validity, Reason> {
    let untagged_interface = frame.first_chunk::<6>() == Some(&interface.mac);
    if !untagged_interface && !layers.flags.has(Flags::MULTICAST) && !is_virtual(snapshot, interface, frame) {
        return Err(EngineReason::NotOurMac.into());
    }
    let checked = validity::validate(frame, checksums, layers, &interface.validity);
    if checked.is_err() && snapshot.only_routes(interface) {
        let lenient = validity::Policy {
            headers: false,
            ..interface.validity
        };
        return Ok(validity::validate(frame, checksums, layers, &lenient)?);
    }
    Ok(checked?)
}

/// Whether a frame is addressed to the virtual MAC of a site.
#[cold]
fn is_virtual(snapshot: &Snapshot, interface: &Interface, frame: &[u8]) -> bool {
    let sites = snapshot.sites.as_deref();
    sites.is_some_and(|sites| sites.has_mac(interface.link.index, frame))
}
