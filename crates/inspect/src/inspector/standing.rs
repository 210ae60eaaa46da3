//! Which flows stay: those whose clients have answered the server, as far as their source has a share.

use sluice_wire::Direction;
use sluice_wire::tcp::flag;

use super::flow::Standing;
use super::{FlowHandle, Inspector, Seen};
use crate::shares::Source;
use crate::stream::{self, Exception};

impl Inspector<'_> {
    /// A packet of a flow whose client may be forged: it stays once that answers the server.
    ///
    /// # Errors
    /// Its source has as many flows as it may.
    #[cold]
    pub(super) fn stand(&mut self, handle: FlowHandle, seen: &Seen<'_>) -> Result<(), Exception> {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Ok(());
        };
        if let Some(ends) = &flow.story.ends
            && seen.facts.tcp.is_some_and(|tcp| tcp.flags & flag::SYN != 0)
        {
            self.tombstones.remove(ends);
        }
        if seen.direction == Direction::Reverse {
            flow.standing = Standing::Replied;
            return Ok(());
        }
        let stream = flow.stream;
        let answers = match stream {
            stream::Handle::NONE => flow.standing == Standing::Replied,
            stream => seen.own_side && self.streams.answers(stream, seen.segment),
        };
        if !answers {
            return Ok(());
        }
        let source = Source::of(seen.ends.source, &self.hasher);
        flow.source = source;
        if !self.flows.assure(handle) {
            return Err(Exception::SourceFull);
        }
        self.streams.count_for(stream, source);
        Ok(())
    }

    /// Whether a flow goes on where a connection was reset, closed or dropped.
    #[cold]
    pub(super) fn is_over(&mut self, handle: FlowHandle) -> bool {
        let flow = self.flows.get(handle);
        flow.is_some_and(|(flow, _)| match &flow.story.ends {
            Some(ends) => self.tombstones.has(ends, flow.story.seen[1]),
            None => false,
        })
    }
}
