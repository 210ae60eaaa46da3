//! A gateway whose workers do what a placement says, between ring ports, with a source at every queue that receives and a
//! sink at every one that sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::port::PortPlan;
use sluice_dpdk::{Devices, Plan, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::packet::time::Now;
use sluice_engine::placement::{Load, Part, Placement};
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::worker::Worker;

use super::scenario::{Draw, FLOWS, FRESH, Opens, Scenario, Skew};
use super::slow::Slow;
use crate::rig::frames::{CHECK_SEQUENCE, Filled, Filling, ends};
use crate::rig::gateway::{Clock, Desk, drops};
use crate::rig::lanes::{self, Progress, Together, WITHIN, on_cores, quiet, settle};
use crate::rig::policy::{self, Job, Layout, SHARDS, neighbours, route_set, routes};
use crate::rig::reference::{Flows, Publics, complete, open_by, ports};
use crate::rig::sites::dressed;
use crate::rig::slices::Slices;
use crate::rig::{BUFFERS, BURST, Samples, Source, ring};
use crate::rows::Failure;

/// Sessions that there is space for.
const CAPACITY: u32 = 6 * FLOWS;
/// Sessions that are open at a time where some end: they wait for so many nanoseconds.
const OPEN: u64 = FLOWS as u64;
const WAIT: u64 = 120_000_000_000;
/// The same where flows that last have no packets meanwhile, and are to outlive a run.
const OPEN_OUTSIDE: u64 = 3 * OPEN;

/// A worker that there is not.
const NOBODY: WorkerIndex = WorkerIndex::MAX;

/// Which workers of a rig have queues.
pub struct Queues {
    workers: usize,
    /// Queues of each port.
    pub count: u16,
    receivers: Vec<WorkerIndex>,
    senders: Vec<WorkerIndex>,
}

impl Queues {
    /// Those that stages want, of devices that have as many as a load says; workers that receive take shards over from others,
    /// or do not.
    pub fn of(stages: &Stages, workers: usize, load: &Load, assists: bool) -> Self {
        let mut receivers = stages.all(Part::Receive, workers);
        let mut senders = stages.senders(workers, assists);
        let count = receivers.len().max(senders.len()).min(usize::from(load.queues));
        // Ring ports have as many queues to receive as to send.
        receivers.resize(count.max(receivers.len()), NOBODY);
        senders.resize(count.max(senders.len()), NOBODY);
        let count = count as u16;
        Self {
            workers,
            count,
            receivers,
            senders,
        }
    }

    fn have(&self, of: &[WorkerIndex], worker: usize) -> bool {
        of.iter()
            .take(self.count.into())
            .any(|&other| usize::from(other) == worker)
    }

    /// Whether a worker has a queue to receive from.
    pub fn receives(&self, worker: usize) -> bool {
        self.have(&self.receivers, worker)
    }

    /// Whether a worker has a queue to send by.
    pub fn sends(&self, worker: usize) -> bool {
        self.have(&self.senders, worker)
    }

    /// The workers that have a queue to receive from.
    pub fn entrances(&self) -> Vec<usize> {
        (0..self.workers).filter(|&worker| self.receives(worker)).collect()
    }

    /// The workers that send for all, where some have no queue.
    pub fn senders(&self) -> Box<[WorkerIndex]> {
        if (0..self.workers).all(|worker| self.sends(worker)) {
            return Box::default();
        }
        let senders = self.senders.iter().take(self.count.into()).copied();
        senders.filter(|&sender| sender != NOBODY).collect()
    }

    /// The near ends of the ports, or the far ones.
    pub fn plan(&self, number: u32, near: bool) -> Result<Plan, Failure> {
        let port = |name| {
            let device = ring(&format!("placement-{name}{number}"), if near { "b" } else { "a" }, 8192)?;
            Ok(PortPlan {
                queues: self.count,
                ..PortPlan::new("ring", device)
            })
        };
        let ports = ["inside", "outside"]
            .into_iter()
            .map(port)
            .collect::<Result<_, Failure>>()?;
        let mut plan = Plan::new(ports, self.workers as u16);
        let (receivers, senders) = (self.receivers.clone(), self.senders.clone());
        (plan.receivers, plan.senders) = if near {
            (receivers, senders)
        } else {
            (senders, receivers)
        };
        // First in, first out; nothing finds a ring full.
        (plan.cache, plan.handover) = (0, WITHIN as u32 * u32::from(self.count.max(1)));
        if !near {
            plan.buffers = BUFFERS;
        }
        Ok(plan)
    }

    /// The far end of a worker's queues, where it has some.
    pub fn far(&self, eal: &'static Eal, number: u32, own: usize) -> Result<Option<Source>, Failure> {
        match self.receives(own) || self.sends(own) {
            true => Ok(Some(Source::of(eal, &self.plan(number, false)?, own)?)),
            false => Ok(None),
        }
    }
}

/// Start DPDK for rigs of so many workers.
pub fn start(workers: usize) -> Result<&'static Eal, Failure> {
    let all = Queues::of(&Stages::default(), workers, &Load::even(SHARDS as u16), false);
    let mut needs = all.plan(0, false)?.needs(&[], None);
    needs.bytes *= 2 * (workers + 1);
    Ok(Eal::start(&needs)?)
}

/// The control side of a scenario for some stages.
pub fn plane(scenario: &Scenario, placement: &Placement) -> Result<ControlPlane, Failure> {
    let workers = placement.workers().len();
    let stages = Stages::of(placement, &placement.workers());
    let queues = Queues::of(&stages, workers, &scenario.load(), false);
    let mut policy = policy::policy(scenario.job, scenario.style(), CAPACITY)?;
    if let Some(homes) = scenario.homes {
        // No terminal comes or goes: the keeper is not needed.
        homes.serve(&mut policy)?;
    }
    if let Some(filters) = scenario.filters()? {
        policy.filter_by(filters);
    }
    policy.senders = vec![queues.senders(); 2];
    let routes = route_set(&policy, &routes(scenario.job)?)?;
    let layout = Layout {
        stages,
        workers,
        subscribers: CAPACITY,
        ..Layout::sessions(scenario.job, CAPACITY, false)
    };
    layout.plane(policy, &[routes])
}

/// The clock of a worker's sessions.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// The time that passes.
    Real(Clock),
    /// From this moment on, so many nanoseconds for each session opened after the first so many: as many end as are opened.
    Opened { base: u64, step: u64, first: u64 },
}

/// Source, worker and sink of one core.
struct Lane<'m> {
    own: usize,
    worker: Worker<'m>,
    counters: Arc<WorkerCounters>,
    /// The far end of its queues, where it has some.
    far: Option<Source>,
    /// What is sent to it, where it receives.
    draw: Option<Draw>,
    /// Whether packets come out by its queue.
    drains: bool,
    /// Where what it receives comes out by its own queue, it watches only that.
    local: Option<usize>,
    progress: Arc<Progress>,
    time: Time,
    slices: Slices<Done>,
    samples: Samples,
}

/// Slices of a second.
const SLICES: u64 = 1_000;

/// Slices for a lane.
pub fn slices() -> Slices<Done> {
    let width = tsc::frequency() / SLICES;
    Slices::new(width, width / 3)
}

/// What a lane did, and what its cycles went into: to write frames, to take what came out, and by the worker's stages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Frames that came out in the time that was measured.
    pub counted: u64,
    /// Cycles of that time.
    pub cycles: u64,
    pub source: u64,
    pub sink: u64,
    pub stages: [u64; CycleStage::ALL.len()],
}

impl Done {
    /// Millions of frames a second that came out.
    pub fn mpps(&self) -> f64 {
        self.counted as f64 * tsc::frequency() as f64 / 1e6 / self.cycles as f64
    }
}

impl lanes::Done for Done {
    fn and(mut self, other: Self) -> Self {
        self.counted += other.counted;
        self.cycles += other.cycles;
        self.source += other.source;
        self.sink += other.sink;
        for (all, more) in self.stages.iter_mut().zip(other.stages) {
            *all += more;
        }
        self
    }
}

impl Lane<'_> {
    #[inline(always)]
    fn now(&self) -> Now {
        match self.time {
            Time::Real(clock) => clock.now(),
            Time::Opened { base, step, first } => Now::at(base + (self.counters.sessions_created.get() - first) * step),
        }
    }

    /// Frames of flows drawn anew; how many.
    #[inline(always)]
    fn feed(&mut self) -> usize {
        if !self.progress.may_send(self.local) {
            return 0;
        }
        let (Some(far), Some(draw)) = (&mut self.far, &mut self.draw) else {
            return 0;
        };
        let (count, _) = far.send(ports(draw.direction), |port, packet| {
            draw.write(port, packet);
            true
        });
        self.progress.send(self.own, count);
        count
    }

    /// Take what came out; how many frames.
    #[inline(always)]
    fn drain(&mut self) -> usize {
        let Some(far) = self.far.as_mut().filter(|_| self.drains) else {
            return 0;
        };
        let mut came = 0;
        for port in [0, 1] {
            loop {
                let count = self.samples.drain(far, port);
                came += count;
                if count < BURST {
                    break;
                }
            }
        }
        self.progress.come(self.own, came);
        came
    }

    /// A round without anything new; what moved.
    fn round(&mut self) -> usize {
        let now = self.now();
        self.worker.round(now) + self.drain()
    }

    /// A round with its source, each part by its cycles.
    #[inline(always)]
    fn step(&mut self, done: &mut Done) {
        let start = tsc::now();
        let fed = if self.draw.is_some() { self.feed() } else { 0 };
        let mut moved = fed;
        if fed > 0 {
            done.source += tsc::now() - start;
        }
        let now = self.now();
        moved += self.worker.round(now);
        if self.drains {
            let start = tsc::now();
            let came = self.drain();
            if came > 0 {
                done.sink += tsc::now() - start;
            }
            done.counted += came as u64;
            moved += came;
        }
        if moved == 0 {
            // A core with work shall not wait for lines that this one looks at.
            (0..8).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Packets for so many cycles, together with the others.
    fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        let mut warm = Done::default();
        let begin = together.meet(lanes);
        while tsc::now() < begin {
            self.step(&mut warm);
        }
        let (mut done, mut stages) = (Done::default(), self.stages());
        self.slices.begin(begin, tsc::now());
        while self.slices.go_on(begin + cycles) {
            self.step(&mut done);
            let Some((cycles, _)) = self.slices.step(tsc::now()) else {
                continue;
            };
            let after = self.stages();
            done.cycles = cycles;
            for (place, spent) in done.stages.iter_mut().enumerate() {
                *spent = after[place] - stages[place];
            }
            self.slices.end(done);
            (stages, done) = (after, Done::default());
        }
    }

    fn stages(&self) -> [u64; CycleStage::ALL.len()] {
        CycleStage::ALL.map(|stage| self.counters.cycles[stage as usize].get())
    }
}

/// A gateway and its lanes.
pub struct Rig<'m> {
    plane: ControlPlane,
    lanes: Vec<Lane<'m>>,
    desks: Vec<Desk>,
    devices: Devices,
    scenario: Scenario,
    /// Lanes with a source.
    entrances: Vec<usize>,
    publics: Arc<Publics>,
    /// Packets that had a session before the first run.
    opening: u64,
}

impl<'m> Rig<'m> {
    /// A rig whose flows are established.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        scenario: &Scenario,
        placement: &Placement,
        mut plane: ControlPlane,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        let workers = placement.workers().len();
        let queues = Queues::of(&plane.start_parameters().stages, workers, &scenario.load(), false);
        let (devices, ios) = Devices::open(eal, &queues.plan(number, true)?)?;
        let lines = plane.lines().total().next_multiple_of(2);
        let mut rest = memory.lines().chunks_exact_mut(lines);
        let (mut lanes, mut desks, clock) = (Vec::new(), Vec::new(), Clock::start());
        let entrances = queues.entrances();
        let progress = Arc::new(Progress::new(workers, entrances.len() as u64));
        let open = Arc::new(AtomicBool::new(false));
        for (own, io) in ios.into_iter().enumerate() {
            let io = Box::new(Slow::new(io, scenario.pace, own, progress.clone(), open.clone()));
            let ports = if queues.receives(own) { vec![0, 1] } else { Vec::new() };
            let give = |_| rest.next().unwrap_or_default();
            let (worker, desk) = plane.worker(own as u16, io, ports, give, tsc::now)?;
            desks.push(Desk(desk));
            let local = !placement.is_pipeline() && usize::from(queues.count) == workers;
            lanes.push(Lane {
                own,
                worker,
                counters: plane.counters()[own].clone(),
                far: queues.far(eal, number, own)?,
                draw: None,
                drains: queues.sends(own),
                local: local.then_some(own),
                progress: progress.clone(),
                time: Time::Real(clock),
                slices: slices(),
                samples: Samples::default(),
            });
        }
        let (scenario, publics) = (*scenario, Arc::default());
        let mut rig = Self {
            plane,
            lanes,
            desks,
            devices,
            scenario,
            entrances,
            publics,
            opening: 0,
        };
        let owner = usize::from(rig.plane.snapshot().owner);
        for neighbour in neighbours(scenario.job)? {
            let lane = &mut rig.lanes[owner];
            rig.desks[owner].know(neighbour, || _ = lane.round())?;
        }
        if scenario.job != Job::Forward && scenario.opens != Opens::OneIn(1) {
            rig.open()?;
        }
        rig.opening = rig.session_packets();
        open.store(true, Ordering::Relaxed);
        rig.deal()?;
        rig.lanes.iter_mut().for_each(|lane| lane.samples = Samples::default());
        if scenario.opens != Opens::None {
            rig.end_sessions();
        }
        Ok(rig)
    }

    /// From here on time passes by the sessions that are opened.
    fn end_sessions(&mut self) {
        let owners = self.plane.start_parameters().owners.clone();
        let open = if self.scenario.opens == Opens::FromOutside {
            OPEN_OUTSIDE
        } else {
            OPEN
        };
        for lane in &mut self.lanes {
            let open = open * owners.count(lane.own as u16) as u64 / owners.len() as u64;
            lane.time = Time::Opened {
                base: lane.now().nanoseconds,
                step: WAIT / open.max(1),
                first: lane.counters.sessions_created.get(),
            };
        }
    }

    /// The shard of a flow, and the lane that its packets come to: that of its sessions where that receives.
    fn place(&self, flow: u32) -> (u16, usize) {
        let setup = self.plane.start_parameters();
        let shard = match self.scenario.homes {
            None => setup.steering.of_host::<V4>(ends(self.scenario.hosts(), flow).inside.0),
            Some(homes) => {
                let nat4 = &self.plane.snapshot().nat4;
                setup.steering.shard_among_sites::<V4>(nat4, &homes.key(flow), 0, false)
            }
        };
        let owner = setup.owners.of(shard).unwrap_or_default().into();
        match self.entrances.contains(&owner) && setup.stages.is_run_to_completion() {
            true => (shard, owner),
            false => (shard, self.entrances[usize::from(shard) % self.entrances.len()]),
        }
    }

    /// Open all flows as their peers would.
    fn open(&mut self) -> Result<(), Failure> {
        let (scenario, count) = (self.scenario, self.lanes.len());
        let entrances: Vec<usize> = (0..FLOWS).map(|flow| self.place(flow).1).collect();
        let (lanes, filling) = (&mut self.lanes, Filling::new(64));
        let deal = |flow: u32, _, _: &Publics| entrances[flow as usize];
        let publics = open_by(
            scenario.hosts(),
            FLOWS,
            count,
            (26, 34),
            deal,
            |lane, outside, packets, look| {
                let far = lanes[lane]
                    .far
                    .as_mut()
                    .ok_or("a flow comes to a lane without queues")?;
                let mut rest = packets.iter();
                let frame = |packet: &_| {
                    dressed(scenario.homes, *packet, !outside, |packet| {
                        Filled::new(packet, &filling)
                    })
                };
                let ports = [(u16::from(outside), packets.len())];
                far.feed(&ports, sluice_wire::Checksums::Vouched, |_| rest.next().map(frame));
                // A way goes back and forth at most once for each part.
                for own in (0..Part::ALL.len()).flat_map(|_| 0..count) {
                    let lane = &mut lanes[own];
                    let now = lane.now();
                    lane.worker.round(now);
                    if let Some(far) = lane.far.as_mut().filter(|_| lane.drains) {
                        for port in [0, 1] {
                            far.drain(port, &mut *look);
                        }
                    }
                }
                Ok(())
            },
        );
        let publics = publics.and_then(complete);
        let failed = |error| format!("{}: {error}; {:?}", scenario.name, drops(&self.plane));
        self.publics = Arc::new(publics.map_err(failed)?);
        Ok(())
    }

    /// Give each source its flows.
    fn deal(&mut self) -> Result<(), Failure> {
        let scenario = self.scenario;
        let places: Vec<_> = (0..FLOWS + FRESH).map(|flow| self.place(flow)).collect();
        let first = places.iter().position(|&(shard, _)| shard == 0);
        let [mut flows, mut fresh, mut busy] = [(); 3].map(|()| vec![Vec::new(); self.lanes.len()]);
        for (flow, &(shard, lane)) in (0..).zip(&places) {
            let is_busy = match scenario.skew {
                Skew::Even => false,
                Skew::Flow(_) => first == Some(flow as usize),
                Skew::Shard(_) => shard == 0,
            };
            match flow {
                FLOWS.. => fresh[lane].push(flow),
                _ if is_busy => busy[lane].push(flow),
                // Datagrams' mappings end between two packets, where time goes by the sessions that are opened.
                _ if scenario.opens == Opens::FromOutside && flow % 2 == 1 => {}
                // The busiest shard has its share and no more.
                _ if shard == 0 && scenario.skew != Skew::Even => {}
                _ => flows[lane].push(flow),
            }
        }
        let (busiest, shares) = (scenario.load().busiest, self.shares());
        for own in self.entrances.clone() {
            if shares[own] <= 0.0 {
                continue;
            }
            let mut draw = Draw::new(&scenario, own, self.publics.clone());
            [draw.flows, draw.hot, draw.fresh] =
                [&mut flows, &mut busy, &mut fresh].map(|of| std::mem::take(&mut of[own]));
            if !draw.hot.is_empty() {
                draw.share = (busiest / shares[own] * 2f64.powi(32)) as u64;
            }
            match draw.is_empty() {
                false => self.lanes[own].draw = Some(draw),
                true if scenario.skew == Skew::Even => {
                    return Err(format!("{}: no flow comes to worker {own}", scenario.name).into());
                }
                true => {}
            }
        }
        Ok(())
    }

    /// The share of all packets that comes to each lane.
    fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.lanes.len()];
        let all = self.scenario.load().shares(self.entrances.len());
        self.entrances
            .iter()
            .zip(all)
            .for_each(|(&own, share)| shares[own] = share);
        shares
    }

    /// All lanes for so many cycles, each on its core: packets per second, in millions, and what each lane did, while all had
    /// their cores to themselves.
    ///
    /// Sources know nothing of one another: where they have shares of their own, the slowest for its share tells how fast all
    /// can go without loss.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        let done = quiet(self.scenario.name, self.lanes.len(), || {
            self.run_once(cores, cycles)?;
            Ok(self.lanes.iter().map(|lane| lane.slices.clone()).collect())
        })?;
        let rates = done.iter().map(Done::mpps);
        if self.scenario.skew == Skew::Even || self.lanes.iter().any(|lane| lane.local.is_none()) {
            return Ok((rates.sum(), done));
        }
        let all = self.lanes.iter().zip(rates.zip(self.shares()));
        let sources = all.filter(|(lane, _)| lane.draw.is_some());
        let rate = sources
            .map(|(_, (rate, share))| rate / share)
            .fold(f64::INFINITY, f64::min);
        Ok((rate, done))
    }

    /// The same once, whatever disturbs it; how many frames of those that came out were held against a reference.
    pub fn run_once(&mut self, cores: &[usize], cycles: u64) -> Result<usize, Failure> {
        let count = self.lanes.len();
        on_cores(&mut self.lanes, cores, |lane, together| {
            lane.run(together, count, cycles)
        })?;
        settle(&mut self.lanes, Lane::round);
        // Everything came out, and as it should.
        let (name, (sent, came)) = (self.scenario.name, self.lanes[0].progress.all());
        if sent != came {
            return Err(format!(
                "{name}: {sent} packets went in and {came} came out; {:?}",
                drops(&self.plane)
            )
            .into());
        }
        let packets = self.session_packets() - self.opening;
        if self.scenario.job != Job::Forward && packets != came {
            return Err(format!("{name}: {came} packets came out, {packets} had a session").into());
        }
        self.verify()
    }

    /// Hold what was kept of the frames that came out against an independent library's, where all are of one size and flow; how many.
    fn verify(&mut self) -> Result<usize, Failure> {
        let (scenario, mut count) = (self.scenario, 0);
        let flows = Flows {
            homes: scenario.homes,
            ..Flows::of(scenario.hosts(), &self.publics)
        };
        let can_tell = scenario.job == Job::Translate && scenario.opens == Opens::None;
        for lane in &mut self.lanes {
            let kept = std::mem::take(&mut lane.samples.kept);
            if let (&[(length, _)], true) = (scenario.sizes, can_tell) {
                let filling = Filling::new(length + CHECK_SEQUENCE);
                flows.verify(4, &kept, |number, transport| filling.payload(number.into(), transport))?;
                count += kept.len();
            }
        }
        Ok(count)
    }

    fn session_packets(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.counters.session_packets.get()).sum()
    }

    /// Close the ports.
    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.worker);
            lane.far.into_iter().for_each(Source::close);
        }
        drop(self.devices.close());
    }
}
