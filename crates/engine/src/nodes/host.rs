//! host: forwards packets that a router's host has sent. A packet leaves unchanged through the interface that the host
//! has selected. The packet is processed as part of a session instead if rules translate flows to the host, or if rules
//! match packets of the host.

use sluice_route::Address;
use sluice_wire::ethernet::{self, multicast4, multicast6};
use sluice_wire::layers::{Class, Flags, Fragment};

use crate::features::context::NodeContext;
use crate::features::input_filter;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::leave;
use crate::nodes::output::output;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::packet::task::UnresolvedNeighbour;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Interface;
use crate::snapshot::forwarding::ForwardingDecision;

mod sessions;

pub use sessions::{answer, create_sessions, decide, may_answer};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "host",
    help: "sends packets of a router's host",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("output", "to a neighbour, or a group", needs::HOSTED),
        Exit::new("forward", "to another network", needs::HOSTED),
        Exit::new("session-lookup", "may have a session", needs::STATEFUL | needs::HOSTED),
        Exit::new(
            "virtual-reassembly",
            "fragment that may have a session",
            needs::STATEFUL | needs::HOSTED,
        ),
    ],
};

/// Destination of a frame from a host.
enum FrameTarget {
    /// A multicast group or the broadcast address of the link.
    Group([u8; 6]),
    /// A neighbour on the link, which must be resolved.
    Neighbour(UnresolvedNeighbour),
    /// A destination that is not on the link. The packet is routed.
    Routed,
}

/// Sends the packets of hosts.
#[inline(never)]
pub fn host(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    let exit = ctx.exit();
    for slot in std::mem::take(&mut lists.host) {
        let meta = *batch.meta(slot);
        if meta.layers.class == Class::Ipv4
            && may_answer(ctx.snapshot, meta.interface)
            && !lists.is_sessionless(slot)
            && !meta.layers.flags.has(Flags::MULTICAST)
        {
            match meta.layers.fragment {
                Fragment::Whole => put(&mut lists.session_lookup.v4, slot),
                _ => put(&mut lists.virtual_reassembly, slot),
            }
            continue;
        }
        let packet = &mut batch.packets[slot as usize];
        input_filter::sent(ctx, &meta, packet.bytes());
        let Some(interface) = ctx
            .snapshot
            .interface(meta.interface)
            .filter(|interface| interface.host)
        else {
            lists.drop_packet(slot, EngineReason::InterfaceGone);
            continue;
        };
        let too_long = meta.layers.end.saturating_sub(meta.layers.l3) > ctx.snapshot.mtu(meta.interface, ctx.now);
        let (hop, mac) = match frame_target(&meta, packet.bytes(), interface) {
            FrameTarget::Group(_) if too_long => {
                lists.drop_packet(slot, sluice_route::Reason::TooBig);
                continue;
            }
            FrameTarget::Group(mac) => (AdjacencyIndex::bridge(meta.interface), mac),
            FrameTarget::Neighbour(wanted) if !too_long => match ctx.forwarding.neighbour(wanted) {
                ForwardingDecision::Hop(hop) if let Some(mac) = ctx.forwarding.mac(hop) => (hop, mac),
                _ => {
                    lists.wait_for_neighbour(slot, Some(wanted));
                    continue;
                }
            },
            FrameTarget::Neighbour(_) | FrameTarget::Routed => {
                match meta.layers.class {
                    Class::Ipv6 => put(&mut lists.forward.v6, slot),
                    _ => put(&mut lists.forward.v4, slot),
                }
                continue;
            }
        };
        let out = output(packet, &meta.layers, hop, mac, &exit);
        leave(slot, out, &mut batch.meta[slot as usize], hop, lists);
    }
}

fn frame_target(meta: &Meta, frame: &[u8], interface: &Interface) -> FrameTarget {
    let address = match meta.layers.class {
        Class::Ipv6 => V6::address(V6::addresses(&meta.layers, frame).1),
        _ => V4::address(V4::addresses(&meta.layers, frame).1),
    };
    match address {
        Address::V4(group) if group >> 28 == 0xe => FrameTarget::Group(multicast4(group)),
        Address::V6(group) if group >> 120 == 0xff => FrameTarget::Group(multicast6(group)),
        Address::V4(all) if all == u32::MAX || is_broadcast(all, interface) => FrameTarget::Group(ethernet::BROADCAST),
        address if interface.link.has_neighbour(address) => FrameTarget::Neighbour(UnresolvedNeighbour {
            interface: meta.interface,
            address,
        }),
        _ => FrameTarget::Routed,
    }
}

/// Whether an address is a broadcast address of the interface (RFC 919).
fn is_broadcast(address: u32, interface: &Interface) -> bool {
    interface.link.addresses.iter().any(|&(own, length)| match own {
        Address::V4(own) if (1..31).contains(&length) => address == own | u32::MAX >> length,
        _ => false,
    })
}
