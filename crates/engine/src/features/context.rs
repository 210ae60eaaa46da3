//! The data that nodes use during a burst.

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

/// A parked packet.
#[derive(Debug)]
pub struct WaitingPacket {
    /// Handle of the packet's buffer.
    pub parked: Parked,
    /// Interface on which the packet was received.
    pub interface: u16,
    /// Origin of the packet.
    pub origin: Origin,
}

/// State of the owner worker, which handles neighbours, fragments and the gateway's own traffic.
#[derive(Debug)]
pub struct OwnerState {
    /// Writer of the neighbour table.
    pub writer: NeighbourWriter,
    /// Packets that are parked for neighbours.
    pub parking: Parking<WaitingPacket>,
    /// Actions that the writer of the neighbour table has requested.
    pub actions: ArrayVec<Action, { 2 * BURST_BUFFERS }>,
    /// Policers of the gateway's own traffic.
    pub policer: ControlPolicer,
    /// The commit for which the neighbour quotas were last set.
    pub quotas: Option<u32>,
    /// Fragmented datagrams in virtual reassembly.
    pub datagrams: VirtualReassembly,
    /// For each interface: time of the next router advertisement, and time of the last one, in nanoseconds.
    pub advertise_at: Vec<(u64, Option<u64>)>,
    /// State of the announcements of the gateway's addresses.
    pub announcements: Announcements,
    /// Next echo request to send, with the gateway that the request probes.
    pub probe: Option<(Probe, NeighbourIndex)>,
}

/// Creates the policers of the gateway's own traffic, as configured in a snapshot.
pub fn policer(snapshot: &Snapshot, start: &StartParameters, now: Now) -> ControlPolicer {
    ControlPolicer::new(snapshot.limits, snapshot.routers_of(), start.secret[0], now.nanoseconds)
}

/// Minimum interval between two multicast router advertisements, in nanoseconds (RFC 4861, section 6.2.6).
const MIN_ADVERTISEMENT_INTERVAL: u64 = 3_000_000_000;

impl OwnerState {
    /// Handles a router solicitation: schedules the next advertisement as early as permitted.
    pub fn schedule_advertisement(&mut self, interface: u16, now: u64) {
        if let Some((next, last)) = self.advertise_at.get_mut(interface as usize) {
            let soon = last.map_or(now, |last| now.max(last + MIN_ADVERTISEMENT_INTERVAL));
            *next = soon.min(*next);
        }
    }
}

/// Maximum number of sessions that a burst revalidates although they are not overdue.
const MAX_REVALIDATIONS: usize = 4;

/// Nanoseconds for which a session of an older snapshot may be used. An overdue session is revalidated by its next packet.
const OVERDUE: u64 = 500_000_000;

/// The generations of the last [`OVERDUE`] nanoseconds, each with the time of its first burst. Commits are infrequent,
/// so the capacity suffices.
#[derive(Debug, Default)]
pub struct Generations(ArrayVec<(u32, u64), 16>);

impl Generations {
    /// Records the snapshot that a burst uses.
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
            // If the list is full, the new generation replaces the last one in the list and takes over its time.
            // Sessions then become overdue too early rather than too late.
            true => self.0.last_mut().into_iter().for_each(|last| last.0 = generation),
            false => self.0.push((generation, now)),
        }
    }

    /// The oldest generation whose sessions are not overdue; `None` if no session is overdue.
    #[inline(always)]
    pub fn overdue(&self, now: u64) -> Option<u32> {
        let old = |entry: &&(u32, u64)| now.saturating_sub(entry.1) > OVERDUE;
        self.0.iter().rev().find(old).map(|entry| entry.0)
    }
}

/// The sessions that a burst may revalidate.
#[derive(Debug, Default)]
pub struct Revalidations {
    /// The oldest generation whose sessions are not overdue; `None` if no session is overdue.
    overdue: Option<u32>,
    sessions: ArrayVec<(u16, RecordIndex), MAX_REVALIDATIONS>,
}

impl Revalidations {
    /// Creates the state for a burst, which revalidates all overdue sessions and a few other sessions.
    pub fn new(overdue: Option<u32>) -> Self {
        Self {
            overdue,
            ..Self::default()
        }
    }

    /// Whether the burst revalidates the packet's session, whose decision was made from an older snapshot. The result
    /// is the same for all packets of a session in the burst, so that the packets keep their order.
    #[inline]
    pub fn admit(&mut self, shard: u16, index: RecordIndex, generation: u32) -> bool {
        let is_older = |overdue: u32| (generation.wrapping_sub(overdue) as i32) < 0;
        self.overdue.is_some_and(is_older)
            || self.sessions.contains(&(shard, index))
            || self.sessions.try_push((shard, index)).is_ok()
    }
}

/// The data that a node needs to send packets.
#[derive(Clone, Copy)]
pub struct OutputContext<'c> {
    /// Time of the burst.
    pub now: Now,
    /// Number of this worker.
    pub own: WorkerIndex,
    /// Start parameters.
    pub start: &'c StartParameters,
    /// The newest snapshot.
    pub snapshot: &'c Snapshot,
    /// Routes and neighbours.
    pub forwarding: &'c ForwardingState,
    /// Counters of this worker.
    pub counters: &'c WorkerCounters,
}

/// The state of the worker, as borrowed by nodes.
pub struct NodeContext<'c, 'm> {
    /// Time of the burst.
    pub now: Now,
    /// Number of this worker.
    pub own: WorkerIndex,
    /// Start parameters.
    pub start: &'c StartParameters,
    /// The workers that execute other pipeline stages for packets of this worker.
    pub role: &'c Role,
    /// The newest snapshot.
    pub snapshot: &'c Snapshot,
    /// Routes and neighbours.
    pub forwarding: &'c ForwardingState,
    /// Hash function for session keys.
    pub hasher: &'c Hasher,
    /// Shards by number; `None` if another worker owns the shard.
    pub shards: &'c mut [Option<Box<Shard<'m>>>],
    /// Counters of this worker.
    pub counters: &'c WorkerCounters,
    /// Queue of translation events.
    pub events: &'c EventQueue,
    /// Queue of records of inspected flows.
    pub records: &'c RecordQueue,
    /// Queue of packets to hosts.
    pub punts: &'c PuntQueue,
    /// Queue of packets to the subscriber service.
    pub subscribers: &'c PuntQueue,
    /// State of application identification.
    pub recognition: &'c Identification,
    /// State of the owner worker; `None` on other workers.
    pub owner: Option<&'c mut OwnerState>,
    /// The sessions that this burst may revalidate.
    pub revisions: Revalidations,
    /// Whether the worker gives precedence to receiving, and therefore queues the packets of its own shards for later
    /// processing.
    pub defers: bool,
    /// Number of recently received packets of each shard; empty if the worker does not count them.
    pub seen: &'c mut [u32],
}

impl<'c, 'm> NodeContext<'c, 'm> {
    /// The data that is needed to send packets.
    #[inline(always)]
    pub fn exit(&self) -> OutputContext<'c> {
        OutputContext {
            now: self.now,
            own: self.own,
            start: self.start,
            snapshot: self.snapshot,
            forwarding: self.forwarding,
            counters: self.counters,
        }
    }

    /// The data that is needed to end sessions.
    pub fn tools(&self) -> SessionTools<'c> {
        SessionTools {
            now: self.now,
            hasher: self.hasher,
            forwarding: self.forwarding,
            counters: self.counters,
            meters: &self.start.meters,
            events: self.events,
            records: self.records,
            recognition: self.recognition,
        }
    }

    /// The shard to which a packet belongs.
    #[inline(always)]
    pub fn shard_of(&self, meta: &Meta) -> Option<&Shard<'m>> {
        self.shards.get(meta.shard as usize).and_then(Option::as_deref)
    }
}
