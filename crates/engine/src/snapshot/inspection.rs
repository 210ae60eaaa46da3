//! Inspection settings of a commit.

use std::sync::Arc;

use sluice_inspect::Ruleset;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::Settings;
use sluice_inspect::stream::{Exception, Policy};
use sluice_wire::Fault;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Fragment, Layers};
use sluice_wire::tcp::flag::{RST, SYN};

use crate::session::records::Records;
use crate::snapshot::fragment_limits::ReassemblyLimits;
use crate::snapshot::overload::{Class, Overload};

/// Inspection settings of a commit.
#[derive(Clone, Debug)]
pub struct InspectionPolicy {
    /// Settings of the inspector.
    pub settings: Settings,
    /// Number of rule matches by host, shared by all workers.
    pub rates: Arc<HostTable>,
    /// The rules to evaluate.
    pub rules: Arc<Ruleset>,
    /// Maximum number of alerts in each worker's queue.
    pub alerts: usize,
    /// Log records to write in addition to alerts.
    pub records: Records,
    /// For each interface: whether inspection applies to flows whose packets arrive on the interface or leave through
    /// it.
    pub interfaces: Vec<bool>,
    /// Limits of datagram reassembly in each worker.
    pub fragments: ReassemblyLimits,
    /// Actions while a worker is overloaded.
    pub overload: Overload,
    /// Classes of flows that are never inspected. The overload actions of these classes are ignored.
    pub bypass: Vec<Class>,
}

impl InspectionPolicy {
    /// Whether the flows of an interface are inspected.
    #[inline(always)]
    pub fn is_on(&self, interface: u16) -> bool {
        self.interfaces.get(interface as usize).is_some_and(|&on| on)
    }

    /// Whether a TCP segment may create a session for a connection that started earlier. The session is inspected
    /// midstream.
    pub fn accepts_midstream(&self, layers: &Layers) -> bool {
        let said = self.settings.policy(Exception::Midstream);
        layers.protocol == TCP
            && matches!(said, Policy::Pass | Policy::Bypass)
            // A SYN-ACK or a reset does not show which endpoint opened the connection.
            && layers.tcp_flags & (SYN | RST) == 0
            && layers.fragment != Fragment::Later
    }

    /// Whether a bridge forwards a frame that can't be parsed for inspection.
    pub fn passes_unparsable(&self) -> bool {
        matches!(
            self.settings.policy(Exception::Unparsable),
            Policy::Pass | Policy::Bypass
        )
    }

    /// Whether packets with a wrong checksum are passed to inspection. If the policy is to drop such packets, they are
    /// dropped earlier.
    pub fn takes_wrong_checksums(&self, reason: Fault) -> bool {
        let said = self.settings.policies.of(Exception::BadChecksum);
        reason == Fault::BadTransportChecksum && said != Policy::DropPacket
    }
}
