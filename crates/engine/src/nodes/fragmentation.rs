//! fragmentation: fragments IPv4 datagrams that exceed the MTU of the next link (RFC 791; RFC 4787, REQ-13).
//!
//! The node runs after all other nodes of a burst, because it allocates buffers for the fragments. The buffers are
//! appended to the burst buffers.

use sluice_wire::fragments::Fragments;

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::leave;
use crate::nodes::output::{output, output_finished};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "fragmentation",
    help: "fragments datagrams longer than the MTU",
    stage: None,
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[Exit::new("output", "", needs::ROUTED)],
};

/// Number of fragments that a packet needs; 0 if it can't be fragmented.
pub fn fragments_needed(
    batch: &Batch<'_, '_>,
    slot: BufferIndex,
    hop: AdjacencyIndex,
    ctx: &NodeContext<'_, '_>,
) -> usize {
    let mtu = ctx.snapshot.mtu(hop.interface() as u16, ctx.now);
    let frame = batch
        .packets
        .get(slot as usize)
        .map_or(&[][..], |packet| packet.bytes());
    Fragments::new(frame, &batch.meta(slot).layers, mtu).map_or(0, |fragments| fragments.len())
}

/// Writes the fragments of the packet in `slot` to `first` and the following slots. Returns the number of slots used.
pub fn fragment(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (slot, hop): (BufferIndex, AdjacencyIndex),
    first: usize,
) -> usize {
    let meta = *batch.meta(slot);
    let mtu = ctx.snapshot.mtu(hop.interface() as u16, ctx.now);
    let (whole, made) = batch.packets.split_at_mut(first);
    let fragments = whole
        .get(slot as usize)
        .and_then(|p| Fragments::new(p.bytes(), &meta.layers, mtu));
    // If the packet belongs to a session of a site, its link header has already been written.
    let mac = match hop.is_bridge() {
        true => Some(None),
        false => ctx.forwarding.mac(hop).map(Some),
    };
    let (Some(fragments), Some(mac)) = (fragments, mac) else {
        lists.drop_packet(slot, EngineReason::FragmentUnfit);
        return 0;
    };
    let count = fragments.len();
    if made.len() < count {
        lists.drop_packet(slot, EngineReason::NoBuffer);
        return 0;
    }
    for (piece, packet) in made.iter_mut().take(count).enumerate() {
        let place = (first + piece) as BufferIndex;
        batch.meta[first + piece] = meta;
        if fragments.emit(piece, packet) {
            let out = match mac {
                Some(mac) => output(packet, &meta.layers, hop, mac, &ctx.exit()),
                None => output_finished(packet, hop, &ctx.exit()),
            };
            leave(place, out, &mut batch.meta[first + piece], hop, lists);
        } else {
            lists.drop_packet(place, EngineReason::FragmentUnfit);
        }
    }
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.originated.add(count as u64 - 1);
    }
    put(&mut lists.used, slot);
    count
}
