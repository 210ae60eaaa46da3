//! output: writes the link header for the next hop and selects the port.

use sluice_wire::Packet;
use sluice_wire::layers::Layers;

use crate::features::context::OutputContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::leave;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::io::{BufferIndex, PortIndex, WorkerIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;

use adjacency::write;
use link_header::link_header;

mod adjacency;
mod link_header;

pub use adjacency::{Adjacency, AdjacencyCache, CACHE_SIZE, Egress};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "output",
    help: "writes the link header of the next hop",
    stage: None,
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("neighbour-resolution", "neighbour unknown", needs::ROUTED),
        Exit::new("transmit", "", needs::ROUTED),
        Exit::new("inter-router-link", "over an inter-router link", needs::LINKED),
    ],
};

/// Exit of a finished packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputResult {
    /// This worker transmits the packet on this port.
    Transmit(PortIndex),
    /// Another worker has a queue of the interface's port and gets the packet.
    HandOver(WorkerIndex, u16),
    /// The packet can't be sent and is dropped.
    Drop(EngineReason),
}

/// Writes the link header of a packet. Puts the packet on the list of its port, or of the worker that has a queue of the port.
#[inline(always)]
pub fn send(
    adjacency: &mut Adjacency,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    exit: &OutputContext<'_>,
) {
    let length = packet.len();
    if !adjacency.take(packet.bytes_mut(), length, slot, meta, lists) {
        send_by_parts(adjacency, slot, packet, meta, lists, exit);
    }
}

/// Sends a frame with tags, or through the queue of another worker.
#[inline(never)]
pub fn send_by_parts(
    adjacency: &mut Adjacency,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    exit: &OutputContext<'_>,
) {
    let layers = &meta.layers;
    if adjacency.may_send(layers.end.saturating_sub(layers.l3)) && adjacency.relabel(packet, layers.tags) {
        meta.egress = adjacency.egress();
        return lists.send(adjacency.port, slot);
    }
    if let Some(sender) = adjacency
        .sender
        .filter(|_| meta.layers.tags == 0 && adjacency.tags == 0)
        && let Some(addresses) = adjacency.head.first_chunk::<12>()
    {
        write(packet.bytes_mut(), Some(addresses));
        return leave(
            slot,
            OutputResult::HandOver(sender, adjacency.hop.interface() as u16),
            meta,
            adjacency.hop,
            lists,
        );
    }
    let [a, b, c, d, e, f, ..] = adjacency.head;
    let out = output(packet, &meta.layers, adjacency.hop, [a, b, c, d, e, f], exit);
    leave(slot, out, meta, adjacency.hop, lists);
}

/// Writes the link header for a neighbour with this MAC.
pub fn output(
    packet: &mut Packet<'_>,
    layers: &Layers,
    hop: AdjacencyIndex,
    mac: [u8; 6],
    exit: &OutputContext<'_>,
) -> OutputResult {
    let Some(interface) = exit.snapshot.interfaces.get(hop.interface()) else {
        return OutputResult::Drop(EngineReason::InterfaceGone);
    };
    if !link_header(packet, layers, interface, mac) {
        return OutputResult::Drop(EngineReason::NoBuffer);
    }
    output_finished(packet, hop, exit)
}

/// Selects how a frame whose link header is finished leaves through the hop's interface. Counts the frame if this
/// worker transmits it.
pub fn output_finished(packet: &Packet<'_>, hop: AdjacencyIndex, exit: &OutputContext<'_>) -> OutputResult {
    let Some(interface) = exit.snapshot.interfaces.get(hop.interface()) else {
        return OutputResult::Drop(EngineReason::InterfaceGone);
    };
    match exit.snapshot.sender(interface.port, exit.own) {
        Some(sender) => OutputResult::HandOver(sender, hop.interface() as u16),
        None => {
            if let Some(counters) = exit.counters.interfaces.get(hop.interface()) {
                counters.sent_bytes.add(packet.len() as u64);
                counters.sent.add(1);
            }
            OutputResult::Transmit(interface.port)
        }
    }
}
