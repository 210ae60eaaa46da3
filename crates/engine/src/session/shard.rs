//! A shard: sessions, timers and port allocations. Only one worker at a time modifies a shard.

use sluice_inspect::Inspector;
use sluice_inspect::inspector::RulesetState;
use sluice_nat::Bindings;
use sluice_table::flow::FlowTable;
use sluice_table::wheel::Wheel;

use crate::packet::time::Now;
use crate::session::ip_id::IpIds;
use crate::session::record::{Session4, Session6};
use crate::session::rule_channel::{GRACE_PERIOD, RuleReceiver};

/// A shard of the session table.
pub struct Shard<'m> {
    /// Number of the shard.
    pub number: u16,
    /// IPv4 sessions.
    pub sessions4: FlowTable<'m, Session4>,
    /// IPv6 sessions.
    pub sessions6: FlowTable<'m, Session6>,
    /// Timers of IPv4 sessions.
    pub wheel4: Wheel,
    /// Timers of IPv6 sessions.
    pub wheel6: Wheel,
    /// Port allocations and mappings of IPv4 pools.
    pub bindings4: Bindings<'m, u32>,
    /// Port allocations and mappings of IPv6 pools.
    pub bindings6: Bindings<'m, [u64; 2]>,
    /// IP IDs of outbound IPv4 datagrams.
    pub numbers: IpIds,
    /// State of inspection, if configured.
    pub inspector: Option<Box<Inspector<'m>>>,
    /// Receiver of new inspection rule sets.
    pub renewals: Option<RuleReceiver<RulesetState>>,
}

impl<'m> Shard<'m> {
    /// Makes new flows use the inspection rules of a generation.
    #[inline(always)]
    pub fn load_rules(&mut self, generation: u32, now: Now) {
        if let Some(inspector) = &mut self.inspector
            && inspector.generation() != generation
        {
            self.renew_rules(generation, now);
        }
    }

    #[cold]
    fn renew_rules(&mut self, generation: u32, now: Now) {
        let (Some(inspector), Some(renewals)) = (&mut self.inspector, &mut self.renewals) else {
            return;
        };
        while let Some(ruleset) = renewals.take(generation) {
            if let Some(over) = inspector.replace_rules(ruleset, now.nanoseconds.saturating_add(GRACE_PERIOD)) {
                renewals.retire(over);
            }
        }
    }

    /// Retires earlier rules when no flow uses these rules any longer, or when their grace period is over.
    pub fn retire_rules(&mut self, now: Now) {
        let (Some(inspector), Some(renewals)) = (&mut self.inspector, &mut self.renewals) else {
            return;
        };
        if let Some(over) = inspector.retire_previous(now.nanoseconds) {
            renewals.retire(over);
        }
    }

    /// Number of IPv4 sessions, and number of IPv6 sessions.
    pub fn sessions(&self) -> [u64; 2] {
        [self.sessions4.len() as u64, self.sessions6.len() as u64]
    }
}
