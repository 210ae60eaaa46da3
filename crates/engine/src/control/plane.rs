//! The control plane handle. It holds the control thread's state of the data plane and creates the workers.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sluice_nat::bindings::Capacity;
use sluice_nat::rule::Changed;
use sluice_route::neighbour::{Conflicts, NeighbourWriter, Neighbours, ParkedCounts, Timing};
use sluice_route::{Fib, NextHopWriter, Ribs, RouteSet};
use sluice_table::prefix::Quiescence;
use sluice_table::publish::Publisher;

use crate::features::inspection::rule_updates::RuleUpdates;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::counters::WorkerCounters;
use crate::packet::time::Now;
use crate::placement::Part;
use crate::session::family::{V4, V6};
use crate::session::ip_id::IpIdCounters;
use crate::snapshot::shard_memory::ShardMemory;
use crate::snapshot::shared_capacity;
use crate::snapshot::{PortLayouts, Snapshot, StartParameters};

mod changes;
mod commit;
mod error;
mod workers;

pub use error::ControlPlaneError;

/// Limits of the neighbour table and of parked packets.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourLimits {
    /// Maximum number of neighbours.
    pub capacity: usize,
    /// Timing of neighbour resolution.
    pub timing: Timing,
    /// Maximum number of packets that are parked for one neighbour.
    pub parked: usize,
    /// Maximum number of packets that are parked for all neighbours together.
    pub parked_in_all: usize,
    /// Maximum time for which a packet is parked, in nanoseconds.
    pub timeout: u64,
}

impl Default for NeighbourLimits {
    fn default() -> Self {
        Self {
            capacity: 4096,
            timing: Timing::default(),
            parked: 4,
            parked_in_all: 512,
            timeout: 4_000_000_000,
        }
    }
}

/// The control thread's state of the data plane.
pub struct ControlPlane {
    start: Arc<StartParameters>,
    snapshot: Publisher<Snapshot>,
    ribs: Ribs,
    fib: Fib,
    next_hops: NextHopWriter,
    neighbours: Arc<Neighbours>,
    limits: NeighbourLimits,
    quiescence: Arc<Quiescence>,
    counters: Vec<Arc<WorkerCounters>>,
    writer: Option<NeighbourWriter>,
    waiting: ParkedCounts,
    /// Sends new inspection rules to the shards and workers.
    renewals: RuleUpdates,
    /// IP ID counters, which all shards share.
    drawn: Arc<IpIdCounters>,
    /// Sizes of each shard's memory.
    lines: ShardMemory,
    /// Number of 64-byte memory lines that all shards share.
    reserved: usize,
    conflicts: Arc<Conflicts>,
    /// Capacity of each shard for allocations from IPv4 and IPv6 pools.
    capacity: [Capacity; 2],
    /// The previous port layouts. They are kept here so that their memory is freed by the control thread instead of a
    /// worker.
    before: PortLayouts,
    /// How often the link of each interface has come up.
    ups: Arc<[AtomicU32]>,
    /// Whether individual NAT rules have changed since sessions were last revalidated.
    edited: bool,
    /// Changes of individual filter rules since sessions were last revalidated.
    filter_changed: [Changed; 2],
    /// Publication time of the last generation that revalidates sessions.
    followed: u64,
    now: Now,
}

/// Minimum interval in nanoseconds between two generations that are published because individual rules or routes have
/// changed. This interval and the maximum delay of revalidation together stay below one second, so a session that is no
/// longer permitted ends within a second.
pub const MIN_PUBLISH_INTERVAL: u64 = 400_000_000;

/// Marks the interfaces that are point-to-point links and therefore have a single neighbour.
fn set_pairs(neighbours: &Neighbours, snapshot: &Snapshot) {
    for (number, interface) in (0..).zip(&snapshot.interfaces) {
        neighbours.set_pair(number, interface.is_pair());
    }
}

impl ControlPlane {
    /// Creates the control plane for `workers` workers, with the first snapshot and the routes of each router.
    pub fn new(
        start: StartParameters,
        mut snapshot: Snapshot,
        routes: &[RouteSet],
        limits: NeighbourLimits,
        workers: usize,
        now: Now,
    ) -> Result<Self, ControlPlaneError> {
        if limits.capacity > AdjacencyIndex::MAX_NEIGHBOURS
            || snapshot.interfaces.len() > AdjacencyIndex::MAX_INTERFACES
        {
            return Err(ControlPlaneError::TooMany);
        }
        let named = start.owners.iter().chain([snapshot.owner]).max().unwrap_or(0);
        if named as usize >= workers {
            return Err(ControlPlaneError::Workers(named, workers));
        }
        let of_sessions = start.stages.workers(Part::Session);
        snapshot.owner = of_sessions.first().copied().unwrap_or(snapshot.owner);
        if let Some(wrong) = start
            .owners
            .iter()
            .find(|&owner| !start.stages.has_part(owner, Part::Session))
        {
            return Err(ControlPlaneError::Stage(wrong));
        }
        if !start.steering.admits(&snapshot.nat4) || !start.steering.admits(&snapshot.nat6) {
            return Err(ControlPlaneError::SteeringConflict);
        }
        let quiescence = Arc::new(Quiescence::new(workers));
        let neighbours = Arc::new(Neighbours::new(limits.capacity, start.secret));
        let mut next_hops = NextHopWriter::new(
            sluice_route::next_hop::MAX_NEXT_HOPS,
            neighbours.clone(),
            quiescence.clone(),
        );
        let mut fib = Fib::new(quiescence.clone());
        let mut ribs = Ribs::new(Default::default(), start.secret);
        ribs.apply_all(routes, |_| false, &mut fib, &mut next_hops, now.nanoseconds)?;
        // No session exists yet, so these changes need no revalidation.
        fib.take_changed();
        set_quotas(&mut ribs, &snapshot);
        let (interfaces, shards) = (snapshot.interfaces.len().max(start.interfaces), start.owners.len());
        snapshot.share_ports(None, &start);
        snapshot.leases = PortLayouts::of(&snapshot, start.steering.shards());
        snapshot.keep_marks([None, None], &start);
        snapshot.keep_local_flows(None);
        set_pairs(&neighbours, &snapshot);
        snapshot.derive_inside_networks();
        snapshot.link();
        let writer = NeighbourWriter::new(neighbours.clone(), limits.timing, now.nanoseconds);
        Ok(Self {
            conflicts: writer.conflicts().clone(),
            writer: Some(writer),
            lines: ShardMemory::of(&start, &snapshot),
            reserved: shared_capacity::lines(&start, &snapshot),
            capacity: [start.capacity::<V4>(&snapshot), start.capacity::<V6>(&snapshot)],
            before: PortLayouts::default(),
            start: Arc::new(start),
            snapshot: Publisher::new(snapshot),
            ribs,
            fib,
            next_hops,
            neighbours,
            waiting: ParkedCounts::new(0),
            renewals: RuleUpdates::default(),
            drawn: Arc::default(),
            limits,
            quiescence,
            edited: false,
            filter_changed: Default::default(),
            followed: 0,
            ups: (0..interfaces).map(|_| AtomicU32::new(0)).collect(),
            counters: (0..workers)
                .map(|_| Arc::new(WorkerCounters::new(interfaces, shards)))
                .collect(),
            now,
        })
    }

    /// Address conflicts with other hosts.
    pub fn conflicts(&self) -> &Arc<Conflicts> {
        &self.conflicts
    }

    /// Frees memory that no worker uses any longer. The control thread must call this function periodically.
    pub fn collect(&mut self) {
        self.snapshot.collect();
        self.renewals.collect();
        self.fib.reclaim();
        self.next_hops.reclaim();
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        self.snapshot.current()
    }

    /// Start parameters.
    pub fn start_parameters(&self) -> &StartParameters {
        &self.start
    }

    /// The RIBs of all routers.
    pub fn ribs(&self) -> &Ribs {
        &self.ribs
    }

    /// The FIB.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The next-hop table.
    pub fn next_hops(&self) -> &NextHopWriter {
        &self.next_hops
    }

    /// The neighbour table, for listings.
    pub fn neighbours(&self) -> &Arc<Neighbours> {
        &self.neighbours
    }

    /// Numbers of packets that are parked for neighbours.
    pub fn waiting(&self) -> &ParkedCounts {
        &self.waiting
    }

    /// Counters of all workers, by worker number.
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }
}

/// Set the route quotas of the routers.
fn set_quotas(ribs: &mut Ribs, snapshot: &Snapshot) {
    for (number, router) in (0..).zip(&snapshot.routers) {
        ribs.set_quota(number, router.quotas.routes);
    }
}
