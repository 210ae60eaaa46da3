//! Decides which flows become assured. A flow becomes assured when its client answers the server, within the quota of
//! the flow's source.

use sluice_wire::Direction;
use sluice_wire::tcp::flag;

use super::flow::ReplyStatus;
use super::{FlowHandle, FlowPacket, Inspector};
use crate::source_quota::Source;
use crate::stream::{self, Exception};

impl Inspector<'_> {
    /// Updates the reply status of a flow with a possibly spoofed client address. The flow becomes assured when the
    /// client answers the server.
    ///
    /// # Errors Returns an error if the source has reached its quota of flows.
    #[cold]
    pub(super) fn update_reply_status(&mut self, handle: FlowHandle, seen: &FlowPacket<'_>) -> Result<(), Exception> {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Ok(());
        };
        if let Some(ends) = &flow.summary.ends
            && seen.fields.tcp.is_some_and(|tcp| tcp.flags & flag::SYN != 0)
        {
            self.closed_connections.remove(ends);
        }
        if seen.direction == Direction::Reverse {
            flow.reply_status = ReplyStatus::Replied;
            return Ok(());
        }
        let stream = flow.stream;
        let answers = match stream {
            stream::StreamHandle::NONE => flow.reply_status == ReplyStatus::Replied,
            stream => seen.own_side && self.streams.acknowledges_server(stream, seen.segment),
        };
        if !answers {
            return Ok(());
        }
        let source = Source::of(seen.ends.source, &self.hasher);
        flow.source = source;
        if !self.flows.mark_assured(handle) {
            return Err(Exception::SourceFull);
        }
        self.streams.set_source(stream, source);
        Ok(())
    }

    /// Whether a flow continues a connection that was reset, closed or dropped before.
    #[cold]
    pub(super) fn is_closed(&mut self, handle: FlowHandle) -> bool {
        let flow = self.flows.get(handle);
        flow.is_some_and(|(flow, _)| match &flow.summary.ends {
            Some(ends) => self.closed_connections.has(ends, flow.summary.seen[1]),
            None => false,
        })
    }
}
