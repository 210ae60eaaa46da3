//! A gateway with several workers between ring ports with one queue per worker; a source and a sink at the opposite end
//! of every queue.

use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::port::PortPlan;
use sluice_dpdk::{Devices, Plan, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::worker::Worker;
use sluice_wire::Checksums;

use super::steering::Steering;
use crate::rig::frames::{Hosts, Random, SEED, Written, ends};
use crate::rig::gateway::{Clock, Desk};
use crate::rig::lanes::{Together, on_cores, settle};
use crate::rig::policy::{Job, Layout, Style, neighbours, policy, route_set, routes};
use crate::rig::reference::{Flows, Publics, complete, open_by};
use crate::rig::{BUFFERS, BURST, LAG, Samples, Source, ring};
use crate::rows::Failure;

/// Number of flows of a rig.
pub const FLOWS: u32 = 8_000;
/// Capacity of the session table.
const CAPACITY: u32 = 4 * FLOWS;

/// Source, worker and sink of one core.
struct Lane {
    source: Source,
    worker: Worker<'static>,
    /// Flows whose packets arrive at this worker, as two lists: from inside and from outside.
    flows: [Vec<u32>; 2],
    publics: Arc<Publics>,
    clock: Clock,
    random: Random,
    done: Done,
    samples: Samples,
}

/// Results of a lane: frames passed to the worker, output frames in total, output frames during the measured time, and
/// the length of that time in cycles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub sent: u64,
    pub came: u64,
    pub counted: u64,
    pub cycles: u64,
}

impl Lane {
    /// Sends frames of randomly drawn flows: draws 64 flows for each side, and sends the frames of those that are
    /// steered to this worker.
    #[inline(always)]
    fn feed(&mut self) {
        let each = |side: usize| if self.flows[side].is_empty() { 0 } else { BURST };
        let ports = [(0, each(0)), (1, each(1))];
        let (random, flows) = (&mut self.random, Flows::of(Hosts::Sixteen, &self.publics));
        let sent = self.source.feed(&ports, Checksums::Vouched, |port| {
            let number = *random.of(&self.flows[usize::from(port)]);
            Some(flows.packet(number, port))
        });
        self.done.sent += sent as u64;
    }

    /// Runs one round of the worker, and takes the output frames; returns the number of frames.
    #[inline(always)]
    fn round(&mut self) -> usize {
        self.worker.round(self.clock.now());
        let mut came = 0;
        for port in [0, 1] {
            // The output also contains packets that other workers handed over, in addition to the packets that this
            // worker received.
            loop {
                let count = self.samples.drain(&mut self.source, port);
                came += count;
                if count < BURST {
                    break;
                }
            }
        }
        self.done.came += came as u64;
        came
    }

    /// Sends and forwards packets for a number of cycles, simultaneously with the other lanes.
    fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        self.done = Done::default();
        if self.flows.iter().any(|flows| !flows.is_empty()) {
            (0..LAG / 128).for_each(|_| self.feed());
        }
        let begin = together.meet(lanes);
        while tsc::now() < begin {
            self.feed();
            self.round();
        }
        let (start, before) = (tsc::now(), self.done.came);
        while tsc::now() < begin + cycles {
            self.feed();
            self.round();
        }
        self.done.counted = self.done.came - before;
        self.done.cycles = tsc::now() - start;
    }
}

pub struct Rig {
    pub plane: ControlPlane,
    lanes: Vec<Lane>,
    desks: Vec<Desk>,
    devices: Devices,
}

fn plan(number: u32, end: &str, workers: usize) -> Result<Plan, Failure> {
    let port = |name| {
        let device = ring(&format!("cores-{name}{number}"), end, 8192)?;
        let queues = workers as u16;
        Ok(PortPlan {
            queues,
            ..PortPlan::new("ring", device)
        })
    };
    let ports = ["inside", "outside"]
        .into_iter()
        .map(port)
        .collect::<Result<_, Failure>>()?;
    let mut plan = Plan::new(ports, workers as u16);
    // Without a buffer cache, buffers are reused in first-in, first-out order.
    (plan.cache, plan.handover) = (0, 4096);
    Ok(plan)
}

/// Starts DPDK for rigs with the given numbers of workers; only one rig exists at a time.
pub fn start(workers: &[usize]) -> Result<&'static Eal, Failure> {
    let most = workers.iter().copied().max().unwrap_or(1);
    let mut needs = plan(0, "a", most)?.needs(&[], None);
    // The gateway and each source need buffer memory.
    needs.bytes *= most + 1;
    Ok(Eal::start(&needs)?)
}

impl Rig {
    /// Create a rig whose flows are all established.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        steering: Steering,
        style: Style,
        workers: usize,
    ) -> Result<Self, Failure> {
        let policy = policy(Job::Translate, style, CAPACITY)?;
        let routes = route_set(&policy, &routes(Job::Translate)?)?;
        let layout = Layout {
            steering: steering.wanted(&policy, style.blocks),
            workers,
            subscribers: FLOWS,
            ..Layout::sessions(Job::Translate, CAPACITY, false)
        };
        let mut plane = layout.plane(policy, &[routes])?;
        let (devices, ios) = Devices::open(eal, &plan(number, "b", workers)?)?;
        let lines = plane.lines().total().next_multiple_of(2);
        let (mut lanes, mut desks, clock) = (Vec::new(), Vec::new(), Clock::start());
        for (own, io) in ios.into_iter().enumerate() {
            let shards = plane.start_parameters().owners.count(own as u16);
            // The session memory lives as long as the process.
            let mut memory = Region::new(lines * 64 * shards)?.leak().chunks_exact_mut(lines);
            let give = |_| memory.next().unwrap_or_default();
            let (worker, desk) = plane.worker(own as u16, Box::new(io), vec![0, 1], give, tsc::now)?;
            desks.push(Desk(desk));
            let plan = Plan {
                buffers: BUFFERS,
                ..plan(number, "a", workers)?
            };
            lanes.push(Lane {
                source: Source::of(eal, &plan, own)?,
                worker,
                flows: Default::default(),
                publics: Arc::default(),
                clock,
                random: Random(SEED ^ (own as u64) << 40),
                done: Done::default(),
                samples: Samples::default(),
            });
        }
        let mut rig = Self {
            plane,
            lanes,
            desks,
            devices,
        };
        for neighbour in neighbours(Job::Translate)? {
            let lane = &mut rig.lanes[0];
            rig.desks[0].know(neighbour, || _ = lane.round())?;
        }
        let Self { plane, lanes, .. } = &mut rig;
        let deal = |number, outside, publics: &Publics| worker_of(steering, plane, workers, publics, number, outside);
        let publics = open_by(
            Hosts::Sixteen,
            FLOWS,
            workers,
            (26, 34),
            deal,
            |worker, outside, packets, look| {
                let mut rest = packets.iter();
                let ports = [(u16::from(outside), packets.len())];
                lanes[worker]
                    .source
                    .feed(&ports, Checksums::Vouched, |_| rest.next().copied());
                for lane in (0..3).flat_map(|_| 0..workers) {
                    let lane = &mut lanes[lane];
                    lane.worker.round(clock.now());
                    for port in [0, 1] {
                        lane.source.drain(port, &mut *look);
                    }
                }
                Ok(())
            },
        )?;
        let publics = Arc::new(complete(publics)?);
        rig.lanes.iter_mut().for_each(|lane| lane.publics = publics.clone());
        rig.steer(steering);
        Ok(rig)
    }

    /// Changes the steering of packets; the engine is not informed of it.
    pub fn steer(&mut self, steering: Steering) {
        let (publics, workers) = (self.lanes[0].publics.clone(), self.lanes.len());
        for (side, outside) in [false, true].into_iter().enumerate() {
            self.lanes.iter_mut().for_each(|lane| lane.flows[side].clear());
            for number in 0..FLOWS {
                let worker = worker_of(steering, &self.plane, workers, &publics, number, outside);
                self.lanes[worker].flows[side].push(number);
            }
        }
    }

    /// Runs all lanes for a number of cycles, each on its own core. No packets are in flight afterwards.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<Vec<Done>, Failure> {
        let count = self.lanes.len();
        on_cores(&mut self.lanes, cores, |lane, together| {
            lane.run(together, count, cycles)
        })?;
        settle(&mut self.lanes, Lane::round);
        Ok(self.lanes.iter().map(|lane| lane.done).collect())
    }

    pub fn session_packets(&mut self) -> Result<u64, Failure> {
        let each = self.desks.iter().zip(&mut self.lanes);
        each.map(|(desk, lane)| desk.session_packets(|| _ = lane.worker.round(lane.clock.now())))
            .sum()
    }

    /// Compare the sampled output frames with the reference.
    pub fn verify(&mut self) -> Result<(), Failure> {
        self.lanes.iter_mut().try_for_each(|lane| {
            let kept = std::mem::take(&mut lane.samples.kept);
            Flows::of(Hosts::Sixteen, &lane.publics).verify_short::<Written>(&kept)
        })
    }

    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.worker);
            lane.source.close();
        }
        drop(self.devices.close());
    }
}

/// The worker whose queue receives packets of a flow from one side.
fn worker_of(
    steering: Steering,
    plane: &ControlPlane,
    workers: usize,
    publics: &Publics,
    number: u32,
    outside: bool,
) -> usize {
    let packet = Flows::of(Hosts::Sixteen, publics).packet(number, outside.into());
    steering.worker(
        plane.start_parameters(),
        workers,
        &ends(Hosts::Sixteen, number),
        &packet,
        outside,
    )
}
