//! A shard: the sessions, timers and port leases that one worker at a time writes.

use sluice_nat::{Ports, Secret, Shards};
use sluice_table::flow::{FlowTable, RecordIndex, Refused};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_table::wheel::Wheel;

use crate::family::{Family, Session};
use crate::session::{Session4, Session6};

/// One shard.
pub struct Shard<'m> {
    /// Its number.
    pub number: u16,
    /// IPv4 sessions.
    pub sessions4: FlowTable<'m, Session4>,
    /// IPv6 sessions.
    pub sessions6: FlowTable<'m, Session6>,
    /// Timers of both.
    pub wheel4: Wheel<'m>,
    /// Timers of IPv6 sessions.
    pub wheel6: Wheel<'m>,
    /// Port leases.
    pub ports4: Ports<'m, u32>,
    /// Port leases of IPv6 pools.
    pub ports6: Ports<'m, [u64; 2]>,
}
