//! The parts from which a worker is created.

use std::sync::Arc;

use sluice_table::prefix::Quiescence;
use sluice_table::publish::Reader;

use crate::features::context::OwnerState;
use crate::features::inspection::Inspector;
use crate::packet::counters::WorkerCounters;
use crate::packet::io::{Handover, PortIndex, WorkerIndex};
use crate::packet::punt::{PuntQueue, PuntReceiver};
use crate::session::events::EventQueue;
use crate::session::identification::Identification;
use crate::session::records::RecordQueue;
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::stages::Role;
use crate::snapshot::{Snapshot, StartParameters};
use crate::worker::request::RequestServer;

/// Components from which a worker is created.
pub struct WorkerParts<'m> {
    /// Number of this worker.
    pub own: WorkerIndex,
    /// Start parameters.
    pub start: Arc<StartParameters>,
    /// The workers that execute other pipeline stages for packets of this worker.
    pub role: Role,
    /// Reader of the published snapshots.
    pub snapshot: Reader<Snapshot>,
    /// Routes and neighbours.
    pub forwarding: ForwardingState,
    /// Table in which this worker reports its quiescent states, at index `own`.
    pub quiescence: Arc<Quiescence>,
    /// The shards that this worker owns.
    pub shards: Vec<Shard<'m>>,
    /// Counters of this worker.
    pub counters: Arc<WorkerCounters>,
    /// Packet I/O of the worker's devices.
    pub io: Box<dyn Handover + 'm>,
    /// The ports from which the worker receives.
    pub receives: Vec<PortIndex>,
    /// State of the owner worker; `None` if this worker is not the owner.
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
