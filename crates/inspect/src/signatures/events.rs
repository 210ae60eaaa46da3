//! Options that test events: `app-layer-event`, `stream-event`.

use super::RuleError;
use super::draft::SignatureDraft;
use crate::protocols::Anomaly;
use crate::signature::{Condition, Event};
use crate::stream::StreamEvent;

/// `app-layer-event:http.invalid_request_chunk_len`.
pub(super) fn of_message(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let events: Box<_> = Anomaly::of_event(value)
        .map(|(anomaly, toward)| Event::Anomaly(anomaly, Some(toward)))
        .collect();
    if events.is_empty() {
        return Err(RuleError::PartNotInspected(value.into()));
    }
    draft.push(Condition::Event(events));
    Ok(())
}

/// `stream-event:est_packet_out_of_window`.
pub(super) fn of_stream(draft: &mut SignatureDraft, value: &str) -> Result<(), RuleError> {
    let event = StreamEvent::named(value).ok_or_else(|| RuleError::PartNotInspected(value.into()))?;
    draft.push(Condition::Event(Box::new([Event::Stream(event)])));
    Ok(())
}
