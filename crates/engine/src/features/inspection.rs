//! Inspection, composed: what a commit says of it, what a worker has for it, and what it tells.

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

/// What a commit says.
#[derive(Clone, Debug)]
pub struct InspectionPolicy {
    /// What is configured.
    pub settings: Settings,
    /// How often rules matched, for all workers.
    pub rates: Arc<HostTable>,
    /// The rules in force.
    pub rules: Arc<Ruleset>,
    /// Alerts that wait in each worker's queue at most.
    pub alerts: usize,
    /// Records beside them.
    pub records: Records,
    /// By interface: flows that come or go by it are inspected.
    pub interfaces: Vec<bool>,
    /// Datagrams in fragments that each worker puts together.
    pub fragments: ReassemblyLimits,
    /// What is done while a worker has more to do than it can.
    pub overload: Overload,
    /// Classes of flows that are not inspected: what they say of overload does not matter.
    pub bypass: Vec<Class>,
}

impl InspectionPolicy {
    /// Whether an interface's flows are inspected.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }

    /// Whether a TCP segment may begin the session of a connection whose beginning was not seen, for inspection to say what
    /// becomes of it.
    pub fn accepts_midstream(&self, layers: &Layers) -> bool {
        let said = self.settings.policy(Exception::Midstream);
        layers.protocol == TCP
            && matches!(said, Policy::Pass | Policy::Bypass)
            // An answer to a SYN, or a reset, says nothing about who called.
            && layers.tcp_flags & (SYN | RST) == 0
            && layers.fragment != Fragment::Later
    }

    /// Whether a frame that no rule can look into goes on over a bridge.
    pub fn passes_unparsable(&self) -> bool {
        matches!(
            self.settings.policy(Exception::Unparsable),
            Policy::Pass | Policy::Bypass
        )
    }

    /// Whether a packet with a wrong checksum comes to inspection at all: it is dropped before, unless something else is
    /// to be done about it.
    pub fn takes_wrong_checksums(&self, reason: Fault) -> bool {
        let said = self.settings.policies.of(Exception::BadChecksum);
        reason == Fault::BadTransportChecksum && said != Policy::DropPacket
    }
}

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
