//! The control plane handle: the control thread's state of the data plane, from which workers are created.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use sluice_filter::{CompiledRule, Filters};
use sluice_inspect::inspector::DetectionContext;
use sluice_nat::Bindings;
use sluice_nat::bindings::Capacity;
use sluice_nat::rule::Changed;
use sluice_route::fib::FibError;
use sluice_route::neighbour::{Conflicts, NeighbourWriter, Neighbours, ParkedCounts, Parking, Timing};
use sluice_route::rib::Rib;
use sluice_route::{Fib, InterfaceIndex, NextHopWriter, Ribs, RouteSet, RouterIndex};
use sluice_table::changes::Changes;
use sluice_table::memory::Line;
use sluice_table::prefix::Quiescence;
use sluice_table::publish::Publisher;

use crate::features::announcements::Announcements;
use crate::features::context::{OwnerState, policer};
use crate::features::filter;
use crate::features::inspection::reassembly::FRAGMENTS;
use crate::features::inspection::rule_updates::{RuleUpdateError, RuleUpdates};
use crate::features::inspection::{AlertQueue, Inspector, Load, ParkedPackets, Reassembly};
use crate::features::virtual_reassembly::VirtualReassembly;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{Handover, PortIndex, WorkerIndex};
use crate::packet::punt::{self, PuntQueue};
use crate::packet::time::Now;
use crate::placement::Part;
use crate::session::events::EventQueue;
use crate::session::family::{Family, V4, V6};
use crate::session::identification::Identification;
use crate::session::ip_id::IpIdCounters;
use crate::session::records::RecordQueue;
use crate::session::rule_channel;
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::shard_memory::{ShardError, ShardMemory};
use crate::snapshot::shared_capacity::{self, SharedCapacity};
use crate::snapshot::{self, Nat, PortLayouts, Snapshot, StartParameters};
use crate::worker::request::{WorkerHandle, channel};
use crate::worker::{Worker, WorkerParts};

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
    pub patience: u64,
}

impl Default for NeighbourLimits {
    fn default() -> Self {
        Self {
            capacity: 4096,
            timing: Timing::default(),
            parked: 4,
            parked_in_all: 512,
            patience: 4_000_000_000,
        }
    }
}

/// Why the control plane can't be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The routes don't fit the FIB.
    #[error(transparent)]
    Routes(#[from] FibError),
    /// The memory of a shard has a wrong size.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// There are no workers, or a shard is assigned to a worker that doesn't exist.
    #[error("worker {0} is named, but there are only {1}")]
    Workers(WorkerIndex, usize),
    /// Shards are assigned to a worker without the session stage.
    #[error("worker {0} has a shard, but its stages do not process sessions")]
    Stage(WorkerIndex),
    /// Application identification is not available.
    #[error(transparent)]
    Applications(#[from] sluice_inspect::applications::Error),
    /// There are more neighbours or interfaces than an adjacency index can represent.
    #[error(
        "at most {} neighbours and {} interfaces are possible",
        AdjacencyIndex::MAX_NEIGHBOURS,
        AdjacencyIndex::MAX_INTERFACES
    )]
    TooMany,
    /// There are more interfaces than counters for interfaces.
    #[error("{0} interfaces, but there is room for {1} only")]
    MoreInterfaces(usize, usize),
    /// The memory that was reserved for port allocations at start is too small for the new pools.
    #[error("the pools need {needed} bytes for their port leases, {reserved} were reserved at the start")]
    PoolsTooLarge {
        /// Memory in bytes that the new pools need.
        needed: usize,
        /// Memory in bytes that is reserved.
        reserved: usize,
    },
    /// A pool has mappings, subscribers or computed ports. Such pools require that all flows of a host belong to one shard.
    #[error(
        "steering distributes the flows of a host over shards, but a pool or a destination rule needs them in one shard"
    )]
    Apart,
    /// Pool migration is not complete. Sessions may still use ports that the pools no longer contain. If a pool got such a port
    /// back, it would allocate the port twice.
    #[error("the last change of pools is still ending sessions without a port")]
    Unsettled,
    /// New inspection rules can't be created.
    #[error(transparent)]
    Renewal(#[from] RuleUpdateError),
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
    /// IP ID counters that all shards share.
    drawn: Arc<IpIdCounters>,
    /// Sizes of each shard's memory.
    lines: ShardMemory,
    /// Number of memory lines that all shards share.
    reserved: usize,
    conflicts: Arc<Conflicts>,
    /// Capacity of each shard for allocations of IPv4 and IPv6 pools.
    room: [Capacity; 2],
    /// The previous port layouts, kept so that the control thread frees their memory, and not a worker.
    before: PortLayouts,
    /// How often the link of each interface has come up.
    ups: Arc<[AtomicU32]>,
    /// Whether individual NAT rules have changed since sessions were last revalidated.
    edited: bool,
    /// Changes of individual filter rules since sessions were last revalidated.
    filter_changed: [Changed; 2],
    /// Time of the last generation that revalidates sessions.
    followed: u64,
    now: Now,
}

/// Minimum interval, in nanoseconds, between two generations that let sessions follow changes of individual rules and routes.
/// Together with the maximum delay of revalidation, a session that is no longer permitted ends within a second.
pub const FOLLOW: u64 = 400_000_000;

/// Set which interfaces are point-to-point links, which have a single neighbour.
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
            .find(|&owner| !start.stages.does(owner, Part::Session))
        {
            return Err(ControlPlaneError::Stage(wrong));
        }
        if !start.steering.admits(&snapshot.nat4) || !start.steering.admits(&snapshot.nat6) {
            return Err(ControlPlaneError::Apart);
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
        // No session exists that the changes could affect.
        fib.take_changed();
        set_quotas(&mut ribs, &snapshot);
        let (interfaces, shards) = (snapshot.interfaces.len().max(start.interfaces), start.owners.len());
        snapshot.share_ports(None, &start);
        snapshot.leases = PortLayouts::of(&snapshot, start.steering.shards());
        snapshot.keep_marks([None, None], &start);
        snapshot.keep_local_flows(None);
        set_pairs(&neighbours, &snapshot);
        snapshot.know_inside();
        snapshot.link();
        let writer = NeighbourWriter::new(neighbours.clone(), limits.timing, now.nanoseconds);
        Ok(Self {
            conflicts: writer.conflicts().clone(),
            writer: Some(writer),
            lines: ShardMemory::of(&start, &snapshot),
            reserved: shared_capacity::lines(&start, &snapshot),
            room: [start.capacity::<V4>(&snapshot), start.capacity::<V6>(&snapshot)],
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

    /// Sizes of each shard's memory.
    pub fn lines(&self) -> ShardMemory {
        self.lines
    }

    /// Address conflicts with other hosts.
    pub fn conflicts(&self) -> &Arc<Conflicts> {
        &self.conflicts
    }

    /// Number of memory lines that all shards share.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Creates the shared capacity of the shards, in memory of [`ControlPlane::reserved`] lines, for [`Worker::share`].
    ///
    /// # Errors
    /// The memory is too small.
    pub fn reserves<'m>(&mut self, memory: &'m mut [Line]) -> Result<SharedCapacity<'m>, ControlPlaneError> {
        Ok(SharedCapacity::new(&self.start, self.snapshot.current(), memory).map_err(ShardError::Table)?)
    }

    /// Creates the worker `own`. `memory` returns [`ShardMemory::total`] lines for the shard with a given number, and is called
    /// for each shard of the worker. Must be called once for each worker.
    pub fn worker<'m>(
        &mut self,
        own: WorkerIndex,
        io: Box<dyn Handover + 'm>,
        receives: Vec<PortIndex>,
        mut memory: impl FnMut(u16) -> &'m mut [Line],
        cycles: fn() -> u64,
    ) -> Result<(Worker<'m>, WorkerHandle), ControlPlaneError> {
        let workers = self.counters.len();
        let counters = self
            .counters
            .get(own as usize)
            .ok_or(ControlPlaneError::Workers(own, workers))?
            .clone();
        let snapshot = self.snapshot.current();
        let mut shards = Vec::new();
        for (number, _) in self.start.owners.iter().enumerate().filter(|&(_, owner)| owner == own) {
            let number = number as u16;
            let drawn = self.drawn.clone();
            let mut shard = Shard::new(number, &self.start, snapshot, self.now, drawn, memory(number))?;
            if shard.inspector.is_some() {
                let (sender, receiver) = rule_channel::channel();
                shard.renewals = Some(receiver);
                self.renewals.shards.push(sender);
            }
            shards.push(shard);
        }
        let writer = (own == snapshot.owner).then(|| self.writer.take()).flatten();
        let owner = writer.map(|writer| {
            let parking = Parking::new(
                self.limits.capacity,
                self.limits.parked,
                self.limits.parked_in_all,
                self.limits.patience,
            );
            self.waiting = parking.waiting();
            OwnerState {
                writer,
                parking,
                actions: ArrayVec::new(),
                policer: policer(snapshot, &self.start, self.now),
                quotas: None,
                datagrams: VirtualReassembly::new(self.start.fragments, self.start.secret),
                advertise_at: vec![
                    (self.now.nanoseconds, None);
                    self.counters.first().map_or(0, |own| own.interfaces.len())
                ],
                announcements: Announcements::new(self.ups.clone()),
                probe: None,
            }
        });
        let (requests, mut counter) = channel();
        let (events, taken) = EventQueue::new(self.start.events.most);
        counter.events = taken;
        let wanted = self.snapshot.current().inspection.as_ref();
        let (records, taken) = RecordQueue::new(wanted.map(|inspection| inspection.records).unwrap_or_default());
        counter.records = taken;
        let (punts, taken) = PuntQueue::new();
        counter.to_hosts = Some(taken);
        let (subscribers, taken) = PuntQueue::new();
        counter.to_subscribers = Some(taken);
        let service = owner
            .is_some()
            .then(|| punt::queue(punt::QUEUE_BYTES))
            .map(|(giver, taker)| {
                counter.from_subscribers = Some(giver);
                taker
            });
        let host = owner
            .is_some()
            .then(|| punt::queue(punt::QUEUE_BYTES))
            .map(|(giver, taker)| {
                counter.from_hosts = Some(giver);
                taker
            });
        let inspecting = Self::inspecting(self.snapshot.current(), &self.start, &mut counter, &mut self.renewals)?;
        let recognition = match self.start.applications {
            Some(capacity) => Identification::new(capacity)?,
            None => Identification::default(),
        };
        let worker = Worker::new(WorkerParts {
            own,
            role: self.start.stages.role(own),
            start: self.start.clone(),
            snapshot: self.snapshot.reader(),
            forwarding: ForwardingState {
                fib: self.fib.reader(),
                next_hops: self.next_hops.table(),
                neighbours: self.neighbours.clone(),
            },
            quiescence: self.quiescence.clone(),
            shards,
            counters,
            io,
            receives,
            owner,
            cycles,
            requests,
            events,
            records,
            punts,
            host,
            subscribers,
            service,
            recognition,
            inspecting,
        });
        Ok((worker, counter))
    }

    /// Creates the inspection state of a worker, and the receiving end of its alerts.
    fn inspecting(
        snapshot: &Snapshot,
        start: &StartParameters,
        counter: &mut WorkerHandle,
        renewals: &mut RuleUpdates,
    ) -> Result<Option<Box<Inspector>>, ControlPlaneError> {
        let (Some(_), Some(inspection)) = (&start.inspection, &snapshot.inspection) else {
            return Ok(None);
        };
        let scratch = inspection.rules.prefilter().scratch().map_err(ShardError::from)?;
        let (alerts, taken) = AlertQueue::new(inspection.alerts);
        counter.alerts = Some(taken);
        let held = inspection.fragments.datagrams.saturating_mul(FRAGMENTS);
        let secret = [start.secret[1], start.secret[0]];
        let (sender, receiver) = rule_channel::channel();
        renewals.workers.push(sender);
        Ok(Some(Box::new(Inspector {
            tools: Box::new(DetectionContext::new(scratch, &inspection.rules)),
            generation: snapshot.inspected,
            renewals: receiver,
            parked_packets: ParkedPackets::new(u32::try_from(held).unwrap_or(u32::MAX)),
            assemblies: Reassembly::new(inspection.fragments, secret),
            load: Load::default(),
            alerts,
            parking: ArrayVec::new(),
            given_up: Vec::with_capacity(held),
        })))
    }

    /// Applies a new snapshot and new routes of all routers as one commit, or rejects both. Memory is limited to the interfaces
    /// and pools at start, with some reserve. Sets the generation, the port layouts and the owner of the snapshot.
    pub fn commit(&mut self, mut snapshot: Snapshot, routes: &[RouteSet]) -> Result<u32, ControlPlaneError> {
        let most = self.counters.first().map_or(0, |counters| counters.interfaces.len());
        if snapshot.interfaces.len() > most {
            return Err(ControlPlaneError::MoreInterfaces(snapshot.interfaces.len(), most));
        }
        let current = self.snapshot.current();
        snapshot.generation = current.generation.wrapping_add(1);
        snapshot.committed = snapshot.generation;
        snapshot.owner = current.owner;
        snapshot.probes = current.probes.clone();
        snapshot.adopt_hosts(current);
        Arc::make_mut(&mut snapshot.tunnels).adopt(&current.tunnels);
        snapshot.adopt_shares(current);
        snapshot.adopt_chains(current);
        snapshot.keep_marks([current.marks.clone(), current.code_points.clone()], &self.start);
        snapshot.keep_local_flows(current.local_flows.clone());
        snapshot.nat4.rules.take_changed();
        snapshot.nat6.rules.take_changed();
        (snapshot.nat4.changes, snapshot.nat6.changes) = Default::default();
        snapshot.filter_changes = Default::default();
        snapshot.route_changes = Changes::default();
        snapshot.nat4.rules.adopt_hits(&current.nat4.rules);
        snapshot.nat6.rules.adopt_hits(&current.nat6.rules);
        snapshot.nat4.rules.adopt_states(&current.nat4.rules);
        snapshot.nat6.rules.adopt_states(&current.nat6.rules);
        let generation = snapshot.generation;
        let leases = self.new_leases(&snapshot)?;
        snapshot.inspected = current.inspected;
        let (before, after) = (current.inspection.as_deref(), snapshot.inspection.as_deref());
        let next = snapshot.inspected.wrapping_add(1);
        let fresh = self
            .renewals
            .make(self.start.inspection.as_ref(), (before, after), next)?;
        let (before, after) = (&current.routers, &snapshot.routers);
        let name =
            |routers: &[snapshot::Router], number| routers.get(usize::from(number)).map(|router| router.name.clone());
        let others = |number| name(before, number) != name(after, number);
        let (fib, next_hops) = (&mut self.fib, &mut self.next_hops);
        // The kinds of new links must be set first, because the FIB may use the links immediately.
        for (number, interface) in (0..).zip(&snapshot.interfaces) {
            if interface.is_pair() {
                self.neighbours.set_pair(number, true);
            }
        }
        let applied = self
            .ribs
            .apply_all(routes, others, fib, next_hops, self.now.nanoseconds);
        set_pairs(&self.neighbours, if applied.is_ok() { &snapshot } else { current });
        applied?;
        self.fib.take_changed();
        set_quotas(&mut self.ribs, &snapshot);
        snapshot.share_ports(Some(self.snapshot.current()), &self.start);
        if leases.is_some() {
            let mut leases = PortLayouts::of(&snapshot, self.start.steering.shards());
            self.before = self.snapshot.current().leases.clone();
            leases.follow(&self.before, generation);
            snapshot.leases = leases;
        } else {
            snapshot.leases = self.snapshot.current().leases.clone();
        }
        self.filter_changed = Default::default();
        if let Some(fresh) = fresh {
            snapshot.inspected = next;
            self.renewals.send(fresh);
        }
        snapshot.know_inside();
        snapshot.link();
        self.snapshot.publish(snapshot);
        Ok(generation)
    }

    /// Updates a port whose device has changed. `change` modifies the newest snapshot's interfaces and the port's transmitting
    /// worker. `routes` are the routes of all routers, with link-local addresses derived from the new MAC addresses.
    pub fn change_device(
        &mut self,
        change: impl FnOnce(&mut Snapshot),
        routes: &[RouteSet],
    ) -> Result<(), ControlPlaneError> {
        let mut snapshot = self.snapshot.current().clone();
        change(&mut snapshot);
        let (fib, next_hops) = (&mut self.fib, &mut self.next_hops);
        self.ribs
            .apply_all(routes, |_| false, fib, next_hops, self.now.nanoseconds)?;
        snapshot.link();
        self.snapshot.publish(snapshot);
        Ok(())
    }

    /// Modifies individual NAT rules of the newest snapshot. New flows use them immediately, existing sessions after
    /// [`ControlPlane::follow_changes`]. The next commit replaces all rules.
    pub fn edit_rules<F: Family, R>(&mut self, edit: impl FnOnce(&Nat<F>) -> R) -> R {
        self.edited = true;
        edit(self.snapshot.current().nat::<F>())
    }

    /// Records an added or removed filter rule. New flows use it immediately, existing sessions after [`ControlPlane::follow_changes`].
    pub fn filter_changed(&mut self, rule: &CompiledRule) {
        self.edited = true;
        let [four, six] = &mut self.filter_changed;
        rule.v4.iter().for_each(|rule| filter::mark::<V4>(four, rule));
        rule.v6.iter().for_each(|rule| filter::mark::<V6>(six, rule));
    }

    /// Replaces the filters. The new filters must equal the newest ones, except for rules that are also passed to [`ControlPlane::filter_changed`].
    pub fn replace_filter(&mut self, filters: Arc<Filters>) {
        let mut snapshot = self.snapshot.current().clone();
        if !snapshot.routers.iter().any(|router| router.filters) {
            snapshot.routers.iter_mut().for_each(|router| router.filters = true);
        }
        snapshot.filter = Some(filters);
        let marks = [snapshot.marks.take(), snapshot.code_points.take()];
        snapshot.keep_marks(marks, &self.start);
        let local_flows = snapshot.local_flows.take();
        snapshot.keep_local_flows(local_flows);
        snapshot.link();
        self.snapshot.publish(snapshot);
    }

    /// Publishes a generation, so that sessions follow changes of individual rules and routes, at most every [`FOLLOW`]
    /// nanoseconds. Must be called periodically. Returns the generation if a new one was published.
    pub fn follow_changes(&mut self, now: Now) -> Option<u32> {
        self.now = now;
        if !(self.edited || self.fib.has_changed()) || now.nanoseconds.saturating_sub(self.followed) < FOLLOW {
            return None;
        }
        (self.edited, self.followed) = (false, now.nanoseconds);
        let mut snapshot = self.snapshot.current().clone();
        snapshot.generation = snapshot.generation.wrapping_add(1);
        snapshot.nat4.changes = snapshot.nat4.changes.followed_by(snapshot.nat4.rules.take_changed());
        snapshot.nat6.changes = snapshot.nat6.changes.followed_by(snapshot.nat6.rules.take_changed());
        for (changes, changed) in snapshot.filter_changes.iter_mut().zip(&mut self.filter_changed) {
            *changes = changes.followed_by(std::mem::take(changed));
        }
        snapshot.route_changes = snapshot.route_changes.followed_by(self.fib.take_changed());
        let generation = snapshot.generation;
        self.snapshot.publish(snapshot);
        Some(generation)
    }

    /// Checks that the reserved memory suffices for the pools of a snapshot, and that pools may change now.
    pub fn admits_pools(&self, snapshot: &Snapshot) -> Result<(), ControlPlaneError> {
        self.new_leases(snapshot).map(|_| ())
    }

    /// The port layouts of a snapshot; `None` if they have not changed.
    fn new_leases(&self, snapshot: &Snapshot) -> Result<Option<PortLayouts>, ControlPlaneError> {
        let steering = &self.start.steering;
        if !steering.admits(&snapshot.nat4) || !steering.admits(&snapshot.nat6) {
            return Err(ControlPlaneError::Apart);
        }
        let leases = PortLayouts::of(snapshot, self.start.steering.shards());
        if leases.is_same(&self.snapshot.current().leases) {
            return Ok(None);
        }
        let taken = [
            (Bindings::lines(&leases.four, 0, &self.room[0]), self.lines.bindings4),
            (Bindings::lines(&leases.six, 0, &self.room[1]), self.lines.bindings6),
        ];
        if let Some((needed, reserved)) = taken.into_iter().find(|(needed, reserved)| needed > reserved) {
            let bytes = |lines: usize| lines * size_of::<Line>() * self.start.owners.len();
            return Err(ControlPlaneError::PoolsTooLarge {
                needed: bytes(needed),
                reserved: bytes(reserved),
            });
        }
        match self.is_migrated() {
            true => Ok(Some(leases)),
            false => Err(ControlPlaneError::Unsettled),
        }
    }

    /// Whether pool migration is complete: all shards allocate from the new pools, and no session uses a port that no pool
    /// contains. While pool migration is incomplete, pools can't be changed.
    pub fn is_migrated(&self) -> bool {
        let generation = u64::from(self.snapshot.current().leases.generation);
        self.counters
            .iter()
            .all(|worker| worker.migrated_generation.get() == generation)
    }

    /// Frees memory that no worker uses any longer. Must be called periodically.
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

    /// Changes the RIB of a router and updates its routes. Packets without sessions use the new routes immediately, sessions
    /// after [`ControlPlane::follow_changes`]. Returns `false` if the router doesn't exist.
    pub fn change_routes(&mut self, router: RouterIndex, change: impl FnOnce(&mut Rib)) -> bool {
        self.ribs.change(router, &mut self.fib, &mut self.next_hops, change)
    }

    /// Sets the link state of an interface; initially it is up. Routes through an interface that is down are not used, but the gateway's addresses on
    /// it remain. Sessions follow after [`ControlPlane::follow_changes`]. Returns `false` if the state is unchanged.
    pub fn set_link(&mut self, interface: InterfaceIndex, up: bool) -> bool {
        let snapshot = self.snapshot.current();
        let router = snapshot.router_of(interface);
        for &(_, table) in snapshot.sources.of(router) {
            let link = (table, interface, up);
            self.ribs.set_link(link, &mut self.fib, &mut self.next_hops);
        }
        let link = (router, interface, up);
        let is_news = self.ribs.set_link(link, &mut self.fib, &mut self.next_hops);
        if is_news
            && up
            && let Some(ups) = self.ups.get(usize::from(interface))
        {
            ups.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// Sets whether routes may use the gateway of an uplink, which is given by its interface and address. Returns `false` if the state is unchanged.
    pub fn set_gateway(&mut self, gateway: (InterfaceIndex, sluice_route::Address), up: bool) -> bool {
        let snapshot = self.snapshot.current();
        let router = snapshot.router_of(gateway.0);
        let by_source = snapshot.sources.of(router).iter().map(|&(_, table)| table);
        by_source.chain([router]).fold(false, |is_news, table| {
            let change = (gateway, up);
            is_news | self.ribs.set_gateway(table, change, &mut self.fib, &mut self.next_hops)
        })
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
