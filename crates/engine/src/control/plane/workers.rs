//! Creates the workers, and the memory layout that they need.

use arrayvec::ArrayVec;
use sluice_inspect::inspector::DetectionContext;
use sluice_route::neighbour::Parking;
use sluice_table::memory::Line;

use crate::features::announcements::Announcements;
use crate::features::context::{OwnerState, policer};
use crate::features::inspection::reassembly::FRAGMENTS;
use crate::features::inspection::rule_updates::RuleUpdates;
use crate::features::inspection::{AlertQueue, Inspector, OverloadState, ParkedPackets, Reassembly};
use crate::features::virtual_reassembly::VirtualReassembly;
use crate::packet::io::{Handover, PortIndex, WorkerIndex};
use crate::packet::punt::{self, PuntQueue};
use crate::session::events::EventQueue;
use crate::session::identification::Identification;
use crate::session::records::RecordQueue;
use crate::session::rule_channel;
use crate::session::shard::Shard;
use crate::snapshot::forwarding::ForwardingState;
use crate::snapshot::shard_memory::{ShardError, ShardMemory};
use crate::snapshot::shared_capacity::SharedCapacity;
use crate::snapshot::{Snapshot, StartParameters};
use crate::worker::request::{WorkerHandle, channel};
use crate::worker::{Worker, WorkerParts};

use super::{ControlPlane, ControlPlaneError};

impl ControlPlane {
    /// Sizes of each shard's memory.
    pub fn lines(&self) -> ShardMemory {
        self.lines
    }

    /// Number of 64-byte memory lines that all shards share.
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

    /// Creates the worker `own`. `memory` takes a shard number and returns [`ShardMemory::total`] lines; it is called
    /// for each shard of the worker. The control thread must call this function once for each worker.
    pub fn worker<'m>(
        &mut self,
        own: WorkerIndex,
        io: Box<dyn Handover + 'm>,
        receives: Vec<PortIndex>,
        memory: impl FnMut(u16) -> &'m mut [Line],
        cycles: fn() -> u64,
    ) -> Result<(Worker<'m>, WorkerHandle), ControlPlaneError> {
        let workers = self.counters.len();
        let counters = self
            .counters
            .get(own as usize)
            .ok_or(ControlPlaneError::Workers(own, workers))?
            .clone();
        let shards = self.shards_of(own, memory)?;
        let owner = self.owner_state(own);
        let (requests, mut counter) = channel();
        let (events, taken) = EventQueue::new(self.start.events.max);
        counter.events = taken;
        let wanted = self.snapshot.current().inspection.as_ref();
        let (records, taken) = RecordQueue::new(wanted.map(|inspection| inspection.records).unwrap_or_default());
        counter.records = taken;
        let (punts, taken) = PuntQueue::new();
        counter.to_hosts = Some(taken);
        let (subscribers, taken) = PuntQueue::new();
        counter.to_subscribers = Some(taken);
        let queue = || owner.is_some().then(|| punt::queue(punt::QUEUE_BYTES));
        let (rule_sender, service) = queue().unzip();
        counter.from_subscribers = rule_sender;
        let (rule_sender, host) = queue().unzip();
        counter.from_hosts = rule_sender;
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

    /// Creates the shards of a worker.
    fn shards_of<'m>(
        &mut self,
        own: WorkerIndex,
        mut memory: impl FnMut(u16) -> &'m mut [Line],
    ) -> Result<Vec<Shard<'m>>, ControlPlaneError> {
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
        Ok(shards)
    }

    /// Creates the owner's state; `None` if the worker is not the owner.
    fn owner_state(&mut self, own: WorkerIndex) -> Option<OwnerState> {
        let snapshot = self.snapshot.current();
        let writer = (own == snapshot.owner).then(|| self.writer.take()).flatten()?;
        let parking = Parking::new(
            self.limits.capacity,
            self.limits.parked,
            self.limits.parked_in_all,
            self.limits.timeout,
        );
        self.waiting = parking.waiting();
        Some(OwnerState {
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
        })
    }

    /// Creates the inspection state of a worker, and the receiving end of its alert queue.
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
            load: OverloadState::default(),
            alerts,
            parking: ArrayVec::new(),
            expired: Vec::with_capacity(held),
        })))
    }
}
