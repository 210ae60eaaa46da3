//! Policies for bridged packets that can't be inspected.

use sluice_inspect::Skipped;
use sluice_inspect::stream::{Exception, Policy as Exceptional};
use sluice_wire::layers::{self, Flags, Layers};
use sluice_wire::{Checksums, Fault, Packet, ethernet};

use crate::features::context::NodeContext;
use crate::packet::batch::{Batch, Meta};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::Reason;
use crate::snapshot::Bridge;

use super::{inspects, pass_to_lookup, send};

/// Fault of a packet to which the bad-checksum policy of inspection applies.
pub(super) const WRONG_CHECKSUM: Reason = Reason::Wire(Fault::BadTransportChecksum);

/// Applies the bad-checksum policy of inspection to a packet with a wrong transport checksum. The receiver would discard the packet.
pub(super) fn wrong_checksum(
    slot: BufferIndex,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspection = ctx.snapshot.inspection.as_deref();
    let said = inspection.map(|inspection| inspection.settings.policy(Exception::BadChecksum));
    let packet = &mut batch.packets[slot as usize];
    match (said, layers::parse(packet.bytes())) {
        (Some(Exceptional::DropFlow | Exceptional::Bypass), Ok(layers)) if !bridge.drops_invalid => {
            packet.set_checksums(Checksums::BadL4);
            batch.meta[slot as usize % BURST_BUFFERS].layers = layers;
            pass_to_lookup(slot, bridge, true, batch, lists, ctx);
        }
        (Some(Exceptional::Pass), _) if !bridge.drops_invalid => {
            ctx.counters.bypass_before(Skipped::BadChecksum);
            count_tolerated(batch.meta(slot), WRONG_CHECKSUM, ctx);
            send(slot, bridge.peer, batch, lists, ctx);
        }
        _ => {
            ctx.counters.inspection.received.add(1);
            lists.drop_packet(slot, sluice_inspect::Reason::BadChecksum);
        }
    }
}

/// Forwards or drops an unparsable frame on a bridge that inspects. No rule can match such a frame.
pub(super) fn unparsable(
    slot: BufferIndex,
    reason: Reason,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let passes = ctx
        .snapshot
        .inspection
        .as_deref()
        .is_none_or(|on| on.passes_unparsable());
    if !passes {
        return lists.drop_packet(slot, reason);
    }
    ctx.counters.bypass_before(Skipped::Invalid);
    count_tolerated(batch.meta(slot), reason, ctx);
    send(slot, bridge.peer, batch, lists, ctx);
}

/// Whether a frame with a non-IP EtherType nevertheless carries an IP packet.
#[cold]
pub(super) fn hides_ip(packet: &Packet<'_>, layers: &Layers) -> bool {
    let (type_at, body) = (usize::from(layers.l3).saturating_sub(2), usize::from(layers.l3));
    let kind = packet.bytes().get(type_at..body).and_then(|kind| kind.try_into().ok());
    let body = packet.bytes().get(body..).unwrap_or_default();
    kind.is_some_and(|kind| ethernet::hides_ip(u16::from_be_bytes(kind), body))
}

/// Handles an ICMP error from which the flow of the quoted packet can't be determined. On a bridge, such an error is
/// treated like an error for a flow without a session.
#[cold]
pub fn unattributed_error(
    slot: BufferIndex,
    fault: Fault,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let interface = ctx.snapshot.interface(batch.meta(slot).interface);
    match (interface.and_then(|interface| interface.bridge), fault) {
        (Some(bridge), Fault::ShortQuote | Fault::QuotedFragment) => {
            midstream_flow(slot, fault.into(), bridge, batch, lists, ctx);
        }
        _ => lists.drop_packet(slot, fault),
    }
}

/// Counts a faulty packet that the bridge forwards.
pub(super) fn count_tolerated(meta: &Meta, reason: impl Into<Reason>, ctx: &NodeContext<'_, '_>) {
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.count_exempted(reason.into());
    }
}

/// Forwards or drops a packet that can't be inspected, according to the fail-open setting of its bridge.
pub fn fail(
    slot: BufferIndex,
    reason: Reason,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = batch.meta(slot);
    let bridge = ctx
        .snapshot
        .interface(meta.interface)
        .and_then(|interface| interface.bridge);
    match bridge {
        // Without inspection, the bridge only identifies applications, so the packet is forwarded despite the failure.
        Some(bridge) if !inspects(ctx.snapshot, meta.interface, bridge) => send(slot, bridge.peer, batch, lists, ctx),
        Some(bridge) if bridge.fails_open => {
            ctx.counters.bypass_before(Skipped::FailOpen);
            count_tolerated(meta, reason, ctx);
            send(slot, bridge.peer, batch, lists, ctx);
        }
        Some(_) | None => lists.drop_packet(slot, reason),
    }
}

/// Applies the midstream policy to a packet of a flow whose first packet was not inspected.
pub(super) fn midstream_flow(
    slot: BufferIndex,
    reason: Reason,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspection = ctx.snapshot.inspection.as_deref();
    if !inspects(ctx.snapshot, batch.meta(slot).interface, bridge) {
        return send(slot, bridge.peer, batch, lists, ctx);
    }
    let said = inspection.map(|inspection| inspection.settings.policy(Exception::Midstream));
    if !matches!(said, Some(Exceptional::Pass | Exceptional::Bypass)) {
        return lists.drop_packet(slot, reason);
    }
    ctx.counters
        .bypass_before(match batch.meta(slot).layers.flags.has(Flags::ICMP_ERROR) {
            true => Skipped::IcmpError,
            false => Skipped::Midstream,
        });
    count_tolerated(batch.meta(slot), reason, ctx);
    send(slot, bridge.peer, batch, lists, ctx);
}
