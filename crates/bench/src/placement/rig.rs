//! A gateway whose workers have the roles of a placement, between ring ports; a source feeds every receive queue, and a
//! sink reads every transmit queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::{Devices, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::placement::{Part, Placement};
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::stages::Stages;

use super::lane::{Done, Lane, Time, slices};
use super::queues::Queues;
use super::scenario::{Draw, FLOWS, FRESH, Opens, Scenario, Skew};
use super::slow::Slow;
use crate::rig::frames::{CHECK_SEQUENCE, Filled, Filling, ends};
use crate::rig::gateway::{Clock, Desk, drops};
use crate::rig::lanes::{Progress, on_cores, quiet, settle};
use crate::rig::policy::{self, Job, Layout, neighbours, route_set, routes};
use crate::rig::reference::{Flows, Publics, complete, open_by};
use crate::rig::sites::dressed;
use crate::rig::{Samples, Source};
use crate::rows::Failure;

/// Capacity of the session table.
const CAPACITY: u32 = 6 * FLOWS;
/// Number of sessions that are open simultaneously in scenarios in which sessions end, and their timeout in
/// nanoseconds.
const OPEN: u64 = FLOWS as u64;
const WAIT: u64 = 120_000_000_000;
/// Number of open sessions in scenarios in which long-lived flows receive no packets during a run and must not time
/// out.
const OPEN_OUTSIDE: u64 = 3 * OPEN;

/// Creates the control plane of a scenario for a placement.
pub fn plane(scenario: &Scenario, placement: &Placement) -> Result<ControlPlane, Failure> {
    let workers = placement.workers().len();
    let stages = Stages::of(placement, &placement.workers());
    let queues = Queues::of(&stages, workers, &scenario.load(), false);
    let mut policy = policy::policy(scenario.job, scenario.style(), CAPACITY)?;
    if let Some(homes) = scenario.homes {
        // The writer of the sites is dropped, because no terminals are added or removed.
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

pub struct Rig<'m> {
    plane: ControlPlane,
    lanes: Vec<Lane<'m>>,
    desks: Vec<Desk>,
    devices: Devices,
    scenario: Scenario,
    entrances: Vec<usize>,
    publics: Arc<Publics>,
    /// Number of packets that had a session before the first run.
    opening: u64,
}

impl<'m> Rig<'m> {
    /// Create a rig whose flows are established.
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

    /// Makes the time advance with the number of opened sessions from now on.
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

    /// Shard of a flow, and index of the lane at which its packets arrive: the lane that owns the shard, if that lane
    /// receives.
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

    /// Opens all flows by sending the packets that their endpoints would send.
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
                // A packet is handed over at most once per part, so this number of rounds suffices.
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

    /// Assign flows to each source.
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
                // UDP flows are omitted: their mappings would end between two packets if time advances with the opened
                // sessions.
                _ if scenario.opens == Opens::FromOutside && flow % 2 == 1 => {}
                // The packets of the busiest shard have an exact share, so they are not drawn with the others.
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

    /// Share of all packets that arrives at each lane.
    fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.lanes.len()];
        let all = self.scenario.load().shares(self.entrances.len());
        self.entrances
            .iter()
            .zip(all)
            .for_each(|(&own, share)| shares[own] = share);
        shares
    }

    /// Runs all lanes for a number of cycles, each on its own core. Returns the throughput in Mpps and the results of
    /// each lane (one core with its source and sink), measured only while every lane had its core exclusively.
    ///
    /// Sources are independent of one another. If they have fixed shares, the source with the lowest rate relative to
    /// its share limits the rate that all can sustain without loss.
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

    /// Runs once, without excluding disturbed slices; returns the number of output frames that were compared with a
    /// reference.
    pub fn run_once(&mut self, cores: &[usize], cycles: u64) -> Result<usize, Failure> {
        let count = self.lanes.len();
        on_cores(&mut self.lanes, cores, |lane, together| {
            lane.run(together, count, cycles)
        })?;
        settle(&mut self.lanes, Lane::round);
        // Check that all packets were output correctly.
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

    /// Compares the sampled output frames with frames built by an independent library, if all frames have one size and
    /// belong to known flows; returns the number of compared frames.
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

    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.worker);
            lane.far.into_iter().for_each(Source::close);
        }
        drop(self.devices.close());
    }
}
