//! The nodes of the graph, one in each file. A node processes the packets of its list, and puts each packet on the list
//! of the next node for that packet.

/// The nodes in the order in which the worker runs them: `KIND FILE: LIST;`.
///
/// A node is a file in this folder. Each node's file contains the declaration [`declaration::Node`] as `NODE`, and a
/// function with the name of the file. The kind `list` gives the node one list of packets; `by_family` gives the node
/// one list for each address family, and the node runs once for each list. An `inline` node has no list: its functions
/// are called by other nodes. To add a node, add its file and its line in this table.
macro_rules! node_table {
    ($receiver:ident) => {
        $receiver! {
            inline receive: NoList;
            inline hand_off: NoList;
            inline admit: NoList;
            inline express: NoList;
            inline parse: NoList;
            list chain: BufferIndices;
            list bridge: BufferIndices;
            list virtual_reassembly: BufferIndices;
            by_family session_lookup: ByFamily<BufferIndices>;
            by_family revalidate: ByFamily<BufferIndices>;
            by_family slow_path: ByFamily<BufferIndices>;
            by_family inspect: ByFamily<SessionPackets>;
            by_family identify: ByFamily<SessionPackets>;
            list ip4_fast_forward: FastForwardList;
            by_family forward: ByFamily<BufferIndices>;
            list local_delivery: BufferIndices;
            list host: BufferIndices;
            list punt: BufferIndices;
            list neighbour_discovery: BufferIndices;
            list subscriber: BufferIndices;
            list neighbour_resolution: UnresolvedPackets;
            list icmp_error: IcmpErrors;
            inline fragmentation: NoList;
            inline output: NoList;
            list inter_router_link: BufferIndices;
            list encapsulate: BufferIndices;
            list decapsulate: BufferIndices;
            inline transmit: NoList;
            #[cfg(test)] list test_node: BufferIndices;
        }
    };
}

pub mod admit;
pub mod bridge;
pub mod chain;
pub mod decapsulate;
pub mod declaration;
pub mod dispatch;
pub mod encapsulate;
pub mod express;
pub mod forward;
pub mod fragmentation;
pub mod hand_off;
pub mod host;
pub mod icmp_error;
pub mod identify;
pub mod inspect;
pub mod inter_router_link;
pub mod ip4_fast_forward;
pub mod local_delivery;
pub mod neighbour_discovery;
pub mod neighbour_resolution;
pub mod output;
pub mod parse;
pub mod punt;
pub mod receive;
pub mod revalidate;
pub mod session_lookup;
pub mod slow_path;
pub mod subscriber;
#[cfg(test)]
pub mod test_node;
pub mod transmit;
pub mod virtual_reassembly;

pub use dispatch::{HAS_LIST, NODES, run_nodes};

use sluice_wire::Packet;
use sluice_wire::ipv4::Ipv4;
use sluice_wire::ipv6;
use sluice_wire::layers::Layers;

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::session::family::Family;
use output::OutputResult;

/// Decrements the TTL of an IPv4 packet, or the hop limit of an IPv6 packet, by one.
#[inline(always)]
pub fn decrement<F: Family>(packet: &mut Packet<'_>, layers: &Layers) {
    let datagram = layers.datagram_mut(packet.bytes_mut());
    if F::IS_V6 {
        if let Some(limit) = datagram.get_mut(ipv6::HOP_LIMIT.offset) {
            *limit = limit.saturating_sub(1);
        }
    } else if let Some(mut header) = Ipv4::new(datagram) {
        header.decrement_ttl();
    }
}

/// Whether an IPv4 packet has the Don't Fragment flag.
pub fn dont_fragment(frame: &[u8], layers: &Layers) -> bool {
    Ipv4::new(layers.datagram(frame)).is_none_or(|header| header.dont_fragment())
}

/// Puts a packet on the list that `output` has selected.
#[inline(always)]
pub fn leave(slot: BufferIndex, out: OutputResult, meta: &mut Meta, hop: AdjacencyIndex, lists: &mut Lists) {
    meta.egress = hop.interface() as u16;
    match out {
        OutputResult::Transmit(port) => lists.send(port, slot),
        OutputResult::HandOver(worker, interface) => {
            lists.hand_over(slot, worker, HandOffNote::new(EntryPoint::Finished(interface), meta))
        }
        OutputResult::Drop(reason) => lists.drop_packet(slot, reason),
    }
}
