//! inspect: reassembles the streams of inspected sessions, searches them for patterns, and evaluates the inspection rules.
//! The node processes packets before their translation.

use sluice_inspect::inspector::{FlowHandle, Settings, Verdict};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::{Reason, Skipped};
use sluice_table::flow::RecordIndex;
use sluice_wire::layers::{Flags, Fragment};
use sluice_wire::{Checksums, Direction};

use crate::features::context::NodeContext;
use crate::features::inspection::classification::{ends, facts};
use crate::features::inspection::{FlowPrefetch, InspectState, InspectionPolicy, Inspector};
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session};

use flow::flow;
use fragments::fragment;
use payload::InspectContext;
use verdict::{finish, shed};

mod flow;
mod fragments;
mod payload;
mod verdict;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "inspect",
    help: "inspects streams in order",
    stage: Some(CycleStage::Inspect),
    leaves: &[Leave::Park, Leave::Drop],
    exits: &[
        Exit::new("session-lookup", "passed", needs::INSPECTED),
        Exit::new("icmp-error", "rejected", needs::INSPECTED),
    ],
};

/// A packet of an inspected session.
struct Packet<'a, F: Family> {
    slot: BufferIndex,
    index: RecordIndex,
    direction: Direction,
    session: F::Session,
    ends: Endpoints,
    meta: Meta,
    inspection: &'a InspectionPolicy,
    settings: Settings,
}

/// Inspects packets.
#[inline(never)]
pub fn inspect<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tools: &mut NodeTools<'_>,
) {
    let snapshot = ctx.snapshot;
    let Some(work) = tools.inspector.as_deref_mut() else {
        return;
    };
    let packets = std::mem::take(lists.inspect.of::<F>());
    work.follow(snapshot.inspected);
    let soon = FlowPrefetch::of::<F>(&packets, batch, ctx.shards);
    for (place, &(slot, index, direction)) in packets.iter().enumerate() {
        soon.prefetch(place, &packets, batch, ctx.shards);
        let Some(inspection) = snapshot.inspection.as_deref() else {
            forward::<F>(slot, lists);
            continue;
        };
        let meta = *batch.meta(slot);
        let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
        let session = shard.and_then(|shard| F::table_ref(shard).get(index).copied());
        let Some(session) = session else {
            lists.drop_packet(slot, EngineReason::Forgotten);
            continue;
        };
        let packet = Packet::<F> {
            slot,
            index,
            direction,
            ends: ends::<F>(&session, direction),
            session,
            meta,
            inspection,
            settings: inspection.settings,
        };
        ctx.counters.inspection.received.add(1);
        one(packet, batch, lists, ctx, work);
    }
}

/// Inspects one packet. The verdict applies only to the packet's slot.
fn one<F: Family>(
    mut packet: Packet<'_, F>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    work: &mut Inspector,
) {
    let (slot, meta) = (packet.slot, packet.meta);
    let tools = ctx.tools();
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    shard.load_rules(ctx.snapshot.inspected, ctx.now);
    // An ICMP error that quotes a packet of a flow contains no payload of the flow.
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return skip::<F>(slot, Skipped::IcmpError, lists, ctx.counters);
    }
    // Packets are not inspected if the verdict on their flow is final, or if they are shed because of overload.
    let open = match packet.session.inspect() {
        InspectState::Flow(handle) => Some(FlowHandle(handle)),
        InspectState::Nothing
        | InspectState::Enabled
        | InspectState::Bypassed
        | InspectState::Pending
        | InspectState::Remarked
        | InspectState::Denied(_) => None,
    };
    let decided = open
        .zip(shard.inspector.as_deref_mut())
        .and_then(|(handle, inspector)| inspector.decided_verdict(handle, ctx.now.nanoseconds));
    if let Some(verdict) = decided.or_else(|| shed(&mut packet, open, shard, work)) {
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    }
    if packet.session.inspect() == InspectState::Enabled
        && packet.inspection.bypass.iter().any(|class| class.has(&packet.ends))
    {
        let verdict = Verdict::Leave(Some(Skipped::Class));
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    }
    let Some(handle) = flow::<F>(shard, packet.index, &packet.session, ctx.now) else {
        // The pool of flow states is exhausted, so the out-of-memory policy applies.
        let verdict = match packet.settings.policy(Exception::NoMemory) {
            Policy::Pass => Verdict::Skip(Skipped::NoMemory),
            Policy::Bypass => Verdict::Leave(Some(Skipped::NoMemory)),
            Policy::DropPacket | Policy::DropFlow => Verdict::Drop(Reason::FlowsFull),
        };
        return finish(&packet, verdict, &[], shard, Some(batch), lists, &tools, work);
    };
    let frame = &mut batch.packets[slot as usize];
    let layers = &meta.layers;
    let (checksums, frame) = (frame.checksums(), frame.bytes_mut());
    let mut look = InspectContext {
        packet: &packet,
        handle,
        shard,
        now: ctx.now.nanoseconds,
        counters: ctx.counters,
        ends: &tools,
    };
    if layers.fragment != Fragment::Whole {
        let context = ctx.snapshot.context(&meta, frame);
        return fragment(&mut look, context, frame, lists, work);
    }
    let verdict = match checksums {
        Checksums::BadL4 => look.exception(Exception::BadChecksum),
        _ => {
            let facts = facts(layers, layers.datagram(frame), layers.payload(frame));
            look.inspect_payload(facts, layers.payload_mut(frame), &mut work.tools, &mut work.alerts)
        }
    };
    finish(&packet, verdict, &[], look.shard, Some(batch), lists, &tools, work);
}

/// Forwards a packet without inspection.
fn skip<F: Family>(slot: BufferIndex, cause: Skipped, lists: &mut Lists, counters: &WorkerCounters) {
    counters.bypass(cause, 1);
    forward::<F>(slot, lists);
}

/// Forwards a packet, and prevents a second inspection in this burst.
fn forward<F: Family>(slot: BufferIndex, lists: &mut Lists) {
    lists.passed |= 1 << (slot as usize % BURST_BUFFERS);
    put(lists.session_lookup.of::<F>(), slot);
}
