//! Flow summary for logs: identity, time of the first and last packet, and outcome.

use super::{FlowAction, FlowHandle, Inspector, RuleNumber};
use crate::scope::Endpoints;
use crate::signature::Service;
use crate::transactions::{LoggedProtocols, TransactionRecorder, TransactionSink};

/// Summary of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowSummary {
    /// Number of the flow in its shard. Numbers start at 1 and are never reused.
    pub number: u64,
    /// Time of the first and the last inspected packet in nanoseconds.
    pub seen: [u64; 2],
    /// Endpoints of the first packet from the client's side.
    pub ends: Option<Endpoints>,
    /// Interface on which the first packet arrived.
    pub interface: u16,
    /// Whether a rule match in this flow was reported.
    pub alerted: bool,
    /// The rule that ended the flow.
    pub ended_by: Option<RuleNumber>,
    /// Application of the flow, if identified.
    pub service: Option<Service>,
}

impl Inspector<'_> {
    /// Summary of a flow; `None` if the flow does not exist.
    pub fn summary(&mut self, handle: FlowHandle) -> Option<FlowSummary> {
        let (flow, _) = self.flows.get(handle)?;
        Some(FlowSummary {
            service: flow.service,
            ..flow.summary
        })
    }

    /// Initialises a new flow. `ends` contains the endpoints of the flow's first packet, with the client as the source.
    /// The time is in nanoseconds.
    pub fn start_flow(&mut self, handle: FlowHandle, ends: Endpoints, interface: u16, now: u64) {
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

    /// Restores the state of a flow that was evicted and is created again. A connection that a rule or an exception had
    /// dropped stays dropped. `starts`: sequence numbers at which the data of client and server start, if the session
    /// has them.
    pub fn resume_flow(&mut self, handle: FlowHandle, starts: Option<[u32; 2]>) {
        let Some((flow, _)) = self.flows.get(handle) else {
            return;
        };
        if let Some(ends) = &flow.summary.ends
            && self.closed_connections.has(ends, flow.summary.seen[1])
        {
            flow.action = FlowAction::Dropped;
        }
        if let Some(starts) = starts {
            self.streams.set_initial(flow.stream, starts);
        }
    }

    /// Logs the incomplete transactions of a flow, because no more data will arrive. The function must be called before
    /// the flow is removed.
    pub fn log_unfinished(&mut self, handle: FlowHandle, report: TransactionSink<'_>) {
        if let Some((flow, _)) = self.flows.get(handle) {
            let mut recorder = TransactionRecorder {
                logged: LoggedProtocols::default(),
                pool: &mut self.transactions,
                pending: &mut flow.transactions,
                flow: flow.summary.number,
                sink: report,
            };
            recorder.end();
        }
    }
}
