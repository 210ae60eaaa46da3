//! A shard: the sessions, timers and port leases that one worker at a time writes.

use sluice_inspect::Inspector;
use sluice_inspect::inspector::RulesetState;
use sluice_nat::Bindings;
use sluice_table::flow::FlowTable;
use sluice_table::wheel::Wheel;

use crate::packet::time::Now;
use crate::session::ip_id::IpIds;
use crate::session::record::{Session4, Session6};
use crate::session::rule_channel::{GRACE_PERIOD, RuleReceiver};

/// One shard.
pub struct Shard<'m> {
    /// Its number.
    pub number: u16,
    /// IPv4 sessions.
    pub sessions4: FlowTable<'m, Session4>,
    /// IPv6 sessions.
    pub sessions6: FlowTable<'m, Session6>,
    /// Timers of IPv4 sessions.
    pub wheel4: Wheel,
    /// Timers of IPv6 sessions.
    pub wheel6: Wheel,
    /// What IPv4 pools have lent.
    pub bindings4: Bindings<'m, u32>,
    /// What IPv6 pools have lent.
    pub bindings6: Bindings<'m, [u64; 2]>,
    /// Identifications of IPv4 datagrams that leave.
    pub numbers: IpIds,
    /// Inspection, where there is any.
    pub inspector: Option<Box<Inspector<'m>>>,
    /// Where other rules come from.
    pub renewals: Option<RuleReceiver<RulesetState>>,
}

impl<'m> Shard<'m> {
    /// Let new flows be inspected by rules of a generation.
    #[inline(always)]
    pub fn follow_rules(&mut self, generation: u32, now: Now) {
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
        while let Some(book) = renewals.take(generation) {
            if let Some(over) = inspector.replace_rules(book, now.nanoseconds.saturating_add(GRACE_PERIOD)) {
                renewals.retire(over);
            }
        }
    }

    /// Let go of rules that no flow goes by any more, or not for longer.
    pub fn retire_rules(&mut self, now: Now) {
        let (Some(inspector), Some(renewals)) = (&mut self.inspector, &mut self.renewals) else {
            return;
        };
        if let Some(over) = inspector.retire_previous(now.nanoseconds) {
            renewals.retire(over);
        }
    }

    /// Sessions of IPv4 and IPv6.
    pub fn sessions(&self) -> [u64; 2] {
        [self.sessions4.len() as u64, self.sessions6.len() as u64]
    }
}
