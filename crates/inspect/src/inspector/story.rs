//! What a flow is told of when it is spoken of: which it is, since when, and what became of it.

use super::{Fate, FlowHandle, Inspector, RuleNumber};
use crate::scope::Ends;
use crate::signature::Service;
use crate::transactions::{Noting, Tell, Wanted};

/// A flow's story so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Story {
    /// Which of its shard's it is, from 1: no other has had or will have this number.
    pub number: u64,
    /// When its first packet was looked at, and its last, in nanoseconds.
    pub seen: [u64; 2],
    /// The client's end of it, and the server's, as the first packet had them.
    pub ends: Option<Ends>,
    /// Interface that its first packet came in by.
    pub interface: u16,
    /// A rule has reported.
    pub alerted: bool,
    /// The rule that ended it.
    pub ended_by: Option<RuleNumber>,
    /// The application.
    pub service: Option<Service>,
}

impl Inspector<'_> {
    /// A flow's story; none where there is no such flow.
    pub fn story(&mut self, handle: FlowHandle) -> Option<Story> {
        let (flow, _) = self.flows.get(handle)?;
        Some(Story {
            service: flow.service,
            ..flow.story
        })
    }

    /// A flow that was just opened begins with a packet between these ends, from the client's side, at a nanosecond.
    pub fn introduce(&mut self, handle: FlowHandle, ends: Ends, interface: u16, now: u64) {
        let number = self.next_number;
        if let Some((flow, _)) = self.flows.get(handle) {
            self.next_number += 1;
            flow.story = Story {
                number,
                seen: [now; 2],
                ends: Some(ends),
                interface,
                ..Story::default()
            };
            self.books.introduce(flow);
        }
    }

    /// A flow was opened once more that had given way to others. Where a rule or an exception had ended it, it stays so.
    /// `begins`: where the data of its sides begin, the client's first, where the session knows it.
    pub fn resume(&mut self, handle: FlowHandle, begins: Option<[u32; 2]>) {
        let Some((flow, _)) = self.flows.get(handle) else {
            return;
        };
        if let Some(ends) = &flow.story.ends
            && self.tombstones.has(ends, flow.story.seen[1])
        {
            flow.fate = Fate::Dropped;
        }
        if let Some(begins) = begins {
            self.streams.begin(flow.stream, begins);
        }
    }

    /// What a flow said and is not over is told: nothing more will come. To be called before it is closed.
    pub fn tell_unfinished(&mut self, handle: FlowHandle, tell: Tell<'_>) {
        if let Some((flow, _)) = self.flows.get(handle) {
            let mut noting = Noting {
                wanted: Wanted::default(),
                pool: &mut self.transactions,
                pending: &mut flow.pending,
                flow: flow.story.number,
                tell,
            };
            noting.end();
        }
    }
}
