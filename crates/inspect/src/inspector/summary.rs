//! What a flow is told of when it is spoken of: which it is, since when, and what became of it.

use super::{FlowAction, FlowHandle, Inspector, RuleNumber};
use crate::scope::Endpoints;
use crate::signature::Service;
use crate::transactions::{LoggedProtocols, TransactionRecorder, TransactionSink};

/// A flow's story so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowSummary {
    /// Which of its shard's it is, from 1: no other has had or will have this number.
    pub number: u64,
    /// When its first packet was looked at, and its last, in nanoseconds.
    pub seen: [u64; 2],
    /// The client's end of it, and the server's, as the first packet had them.
    pub ends: Option<Endpoints>,
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
    pub fn summary(&mut self, handle: FlowHandle) -> Option<FlowSummary> {
        let (flow, _) = self.flows.get(handle)?;
        Some(FlowSummary {
            service: flow.service,
            ..flow.summary
        })
    }

    /// A flow that was just opened begins with a packet between these ends, from the client's side, at a nanosecond.
    pub fn begin_flow(&mut self, handle: FlowHandle, ends: Endpoints, interface: u16, now: u64) {
        let number = self.next_number;
        if let Some((flow, _)) = self.flows.get(handle) {
            self.next_number += 1;
            flow.summary = FlowSummary {
                number,
                seen: [now; 2],
                ends: Some(ends),
                interface,
                ..FlowSummary::default()
            };
            self.rulesets.set_endpoints(flow);
        }
    }

    /// A flow was opened once more that had given way to others. Where a rule or an exception had ended it, it stays so.
    /// `begins`: where the data of its sides begin, the client's first, where the session knows it.
    pub fn resume_flow(&mut self, handle: FlowHandle, begins: Option<[u32; 2]>) {
        let Some((flow, _)) = self.flows.get(handle) else {
            return;
        };
        if let Some(ends) = &flow.summary.ends
            && self.closed_connections.has(ends, flow.summary.seen[1])
        {
            flow.action = FlowAction::Dropped;
        }
        if let Some(begins) = begins {
            self.streams.set_initial(flow.stream, begins);
        }
    }

    /// What a flow said and is not over is told: nothing more will come. To be called before it is closed.
    pub fn log_unfinished(&mut self, handle: FlowHandle, tell: TransactionSink<'_>) {
        if let Some((flow, _)) = self.flows.get(handle) {
            let mut noting = TransactionRecorder {
                logged: LoggedProtocols::default(),
                pool: &mut self.transactions,
                pending: &mut flow.transactions,
                flow: flow.summary.number,
                sink: tell,
            };
            noting.end();
        }
    }
}
