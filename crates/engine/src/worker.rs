//! A worker: receives bursts, runs the nodes, and disposes of every buffer according to the decisions of the nodes.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_nat::{PoolIndex, PortClass};
use sluice_table::hash::Hasher;
use sluice_table::prefix::Quiescence;
use sluice_table::publish::Reader;

use crate::features::context::{Generations, NodeContext, OwnerState, Revalidations, WaitingPacket};
use crate::features::inspection::{FragmentNote, Inspector};
use crate::features::pending_syns::PendingSyns;
use crate::features::pool_migration::PoolMigration;
use crate::nodes::dispatch::{NodeTools, Observer};
use crate::nodes::session_lookup::LookupScratch;
use crate::nodes::{admit, chain, hand_off, inter_router_link, parse, run_nodes, subscriber};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::counters::{CycleStage, WorkerCounters};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, Handover, NoteWords, Packets, PortIndex, WorkerIndex};
use crate::packet::lists::Lists;
use crate::packet::punt::{PuntQueue, PuntReceiver};
use crate::packet::reason::{Own, Reason};
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
use crate::worker::watch::Watch;

use arrivals::Runs;
use assisting::Assisting;
use schedule::Schedule;
use shard_moves::Moving;

mod arrivals;
mod assisting;
pub mod capture;
mod dispose;
mod free_capacity;
mod host;
mod housekeep;
mod identification;
mod link_shares;
mod links;
mod parked;
mod receive;
pub mod request;
mod scans;
mod schedule;
mod shard_moves;
mod tasks;
pub mod trace;
mod watch;

pub use shard_moves::MAX_HELD;

/// Maximum number of rounds of the nodes in one burst. A packet that creates a session needs two rounds; inspection,
/// identification and an ICMP error need one more each. A hairpinned packet creates two sessions.
const ROUNDS: usize = 8 * inter_router_link::MAX_PASSES as usize;

/// The parts from which a worker is created.
pub struct WorkerParts<'m> {
    /// Number of this worker.
    pub own: WorkerIndex,
    /// Start parameters.
    pub start: Arc<StartParameters>,
    /// The stages that other workers execute for this worker.
    pub role: Role,
    /// Reader of the published snapshots.
    pub snapshot: Reader<Snapshot>,
    /// Routes and neighbours.
    pub forwarding: ForwardingState,
    /// Where this worker reports its quiescent states, at index `own`.
    pub quiescence: Arc<Quiescence>,
    /// The shards that this worker owns.
    pub shards: Vec<Shard<'m>>,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// Packet I/O of the worker's devices.
    pub io: Box<dyn Handover + 'm>,
    /// The ports from which the worker receives.
    pub receives: Vec<PortIndex>,
    /// The owner's state; `None` if this worker is not the owner.
    pub owner: Option<OwnerState>,
    /// Function that reads the cycle counter, for the counters by stage.
    pub cycles: fn() -> u64,
    /// Channel for requests from the control thread.
    pub requests: RequestServer,
    /// Queue of translation events.
    pub events: EventQueue,
    /// Queue of records of inspected flows.
    pub records: RecordQueue,
    /// Queue of packets to routers' hosts.
    pub punts: PuntQueue,
    /// Queue of packets from hosts; `None` if this worker is not the owner.
    pub host: Option<PuntReceiver>,
    /// Queue of packets to the subscriber service.
    pub subscribers: PuntQueue,
    /// Queue of packets from the subscriber service; `None` if this worker is not the owner.
    pub service: Option<PuntReceiver>,
    /// State of application identification.
    pub recognition: Identification,
    /// State of inspection, if any interface is inspected.
    pub inspecting: Option<Box<Inspector>>,
}

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
    /// Whether more sessions of a shard have expired than one round ends.
    is_behind: bool,
    /// Whether this round serves the same shard as the last one.
    stayed: bool,
    tracer: Option<Box<Tracer>>,
    tap: Option<Box<Tap>>,
    carried: ArrayVec<NoteWords, BURST_SIZE>,
    /// Packets of the burst that have not been parsed.
    runs: Runs,
    /// Numbers of free entries in the rings to the next stage.
    rooms: Vec<usize>,
    resumed: ArrayVec<(WaitingPacket, ResumeReason), BURST_BUFFERS>,
    syns: PendingSyns,
    host: Option<PuntReceiver>,
    service: Option<PuntReceiver>,
    /// Whether hosts may send packets through this worker.
    serves_hosts: bool,
    moving: Moving<'m>,
    /// State for taking over shards from other workers; `None` if the worker does not assist.
    assisting: Option<Box<Assisting>>,
    /// Number of packets in consecutive full bursts from devices. At least this number of packets has waited in the devices.
    behind: u64,
    /// Fair division of received packets among routers.
    receiving: SideState,
    /// Fair division of sent packets among interfaces.
    sending: SideState,
    /// Order in which ports are served.
    turns: Schedule,
    /// Number of cycles that the last burst took; 0 if there was none.
    took: u64,
    /// Parked fragments that will be dropped.
    gone: Vec<(WaitingPacket, sluice_inspect::Reason)>,
}

/// The state that nodes use, except for the snapshot.
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
    recognition: Identification,
    inspecting: Option<Box<Inspector>>,
}

/// Why a parked packet is processed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumeReason {
    /// The event for which it waited has occurred.
    Ready,
    /// The packet is a fragment that inspection had parked, with the results of virtual reassembly, and whether it was inspected.
    Fragment(FragmentNote, bool),
    /// The packet came over an inter-router link.
    Crossed,
    /// The packet is sent through a tunnel.
    Tunnelled,
    /// The packet's neighbour did not answer.
    Failed,
    /// The packet is an unsolicited SYN, which is rejected for this reason.
    Unsolicited(Reason),
}

/// Where the packets of a burst come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Port(PortIndex),
    Workers,
    Parking,
    /// Packets that were held until their shard arrived.
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
        let rooms = parts.role.beyond.len();
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
                recognition: parts.recognition,
                inspecting: parts.inspecting,
            },
            io: parts.io,
            receiving: SideState::new(ports),
            sending: SideState::new(ports),
            turns: Schedule::new(ports),
            took: 0,
            receives,
            quiescence: parts.quiescence,
            snapshot: parts.snapshot,
            cycles: parts.cycles,
            requests: parts.requests,
            generations: Generations::default(),
            online: false,
            next_shard: 0,
            is_behind: false,
            stayed: false,
            tracer: None,
            tap: None,
            carried: ArrayVec::new(),
            runs: Runs::new(),
            rooms: Vec::with_capacity(rooms),
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

    /// Runs one round: a burst from each port, the same number of bursts from other workers, unparked packets, timers and
    /// requests. Returns the number of packets.
    pub fn round(&mut self, now: Now) -> usize {
        self.wake();
        self.parts.counters.rounds.add(1);
        if let Some(assist) = &self.parts.start.assist {
            assist.begin_round(self.parts.own);
        }
        let mut packets = 0;
        for left in (0..self.receives_at_most()).rev() {
            let (count, is_full) = self.receive(now);
            packets += count;
            if left == 0 || !is_full || !self.has_capacity_for_burst() {
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
        self.deal(now);
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

    /// Prepares for sleep: releases all references that would delay the freeing of memory.
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

    /// Whether rounds without packets still have work: a request of the control thread, the move of a shard, or more expired
    /// sessions than one round ends.
    pub fn is_answering(&self) -> bool {
        let is_assisting = self.assisting.as_ref().is_some_and(|work| work.is_answering());
        let is_moving = is_assisting || self.is_moving();
        self.requests.is_answering() || self.parts.migrating.is_under_way() || is_moving || self.is_behind
    }

    /// Stops receiving. Further rounds complete the packets in progress, and the release of a shard that the control thread has started.
    pub fn stop_receiving(&mut self) {
        self.receives.clear();
        self.give_soon();
    }

    /// Number of allocated ports of an IPv4 pool, for tests.
    pub fn allocated_ports(&self, pool: PoolIndex) -> u32 {
        let shards = self.parts.shards.iter().flatten();
        let used = |shard: &Shard<'_>| PortClass::ALL.map(|class| shard.bindings4.ports().used(pool, class));
        shards.flat_map(|shard| used(shard)).sum()
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

    /// Processes one burst. Returns its number of packets.
    fn burst(&mut self, source: Source, now: Now) -> usize {
        let start = (self.cycles)();
        let count = match source {
            Source::Port(port) => self.io.receive(port),
            Source::Workers => {
                self.carried.clear();
                let count = self.io.take_over(&mut self.carried);
                self.parts.counters.taken_over.add(count as u64);
                count
            }
            Source::Parking => self.unpark(),
            Source::Held => self.unhold(),
            Source::Queue => self.unqueue(),
            Source::Hosts => self.take_from_hosts(),
            Source::Service => self.take_from_service(),
            Source::Nothing => 0,
        };
        if count == 0 && source != Source::Nothing {
            if let Source::Port(port) = source {
                self.receiving.idle(port);
            }
            self.took = 0;
            return 0;
        }
        let receive = match source {
            Source::Workers => CycleStage::TakeOver,
            _ => CycleStage::Receive,
        };
        let received = self.count(receive, start);
        let mut shed = match source {
            Source::Port(_) => self.observe_next_stage(count),
            _ => 0,
        };
        let snapshot = self.snapshot.load();
        let shares = snapshot.shares.as_deref();
        let mut most = BURST_SIZE;
        if let Source::Port(port) = source
            && shed > 0
            && self.parts.role.parsers.is_empty()
            && shares
                .and_then(|shares| shares.port(port))
                .is_some_and(|port| port.shared)
        {
            // If the next stage lacks capacity, drop packets that exceed their router's share, instead of arbitrary packets.
            most = count - std::mem::take(&mut shed);
        }
        self.generations.observe(snapshot.generation, now.nanoseconds);
        let overdue = self.generations.overdue(now.nanoseconds);
        let state = &mut self.parts;
        state.migrating.follow(&mut state.shards, snapshot);
        {
            let mut allocated = Packets::new();
            self.io.packets(&mut allocated);
            let mut batch = Batch {
                packets: &mut allocated,
                meta: &mut state.meta,
            };
            let mut ctx = NodeContext {
                now,
                own: state.own,
                start: &state.start,
                role: &state.role,
                snapshot,
                forwarding: &state.forwarding,
                hasher: &state.hasher,
                shards: &mut state.shards,
                counters: &state.counters,
                events: &state.events,
                records: &state.records,
                punts: &state.punts,
                subscribers: &state.subscribers,
                recognition: &state.recognition,
                owner: state.owner.as_deref_mut(),
                revisions: Revalidations::new(overdue),
                defers: self.assisting.is_some() && matches!(source, Source::Port(_) | Source::Workers),
                seen: match (source, self.assisting.as_deref_mut()) {
                    (Source::Port(_), Some(work)) => &mut work.judge.seen,
                    _ => &mut [],
                },
            };
            let lists = &mut *state.lists;
            self.runs.clear();
            let mut mark = received;
            match source {
                Source::Port(port) if ctx.role.parsers.is_empty() => put(&mut self.runs, (port, shed..count)),
                Source::Port(port) => hand_off::received(&mut batch, lists, &ctx, port, shed, &mut self.rooms),
                Source::Workers | Source::Held | Source::Queue => {
                    arrivals::from_workers(&mut batch, lists, &mut ctx, &self.carried, &mut self.runs);
                    mark = (self.cycles)();
                    state.counters.cycles[CycleStage::TakeOver as usize].add(mark.wrapping_sub(received));
                }
                Source::Parking => arrivals::from_parking(&mut batch, lists, &mut ctx, &mut self.resumed),
                Source::Hosts => host::sent(&mut batch, lists, &ctx, count),
                Source::Service => subscriber::sent(&mut batch, lists, &ctx, count),
                Source::Nothing => {}
            }
            if let Source::Port(port) = source
                && shed > 0
            {
                hand_off::shed(&mut batch, lists, &ctx, port, shed);
            }
            for (port, slots) in &self.runs {
                let refused = shares.map_or(0, |shares| {
                    let what = (*port, slots.clone(), most);
                    let is_watched = self.tracer.is_some() || self.tap.is_some();
                    admit::admit(&mut batch, lists, &ctx, shares, &mut self.receiving, what, is_watched)
                });
                match refused {
                    0 => parse::parse(&mut batch, lists, &mut ctx, *port, slots.clone()),
                    _ => parse::parse_admitted(&mut batch, lists, &mut ctx, (*port, slots.clone()), refused),
                }
                if let Some(tap) = &mut self.tap {
                    tap.received(&batch, slots.clone(), now);
                }
            }
            chain::divert_fresh(&batch, lists, &ctx, arrivals::slots_of(&self.runs));
            if !ctx.role.sessions.is_empty() {
                hand_off::both(&batch, lists, &ctx);
            }
            let parsed = (self.cycles)();
            state.counters.cycles[CycleStage::Parse as usize].add(parsed.wrapping_sub(mark));
            let mut watch = Watch::new(self.tracer.as_deref_mut(), self.tap.as_deref_mut());
            if let Some(watch) = &mut watch {
                // Unparked packets and packets from other workers were parsed before.
                let begin = if self.runs.is_empty() { "arrive" } else { "parse" };
                watch.begin(begin, &batch, lists, now);
            }
            let mut tools = NodeTools {
                lookups: &mut state.lookups,
                inspector: state.inspecting.as_deref_mut(),
                ready: &mut |waiting| dispose::ready(&mut self.resumed, waiting),
                observer: watch.as_mut().map(|watch| watch as &mut dyn Observer),
                cycles: self.cycles,
                mark: parsed,
            };
            for _ in 0..ROUNDS {
                if lists.is_done() {
                    break;
                }
                run_nodes(&mut batch, lists, &mut ctx, &mut tools);
            }
            lists.drop_remaining(Own::Loop);
            if let Some(watch) = &mut watch {
                watch.end(&batch, lists, now);
            }
        }
        let end = (self.cycles)();
        if self.parts.has_actions() || self.parts.lists.has_tasks() {
            self.run_tasks(now);
        }
        if !self.parts.lists.hold.is_empty() {
            self.hold(source);
        }
        if !self.parts.lists.queue.is_empty() {
            self.enqueue();
        }
        let over = self.dispose(now);
        self.parts.counters.bursts.add(1);
        self.parts.counters.packets.add(count as u64);
        // The cycles for handing packets to other workers are counted separately.
        self.took = self
            .count(CycleStage::Transmit, end.wrapping_add(over))
            .wrapping_sub(start);
        count
    }
}

impl State<'_> {
    fn has_actions(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.actions.is_empty())
    }
}
