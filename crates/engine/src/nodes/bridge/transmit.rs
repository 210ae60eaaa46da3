//! Transmission of frames through the interfaces of bridges.

use sluice_wire::ethernet;
use sluice_wire::vlan::{self, Tag};

use crate::features::context::NodeContext;
use crate::nodes::leave;
use crate::nodes::output::OutputResult;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;

/// Whether a frame without its tags exceeds the MTU. Devices drop longer frames, some devices without counting the drops.
#[cold]
fn is_too_long(frame: &[u8], mtu: u16) -> bool {
    let tags = (0..).take_while(|&k| vlan::tag(frame, k).is_some()).count();
    frame.len() > usize::from(mtu) + ethernet::LENGTH + tags * vlan::LENGTH
}

/// Transmits a frame unchanged through an interface.
pub fn send(slot: BufferIndex, to: u16, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let Some(interface) = ctx.snapshot.interface(to) else {
        return lists.drop_packet(slot, EngineReason::InterfaceGone);
    };
    let frame = batch.packets[slot as usize].bytes();
    if frame.len() > usize::from(interface.mtu) + ethernet::LENGTH && is_too_long(frame, interface.mtu) {
        return lists.drop_packet(slot, EngineReason::LongerThanMtu);
    }
    let out = match ctx.snapshot.sender(interface.port, ctx.own) {
        Some(sender) => OutputResult::HandOver(sender, to),
        None => {
            if let Some(counters) = ctx.counters.interfaces.get(to as usize) {
                counters.sent.add(1);
                counters.sent_bytes.add(batch.packets[slot as usize].len() as u64);
            }
            OutputResult::Transmit(interface.port)
        }
    };
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    leave(slot, out, meta, AdjacencyIndex::bridge(to), lists);
}

/// The tags that the answer to a frame must have.
pub fn tags(meta: &Meta, frame: &[u8]) -> [Option<Tag>; 2] {
    [0, 1].map(|k| meta.layers.tag(frame, k))
}

/// Sends an answer made in the buffer of a received frame, through the receiving interface and with the received tags.
pub fn answer(
    slot: BufferIndex,
    tags: [Option<Tag>; 2],
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let packet = &mut batch.packets[slot as usize];
    let tagged = tags.into_iter().rev().flatten().all(|tag| vlan::push(packet, tag));
    let to = batch.meta(slot).interface;
    match tagged {
        true => send(slot, to, batch, lists, ctx),
        false => lists.drop_packet(slot, EngineReason::NoBuffer),
    }
}
