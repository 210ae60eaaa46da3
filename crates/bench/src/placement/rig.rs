//! A gateway whose workers do what a placement says, between ring ports, with a source at every queue that receives and a
//! sink at every one that sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::workers::pin;
use sluice_dpdk::{Devices, DpdkIo, tsc};
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::features::virtual_reassembly::Limits;
use sluice_engine::packet::time::Now;
use sluice_engine::placement::{Load, Part, Placement};
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::shard_owners::ShardOwners;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::{Steering, SteeringSettings};
use sluice_engine::snapshot::{Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::request::{Reply, Request, WorkerHandle};
use sluice_route::RouteSet;
use sluice_table::memory::Line;
use sluice_wire::tcp::flag;

use super::lane::{Clock, Done, ENOUGH, Lane, Progress, Samples, TRIES, feed, slices};
use super::queues::Queues;
use super::scenario::Scenario;
use super::slow::Slow;
use super::traffic::{Draw, FLOWS, FRESH, Opens, Sizes, Skew, put_frame};
use crate::cores::lane::Together;
use crate::nat_path::Publics;
use crate::nat_path::flows::{FRAME, HOST_MAC, ROUTER_MAC, Random, Written, data, ends};
use crate::nat_path::opening::verify_filled;
use crate::nat_path::rig::{Job, SHARDS, Source};
use crate::nat_path::rules;
use crate::nat_path::wire::mark;
use crate::slices::undisturbed;

type Failure = Box<dyn std::error::Error>;

/// Sessions that there is room for.
const CAPACITY: u32 = 6 * FLOWS;
/// Sessions that are open at a time where some end: they wait for so many nanoseconds.
const OPEN: u64 = FLOWS as u64;
const WAIT: u64 = 120_000_000_000;
/// The same where flows that last have no packets meanwhile, and are to outlive a run.
const OPEN_OUTSIDE: u64 = 3 * OPEN;
/// Start DPDK for rigs of so many workers.
pub fn start(workers: usize) -> Result<&'static Eal, Failure> {
    let all = Queues::of(&Stages::default(), workers, &Load::even(SHARDS as u16));
    let mut needs = all.plan(0, false)?.needs(&[], None);
    needs.bytes *= 2 * (workers + 1);
    Ok(Eal::start(&needs)?)
}

/// The control side of a scenario for some stages.
pub fn plane(scenario: &Scenario, placement: &Placement) -> Result<ControlPlane, Failure> {
    let workers = placement.workers().len();
    let stages = Stages::of(placement, &placement.workers());
    let queues = Queues::of(&stages, workers, &scenario.load());
    let job = scenario.job;
    let interfaces = rules::interfaces(job)?;
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut policy = Snapshot::new(2, interfaces);
    let ends = scenario.traffic.opens != Opens::None;
    rules::translate(&mut policy, job, scenario.style, CAPACITY, ends)?;
    if let Some(homes) = scenario.homes {
        // Nobody comes or goes: who would say so may go.
        homes.serve(&mut policy)?;
    }
    if let Some(filters) = scenario.filters()? {
        policy.filter_by(filters);
    }
    let routes = RouteSet::new(&links, &rules::routes(job)?)?;
    let steering = Steering::seeded(SHARDS, &SteeringSettings::default(), 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
    policy.senders = vec![queues.senders(); 2];
    let setup = StartParameters {
        owners: ShardOwners::dealt(steering.shards(), &stages.all(Part::Session, workers)).into(),
        stages,
        assist: None,
        steering,
        sessions: match job {
            Job::Forward => [SHARDS, SHARDS],
            _ => [CAPACITY, SHARDS],
        },
        ports: 2,
        secret: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        fragments: Limits {
            datagrams: 64,
            ..Limits::default()
        },
        unsolicited_syns: 0,
        spare_addresses: 0,
        meters: Default::default(),
        applications: None,
        inspection: None,
        events: Default::default(),
        interfaces: 0,
        subscribers: SubscriberCapacity {
            most: CAPACITY,
            blocks: CAPACITY,
            ..SubscriberCapacity::default()
        },
    };
    let limits = NeighbourLimits::default();
    Ok(ControlPlane::new(
        setup,
        policy,
        &[routes],
        limits,
        workers,
        Now::at(0),
    )?)
}

/// Memory for all shards of a plane.
pub fn memory(plane: &ControlPlane) -> Result<Region, Failure> {
    let shards = plane.start_parameters().owners.len();
    Ok(Region::new(plane.lines().total().next_multiple_of(2) * 64 * shards)?)
}

/// A gateway and its lanes.
pub struct Rig<'m> {
    plane: ControlPlane,
    lanes: Vec<Lane<'m>>,
    desks: Vec<WorkerHandle>,
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
        let queues = Queues::of(&plane.start_parameters().stages, workers, &scenario.load());
        let (devices, hands) = Devices::open(eal, &queues.plan(number, true)?)?;
        let lines = plane.lines().total().next_multiple_of(2);
        let all: &'m mut [Line] = memory.lines();
        let mut rest = all.chunks_exact_mut(lines);
        let (mut lanes, mut desks) = (Vec::new(), Vec::new());
        let start = tsc::now();
        let sources = (0..workers).filter(|&own| queues.receives(own)).count() as u64;
        let (progress, open) = (
            Arc::new(Progress::new(workers, sources)),
            Arc::new(AtomicBool::new(false)),
        );
        for (own, io) in hands.into_iter().enumerate() {
            let (receives, drains) = (queues.receives(own), queues.sends(own));
            let io = Box::new(Slow::new(io, scenario.pace, own, progress.clone(), open.clone()));
            let ports = if receives { vec![0, 1] } else { Vec::new() };
            let give = |_| rest.next().unwrap_or_default();
            let (worker, desk) = plane.worker(own as u16, io, ports, give, tsc::now)?;
            desks.push(desk);
            lanes.push(Lane {
                own,
                worker,
                counters: plane.counters()[own].clone(),
                far: (receives || drains)
                    .then(|| far(eal, &queues, number, own))
                    .transpose()?,
                draw: None,
                drains,
                local: !placement.is_pipeline() && usize::from(queues.count) == workers,
                progress: progress.clone(),
                start,
                clock: Clock::Real,
                slices: slices(),
                samples: None,
            });
        }
        let mut rig = Self {
            plane,
            lanes,
            desks,
            devices,
            scenario: *scenario,
            entrances: (0..workers).filter(|&own| queues.receives(own)).collect(),
            publics: Arc::default(),
            opening: 0,
        };
        let neighbours = rules::neighbours(scenario.job)?;
        for ((interface, address), mac) in (0..).zip(neighbours).zip([HOST_MAC, ROUTER_MAC]) {
            let request = Request::SetNeighbour {
                interface,
                address,
                mac,
            };
            let owner = rig.plane.snapshot().owner;
            if !matches!(rig.ask(owner.into(), request)?, Reply::Done) {
                return Err("a neighbour is refused".into());
            }
        }
        if scenario.job != Job::Forward && scenario.traffic.opens != Opens::OneIn(1) {
            rig.open()?;
        }
        rig.opening = rig.session_packets();
        open.store(true, Ordering::Relaxed);
        rig.deal()?;
        if scenario.job == Job::Translate && scenario.traffic.opens == Opens::None {
            rig.lanes
                .iter_mut()
                .for_each(|lane| lane.samples = Some(Samples::default()));
        }
        if scenario.traffic.opens != Opens::None {
            let owners = rig.plane.start_parameters().owners.clone();
            for lane in &mut rig.lanes {
                let shards = owners.count(lane.own as u16);
                let open = match scenario.traffic.opens {
                    Opens::FromOutside => OPEN_OUTSIDE,
                    _ => OPEN,
                };
                let open = open * shards as u64 / owners.len() as u64;
                lane.pass_by_sessions(WAIT / open.max(1));
            }
        }
        Ok(rig)
    }

    /// Ask a worker.
    fn ask(&mut self, worker: usize, request: Request) -> Result<Reply, Failure> {
        let (Some(desk), Some(lane)) = (self.desks.get_mut(worker), self.lanes.get_mut(worker)) else {
            return Err("there is no such worker".into());
        };
        desk.requests
            .try_send(request)
            .map_err(|_| "the worker takes no requests")?;
        loop {
            lane.round();
            if let Ok(reply) = desk.replies.try_recv() {
                return Ok(reply);
            }
        }
    }

    /// The shard and its worker of a flow.
    fn shard(&self, flow: u32) -> (u16, usize) {
        let (setup, ends) = (self.plane.start_parameters(), ends(self.scenario.hosts(), flow));
        let shard = match self.scenario.homes {
            None => setup.steering.of_host::<V4>(ends.inside.0),
            Some(homes) => {
                let policy = self.plane.snapshot();
                setup
                    .steering
                    .shard_among_sites::<V4>(&policy.nat4, &homes.key(flow), 0, false)
            }
        };
        (shard, setup.owners.of(shard).unwrap_or_default().into())
    }

    /// The lane that a flow's packets come to: that of its sessions where that receives.
    fn entrance(&self, flow: u32) -> usize {
        let (shard, owner) = self.shard(flow);
        match self.entrances.contains(&owner) && self.plane.start_parameters().stages.is_run_to_completion() {
            true => owner,
            false => self.entrances[usize::from(shard) % self.entrances.len()],
        }
    }

    /// Open all flows as their peers would.
    fn open(&mut self) -> Result<(), Failure> {
        let scenario = self.scenario;
        let mut publics: Publics = vec![(0, 0); FLOWS as usize];
        for (step, flags, numbers) in [
            (0, flag::SYN, (1, 0)),
            (1, flag::SYN | flag::ACK, (1, 2)),
            (2, flag::ACK, (2, 2)),
        ] {
            let outside = step == 1;
            let mut dealt = vec![Vec::new(); self.lanes.len()];
            (0..FLOWS).for_each(|flow| dealt[self.entrance(flow)].push(flow));
            for (lane, flows) in dealt.iter().enumerate() {
                for chunk in flows.chunks(64) {
                    let mut rest = chunk.iter();
                    let Some(far) = &mut self.lanes[lane].far else { continue };
                    feed(far, &[(u16::from(outside), chunk.len())], |_, packet| {
                        let Some(&number) = rest.next() else { return false };
                        let public = outside.then(|| publics[number as usize]);
                        let written = Written {
                            flags,
                            numbers,
                            ..data(scenario.hosts(), number, public)
                        };
                        packet.set_checksums(sluice_wire::Checksums::Vouched);
                        put_frame(packet, &written, FRAME, scenario.homes.map(|homes| (homes, !outside)));
                        true
                    });
                    self.pass(|frame| {
                        if let Some(public) = publics.get_mut(mark(frame) as usize).filter(|_| step == 0) {
                            let word = |at: usize| {
                                u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
                            };
                            *public = (word(26), (word(34) >> 16) as u16);
                        }
                    });
                }
            }
            if let Some(missing) = publics.iter().position(|public| public.1 == 0) {
                let (name, drops) = (self.scenario.name, self.drops());
                return Err(format!("{name}: flow {missing} was not translated; {drops:?}").into());
            }
        }
        self.publics = Arc::new(publics);
        Ok(())
    }

    /// Rounds of all workers in turn until nothing moves; `look` sees what comes out.
    fn pass(&mut self, mut look: impl FnMut(&[u8])) {
        // A way goes back and forth at most once for each part.
        for _ in 0..Part::ALL.len() {
            for lane in &mut self.lanes {
                let now = lane.now();
                lane.worker.round(now);
                if let Some(far) = lane.far.as_mut().filter(|_| lane.drains) {
                    for port in [0, 1] {
                        far.drain(port, &mut look);
                    }
                }
            }
        }
    }

    /// Give each source its flows.
    fn deal(&mut self) -> Result<(), Failure> {
        let traffic = self.scenario.traffic;
        let shards: Vec<_> = (0..FLOWS + FRESH)
            .map(|flow| (self.shard(flow).0, self.entrance(flow)))
            .collect();
        let hot = |flow: u32| match traffic.skew {
            Skew::Even => false,
            Skew::Flow(_) => shards.iter().position(|&(shard, _)| shard == 0) == Some(flow as usize),
            Skew::Shard(_) => shards[flow as usize].0 == 0,
        };
        let (mut flows, mut fresh, mut busy) = (
            vec![Vec::new(); self.lanes.len()],
            vec![Vec::new(); self.lanes.len()],
            vec![Vec::new(); self.lanes.len()],
        );
        for (flow, &(shard, lane)) in (0..).zip(&shards) {
            match flow {
                FLOWS.. => fresh[lane].push(flow),
                _ if hot(flow) => busy[lane].push(flow),
                // Datagrams' mappings end between two packets, where time goes by the sessions that are opened.
                _ if traffic.opens == Opens::FromOutside && flow % 2 == 1 => {}
                // The busiest shard has its share and no more.
                _ if shard == 0 && traffic.skew != Skew::Even => {}
                _ => flows[lane].push(flow),
            }
        }
        let load = self.scenario.load();
        let shares = self.shares();
        for own in self.entrances.clone() {
            if shares[own] <= 0.0 {
                continue;
            }
            let share = if busy[own].is_empty() {
                0.0
            } else {
                load.busiest / shares[own]
            };
            self.lanes[own].draw = Some(Draw {
                traffic,
                flows: std::mem::take(&mut flows[own]),
                hot: std::mem::take(&mut busy[own]),
                share: (share * 2f64.powi(32)) as u64,
                fresh: std::mem::take(&mut fresh[own]),
                publics: self.publics.clone(),
                random: Random(88_172_645_463_325_252 ^ (own as u64) << 40),
                drawn: 0,
                lengths: traffic.sizes.lengths(),
                homes: self.scenario.homes,
            });
        }
        self.lanes.iter_mut().for_each(|lane| {
            if lane.draw.as_ref().is_some_and(Draw::is_empty) {
                lane.draw = None;
            }
        });
        let is_idle = |own: &&usize| shares[**own] > 0.0 && self.lanes[**own].draw.is_none();
        match self.entrances.iter().find(is_idle) {
            Some(own) if traffic.skew == Skew::Even => {
                Err(format!("{}: no flow comes to worker {own}", self.scenario.name).into())
            }
            _ => Ok(()),
        }
    }

    /// The share of all packets that comes to each lane.
    fn shares(&self) -> Vec<f64> {
        let all = self.scenario.load().shares(self.entrances.len());
        let share = |own| {
            self.entrances
                .iter()
                .position(|&other| other == own)
                .map_or(0.0, |place| all[place])
        };
        (0..self.lanes.len()).map(share).collect()
    }

    /// All lanes for so many cycles, each on its core: packets per second, in millions, and what each lane did, while all had
    /// their cores to themselves.
    ///
    /// Sources know nothing of one another: where they have shares of their own, the slowest for its share tells how fast all
    /// can go without loss.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        let (mut done, mut slices) = (vec![Done::default(); self.lanes.len()], 0);
        for _ in 0..TRIES {
            self.run_once(cores, cycles)?;
            let lanes: Vec<_> = self.lanes.iter().map(|lane| &lane.slices).collect();
            let (more, count) = undisturbed(&lanes, Done::and);
            done = done.into_iter().zip(more).map(|(done, more)| done.and(more)).collect();
            slices += count;
            if slices >= ENOUGH {
                break;
            }
        }
        if slices == 0 {
            return Err(format!("{}: others leave no core alone for a moment", self.scenario.name).into());
        }
        let rates: Vec<_> = done.iter().map(Done::mpps).collect();
        let even = self.scenario.traffic.skew == Skew::Even || !self.lanes.iter().all(|lane| lane.local);
        let shares = self.shares();
        let rate = match even {
            true => rates.iter().sum(),
            false => {
                let sources = self
                    .lanes
                    .iter()
                    .zip(rates.iter().zip(&shares))
                    .filter(|(lane, _)| lane.draw.is_some());
                sources
                    .map(|(_, (rate, share))| rate / share)
                    .fold(f64::INFINITY, f64::min)
            }
        };
        Ok((rate, done))
    }

    /// The same once, whoever disturbs it; how many frames of those that came out were held against a reference.
    pub fn run_once(&mut self, cores: &[usize], cycles: u64) -> Result<usize, Failure> {
        let (together, count) = (&Together::default(), self.lanes.len());
        std::thread::scope(|scope| {
            let lanes = self.lanes.iter_mut().zip(cores);
            let threads: Vec<_> = lanes
                .map(|(lane, &core)| {
                    scope.spawn(move || {
                        pin(core)?;
                        lane.run(together, count, cycles);
                        Ok::<_, sluice_dpdk::workers::WorkerError>(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a lane failed")?.map_err(Failure::from))
        })?;
        self.settle()
    }

    /// Let out what is under way, and see that everything came out, and as it should.
    fn settle(&mut self) -> Result<usize, Failure> {
        let mut idle = 0;
        while idle < 8 {
            let moved: usize = self.lanes.iter_mut().map(Lane::round).sum();
            idle = if moved == 0 { idle + 1 } else { 0 };
        }
        let (sent, came) = self.lanes[0].progress.all();
        if sent != came {
            return Err(format!(
                "{}: {sent} packets went in and {came} came out; {:?}",
                self.scenario.name,
                self.drops()
            )
            .into());
        }
        let packets = self.session_packets() - self.opening;
        if self.scenario.job != Job::Forward && packets != came {
            return Err(format!(
                "{}: {came} packets came out, {packets} had a session",
                self.scenario.name
            )
            .into());
        }
        self.verify()
    }

    /// Hold what was kept of the frames that came out against an independent library's; how many.
    fn verify(&mut self) -> Result<usize, Failure> {
        let (Sizes::One(length), mut count) = (self.scenario.traffic.sizes, 0) else {
            return Ok(0);
        };
        let (hosts, homes) = (self.scenario.hosts(), self.scenario.homes);
        for lane in &mut self.lanes {
            let kept = lane.samples.as_mut().map(|samples| std::mem::take(&mut samples.kept));
            let kept = kept.unwrap_or_default();
            count += kept.len();
            verify_filled::<Written>(hosts, homes, &kept, &self.publics, |number, transport| {
                let mut payload = vec![0; length - 34 - transport];
                let at = payload.len() - 4;
                payload[at..].copy_from_slice(&number.to_be_bytes());
                payload
            })?;
        }
        Ok(count)
    }

    fn session_packets(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.counters.session_packets.get()).sum()
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let counters = self.plane.counters();
        let of = |reason| {
            counters
                .iter()
                .flat_map(|worker| &worker.interfaces)
                .map(|i| i.drops(reason))
                .sum()
        };
        let all = sluice_engine::packet::reason::Reason::all().map(|reason| (reason.name(), of(reason)));
        all.filter(|&(_, count)| count > 0).collect()
    }

    /// Close the ports.
    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.worker);
            if let Some(far) = lane.far {
                far.close();
            }
        }
        drop(self.devices.close());
    }
}

/// The far end of one worker's queues, with buffers of its own.
pub fn far(eal: &'static Eal, queues: &Queues, number: u32, own: usize) -> Result<Source, Failure> {
    let (devices, hands) = Devices::open(eal, &queues.plan(number, false)?)?;
    let io: DpdkIo = hands.into_iter().nth(own).ok_or("a hand is missing")?;
    Ok(Source::of(io, devices))
}
