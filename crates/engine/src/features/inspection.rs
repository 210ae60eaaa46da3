//! Inspection: the policy of a commit, the state of a worker, and its alerts.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{DetectionContext, RuleNumber, Settings};
use sluice_inspect::signature::Action;
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::{Reason, Ruleset};
use sluice_wire::Fault;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Fragment, Layers};
use sluice_wire::tcp::flag::{RST, SYN};

use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::session::records::{About, Records};

pub mod classification;
mod divert;
mod overload;
mod parked;
mod prefetch;
pub mod reassembly;
pub mod rule_updates;

pub use crate::session::inspect_state::InspectState;
pub use divert::divert;
pub use overload::{Class, Load, Overload, Shed};
pub use parked::{FragmentNote, ParkedPackets, Released, ReleasedPacket};
pub use prefetch::FlowPrefetch;
pub use reassembly::{Reassembly, ReassemblyLimits};
use rule_updates::RuleReceiver;

/// Inspection settings of a commit.
#[derive(Clone, Debug)]
pub struct InspectionPolicy {
    /// Settings of inspection.
    pub settings: Settings,
    /// Rates of rule matches, shared by all workers.
    pub rates: Arc<HostTable>,
    /// The active rules.
    pub rules: Arc<Ruleset>,
    /// Capacity of each worker's alert queue.
    pub alerts: usize,
    /// Records other than alerts.
    pub records: Records,
    /// By interface: whether flows that enter or leave through it are inspected.
    pub interfaces: Vec<bool>,
    /// Limits of the reassembly of fragmented datagrams, per worker.
    pub fragments: ReassemblyLimits,
    /// Overload policy.
    pub overload: Overload,
    /// Classes of flows that are not inspected. Their overload policy is not used.
    pub bypass: Vec<Class>,
}

impl InspectionPolicy {
    /// Whether an interface's flows are inspected.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }

    /// Whether a TCP segment may create a session midstream, so that inspection applies its midstream policy.
    pub fn accepts_midstream(&self, layers: &Layers) -> bool {
        let said = self.settings.policy(Exception::Midstream);
        layers.protocol == TCP
            && matches!(said, Policy::Pass | Policy::Bypass)
            // A SYN-ACK or reset doesn't tell which side is the client.
            && layers.tcp_flags & (SYN | RST) == 0
            && layers.fragment != Fragment::Later
    }

    /// Whether unparsable frames pass a bridge.
    pub fn passes_unparsable(&self) -> bool {
        matches!(
            self.settings.policy(Exception::Unparsable),
            Policy::Pass | Policy::Bypass
        )
    }

    /// Whether packets with a wrong checksum reach inspection. If the policy is to drop the packet, it is dropped earlier.
    pub fn takes_wrong_checksums(&self, reason: Fault) -> bool {
        let said = self.settings.policies.of(Exception::BadChecksum);
        reason == Fault::BadTransportChecksum && said != Policy::DropPacket
    }
}

/// A rule match that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The packet, with the number of its flow.
    pub about: About,
    /// The rule that has matched.
    pub rule: RuleNumber,
    /// The action taken because of the match.
    pub action: Action,
    /// Packets of the session so far, the client's first.
    pub packets: [u64; 2],
    /// Bytes of the session so far, the client's first.
    pub bytes: [u64; 2],
}

/// The worker's end of its alert queue, which is bounded and never blocks.
#[derive(Debug, Default)]
pub struct AlertQueue(Option<rtrb::Producer<Alert>>);

/// The logger's end of the alert queue.
pub type Alerts = rtrb::Consumer<Alert>;

impl AlertQueue {
    /// An alert queue of this capacity, and its consumer.
    pub fn new(most: usize) -> (Self, Alerts) {
        let (producer, consumer) = rtrb::RingBuffer::new(most.max(1));
        (Self(Some(producer)), consumer)
    }

    /// Queue an alert. Alerts that don't fit are counted as lost.
    pub fn push(&mut self, alert: Alert, counters: &WorkerCounters) {
        match self.0.as_mut().is_some_and(|queue| queue.push(alert).is_ok()) {
            true => counters.alerts.add(1),
            false => counters.alerts_lost.add(1),
        }
    }
}

/// Inspection state of a worker.
pub struct Inspector {
    /// Pattern matching and rule evaluation.
    pub tools: Box<DetectionContext>,
    /// Generation of the rules in use.
    pub generation: u32,
    /// Receives new rules.
    pub renewals: RuleReceiver<DetectionContext>,
    /// Parked fragments.
    pub holding: ParkedPackets,
    /// Reassembly of datagrams.
    pub assemblies: Reassembly,
    /// Overload state of the worker.
    pub load: Load,
    /// Queue of alerts.
    pub alerts: AlertQueue,
    /// Fragments of the current burst that are to be parked, with their tickets.
    pub parking: ArrayVec<(BufferIndex, u32), BURST_BUFFERS>,
    /// Tickets of parked fragments that are to be dropped, with capacity for all that wait.
    pub given_up: Vec<(u32, Reason)>,
}

impl Inspector {
    /// Use the rules of a generation.
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
