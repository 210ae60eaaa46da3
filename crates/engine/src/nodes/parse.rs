//! parse: locates and validates the headers of a packet, and selects its next node.

use std::ops::Range;

use sluice_wire::{Packet, plain4};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::{bridge, ip4_fast_forward};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::{Leave, Lists};

use routed::parse_routed;
use sites::Sites;
use tagged::Tagged;

mod general;
mod next_node;
mod priority_tags;
mod routed;
mod sites;
mod tagged;
mod tally;

pub use next_node::{again, classify};

pub(super) use general::{clear_bad_checksum, complete_checksum, parse_other};
pub(super) use tally::ReceiveTally;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "parse",
    help: "parses headers and checks their validity",
    stage: None,
    leaves: &[Leave::Drop],
    exits: &[
        Exit::new(
            "hand-off",
            "routed by another worker",
            needs::ROUTED | needs::ROUTED_ELSEWHERE,
        ),
        Exit::new("session-lookup", "has a stateful service", needs::STATEFUL),
        Exit::new("forward", "no stateful service", needs::ROUTED),
        Exit::new("ip4-fast-forward", "plain, no stateful service", needs::PLAIN),
        Exit::new("virtual-reassembly", "fragment", needs::FLOWS),
        Exit::new("neighbour-discovery", "ARP, ND", needs::ROUTED),
        Exit::new("bridge", "on a bridge", needs::BRIDGED),
        Exit::new("punt", "multicast to the router's host", needs::HOSTED),
        Exit::new("subscriber", "DHCP of sites", needs::SITES),
        Exit::new("chain", "its router has chains", needs::CHAINED),
        Exit::new("decapsulate", "to a tunnel endpoint", needs::TUNNELLED),
    ],
};

/// Parses slots with packets that were all received on `port`.
pub fn parse(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    slots: Range<usize>,
) {
    let untagged = ctx.snapshot.untagged.get(port as usize).copied().flatten();
    if let Some(number) = untagged
        && ctx.snapshot.is_bridged(number)
    {
        return bridge::receive(batch, lists, ctx, port, number, slots);
    }
    if ctx.snapshot.bridges_tags(port) {
        return parse_admitted(batch, lists, ctx, (port, slots), 0);
    }
    if let Some((number, interface)) = untagged.and_then(|number| Some((number, ctx.snapshot.interface(number)?)))
        && ip4_fast_forward::is_sufficient(ctx, number)
    {
        let mut tally = ReceiveTally::of(ctx, port);
        parse_routed(batch, lists, ctx, number, interface, (port, slots), &mut tally);
        return tally.flush(ctx);
    }
    let end = slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    parse_range(batch, lists, ctx, port, slots.start..end);
}

/// Parses all slots except those in the mask of packets that `admit` has refused.
pub fn parse_admitted(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (port, slots): (PortIndex, Range<usize>),
    refused: u128,
) {
    let end = slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    let below = |end: usize| 1u128.checked_shl(end as u32).map_or(u128::MAX, |bit| bit - 1);
    let mut remaining = below(end) & !below(slots.start) & !refused;
    if ctx.snapshot.bridges_tags(port) {
        remaining = bridge::receive_tagged(batch, lists, ctx, port, remaining);
    }
    let admitted = std::iter::from_fn(|| {
        let slot = remaining.trailing_zeros() as usize;
        remaining &= remaining.wrapping_sub(1);
        (slot < BURST_BUFFERS).then_some(slot)
    });
    parse_range(batch, lists, ctx, port, admitted);
}

#[inline(never)]
fn parse_range(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    port: PortIndex,
    slots: impl Iterator<Item = usize>,
) {
    let snapshot = ctx.snapshot;
    let untagged = snapshot.untagged.get(port as usize).copied().flatten();
    let mut tally = ReceiveTally::of(ctx, port);
    let untagged_interface = untagged.and_then(|number| Some((number, snapshot.interface(number)?)));
    let ends = untagged_interface.is_some_and(|(_, interface)| snapshot.tunnels.end_in(interface.router));
    let (mut frames, mut bytes, mut tagged) = (0, 0, Tagged::of(ctx, port));
    let mut site = Sites::of(ctx, port, untagged);
    for slot in slots {
        let (packet, meta) = (&mut batch.packets[slot], &mut batch.meta[slot]);
        let frame = packet.bytes();
        if let Some(sites) = &mut site {
            if !sites.take(slot as BufferIndex, packet, meta, lists, ctx)
                && !tagged.take(slot as BufferIndex, packet, meta, lists, ctx, &mut tally)
            {
                parse_other(
                    slot as BufferIndex,
                    packet,
                    meta,
                    lists,
                    ctx,
                    (port, untagged),
                    &mut tally,
                );
            }
        } else if let Some((number, interface)) = untagged_interface
            && let Some(layers) = plain4(frame, 0, packet.checksums(), &interface.mac)
        {
            frames += 1;
            bytes += frame.len() as u64;
            let is_outer = ends && snapshot.tunnels.take(interface.router, &layers, frame);
            end_frame(packet, frame.len(), layers.end);
            *meta = Meta {
                layers,
                interface: number,
                ..Meta::default()
            };
            let list = if is_outer {
                &mut lists.decapsulate
            } else if interface.stateful[0] {
                &mut lists.session_lookup.v4
            } else {
                &mut lists.forward.v4
            };
            put(list, slot as BufferIndex);
        } else if !tagged.take(slot as BufferIndex, packet, meta, lists, ctx, &mut tally) {
            parse_other(
                slot as BufferIndex,
                packet,
                meta,
                lists,
                ctx,
                (port, untagged),
                &mut tally,
            );
        }
    }
    if let Some(mut sites) = site {
        sites.tally.flush(ctx);
    }
    tally.flush(ctx);
    if let Some((number, _)) = untagged_interface {
        let interface = number;
        ReceiveTally {
            interface,
            frames,
            bytes,
        }
        .flush(ctx);
    }
}

/// Truncates a frame of this length to the end of its datagram.
#[inline(always)]
fn end_frame(packet: &mut Packet<'_>, length: usize, end: u16) {
    if usize::from(end) != length {
        packet.trim_trailer(end.into());
    }
}
