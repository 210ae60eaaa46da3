//! Runs the engine without devices and with a simulated clock. Received and sent frames are passed in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_config::Config;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::features::inspection::InspectionPolicy;
use sluice_engine::packet::io::memory::{MemoryIo, Sent, Wires};
use sluice_engine::packet::io::{PortIndex, WorkerIndex};
use sluice_engine::packet::time::Now;
use sluice_engine::placement::Part;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Filter, Request, WorkerHandle};
use sluice_route::Address;
use sluice_route::neighbour::{NeighbourIndex, State};
use sluice_table::memory::Line;
use sluice_wire::Checksums;

use super::ReplayError;
use super::captures::{CaptureError, Captured};
use super::cut::filled;
use super::flow::flow;
use super::links::NO_ADDRESS;
use super::records::{EveEvent, Recorder};
use super::summary::{self, InventedNeighbour, Summary};
use crate::compiling::Compiler;
use crate::lowering::{self, Secrets};

/// Nanoseconds per tick of the session timers. Time advances in steps of at least one tick.
const TICK: u64 = 10_000_000;

/// Maximum number of time steps between two frames.
const STEPS: u64 = 1_000;

/// Maximum length in bytes of a frame that is processed.
const LONGEST: usize = 65_000;

/// Receives sent frames: port, time in nanoseconds, and frame.
type Sink<'s> = dyn FnMut(PortIndex, u64, &[u8]) -> Result<(), CaptureError> + 's;

/// Cache lines of memory that the tables need, per worker and per shard.
pub struct Memory {
    shards: usize,
    lines: usize,
}

impl Memory {
    /// Allocate the memory, one part per shard.
    pub fn allocate(&self) -> Vec<Vec<Line>> {
        (0..self.shards).map(|_| vec![Line::ZERO; self.lines]).collect()
    }
}

/// The workers, their simulated ports, and the state of the replay.
pub struct World<'m> {
    plane: ControlPlane,
    workers: Vec<Worker<'m>>,
    wires: Vec<Wires>,
    handles: Vec<WorkerHandle>,
    now: Now,
    readdress: Readdress,
    invented: BTreeMap<(u16, Address), [u8; 6]>,
    /// Number of parked packets at the time of the last search for unresolved neighbours.
    parked: u64,
    cut: Cut,
    /// Collects the workers' alerts and records, if enabled.
    recorder: Option<Recorder>,
}

/// Frames that were captured incompletely.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// Truncated frames.
    pub truncated: u64,
    /// Truncated frames that lack a header and were skipped.
    pub headless: u64,
    /// Frames that exceed the maximum length and were skipped.
    pub too_long: u64,
}

/// The configured stages, if the number of workers equals the configured number.
fn stages(config: &Config, workers: u16) -> Stages {
    match usize::from(workers) == config.cores.len() {
        true => Stages::new(config.stages.clone()),
        false => Stages::default(),
    }
}

/// Cycle counter that is always zero, since a replay must not depend on real time.
pub const NO_CYCLES: fn() -> u64 = || 0;

/// MAC address of each port. The flag is set if no MAC is configured, so that frames are readdressed to this MAC.
type Readdress = Vec<([u8; 6], bool)>;

fn plane(
    config: &Config,
    workers: u16,
    inspection: Option<&Arc<InspectionPolicy>>,
) -> Result<(ControlPlane, Readdress), ReplayError> {
    let stages = stages(config, workers);
    // Each port has one queue, like a kernel interface.
    let sender = stages
        .workers(Part::Transmit)
        .first()
        .copied()
        .unwrap_or(lowering::FIRST);
    let owners = lowering::ports(config);
    let configured = owners
        .iter()
        .map(|&(_, index)| config.interfaces.get(usize::from(index)));
    let mut macs = Vec::new();
    let mut readdress = Vec::new();
    for (number, interface) in (0u8..).zip(configured) {
        let mac = interface.and_then(|interface| interface.mac).map(|mac| mac.bytes());
        let made = [2, 0x53, 0x6c, 0, 1, number];
        macs.push(mac.unwrap_or(made));
        readdress.push((mac.unwrap_or(made), mac.is_none()));
    }
    let start_parameters = lowering::start_parameters(config, macs.len(), (stages, workers.into()), Secrets::FIXED);
    let rules = lowering::filters(config, None)?;
    let mut policy = lowering::policy(
        config,
        &macs,
        &lowering::pool_names(config, &Vec::new()),
        rules.as_ref(),
        inspection,
        None,
    )?;
    policy.senders = vec![[sender].into(); macs.len()];
    let routes = lowering::routes(config, &policy.interfaces)?;
    let limits = lowering::neighbour_limits(config);
    let plane = ControlPlane::new(start_parameters, policy, &routes, limits, workers.into(), Now::at(0))?;
    Ok((plane, readdress))
}

impl<'m> World<'m> {
    /// Memory requirements of the tables.
    ///
    /// # Errors
    /// The configuration can't be converted to engine parameters.
    pub fn memory(config: &Config, workers: u16) -> Result<Memory, ReplayError> {
        let (plane, _) = plane(config, workers, None)?;
        Ok(Memory {
            shards: plane.start_parameters().owners.len(),
            lines: plane.lines().total(),
        })
    }

    /// Create a world at time 0. The world's workers measure cycles with the given counter.
    ///
    /// # Errors
    /// The configuration can't be converted to engine parameters.
    pub fn new(
        config: &Config,
        workers: u16,
        memory: &'m mut [Vec<Line>],
        cycles: fn() -> u64,
    ) -> Result<Self, ReplayError> {
        let inspection =
            lowering::inspection(config, Secrets::FIXED, &Compiler::here())?.map(|(inspection, _)| inspection);
        Self::with(config, workers, memory, cycles, inspection.as_ref())
    }

    /// Create a world with inspection rules that have already been loaded.
    ///
    /// # Errors
    /// The configuration can't be converted to engine parameters.
    pub fn with(
        config: &Config,
        workers: u16,
        memory: &'m mut [Vec<Line>],
        cycles: fn() -> u64,
        inspection: Option<&Arc<InspectionPolicy>>,
    ) -> Result<Self, ReplayError> {
        let (plane, readdress) = plane(config, workers, inspection)?;
        let room = config
            .interfaces
            .iter()
            .map(|interface| usize::from(interface.mtu))
            .max();
        let mut world = Self {
            plane,
            workers: Vec::new(),
            wires: Vec::new(),
            handles: Vec::new(),
            now: Now::at(0),
            readdress,
            invented: BTreeMap::new(),
            parked: 0,
            cut: Cut::default(),
            recorder: None,
        };
        let mut parts: Vec<Option<&'m mut [Line]>> = memory.iter_mut().map(|part| Some(part.as_mut_slice())).collect();
        let ports = world.readdress.len();
        for (own, io) in (0u16..).zip(MemoryIo::workers(workers.into(), ports)) {
            let wires = io.wires();
            wires.set_room(room.unwrap_or(1500).max(1500) + 512);
            world.wires.push(wires);
            // Each port has one queue, like a kernel interface.
            let receives = (0..ports as PortIndex).filter(|_| own == lowering::FIRST).collect();
            let memory = |shard: u16| {
                parts
                    .get_mut(usize::from(shard))
                    .and_then(Option::take)
                    .unwrap_or_default()
            };
            let (worker, handle) = world.plane.worker(own, Box::new(io), receives, memory, cycles)?;
            world.workers.push(worker);
            world.handles.push(handle);
        }
        for neighbour in &config.neighbours {
            world.set_neighbour(neighbour.interface, neighbour.address.into(), neighbour.mac.bytes());
        }
        Ok(world)
    }

    /// Set the Ethernet address of a neighbour.
    pub fn set_neighbour(&mut self, interface: u16, address: Address, mac: [u8; 6]) {
        let owner = usize::from(self.plane.snapshot().owner);
        let request = Request::SetNeighbour {
            interface,
            address,
            mac,
        };
        if let (Some(handle), Some(worker)) = (self.handles.get(owner), self.workers.get_mut(owner)) {
            // The error is ignored: each round handles one request, and packets remain parked if the table is full.
            let _ = handle.requests.try_send(request);
            worker.round(self.now);
            let _ = handle.replies.try_recv();
        }
    }

    /// Advance the clock to time `at` in steps, so that timers run.
    ///
    /// # Errors
    /// Returns the errors of the sink.
    pub fn advance(&mut self, at: u64, sink: &mut Sink<'_>) -> Result<(), CaptureError> {
        let from = self.now.nanoseconds;
        let step = (at.saturating_sub(from) / STEPS).next_multiple_of(TICK).max(TICK);
        let mut next = (from / TICK + 1) * TICK;
        while next <= at {
            self.now = Now::at(next);
            self.sweep(sink)?;
            next += step;
        }
        let ticked = self.now.tick != Now::at(at).tick;
        self.now = Now::at(at);
        if ticked {
            self.sweep(sink)?;
        }
        Ok(())
    }

    /// Receive a frame at the present time. `checksums` states which checksums are verified. Truncated bytes are
    /// replaced by zeros, and the checksum then counts as correct.
    ///
    /// # Errors
    /// Returns the errors of the sink.
    pub fn receive(
        &mut self,
        port: PortIndex,
        frame: &Captured,
        checksums: Checksums,
        sink: &mut Sink<'_>,
    ) -> Result<(), CaptureError> {
        if let Some((bytes, is_cut)) = self.whole(frame) {
            let checksums = if is_cut { Checksums::Vouched } else { checksums };
            self.feed(port, &self.addressed(port, &bytes), checksums);
        }
        self.settle(sink)
    }

    /// Returns the bytes of a frame, and whether it was truncated. Zeros replace missing bytes. If the frame can't be
    /// used, counts the frame and returns `None`.
    pub fn whole<'f>(&mut self, frame: &'f Captured) -> Option<(Cow<'f, [u8]>, bool)> {
        if frame.length as usize > LONGEST || frame.bytes.len() > LONGEST {
            self.cut.too_long += 1;
            return None;
        }
        if frame.length as usize <= frame.bytes.len() {
            return Some((Cow::Borrowed(&frame.bytes), false));
        }
        self.cut.truncated += 1;
        let filled = filled(frame);
        self.cut.headless += u64::from(filled.is_none());
        filled.map(|bytes| (Cow::Owned(bytes), true))
    }

    /// Set the size of buffers independently of the MTU. Longer frames get larger buffers.
    pub fn set_room(&self, bytes: usize) {
        self.wires.iter().for_each(|wires| wires.set_room(bytes));
    }

    /// The frame, with the port's MAC if the configuration sets no MAC or the capture has no link-layer header.
    pub fn addressed(&self, port: PortIndex, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        if let (Some(&(own, is_any)), Some(destination)) =
            (self.readdress.get(usize::from(port)), bytes.first_chunk_mut::<6>())
            && (*destination == NO_ADDRESS || is_any && destination[0] & 1 == 0)
        {
            *destination = own;
        }
        bytes
    }

    /// Queue a frame at a port.
    pub fn feed(&self, port: PortIndex, frame: &[u8], checksums: Checksums) {
        if let Some(wires) = self.wires.get(usize::from(lowering::FIRST)) {
            wires.inject(port, frame, checksums);
        }
    }

    /// Run the workers until no packet is queued. Returns the frames that were sent, in unspecified order.
    pub fn drain(&mut self) -> Vec<Sent> {
        loop {
            while self.round() > 0 {}
            if !self.invent() {
                break;
            }
        }
        self.wires.iter().flat_map(|wires| wires.take_sent()).collect()
    }

    /// Run a single worker until no packet is queued, and discard the sent frames. All ports must be bridged, since neighbours are not resolved.
    pub fn drain_bridges(&mut self) {
        loop {
            self.round();
            if self.wires.iter().all(Wires::is_idle) {
                break;
            }
        }
        self.wires.iter().for_each(Wires::discard_sent);
    }

    /// Switch the express lane of all workers on or off.
    pub fn set_lane(&mut self, is_on: bool) {
        self.workers.iter_mut().for_each(|worker| worker.set_lane(is_on));
    }

    /// Scan all sessions and end the matching sessions. Each scan leaves the processor's caches in the same state, even
    /// if no session matches the filter.
    pub fn end_sessions(&mut self, filter: &Filter) {
        for (worker, handle) in self.workers.iter_mut().zip(&self.handles) {
            let request = Request::Clear {
                cursor: Default::default(),
                filter: *filter,
                ended: 0,
            };
            if handle.requests.try_send(request).is_ok() {
                while handle.replies.try_recv().is_err() {
                    worker.round(self.now);
                    if let Some(recorder) = &mut self.recorder {
                        recorder.collect();
                    }
                }
            }
        }
    }

    /// The data plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Run all due timers of every shard, and process the packets that they cause.
    fn sweep(&mut self, sink: &mut Sink<'_>) -> Result<(), CaptureError> {
        loop {
            let before = self.ended();
            // In each round, a worker maintains one of its shards.
            for _ in 0..self.plane.start_parameters().owners.len() {
                self.round();
            }
            self.settle(sink)?;
            if self.ended() == before {
                return Ok(());
            }
        }
    }

    fn ended(&self) -> u64 {
        let counters = self.plane.counters().iter();
        counters.map(|worker| worker.sessions_ended.get()).sum()
    }

    fn round(&mut self) -> usize {
        let packets = self.workers.iter_mut().map(|worker| worker.round(self.now)).sum();
        if let Some(recorder) = &mut self.recorder {
            recorder.collect();
        }
        packets
    }

    /// Start collecting the workers' alerts and records.
    pub fn record(&mut self) {
        self.recorder = Some(Recorder::new(&mut self.handles));
    }

    /// Return the alerts and records collected since the last call.
    pub fn recorded(&mut self) -> Vec<EveEvent> {
        self.recorder.as_mut().map(Recorder::take).unwrap_or_default()
    }

    /// Number of alerts and records lost because a queue was full.
    pub fn lost(&self) -> u64 {
        let counters = self.plane.counters().iter();
        counters
            .map(|worker| worker.inspection.alerts_lost.get() + worker.inspection.records_lost.get())
            .sum()
    }

    /// Number of frames that were captured incompletely.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Present time, in nanoseconds since the first frame.
    pub fn now(&self) -> u64 {
        self.now.nanoseconds
    }

    /// Run the workers until all are idle. Sent frames are passed to the sink.
    fn settle(&mut self, sink: &mut Sink<'_>) -> Result<(), CaptureError> {
        let mut sent = self.drain();
        // Frames with the same timestamp are ordered by flow instead of by worker. The order within a flow is preserved.
        sent.sort_by_cached_key(|sent| (sent.port, flow(&sent.frame)));
        for sent in sent {
            sink(sent.port, self.now.nanoseconds, &sent.frame)?;
        }
        Ok(())
    }

    /// Resolve all pending neighbours to generated MAC addresses. Returns `false` if no neighbour was pending.
    fn invent(&mut self) -> bool {
        // A packet to an unresolved neighbour is parked. If no further packet was parked, no neighbour needs resolution.
        let counters = self.plane.counters().iter().flat_map(|worker| worker.interfaces.iter());
        let parked = counters.map(|interface| interface.parked.get()).sum();
        if std::mem::replace(&mut self.parked, parked) == parked {
            return false;
        }
        let table = self.plane.neighbours().clone();
        let mut wanted = Vec::new();
        for index in 0..table.capacity() as u32 {
            if let Some(neighbour) = table.snapshot(NeighbourIndex(index))
                && neighbour.state == State::Incomplete
            {
                wanted.push((neighbour.interface, neighbour.address));
            }
        }
        for &(interface, address) in &wanted {
            let number = address.number();
            let [.., a, b, c, d] = number.to_be_bytes();
            let mac = [2, 0x53, a, b, c, d];
            self.invented.insert((interface, address), mac);
            self.set_neighbour(interface, address, mac);
        }
        !wanted.is_empty()
    }

    /// Summary of the replay so far.
    pub fn summary(&self) -> Summary {
        let plane = &self.plane;
        let any_mac: Vec<bool> = self.readdress.iter().map(|&(_, is_any)| is_any).collect();
        let name = |index: u16| {
            plane
                .snapshot()
                .interface(index)
                .map_or("", |interface| interface.name.as_str())
        };
        let invented = self.invented.iter();
        Summary {
            workers: self.workers.len() as WorkerIndex,
            duration: self.now.nanoseconds,
            interfaces: summary::interfaces(plane, &any_mac),
            drops: summary::drops(plane),
            sessions: summary::sessions(plane),
            invented_neighbours: invented
                .map(|(&(interface, address), &mac)| InventedNeighbour::new(name(interface), address.into(), mac))
                .collect(),
            truncated_capture: self.cut.truncated,
            truncated_headers: self.cut.headless,
            too_long: self.cut.too_long,
            eve: None,
            balanced: plane.counters().iter().map(|worker| worker.imbalance()).sum::<i64>() == 0,
        }
    }
}
