//! Inspection, composed: what a commit says of it, what a worker has for it, and what it tells.

use arrayvec::ArrayVec;
use sluice_inspect::Reason;
use sluice_inspect::inspector::{DetectionContext, RuleNumber};
use sluice_inspect::signature::Action;

use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::session::records::About;
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
pub use overload::Load;
pub use parked::{FragmentNote, ParkedPackets, Released, ReleasedPacket};
pub use prefetch::FlowPrefetch;
pub use reassembly::Reassembly;

/// A rule has matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The packet, whose flow has a number.
    pub about: About,
    /// The rule.
    pub rule: RuleNumber,
    /// What was done about it.
    pub action: Action,
    /// Packets and bytes of the session so far, the client's first.
    pub packets: [u64; 2],
    /// As `packets`.
    pub bytes: [u64; 2],
}

/// The worker's end of its queue of alerts: bounded, and never waited for.
#[derive(Debug, Default)]
pub struct AlertQueue(Option<rtrb::Producer<Alert>>);

/// The other end.
pub type Alerts = rtrb::Consumer<Alert>;

impl AlertQueue {
    /// A queue for so many, with its other end.
    pub fn new(most: usize) -> (Self, Alerts) {
        let (producer, consumer) = rtrb::RingBuffer::new(most.max(1));
        (Self(Some(producer)), consumer)
    }

    /// Tell of one. What does not fit is counted and lost.
    pub fn push(&mut self, alert: Alert, counters: &WorkerCounters) {
        match self.0.as_mut().is_some_and(|queue| queue.push(alert).is_ok()) {
            true => counters.alerts.add(1),
            false => counters.alerts_lost.add(1),
        }
    }
}

/// What a worker inspects with.
pub struct Inspector {
    /// What rules are asked with.
    pub tools: Box<DetectionContext>,
    /// Of the rules that these are for, and those before.
    pub generation: u32,
    /// Where others come from.
    pub renewals: RuleReceiver<DetectionContext>,
    /// Fragments that wait.
    pub holding: ParkedPackets,
    /// Datagrams that are put together.
    pub assemblies: Reassembly,
    /// Whether the worker has more to do than it can.
    pub load: Load,
    /// Where alerts go.
    pub alerts: AlertQueue,
    /// Fragments in the hand that are to be parked, with their tickets.
    pub parking: ArrayVec<(BufferIndex, u32), BURST_BUFFERS>,
    /// Parked fragments that are to be dropped, by ticket, with room for all that wait.
    pub given_up: Vec<(u32, Reason)>,
}

impl Inspector {
    /// Ask rules of a generation.
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
            .field("holding", &self.holding)
            .finish_non_exhaustive()
    }
}
