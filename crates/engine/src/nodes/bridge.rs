//! bridge: forwards frames between the two interfaces of a bridge. Tags, EtherType and hop limit don't change, except
//! that the tags of the ingress VLAN interface are popped and the tags of the egress VLAN interface are pushed.

use sluice_inspect::Skipped;
use sluice_wire::Fault;
use sluice_wire::ipv4::protocol::is_icmp;
use sluice_wire::layers::{Class, Fragment};
use sluice_wire::vlan;

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::snapshot::{Bridge, Snapshot};

use exceptions::{count_tolerated, hides_ip, unparsable};
use validity::look;

mod exceptions;
mod receive;
mod sessions;
mod transmit;
mod validity;

pub use exceptions::{fail, unattributed_error};
pub use receive::{receive, receive_tagged};
pub use sessions::{create_sessions, decide, forward_session};
pub use transmit::{answer, send, tags};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "bridge",
    help: "forwards frames between the two interfaces of a bridge",
    stage: Some(CycleStage::Session),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "inspected flow", needs::BRIDGED | needs::INSPECTED),
        Exit::new(
            "virtual-reassembly",
            "fragment of an inspected flow",
            needs::BRIDGED | needs::INSPECTED,
        ),
        Exit::new("transmit", "unchanged", needs::BRIDGED),
    ],
};

/// Forwards frames without inspection between two interfaces with different tags: pops the old tags, and pushes the new tags.
#[inline(never)]
pub fn bridge(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, _tools: &mut NodeTools<'_>) {
    for slot in std::mem::take(&mut lists.bridge) {
        let (packet, meta) = (
            &mut batch.packets[slot as usize],
            &mut batch.meta[slot as usize % BURST_BUFFERS],
        );
        let interface = ctx.snapshot.interface(meta.interface);
        let Some((interface, bridge)) = interface.and_then(|on| Some((on, on.bridge?))) else {
            lists.drop_packet(slot, EngineReason::InterfaceGone);
            continue;
        };
        // The priority tag precedes the tags of the VLAN. The priority tag is popped and not forwarded.
        let outer = vlan::tag(packet.bytes(), 0);
        vlan::pop_priority(packet);
        for _ in &interface.tags {
            vlan::pop(packet);
        }
        match look(packet, interface, ctx) {
            Ok(layers) => meta.layers = layers,
            // A frame that ends within its Ethernet header has no space for tags, so it is dropped even if the bridge forwards invalid frames.
            Err(reason) if bridge.drops_invalid || reason == Fault::ShortFrame.into() => {
                lists.drop_packet(slot, reason);
                continue;
            }
            Err(reason) => count_tolerated(meta, reason, ctx),
        }
        let peer = ctx.snapshot.interface(bridge.peer);
        // If the interface has no tags, only a preceding priority tag belongs to the bridge; other tags belong to the customer.
        let outer = outer.filter(|tag| tag.is_priority() || !interface.tags.is_empty());
        match peer.is_none_or(|peer| peer.push_tags_after(packet, outer)) {
            true => send(slot, bridge.peer, batch, lists, ctx),
            false => lists.drop_packet(slot, EngineReason::NoBuffer),
        }
    }
}

/// Processes a parked packet again.
pub fn again(
    slot: BufferIndex,
    bridge: Bridge,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let inspects = inspects(ctx.snapshot, batch.meta(slot).interface, bridge);
    pass_to_lookup(slot, bridge, inspects, batch, lists, ctx);
}

/// Whether packets received on an interface of a bridge are inspected.
fn inspects(snapshot: &Snapshot, number: u16, bridge: Bridge) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|inspection| inspection.is_on(number) || inspection.is_on(bridge.peer))
}

/// Passes a packet to session lookup if its flow is inspected or is being identified. Packets of other flows are
/// forwarded to the peer interface.
fn pass_to_lookup(
    slot: BufferIndex,
    bridge: Bridge,
    inspects: bool,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let meta = batch.meta(slot);
    let tells = meta.layers.fragment == Fragment::Whole && !is_icmp(meta.layers.protocol);
    let looks = inspects || tells && ctx.snapshot.identifies([meta.interface, bridge.peer]);
    match meta.layers.class {
        Class::Ipv4 | Class::Ipv6 if inspects && meta.layers.fragment != Fragment::Whole => {
            put(&mut lists.virtual_reassembly, slot);
        }
        Class::Ipv4 if looks => put(&mut lists.session_lookup.v4, slot),
        Class::Ipv6 if looks => put(&mut lists.session_lookup.v6, slot),
        Class::Other if inspects && hides_ip(&batch.packets[slot as usize], &batch.meta(slot).layers) => {
            unparsable(slot, EngineReason::EncapsulatedIp.into(), bridge, batch, lists, ctx);
        }
        _ => {
            if inspects {
                ctx.counters.bypass_before(Skipped::NotIp);
                count_tolerated(meta, EngineReason::NotIp, ctx);
            }
            send(slot, bridge.peer, batch, lists, ctx);
        }
    }
}
