//! A gateway whose workers have the roles of a placement, between ring ports; a source feeds every receive queue, and a
//! sink reads every transmit queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::io::Handover;
use sluice_engine::placement::{Part, Placement};
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::SteeringSettings;

use super::Samples;
use super::frames::{CHECK_SEQUENCE, Filled, Filling, ends};
use super::gateway::{Clock, Opened, Rounds, drops, shards};
use super::lanes::{Done, Lanes, quiet, sustained};
use super::policy::{self, Job, Layout, neighbours, route_set, routes};
use super::progress::Window;
use super::queues::Queues;
use super::reference::{Flows, Publics, complete, open_by};
use super::scenario::{Draw, FLOWS, FRESH, Opens, Scenario, Sender, Skew};
use super::sites::dressed;
use super::slices::Slices;
use super::slow::Slow;
use super::steering::Steering;
use crate::rows::Failure;

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
    let [sessions, subscribers] = scenario.capacity;
    let mut policy = policy::policy(scenario.job, scenario.style(), sessions)?;
    if let Some(homes) = scenario.homes {
        // The writer of the sites is dropped, because no terminals are added or removed.
        homes.serve(&mut policy)?;
    }
    if let Some(filters) = scenario.filters()? {
        policy.filter_by(filters);
    }
    policy.senders = vec![queues.senders(); 2];
    let routes = route_set(&policy, &routes(scenario.job)?)?;
    let of_card = |steering: Steering| steering.wanted(&policy, scenario.style.blocks);
    let layout = Layout {
        steering: scenario.steering.map_or_else(SteeringSettings::default, of_card),
        stages,
        workers,
        subscribers,
        ..Layout::sessions(scenario.job, sessions, false)
    };
    layout.plane(policy, &[routes])
}

/// Time slices of a lane: a core that is absent for a third of a slice disturbs it.
pub fn slices() -> Slices<Done> {
    let width = tsc::frequency() / 1_000;
    Slices::new(width, width / 3)
}

pub struct Rig<'m> {
    pub plane: ControlPlane,
    pub lanes: Lanes<Sender, Rounds<'m>>,
    scenario: Scenario,
    entrances: Vec<usize>,
    /// Share of all packets that arrives at each lane.
    shares: Vec<f64>,
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
        let mut queues = Queues::of(&plane.start_parameters().stages, workers, &scenario.load(), false);
        let is_local = !placement.is_pipeline() && usize::from(queues.count) == workers;
        let window = match scenario.steering {
            Some(_) => Window::Unlimited,
            None if is_local => Window::Lane,
            None => Window::All,
        };
        if window == Window::Unlimited {
            queues.handover = 4096;
        }
        let open = Arc::new(AtomicBool::new(false));
        let (mut shards, clock) = (shards(&plane, memory), Clock::start());
        let lanes = Lanes::new(eal, number, &queues, (window, &slices()), |own, io, progress| {
            let io: Box<dyn Handover> = match window {
                Window::Unlimited => Box::new(io),
                _ => Box::new(Slow::new(io, scenario.pace, own, progress.clone(), open.clone())),
            };
            let ports = if queues.receives(own) { vec![0, 1] } else { Vec::new() };
            let mut rounds = Rounds::new(&mut plane, own, io, ports, &mut shards)?;
            rounds.clock = clock;
            rounds.worker.set_lane(scenario.express);
            Ok((Sender::default(), rounds))
        })?;
        let mut rig = Self {
            plane,
            lanes,
            scenario: *scenario,
            entrances: queues.entrances(),
            shares: Vec::new(),
            publics: Arc::default(),
            opening: 0,
        };
        let owner = usize::from(rig.plane.snapshot().owner);
        for neighbour in neighbours(scenario.job)? {
            rig.lanes.all[owner].middle.know(neighbour)?;
        }
        if scenario.job != Job::Forward && scenario.opens != Opens::OneIn(1) {
            rig.open()?;
        }
        rig.opening = rig.session_packets();
        open.store(true, Ordering::Relaxed);
        rig.deal()?;
        let lanes = rig.lanes.all.iter_mut();
        lanes.for_each(|lane| lane.traffic.samples = Samples::default());
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
        for (own, lane) in (0..).zip(&mut self.lanes.all) {
            let open = open * owners.count(own) as u64 / owners.len() as u64;
            lane.middle.opened = Some(Opened {
                base: lane.middle.now().nanoseconds,
                step: WAIT / open.max(1),
                first: lane.middle.counters.sessions_created.get(),
            });
        }
    }

    /// Shard of a flow, and index of the lane at which its packets arrive from a side: the lane that owns the shard, if
    /// that lane receives, or the lane to which a network card delivers them.
    fn place(&self, flow: u32, outside: bool, publics: &Publics) -> (u16, usize) {
        let (setup, hosts) = (self.plane.start_parameters(), self.scenario.hosts());
        if let Some(steering) = self.scenario.steering {
            let packet = Flows::of(hosts, publics).packet(flow, outside.into());
            let workers = self.lanes.all.len();
            return (0, steering.worker(setup, workers, &ends(hosts, flow), &packet, outside));
        }
        let shard = match self.scenario.homes {
            None => setup.steering.of_host::<V4>(ends(hosts, flow).inside.0),
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
        let (scenario, count) = (self.scenario, self.lanes.all.len());
        let filling = Filling::new(64);
        let publics = open_by(
            scenario.hosts(),
            FLOWS,
            count,
            (26, 34),
            self,
            |rig, flow, outside, publics| rig.place(flow, outside, publics).1,
            |rig, lane, outside, packets, look| {
                let lanes = &mut rig.lanes.all;
                let far = lanes[lane].far.as_mut();
                let far = far.ok_or("a flow comes to a lane without queues")?;
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
                    lane.middle.round();
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

    /// Changes the steering of packets; the engine is not informed of it.
    pub fn steer(&mut self, steering: Steering) -> Result<(), Failure> {
        self.scenario.steering = Some(steering);
        self.deal()
    }

    /// Assign flows to each source.
    fn deal(&mut self) -> Result<(), Failure> {
        let scenario = self.scenario;
        let first = (0..FLOWS).find(|&flow| self.place(flow, false, &self.publics).0 == 0);
        let draw = |own| Draw::new(&scenario, own, self.publics.clone());
        let mut draws: Vec<Draw> = (0..self.lanes.all.len()).map(draw).collect();
        for (side, flows) in [0..FLOWS + FRESH, 0..FLOWS].into_iter().enumerate() {
            // Only flows from inside are new, and steered sources open none.
            let flows = if scenario.steering.is_some() { 0..FLOWS } else { flows };
            for flow in flows {
                let (shard, lane) = self.place(flow, side == 1, &self.publics);
                let draw = &mut draws[lane];
                let is_busy = match scenario.skew {
                    Skew::Even => false,
                    Skew::Flow(_) => first == Some(flow),
                    Skew::Shard(_) => shard == 0,
                };
                match flow {
                    FLOWS.. => draw.fresh.push(flow),
                    _ if is_busy && side == 0 => draw.hot.push(flow),
                    // UDP flows are omitted: their mappings would end between two packets if time advances with the
                    // opened sessions.
                    _ if scenario.opens == Opens::FromOutside && flow % 2 == 1 => {}
                    // The packets of the busiest shard have an exact share, so they are not drawn with the others.
                    _ if is_busy || shard == 0 && scenario.skew != Skew::Even => {}
                    _ => draw.flows[side].push(flow),
                }
            }
        }
        let load = scenario.load();
        self.shares = vec![0.0; draws.len()];
        for (&own, share) in self.entrances.iter().zip(load.shares(self.entrances.len())) {
            let draw = &mut draws[own];
            if !draw.hot.is_empty() {
                draw.share = (load.busiest / share * 2f64.powi(32)) as u64;
            }
            if share > 0.0 && !draw.ports().is_empty() {
                self.shares[own] = share;
            } else if share > 0.0 && scenario.skew == Skew::Even && scenario.steering.is_none() {
                return Err(format!("{}: no flow comes to worker {own}", scenario.name).into());
            }
        }
        for (lane, (draw, share)) in self.lanes.all.iter_mut().zip(draws.into_iter().zip(&self.shares)) {
            lane.traffic.draw(Some(draw).filter(|_| *share > 0.0));
        }
        Ok(())
    }

    /// Runs all lanes for a number of cycles, each on its own core. Returns the throughput in Mpps and the results of
    /// each lane (one core with its source and sink), measured only while every lane had its core exclusively.
    ///
    /// Sources are independent of one another. If they have fixed shares, the source with the lowest rate relative to
    /// its share limits the rate that all can sustain without loss.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        let done = quiet(self.scenario.name, self.lanes.all.len(), || {
            self.run_once(cores, cycles)?;
            Ok(self.lanes.slices())
        })?;
        let setup = self.plane.start_parameters();
        let is_local = setup.stages.is_run_to_completion() && self.entrances.len() == self.lanes.all.len();
        let rate = match self.scenario.skew != Skew::Even && is_local {
            true => sustained(&done, &self.shares),
            false => done.iter().map(Done::mpps).sum(),
        };
        Ok((rate, done))
    }

    /// Runs once, without excluding disturbed slices; returns the number of output frames that were compared with a
    /// reference.
    pub fn run_once(&mut self, cores: &[usize], cycles: u64) -> Result<usize, Failure> {
        self.lanes.run(cores, cycles)?;
        // Check that all packets were output correctly.
        let (name, (sent, came)) = (self.scenario.name, self.lanes.progress.all());
        let may_lose = self.scenario.steering.is_some();
        if sent < came || sent > came && !may_lose {
            let drops = drops(&self.plane);
            return Err(format!("{name}: {sent} packets went in and {came} came out; {drops:?}").into());
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
        for lane in &mut self.lanes.all {
            let kept = std::mem::take(&mut lane.traffic.samples.kept);
            if let (&[(length, _)], true) = (scenario.sizes, can_tell) {
                let filling = Filling::new(length + CHECK_SEQUENCE);
                flows.verify(4, &kept, |number, transport| filling.payload(number.into(), transport))?;
                count += kept.len();
            }
        }
        Ok(count)
    }

    fn session_packets(&self) -> u64 {
        let counters = self.lanes.all.iter().map(|lane| &lane.middle.counters);
        counters.map(|counters| counters.session_packets.get()).sum()
    }
}
