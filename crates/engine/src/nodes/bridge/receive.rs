//! Receives the packets that `parse` passes to bridges.

use std::ops::Range;

use sluice_inspect::Skipped;
use sluice_wire::Fault;
use sluice_wire::vlan;

use crate::features::context::NodeContext;
use crate::nodes::parse::ReceiveTally;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::Snapshot;

use super::exceptions::{WRONG_CHECKSUM, count_tolerated, unparsable, wrong_checksum};
use super::validity::{check_remaining, is_of_addresses, look};
use super::{inspects, pass_to_lookup, send};

/// Receives the packets of `slots`. All packets arrived on `port`, which is interface `number` of a bridge.
#[inline(never)]
pub fn receive(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    number: u16,
    slots: Range<usize>,
) {
    let snapshot = ctx.snapshot;
    let Some((interface, bridge)) = snapshot.interface(number).and_then(|on| Some((on, on.bridge?))) else {
        return;
    };
    let inspects = inspects(snapshot, number, bridge);
    if snapshot
        .interface(bridge.peer)
        .is_some_and(|peer| !peer.tags.is_empty())
    {
        let all = slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
        let all = all.fold(0, |all, slot| all | 1 << slot);
        gather(batch, lists, ctx, (port, all), |_| Some(number));
        return;
    }
    let mut tally = ReceiveTally::of(ctx, port);
    for slot in slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS) {
        let (place, packet) = (slot as BufferIndex, &mut batch.packets[slot]);
        tally.count(ctx, number, packet.len() as u64);
        let meta = &mut batch.meta[slot];
        *meta = Meta {
            interface: number,
            ..Meta::default()
        };
        match look(packet, interface, ctx) {
            Ok(layers) => {
                meta.layers = layers;
                pass_to_lookup(place, bridge, inspects, batch, lists, ctx);
            }
            Err(reason) if inspects && reason == WRONG_CHECKSUM => {
                wrong_checksum(place, bridge, batch, lists, ctx);
            }
            Err(reason) if bridge.drops_invalid => lists.drop_packet(place, reason),
            Err(reason) if inspects && is_of_addresses(reason) => match check_remaining(packet, interface, ctx) {
                Ok(layers) => {
                    meta.layers = layers;
                    count_tolerated(meta, reason, ctx);
                    pass_to_lookup(place, bridge, inspects, batch, lists, ctx);
                }
                Err(reason) => unparsable(place, reason, bridge, batch, lists, ctx),
            },
            // If a bridge inspects, it still forwards a malformed ARP frame, because ARP is not IP.
            Err(reason) if inspects && reason == Fault::BadArp.into() => {
                ctx.counters.bypass_before(Skipped::NotIp);
                count_tolerated(meta, reason, ctx);
                send(place, bridge.peer, batch, lists, ctx);
            }
            Err(reason) if inspects => unparsable(place, reason, bridge, batch, lists, ctx),
            Err(reason) => {
                count_tolerated(meta, reason, ctx);
                send(place, bridge.peer, batch, lists, ctx);
            }
        }
    }
    tally.flush(ctx);
}

/// Receives those packets of a mask that have the tags of a bridge's interface. All packets of the mask arrived on
/// `port`. Returns the remaining mask.
#[inline(never)]
pub fn receive_tagged(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    port: PortIndex,
    slots: u128,
) -> u128 {
    gather(batch, lists, ctx, (port, slots), |frame| {
        vlan_of(ctx.snapshot, port, frame)
    })
}

/// Moves packets to the bridge list if their interface and its peer have different tags. Returns the mask of the remaining packets.
fn gather(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    (port, slots): (PortIndex, u128),
    interface_of: impl Fn(&[u8]) -> Option<u16>,
) -> u128 {
    let (mut tally, mut remaining, mut others) = (ReceiveTally::of(ctx, port), slots, slots);
    while remaining != 0 {
        let slot = remaining.trailing_zeros() as usize;
        remaining &= remaining - 1;
        let Some(packet) = batch.packets.get(slot) else { break };
        let Some(number) = interface_of(packet.bytes()) else {
            continue;
        };
        others &= !(1 << slot);
        tally.count(ctx, number, packet.len() as u64);
        batch.meta[slot % BURST_BUFFERS] = Meta {
            interface: number,
            ..Meta::default()
        };
        put(&mut lists.bridge, slot as BufferIndex);
    }
    tally.flush(ctx);
    others
}

/// The bridge interface to which the outermost tags of a frame belong. Inner tags belong to the customer.
fn vlan_of(snapshot: &Snapshot, port: PortIndex, frame: &[u8]) -> Option<u16> {
    let first = usize::from(vlan::tag(frame, 0)?.is_priority());
    let outer = vlan::tag(frame, first)?;
    let of = |inner| {
        snapshot
            .tagged(port, &[Some(outer), inner])
            .filter(|&number| snapshot.is_bridged(number))
    };
    vlan::tag(frame, first + 1)
        .and_then(|inner| of(Some(inner)))
        .or_else(|| of(None))
}
