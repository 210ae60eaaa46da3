//! Inspection flows of sessions.

use sluice_inspect::inspector::FlowHandle;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol;

use crate::features::inspection::InspectState;
use crate::features::inspection::classification::ends;
use crate::packet::time::Now;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;

/// The inspection flow of a session. The flow is created if it does not exist.
pub(super) fn flow<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    session: &F::Session,
    now: Now,
) -> Option<FlowHandle> {
    let inspector = shard.inspector.as_deref_mut()?;
    let was_evicted = match session.inspect() {
        InspectState::Flow(handle) if inspector.contains(FlowHandle(handle)) => return Some(FlowHandle(handle)),
        InspectState::Flow(_) => true,
        InspectState::Enabled => false,
        InspectState::Nothing
        | InspectState::Bypassed
        | InspectState::Pending
        | InspectState::Remarked
        | InspectState::Denied(_) => return None,
    };
    let handle = inspector.create_flow(session.protocol() == protocol::TCP)?;
    let client = ends::<F>(session, Direction::Forward);
    inspector.start_flow(handle, client, session.interface(), now.nanoseconds);
    if was_evicted {
        inspector.resume_flow(handle, session.track().tracking.initial_sequences());
    }
    F::table(shard)
        .get_mut(index)?
        .set_inspect(InspectState::Flow(handle.0));
    Some(handle)
}
