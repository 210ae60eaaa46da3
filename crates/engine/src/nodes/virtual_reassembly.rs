//! virtual-reassembly: sets the ports of later fragments to the ports of their datagram, so that the fragments match
//! the session. All fragments of a datagram get one IP ID.

use sluice_wire::layers::{Class, Fragment};
use sluice_wire::{ipv4, ipv6};

use crate::features::context::NodeContext;
use crate::features::virtual_reassembly::{DatagramKey, FragmentState};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, V4, V6};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "virtual-reassembly",
    help: "gives later fragments the ports of their datagram",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::Park, Leave::HandOver, Leave::Drop],
    exits: &[Exit::new("session-lookup", "", needs::FLOWS)],
};

/// Sets the ports of fragments. Fragments that were parked until the first fragment of their datagram arrived are
/// passed to `ready`.
#[inline(never)]
pub fn virtual_reassembly(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.virtual_reassembly) {
        let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
        let context = ctx.snapshot.context(meta, batch.packets[slot as usize].bytes());
        let Some(owner) = ctx.owner.as_deref_mut() else {
            lists.hand_over(slot, ctx.snapshot.owner, HandOffNote::new(EntryPoint::Fragment, meta));
            continue;
        };
        let key = datagram_key(batch.packets[slot as usize].bytes(), meta, context);
        let layers = &mut meta.layers;
        let known = if layers.fragment == Fragment::First {
            let ports = (layers.source_port, layers.destination_port);
            owner.datagrams.first(&key, ports, ctx.now, tools.ready)
        } else {
            match owner.datagrams.later(&key, ctx.now) {
                FragmentState::Known(datagram) => Some(datagram),
                FragmentState::Wait(place) => {
                    put(&mut lists.park_fragment, (slot, place));
                    continue;
                }
                FragmentState::Full => None,
            }
        };
        let Some(datagram) = known else {
            lists.drop_packet(slot, EngineReason::FragmentsFull);
            continue;
        };
        (layers.source_port, layers.destination_port) = datagram.ports;
        meta.identification = datagram.identification;
        match meta.layers.class {
            Class::Ipv4 => put(&mut lists.session_lookup.v4, slot),
            _ => put(&mut lists.session_lookup.v6, slot),
        }
    }
}

/// The key that all fragments of a packet's datagram have in common.
pub(super) fn datagram_key(frame: &[u8], meta: &Meta, context: u32) -> DatagramKey {
    let datagram = meta.layers.datagram(frame);
    let protocol = meta.layers.protocol;
    if meta.layers.class == Class::Ipv4 {
        let (source, destination) = V4::addresses(&meta.layers, frame);
        let identification = ipv4::IDENTIFICATION.read(datagram).into();
        let (source, destination) = ([0, source.into()], [0, destination.into()]);
        return DatagramKey {
            source,
            destination,
            identification,
            protocol,
            context,
        };
    }
    let (source, destination) = V6::addresses(&meta.layers, frame);
    let identification = ipv6::walk(datagram)
        .ok()
        .and_then(|chain| datagram.get(chain.fragment?..)?.get(4..8)?.try_into().ok())
        .map_or(0, u32::from_be_bytes);
    DatagramKey {
        source,
        destination,
        identification,
        protocol,
        context,
    }
}
