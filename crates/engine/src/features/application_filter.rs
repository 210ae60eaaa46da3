//! Filter results that depend on the application of a session.

use sluice_filter::{SessionApplication, SessionMarking, TrafficClass};
use sluice_inspect::applications::ProtocolPair;
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;

use crate::features::filter;
use crate::features::inspection::InspectState;
use crate::features::session_end::{SessionTools, uninspect};
use crate::packet::adjacency::AdjacencyIndex;
use crate::session::application::Application;
use crate::session::family::{Family, Session};
use crate::session::records::EndReason;
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;
use crate::snapshot::marks::{class_of, of_class};

/// Whether the filter was already evaluated with the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationCheck {
    /// The first evaluation. The first evaluation increments hit counters of rules.
    First,
    /// A repeated evaluation. A repeated evaluation does not increment hit counters of rules.
    Again,
}

/// Applies the filter's result for the application of a session. Later packets of the session are then dropped, or are
/// no longer dropped.
pub fn apply_application<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    snapshot: &Snapshot,
    queried: ApplicationCheck,
    tools: &SessionTools<'_>,
) {
    let Some(session) = F::table_ref(shard).get(index).copied() else {
        return;
    };
    let is_denied = matches!(session.inspect(), InspectState::Denied(_));
    let known = filter::known_application::<F>(&session, tools.recognition);
    let counting = (queried == ApplicationCheck::First).then_some(tools.now.nanoseconds);
    let mark = mark_of::<F>(snapshot, shard.number, index);
    let mut marking = None;
    let refuses =
        filter::rejects_application::<F>(snapshot, tools.forwarding, (&session, mark), known, counting, |set| {
            marking = Some(set)
        });
    if let Some(marking) = marking {
        mark_again::<F>(shard, index, snapshot, marking);
    }
    let now = match refuses {
        Some(with) => InspectState::Denied(with),
        None if !is_denied => return,
        // The inspector did not get the packets that were dropped so far, so inspection continues midstream.
        None if is_inspected(snapshot, &session, session.adjacency(Direction::Forward)) => InspectState::Enabled,
        None if class_of_session::<F>(snapshot, shard.number, index).is_some() => InspectState::Remarked,
        None => InspectState::Nothing,
    };
    if !is_denied {
        uninspect::<F>(shard, &session, EndReason::Forced, tools);
    }
    if let Some(session) = F::table(shard).get_mut(index) {
        if let Some(SessionApplication {
            master, application, ..
        }) = known
        {
            session.set_application(Application::Known(ProtocolPair { master, application }));
        }
        session.set_inspect(now);
    }
}

pub(super) fn is_inspected<F: Family>(snapshot: &Snapshot, session: &impl Session<F>, there: AdjacencyIndex) -> bool {
    let inspection = snapshot.inspection.as_deref();
    inspection.is_some_and(|on| on.is_on(session.interface()) || on.is_on(there.interface() as u16))
}

/// When the application of a session is known, sets the mark and the class that the rules assign to this application.
fn mark_again<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, snapshot: &Snapshot, marking: SessionMarking) {
    if let Some(marks) = snapshot.marks.as_deref() {
        marks.set::<F>(shard.number, index, marking.mark);
    }
    if let (Some(code_points), false) = (snapshot.code_points.as_deref(), marking.class.is_any()) {
        let before = class_of(code_points.get::<F>(shard.number, index)).unwrap_or_default();
        code_points.set::<F>(shard.number, index, of_class(marking.class.over(before)));
        if let Some(session) = F::table(shard).get_mut(index) {
            session.remark();
        }
    }
}

/// The traffic class that rules have set for a session.
fn class_of_session<F: Family>(snapshot: &Snapshot, shard: u16, index: RecordIndex) -> Option<TrafficClass> {
    let code_points = snapshot.code_points.as_deref()?;
    class_of(code_points.get::<F>(shard, index))
}

/// The mark of a session.
pub(crate) fn mark_of<F: Family>(snapshot: &Snapshot, shard: u16, index: RecordIndex) -> u32 {
    snapshot
        .marks
        .as_deref()
        .map_or(0, |marks| marks.get::<F>(shard, index))
}
