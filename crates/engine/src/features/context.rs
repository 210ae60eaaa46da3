//! What nodes work with for the length of a burst.

use arrayvec::ArrayVec;
use sluice_route::neighbour::{Action, NeighbourIndex, NeighbourWriter, Parking};
use sluice_route::policer::ControlPolicer;
use sluice_table::flow::RecordIndex;
use sluice_table::hash::Hasher;

use crate::features::announcements::Announcements;
use crate::features::session_end::SessionTools;
use crate::features::virtual_reassembly::VirtualReassembly;
use crate::packet::batch::{Meta, Origin};
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{BURST_BUFFERS, Parked, WorkerIndex};
use crate::packet::punt::PuntQueue;
use crate::packet::time::Now;
use crate::session::events::EventQueue;
use crate::session::identification::Identification;
use crate::session::records::RecordQueue;
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::probes::Probe;
use crate::snapshot::stages::Role;
use crate::snapshot::{Snapshot, StartParameters};

/// A packet that waits.
#[derive(Debug)]
pub struct WaitingPacket {
    /// Its buffer.
    pub parked: Parked,
    /// Interface that it came in by.
    pub interface: u16,
    /// Where it comes from.
    pub origin: Origin,
}

/// What the one worker has that owns neighbours, fragments and the gateway's own traffic.
#[derive(Debug)]
pub struct OwnerState {
    /// Writer of the table of neighbours.
    pub writer: NeighbourWriter,
    /// Packets that wait for neighbours.
    pub parking: Parking<WaitingPacket>,
    /// What the writer wants done.
    pub actions: ArrayVec<Action, { 2 * BURST_BUFFERS }>,
    /// Limits of the gateway's own traffic.
    pub policer: ControlPolicer,
    /// The commit that quotas of neighbours are by.
    pub quotas: Option<u32>,
    /// Datagrams in fragments.
    pub datagrams: VirtualReassembly,
    /// By interface: nanosecond of the next router advertisement, and of the last.
    pub advertise_at: Vec<(u64, Option<u64>)>,
    /// Own addresses that are announced.
    pub announcements: Announcements,
    /// The echo request to send next, with its gateway.
    pub probe: Option<(Probe, NeighbourIndex)>,
}

/// The limits of the gateway's own traffic by a snapshot.
pub fn policer(snapshot: &Snapshot, start: &StartParameters, now: Now) -> ControlPolicer {
    ControlPolicer::new(snapshot.limits, snapshot.routers_of(), start.secret[0], now.nanoseconds)
}

/// Nanoseconds between two router advertisements to all hosts, at least (RFC 4861, section 6.2.6).
const BETWEEN_ADVERTISEMENTS: u64 = 3_000_000_000;

impl OwnerState {
    /// A host asks for routers: the next advertisement comes as early as allowed.
    pub fn advertise_soon(&mut self, interface: u16, now: u64) {
        if let Some((next, last)) = self.advertise_at.get_mut(interface as usize) {
            let soon = last.map_or(now, |last| now.max(last + BETWEEN_ADVERTISEMENTS));
            *next = soon.min(*next);
        }
    }
}

/// Sessions of an older snapshot that one burst decides again, as long as they are not overdue.
const MAX_REVALIDATIONS: usize = 4;

/// Nanoseconds for which a session may be out of date: then it is decided again at its next packet.
const OVERDUE: u64 = 500_000_000;

/// Policies that came within [`OVERDUE`], and when each was first seen. More than fit come faster than commits may.
#[derive(Debug, Default)]
pub struct Generations(ArrayVec<(u32, u64), 16>);

impl Generations {
    /// A burst works by this snapshot.
    #[inline(always)]
    pub fn observe(&mut self, generation: u32, now: u64) {
        if self.0.last().is_none_or(|last| last.0 != generation) {
            self.note(generation, now);
        }
    }

    #[cold]
    fn note(&mut self, generation: u32, now: u64) {
        while self
            .0
            .get(1)
            .is_some_and(|second| now.saturating_sub(second.1) > OVERDUE)
        {
            self.0.remove(0);
        }
        match self.0.is_full() {
            // Rather too early than too late.
            true => self.0.last_mut().into_iter().for_each(|last| last.0 = generation),
            false => self.0.push((generation, now)),
        }
    }

    /// Sessions older than this are overdue.
    #[inline(always)]
    pub fn overdue(&self, now: u64) -> Option<u32> {
        let old = |entry: &&(u32, u64)| now.saturating_sub(entry.1) > OVERDUE;
        self.0.iter().rev().find(old).map(|entry| entry.0)
    }
}

/// Which sessions a burst decides again.
#[derive(Debug, Default)]
pub struct Revalidations {
    /// Those older than this are.
    overdue: Option<u32>,
    sessions: ArrayVec<(u16, RecordIndex), MAX_REVALIDATIONS>,
}

impl Revalidations {
    /// Of a burst: all that are older, and a few of the others.
    pub fn new(overdue: Option<u32>) -> Self {
        Self {
            overdue,
            ..Self::default()
        }
    }

    /// Whether this session of a shard is decided again, which an older snapshot decided: with its first packet all others
    /// of the burst, so that they keep their order.
    #[inline]
    pub fn admit(&mut self, shard: u16, index: RecordIndex, generation: u32) -> bool {
        let is_older = |overdue: u32| (generation.wrapping_sub(overdue) as i32) < 0;
        self.overdue.is_some_and(is_older)
            || self.sessions.contains(&(shard, index))
            || self.sessions.try_push((shard, index)).is_ok()
    }
}

/// What it takes to send a packet.
#[derive(Clone, Copy)]
pub struct OutputContext<'c> {
    /// The moment of the burst.
    pub now: Now,
    /// This worker.
    pub own: WorkerIndex,
    /// What is fixed.
    pub start: &'c StartParameters,
    /// What the last commit decided.
    pub snapshot: &'c Snapshot,
    /// Routes and neighbours.
    pub paths: &'c ForwardingState,
    /// Counters.
    pub counters: &'c WorkerCounters,
}

/// The worker's state, lent to a node.
pub struct NodeContext<'c, 'm> {
    /// The moment of the burst.
    pub now: Now,
    /// This worker.
    pub own: WorkerIndex,
    /// What is fixed.
    pub start: &'c StartParameters,
    /// What this worker leaves to others.
    pub role: &'c Role,
    /// What the last commit decided.
    pub snapshot: &'c Snapshot,
    /// Routes and neighbours.
    pub paths: &'c ForwardingState,
    /// Session keys' hash.
    pub hasher: &'c Hasher,
    /// Shards by number; none where another worker is in charge.
    pub shards: &'c mut [Option<Box<Shard<'m>>>],
    /// Counters.
    pub counters: &'c WorkerCounters,
    /// Where events of translation go.
    pub events: &'c EventQueue,
    /// Where records of inspected flows go.
    pub records: &'c RecordQueue,
    /// Where packets for hosts go.
    pub punts: &'c PuntQueue,
    /// Where what is for who serves subscribers' sites goes.
    pub subscribers: &'c PuntQueue,
    /// What applications are found out with.
    pub recognition: &'c Identification,
    /// What the owner has.
    pub owner: Option<&'c mut OwnerState>,
    /// Sessions that are decided again in this burst.
    pub revisions: Revalidations,
    /// Packets whose shard is here wait until their turn comes: receiving goes before.
    pub defers: bool,
    /// Packets by shard that came lately, where that is asked.
    pub seen: &'c mut [u32],
}

impl<'c, 'm> NodeContext<'c, 'm> {
    /// What it takes to send.
    #[inline(always)]
    pub fn exit(&self) -> OutputContext<'c> {
        OutputContext {
            now: self.now,
            own: self.own,
            start: self.start,
            snapshot: self.snapshot,
            paths: self.paths,
            counters: self.counters,
        }
    }

    /// What it takes to end a session.
    pub fn tools(&self) -> SessionTools<'c> {
        SessionTools {
            now: self.now,
            hasher: self.hasher,
            paths: self.paths,
            counters: self.counters,
            meters: &self.start.meters,
            events: self.events,
            records: self.records,
            recognition: self.recognition,
        }
    }

    /// The shard of a packet.
    #[inline(always)]
    pub fn shard_of(&self, meta: &Meta) -> Option<&Shard<'m>> {
        self.shards.get(meta.shard as usize).and_then(Option::as_deref)
    }
}
