//! Inspection: the policy of a commit, the state of a worker, and its alerts.

use arrayvec::ArrayVec;
use sluice_inspect::Reason;
use sluice_inspect::inspector::{DetectionContext, RuleNumber};
use sluice_inspect::signature::Action;

use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::session::records::RecordSubject;
use crate::session::rule_channel::RuleReceiver;

pub mod classification;
mod divert;
mod overload;
mod parked;
mod prefetch;
pub mod reassembly;
pub mod rule_updates;

pub use crate::session::inspect_state::InspectState;
pub use crate::snapshot::fragment_limits::ReassemblyLimits;
pub use crate::snapshot::inspection::InspectionPolicy;
pub use crate::snapshot::overload::{Class, Overload, Shed};
pub use divert::divert;
pub use overload::OverloadState;
pub use parked::{FragmentNote, ParkedPackets, Released, ReleasedPacket};
pub use prefetch::FlowPrefetch;
pub use reassembly::Reassembly;

/// A match of an inspection rule, as reported in an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The packet that matched, and the number of its flow.
    pub about: RecordSubject,
    /// Number of the rule that matched.
    pub rule: RuleNumber,
    /// The action taken because of the match.
    pub action: Action,
    /// Number of packets from the client and from the server so far.
    pub packets: [u64; 2],
    /// Number of bytes from the client and from the server so far.
    pub bytes: [u64; 2],
}

/// The worker's producer of its alert queue. The queue is bounded, and the worker never blocks on it.
#[derive(Debug, Default)]
pub struct AlertQueue(Option<rtrb::Producer<Alert>>);

/// The logger's consumer of the alert queue.
pub type Alerts = rtrb::Consumer<Alert>;

impl AlertQueue {
    /// Creates an alert queue of this capacity, and its consumer.
    pub fn new(max: usize) -> (Self, Alerts) {
        let (producer, consumer) = rtrb::RingBuffer::new(max.max(1));
        (Self(Some(producer)), consumer)
    }

    /// Queues an alert. If the queue is full, the alert is counted as lost.
    pub fn push(&mut self, alert: Alert, counters: &WorkerCounters) {
        match self.0.as_mut().is_some_and(|queue| queue.push(alert).is_ok()) {
            true => counters.inspection.alerts.add(1),
            false => counters.inspection.alerts_lost.add(1),
        }
    }
}

/// Inspection state of a worker.
pub struct Inspector {
    /// State for pattern matching and rule evaluation.
    pub tools: Box<DetectionContext>,
    /// Generation of the rules that are in use.
    pub generation: u32,
    /// Receiver of new rules.
    pub renewals: RuleReceiver<DetectionContext>,
    /// Parked packets, which are fragments of incomplete datagrams.
    pub parked_packets: ParkedPackets,
    /// Reassembly of fragmented datagrams.
    pub assemblies: Reassembly,
    /// Whether the worker is overloaded.
    pub load: OverloadState,
    /// Queue of alerts.
    pub alerts: AlertQueue,
    /// Fragments of the current burst that will be parked, with their tickets.
    pub parking: ArrayVec<(BufferIndex, u32), BURST_BUFFERS>,
    /// Tickets of parked fragments that will be dropped. The capacity suffices for all parked fragments.
    pub expired: Vec<(u32, Reason)>,
}

impl Inspector {
    /// Switches to the rules of a generation.
    #[inline(always)]
    pub fn follow(&mut self, generation: u32) {
        if self.generation != generation {
            self.renew(generation);
        }
    }

    #[cold]
    fn renew(&mut self, generation: u32) {
        while let Some(tools) = self.renewals.take(generation) {
            let before = std::mem::replace(&mut self.tools, tools);
            self.renewals.retire(before);
        }
        self.generation = generation;
    }
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspecting")
            .field("holding", &self.parked_packets)
            .finish_non_exhaustive()
    }
}
