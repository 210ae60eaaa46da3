//! Fast path for plain packets of interfaces whose packets need only a route.

use std::ops::Range;

use sluice_route::SourceValidation;
use sluice_wire::{Packet, ethernet, ipv4, transit4};

use crate::features::context::NodeContext;
use crate::packet::batch::Batch;
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex};
use crate::packet::lists::Lists;
use crate::snapshot::Interface;

use super::general::parse_other;
use super::tagged::Tagged;
use super::tally::ReceiveTally;

/// Parses packets of an interface that needs only route lookups for plain IPv4 packets.
#[inline(never)]
pub(super) fn parse_routed(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    number: u16,
    interface: &Interface,
    (port, slots): (PortIndex, Range<usize>),
    tally: &mut ReceiveTally,
) {
    let router = interface.router;
    lists.ip4_fast_forward.validated |= interface.validation != SourceValidation::Off;
    let (mut plain, mut tagged) = (ReceiveTally::at(number), Tagged::of(ctx, port));
    for slot in slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS) {
        let (packet, meta) = (&mut batch.packets[slot], &mut batch.meta[slot]);
        let (frame, slot) = (packet.bytes(), slot as BufferIndex);
        if let Some((destination, has_trailer)) = transit4(frame, 0, packet.checksums(), &interface.mac) {
            (plain.frames, plain.bytes) = (plain.frames + 1, plain.bytes + frame.len() as u64);
            if has_trailer {
                trim_padding(packet, 0);
            }
            (meta.interface, meta.layers.tags) = (number, 0);
            lists.ip4_fast_forward.put(slot, router, destination);
        } else if !tagged.take(slot, packet, meta, lists, ctx, tally) {
            parse_other(slot, packet, meta, lists, ctx, (port, Some(number)), tally);
        }
    }
    plain.flush(ctx);
}

/// Truncates a frame with this number of tags to the end of its IPv4 datagram.
#[inline(never)]
pub(super) fn trim_padding(packet: &mut Packet<'_>, tags: u8) {
    let at = ethernet::LENGTH + 4 * usize::from(tags);
    let total = ipv4::TOTAL_LENGTH.read(packet.bytes().get(at..).unwrap_or_default());
    packet.trim_trailer(at + usize::from(total));
}
