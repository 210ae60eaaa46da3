//! neighbour-resolution: parks packets until the MAC of their next hop is known, and requests the MAC.

use sluice_route::neighbour::{Action, Resolution};

use crate::features::context::{NodeContext, OwnerState};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::parse::again;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "neighbour-resolution",
    help: "parks packets until their neighbour is known",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::Park, Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "resolved, with sessions", needs::STATEFUL),
        Exit::new("virtual-reassembly", "resolved, fragment", needs::STATEFUL),
        Exit::new("forward", "resolved", needs::ROUTED),
        Exit::new("icmp-error", "unresolved", needs::ROUTED),
    ],
};

/// Parks packets until their neighbours are resolved.
#[inline(never)]
pub fn neighbour_resolution(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for (slot, wanted) in std::mem::take(&mut lists.neighbour_resolution) {
        let meta = *batch.meta(slot);
        let snapshot = ctx.snapshot;
        let Some(OwnerState { writer, actions, .. }) = ctx.owner.as_deref_mut() else {
            lists.hand_over(slot, snapshot.owner, HandOffNote::new(EntryPoint::Wait(wanted), &meta));
            continue;
        };
        let emit = &mut |action: Action| put(actions, action);
        match writer.resolve(wanted.interface, wanted.address, ctx.now.nanoseconds, emit) {
            Resolution::Pending(neighbour) => put(&mut lists.park, (slot, neighbour)),
            Resolution::Refused(reason) => lists.icmp_error(slot, IcmpError::HostUnreachable, reason),
            Resolution::Known(_) if meta.is_from_gateway() => crate::nodes::icmp_error::reinject(slot, batch, lists),
            Resolution::Known(_) => match snapshot.interface(meta.interface) {
                Some(interface) => {
                    let packet = &batch.packets[slot as usize];
                    again(slot, packet, &meta.layers, (interface, meta.origin), lists);
                }
                None => lists.drop_packet(slot, EngineReason::InterfaceGone),
            },
        }
    }
}
