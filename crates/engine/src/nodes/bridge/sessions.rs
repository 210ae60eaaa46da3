//! Sessions of bridged flows.

use sluice_table::flow::RecordIndex;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Context, Direction};

use crate::features::context::NodeContext;
use crate::features::creation::{FlowDecision, FlowTranslation, NewFlows};
use crate::features::translation::{self, read_segment};
use crate::nodes::slow_path;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, BufferIndices, Meta, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::{EngineReason, Reason};
use crate::session::family::{Family, Session};
use crate::snapshot::{Bridge, SECOND_INTERFACE, Snapshot};

use super::exceptions::midstream_flow;
use super::{inspects, send};

/// The decision for a new flow at the interface of `meta`, if that interface belongs to a bridge.
#[inline(always)]
pub fn decide<F: Family>(snapshot: &Snapshot, meta: &Meta, context: Context) -> Option<FlowDecision<F>> {
    let bridge = snapshot.interface(meta.interface)?.bridge?;
    let keeps = inspects(snapshot, meta.interface, bridge) || snapshot.identifies([meta.interface, bridge.peer]);
    Some(match keeps {
        true => FlowDecision::Session(translation(meta.interface, bridge, context)),
        false => FlowDecision::Drop(EngineReason::Forgotten.into()),
    })
}

/// The decision for a bridged session without translation. `context` is the context of packets received on `interface`.
fn translation<F: Family>(interface: u16, bridge: Bridge, context: Context) -> FlowTranslation<F> {
    FlowTranslation {
        target: None,
        pool: None,
        outside: None,
        mapped: None,
        hops: [AdjacencyIndex::bridge(bridge.peer), AdjacencyIndex::bridge(interface)],
        answers: Some(context ^ SECOND_INTERFACE),
    }
}

/// Creates sessions for packets that arrived on a bridge and have no session. Returns the packets that did not arrive on a bridge.
#[cold]
pub fn create_sessions<F: Family>(
    slots: BufferIndices,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) -> BufferIndices {
    let mut others = BufferIndices::new();
    let mut flows = NewFlows::<F>::default();
    for slot in slots {
        let meta = batch.meta(slot);
        let bridge = ctx
            .snapshot
            .interface(meta.interface)
            .and_then(|interface| interface.bridge);
        let Some(bridge) = bridge else {
            put(&mut others, slot);
            continue;
        };
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.snapshot.context(meta, frame);
        let key = F::key(&meta.layers, frame, context);
        let inspection = ctx.snapshot.inspection.as_deref();
        let accepts_midstream = inspection.is_some_and(|inspection| inspection.accepts_midstream(&meta.layers));
        match midstream::<F>(&meta.layers, &key).filter(|_| !accepts_midstream) {
            None => flows.push(slot, key, translation(meta.interface, bridge, context)),
            Some(reason) => midstream_flow(slot, reason, bridge, batch, lists, ctx),
        }
    }
    slow_path::create(&mut flows, batch, lists, ctx);
    others
}

/// The reason for which a packet can't be the first of a flow.
fn midstream<F: Family>(layers: &Layers, key: &F::Key) -> Option<Reason> {
    if layers.flags.has(Flags::ICMP_ERROR) {
        Some(sluice_nat::Reason::IcmpErrorWithoutSession.into())
    } else if layers.flags.has(Flags::ICMP_REPLY) {
        Some(sluice_nat::Reason::Unsolicited.into())
    } else {
        let opens = F::protocol(key) != TCP || layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
        (!opens).then(|| sluice_nat::Reason::NotOpening.into())
    }
}

/// Counts and tracks a packet of a known session, and sends it through the peer interface of the bridge.
#[inline(never)]
pub fn forward_session<F: Family>(
    slot: BufferIndex,
    (index, direction): (RecordIndex, Direction),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let meta = *batch.meta(slot);
    let frame = batch.packets[slot as usize].bytes();
    let Some(bridge) = ctx
        .snapshot
        .interface(meta.interface)
        .and_then(|interface| interface.bridge)
    else {
        return lists.drop_packet(slot, EngineReason::InterfaceGone);
    };
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    let Some(session) = F::table(shard).get_mut(index) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    let tracked = read_segment(frame, &meta.layers, session.protocol());
    let track = session.track_mut();
    track.count(direction, meta.layers.end.saturating_sub(meta.layers.l3));
    translation::track::<F>(tracked, shard, index, direction, ctx.snapshot, ctx.now);
    send(slot, bridge.peer, batch, lists, ctx);
}
