//! identify: passes packets to nDPI while the application of their session is being identified. The node processes
//! packets before their translation. When the application is known, the filter is evaluated again.

use sluice_wire::Direction;
use sluice_wire::layers::Flags;

use crate::features::application_filter::{ApplicationCheck, apply_application};
use crate::features::context::NodeContext;
use crate::features::inspection::InspectState;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::Lists;
use crate::session::family::{Family, Session};
use crate::session::identification::{Application, IdentificationResult, IdentifiedSession};
use crate::session::shard::Shard;
use sluice_inspect::applications::ProtocolPair;
use sluice_table::flow::RecordIndex;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "identify",
    help: "identifies the applications of sessions",
    stage: Some(CycleStage::Inspect),
    leaves: &[],
    exits: &[Exit::new("session-lookup", "", needs::IDENTIFIED)],
};

/// Identifies applications.
#[inline(never)]
pub fn identify<F: Family>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for (slot, index, direction) in std::mem::take(lists.identify.of::<F>()) {
        lists.identified |= 1 << (slot as usize % BURST_BUFFERS);
        let meta = *batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        // An ICMP error that quotes a packet of a flow contains no payload of the flow.
        if !meta.layers.flags.has(Flags::ICMP_ERROR) {
            one::<F>(&meta, frame, index, direction, ctx);
        }
        put(lists.session_lookup.of::<F>(), slot);
    }
}

fn one<F: Family>(meta: &Meta, frame: &[u8], index: RecordIndex, direction: Direction, ctx: &mut NodeContext<'_, '_>) {
    let tools = ctx.tools();
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut);
    let Some((shard, session)) = shard.and_then(|shard| {
        let session = *F::table_ref(shard).get(index)?;
        Some((shard, session))
    }) else {
        return;
    };
    let identified = IdentifiedSession {
        shard: meta.shard,
        v6: F::IS_V6,
        index,
    };
    let place = match session.application() {
        Application::Enabled => ctx.recognition.open(identified, ctx.counters),
        Application::Pending(place) => Some(place),
        // An earlier packet of this burst has completed the identification.
        Application::Nothing | Application::Known(_) => return,
    };
    let (packet, now) = (meta.layers.datagram(frame), ctx.now.nanoseconds);
    let look = |place| ctx.recognition.inspect(place, packet, direction, now, ctx.counters);
    // If no identification state can be allocated, the application stays unknown.
    let said = place.and_then(look).unwrap_or(IdentificationResult {
        pair: ProtocolPair::default(),
        is_new: false,
        is_over: true,
    });
    match place {
        Some(place) if !said.is_over => set::<F>(shard, index, Application::Pending(place)),
        _ => set::<F>(shard, index, Application::Known(said.pair)),
    }
    if said.is_new || said.is_over {
        apply_application::<F>(shard, index, ctx.snapshot, ApplicationCheck::First, &tools);
    }
}

/// Stores the application of a session. If the application is final, and no other node needs the session's packets,
/// later packets bypass this node.
pub fn set<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, application: Application) {
    let Some(session) = F::table(shard).get_mut(index) else {
        return;
    };
    session.set_application(application);
    if !application.is_open() && session.inspect() == InspectState::Pending {
        session.set_inspect(InspectState::Nothing);
    }
}
