//! What a commit says of inspection.

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
