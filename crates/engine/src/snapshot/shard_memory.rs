//! Sizes of a shard's memory, and creation of an empty shard in this memory.

use std::sync::Arc;

use sluice_inspect::Inspector;
use sluice_nat::ports::TooSmall;
use sluice_nat::{Bindings, Secret};
use sluice_table::flow::{FlowTable, TableSizeError};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_table::wheel::Wheel;

use crate::packet::time::Now;
use crate::session::family::{V4, V6};
use crate::session::ip_id::{IpIdCounters, IpIds};
use crate::session::record::{Session4, Session6};
use crate::session::shard::Shard;
use crate::snapshot::{Snapshot, StartParameters};

/// Reason for which a shard can't be created.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The memory is too small for the session tables.
    #[error(transparent)]
    Table(#[from] TableSizeError),
    /// The memory is too small for the pools.
    #[error(transparent)]
    Ports(#[from] TooSmall),
    /// The memory for inspection can't be allocated.
    #[error(transparent)]
    Inspection(#[from] sluice_inspect::inspector::Error),
    /// The memory for pattern matching can't be allocated.
    #[error(transparent)]
    Search(#[from] sluice_inspect::bindings::vectorscan::Error),
}

/// Sizes of the memory of one shard, in 64-byte lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMemory {
    /// Lines for IPv4 sessions.
    pub sessions4: usize,
    /// Lines for IPv6 sessions.
    pub sessions6: usize,
    /// Lines for ports and mappings of IPv4 pools.
    pub bindings4: usize,
    /// Lines for ports and mappings of IPv6 pools.
    pub bindings6: usize,
    /// Lines for inspected streams.
    pub streams: usize,
}

impl ShardMemory {
    /// The sizes for one shard, according to `start`. The ports of IPv4 pools include space for the spare addresses.
    pub fn of(start: &StartParameters, snapshot: &Snapshot) -> Self {
        let [v4, v6] = start.sessions_per_shard();
        Self {
            sessions4: FlowTable::<Session4>::lines_for(v4),
            sessions6: FlowTable::<Session6>::lines_for(v6),
            bindings4: Bindings::lines(
                &snapshot.leases.v4,
                start.spare_addresses,
                &start.capacity::<V4>(snapshot),
            ),
            bindings6: Bindings::lines(&snapshot.leases.v6, 0, &start.capacity::<V6>(snapshot)),
            streams: start.inspection.as_ref().map_or(0, |plan| plan.streams.lines()),
        }
    }

    /// Total number of lines.
    pub fn total(&self) -> usize {
        self.sessions4 + self.sessions6 + self.bindings4 + self.bindings6 + self.streams
    }
}

impl<'m> Shard<'m> {
    /// Creates an empty shard in `memory`, which has [`ShardMemory::total`] lines.
    pub fn new(
        number: u16,
        start: &StartParameters,
        snapshot: &Snapshot,
        now: Now,
        drawn: Arc<IpIdCounters>,
        memory: &'m mut [Line],
    ) -> Result<Self, ShardError> {
        let [v4, v6] = start.sessions_per_shard();
        let lines = ShardMemory::of(start, snapshot);
        let total = memory.len();
        let (sessions4, rest) = memory.split_at_mut(lines.sessions4.min(total));
        let (sessions6, rest) = rest.split_at_mut(lines.sessions6.min(rest.len()));
        let (bindings4, rest) = rest.split_at_mut(lines.bindings4.min(rest.len()));
        let (bindings6, streams) = rest.split_at_mut(lines.bindings6.min(rest.len()));
        let secret = Secret(start.secret);
        let number32 = u32::from(number);
        let mut shard = Self {
            number,
            sessions4: FlowTable::new(sessions4, v4)?,
            sessions6: FlowTable::new(sessions6, v6)?,
            wheel4: Wheel::new(now.tick),
            wheel6: Wheel::new(now.tick),
            bindings4: Bindings::new(
                &snapshot.leases.v4,
                number32,
                secret,
                &start.capacity::<V4>(snapshot),
                bindings4,
            )?,
            bindings6: Bindings::new(
                &snapshot.leases.v6,
                number32,
                secret,
                &start.capacity::<V6>(snapshot),
                bindings6,
            )?,
            numbers: IpIds::new(drawn),
            inspector: None,
            renewals: None,
        };
        if let (Some(plan), Some(inspection)) = (&start.inspection, &snapshot.inspection) {
            let hasher = Hasher::new([start.secret[1], start.secret[0]]);
            let inspector = Inspector::new(plan, inspection.rules.clone(), streams, hasher)?;
            shard.inspector = Some(Box::new(inspector.of_generation(snapshot.inspected)));
        }
        if let Some(rss_ports) = start.steering.rss_ports() {
            shard.bindings4.prefer_rss_ports(rss_ports.clone());
            shard.bindings6.prefer_rss_ports(rss_ports.clone());
        }
        Ok(shard)
    }
}
