//! A worker: receives bursts, runs the nodes, and disposes of every buffer according to the decisions of the nodes.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_nat::{PoolIndex, PortClass};
use sluice_table::hash::Hasher;
use sluice_table::prefix::Quiescence;
use sluice_table::publish::Reader;

use crate::features::context::{Generations, OwnerState, WaitingPacket};
use crate::features::inspection::{FragmentNote, Inspector};
use crate::features::pending_syns::PendingSyns;
use crate::features::pool_migration::PoolMigration;
use crate::nodes::express::Lane;
use crate::nodes::session_lookup::LookupScratch;
use crate::packet::batch::Meta;
use crate::packet::counters::{CycleStage, WorkerCounters};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, Handover, NoteWords, PortIndex, WorkerIndex};
use crate::packet::lists::Lists;
use crate::packet::punt::{PuntQueue, PuntReceiver};
use crate::packet::reason::Reason;
use crate::packet::time::Now;
use crate::session::events::EventQueue;
use crate::session::identification::Identification;
use crate::session::records::RecordQueue;
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::shares::SideState;
use crate::snapshot::stages::Role;
use crate::snapshot::{Snapshot, StartParameters};
use crate::worker::capture::Tap;
use crate::worker::request::RequestServer;
use crate::worker::trace::Tracer;

use arrivals::Runs;
use assisting::Assisting;
use schedule::Schedule;
use shard_moves::Moving;

mod arrivals;
mod assisting;
mod burst;
mod burst_observer;
pub mod capture;
mod dispose;
mod free_capacity;
mod host;
mod housekeep;
mod identification;
mod link_shares;
mod links;
mod parked;
mod parts;
mod receive;
pub mod request;
mod scans;
mod schedule;
mod serve_requests;
mod shard_moves;
mod state;
mod tasks;
pub mod trace;

pub use parts::WorkerParts;
pub use shard_moves::MAX_HELD;

/// Notes of packets from other workers.
type Carried = ArrayVec<NoteWords, BURST_SIZE>;

/// Parked packets that are processed again.
type Resumed = ArrayVec<(WaitingPacket, ResumeReason), BURST_BUFFERS>;

/// A worker of the data plane.
pub struct Worker<'m> {
    parts: State<'m>,
    io: Box<dyn Handover + 'm>,
    receives: Vec<PortIndex>,
    quiescence: Arc<Quiescence>,
    snapshot: Reader<Snapshot>,
    cycles: fn() -> u64,
    requests: RequestServer,
    generations: Generations,
    online: bool,
    next_shard: usize,
    /// Whether more sessions of a shard have expired than one round can end.
    has_expiry_backlog: bool,
    /// Whether this round runs the timers of the same shard as the previous round.
    is_same_shard: bool,
    tracer: Option<Box<Tracer>>,
    tap: Option<Box<Tap>>,
    carried: Carried,
    /// Packets of the burst that have not been parsed.
    runs: Runs,
    /// Numbers of free entries in the rings to the next stage.
    free_entries: Vec<usize>,
    resumed: Resumed,
    syns: PendingSyns,
    host: Option<PuntReceiver>,
    service: Option<PuntReceiver>,
    /// Whether routers' hosts may send packets through this worker.
    serves_hosts: bool,
    moving: Moving<'m>,
    /// State for taking over shards from other workers; `None` if the worker does not assist.
    assisting: Option<Box<Assisting>>,
    /// Number of packets that the latest consecutive full bursts from devices contained. At least this number of
    /// packets has waited in the devices.
    behind: u64,
    /// Fair division of received packets among routers.
    receiving: SideState,
    /// Fair division of sent packets among interfaces.
    sending: SideState,
    /// Order in which ports are served.
    schedule: Schedule,
    /// Number of cycles of the last burst; 0 before the first burst.
    took: u64,
    /// Parked fragments that will be dropped.
    gone: Vec<(WaitingPacket, sluice_inspect::Reason)>,
}

/// The state that nodes use, in addition to the snapshot.
struct State<'m> {
    own: WorkerIndex,
    start: Arc<StartParameters>,
    role: Role,
    forwarding: ForwardingState,
    hasher: Hasher,
    shards: Box<[Option<Box<Shard<'m>>>]>,
    counters: Arc<WorkerCounters>,
    owner: Option<Box<OwnerState>>,
    lists: Box<Lists>,
    meta: Box<[Meta; BURST_BUFFERS]>,
    migrating: PoolMigration,
    events: EventQueue,
    records: RecordQueue,
    punts: PuntQueue,
    subscribers: PuntQueue,
    lookups: LookupScratch,
    /// The express lane; `None` if it is switched off.
    lane: Option<Box<Lane>>,
    recognition: Identification,
    inspecting: Option<Box<Inspector>>,
}

/// Reason for which a parked packet is processed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumeReason {
    /// The event for which the packet waited has occurred.
    Ready,
    /// The packet is a fragment that inspection has parked. The values are the results of virtual reassembly, and
    /// whether the fragment was inspected.
    Fragment(FragmentNote, bool),
    /// The packet came over an inter-router link.
    InterRouterLink,
    /// The packet is sent through a tunnel.
    Tunnelled,
    /// The packet's neighbour did not answer.
    Failed,
    /// The packet is an unsolicited SYN, which is rejected for this reason.
    Unsolicited(Reason),
}

/// Origin of the packets of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Port(PortIndex),
    Workers,
    Parking,
    /// Packets that were held until the arrival of their shard.
    Held,
    /// Queued packets of this worker's shards.
    Queue,
    /// Packets from hosts.
    Hosts,
    /// Packets from the subscriber service.
    Service,
    Nothing,
}

impl<'m> Worker<'m> {
    /// Creates a worker from its parts.
    pub fn new(parts: WorkerParts<'m>) -> Self {
        let count = parts.start.steering.shards().count() as usize;
        let free_entries = parts.role.beyond.len();
        let held = parts
            .inspecting
            .as_ref()
            .map_or(0, |work| work.parked_packets.capacity());
        let syns = PendingSyns::new(count, parts.start.unsolicited_syns as usize);
        let ports = parts.start.ports;
        let mut shards: Vec<Option<Box<Shard<'m>>>> = Vec::new();
        shards.resize_with(count, || None);
        for shard in parts.shards {
            let place = shard.number as usize;
            shards[place] = Some(Box::new(shard));
        }
        let assisting = Assisting::of(&parts.start, parts.own);
        let mut receives = parts.receives;
        receives.reserve(ports);
        Self {
            assisting,
            parts: State {
                own: parts.own,
                hasher: Hasher::new(parts.start.secret),
                lists: Box::new(Lists::new(parts.start.ports)),
                start: parts.start,
                role: parts.role,
                forwarding: parts.forwarding,
                shards: shards.into(),
                counters: parts.counters,
                owner: parts.owner.map(Box::new),
                meta: Box::new([Meta::default(); BURST_BUFFERS]),
                migrating: PoolMigration::default(),
                events: parts.events,
                records: parts.records,
                punts: parts.punts,
                subscribers: parts.subscribers,
                lookups: LookupScratch::default(),
                lane: Some(Box::default()),
                recognition: parts.recognition,
                inspecting: parts.inspecting,
            },
            io: parts.io,
            receiving: SideState::new(ports),
            sending: SideState::new(ports),
            schedule: Schedule::new(ports),
            took: 0,
            receives,
            quiescence: parts.quiescence,
            snapshot: parts.snapshot,
            cycles: parts.cycles,
            requests: parts.requests,
            generations: Generations::default(),
            online: false,
            next_shard: 0,
            has_expiry_backlog: false,
            is_same_shard: false,
            tracer: None,
            tap: None,
            carried: ArrayVec::new(),
            runs: Runs::new(),
            free_entries: Vec::with_capacity(free_entries),
            resumed: ArrayVec::new(),
            syns,
            host: parts.host,
            service: parts.service,
            serves_hosts: false,
            moving: Moving::default(),
            behind: 0,
            gone: Vec::with_capacity(held),
        }
    }

    /// Runs one round (one iteration of the worker's main loop): a burst from each port, the same number of bursts from
    /// other workers, unparked packets, timers and requests. Returns the number of packets.
    pub fn round(&mut self, now: Now) -> usize {
        self.wake();
        self.parts.counters.rounds.add(1);
        if let Some(assist) = &self.parts.start.assist {
            assist.start_round(self.parts.own);
        }
        let mut packets = 0;
        for remaining in (0..self.max_receive_passes()).rev() {
            let (count, is_full) = self.receive(now);
            packets += count;
            if remaining == 0 || !is_full || !self.has_capacity_for_burst() {
                break;
            }
        }
        if self.assisting.is_some() {
            packets += self.assist(now);
        }
        let start = (self.cycles)();
        self.housekeep(packets, now);
        self.count(CycleStage::Housekeeping, start);
        packets += self.resume_all(now);
        if self.hosts_sent() {
            packets += self.burst(Source::Hosts, now);
        }
        if self.service_sent() {
            packets += self.burst(Source::Service, now);
        }
        if self.is_moving() {
            packets += self.move_on(now);
        }
        self.serve_requests(now);
        if self.parts.has_actions() || !self.parts.lists.tasks.is_empty() {
            self.burst(Source::Nothing, now);
        }
        self.count_held();
        self.quiescence.pass(self.parts.own as usize);
        if packets == 0 {
            self.parts.counters.idle_rounds.add(1);
        }
        packets
    }

    /// Releases all references because of which memory could not be freed while the worker sleeps.
    pub fn sleep(&mut self) {
        self.snapshot.offline();
        self.quiescence.offline(self.parts.own as usize);
        self.online = false;
    }

    fn wake(&mut self) {
        if !self.online {
            self.quiescence.online(self.parts.own as usize);
            self.online = true;
        }
    }

    /// Whether the worker has work even if no packets arrive: a request of the control thread, the move of a shard, or
    /// more expired sessions than one round can end.
    pub fn is_answering(&self) -> bool {
        let is_assisting = self.assisting.as_ref().is_some_and(|work| work.is_answering());
        let is_moving = is_assisting || self.is_moving();
        self.requests.is_answering() || self.parts.migrating.is_under_way() || is_moving || self.has_expiry_backlog
    }

    /// Stops receiving. Later rounds process the remaining packets, and complete a release of a shard that has already started.
    pub fn stop_receiving(&mut self) {
        self.receives.clear();
        self.complete_release();
    }

    /// Number of allocated ports of an IPv4 pool, for tests.
    pub fn allocated_ports(&self, pool: PoolIndex) -> u32 {
        let shards = self.parts.shards.iter().flatten();
        let used = |shard: &Shard<'_>| PortClass::ALL.map(|class| shard.bindings4.ports().used(pool, class));
        shards.flat_map(|shard| used(shard)).sum()
    }

    /// Switches the express lane on or off, for tests and measurements. It is on at first. While it is off, the graph
    /// processes every packet.
    pub fn set_lane(&mut self, is_on: bool) {
        self.parts.lane = is_on.then(Box::default);
    }

    /// The packet I/O, for tests and `replay`.
    pub fn io_mut(&mut self) -> &mut (dyn Handover + 'm) {
        &mut *self.io
    }

    fn count(&self, stage: CycleStage, start: u64) -> u64 {
        let now = (self.cycles)();
        self.parts.counters.cycles[stage as usize].add(now.wrapping_sub(start));
        now
    }
}

impl State<'_> {
    fn has_actions(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.actions.is_empty())
    }
}
