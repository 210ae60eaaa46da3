//! A gateway of several workers between ring ports with a queue each, and a source and sink on the far end of every queue.

use std::sync::Arc;

use sluice_dpdk::device::Device;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::port::PortPlan;
use sluice_dpdk::{Devices, DpdkIo, Plan, tsc};
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::features::virtual_reassembly::Limits;
use sluice_engine::packet::time::Now;
use sluice_engine::placement::Part;
use sluice_engine::snapshot::shard_owners::ShardOwners;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::Steering as Engine;
use sluice_engine::snapshot::{Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request, WorkerHandle};
use sluice_route::RouteSet;
use sluice_table::memory::Line;
use sluice_wire::Checksums;
use sluice_wire::tcp::flag;

use super::lane::{Done, Lane, Together};
use super::steering::Steering;
use crate::nat_path::Publics;
use crate::nat_path::flows::{HOST_MAC, Hosts, ROUTER_MAC, Random, Written, data, ends};
use crate::nat_path::rig::{BUFFERS, Job, SHARDS, Source};
use crate::nat_path::rules::{self, Style};
use crate::nat_path::wire::mark;

type Failure = Box<dyn std::error::Error>;

/// Flows of a rig.
pub const FLOWS: u32 = 8_000;
/// Sessions that there is room for.
const CAPACITY: u32 = 4 * FLOWS;

/// A gateway and its lanes.
pub struct Rig {
    /// Control side.
    pub plane: ControlPlane,
    /// One for each worker.
    pub lanes: Vec<Lane>,
    desks: Vec<WorkerHandle>,
    devices: Devices,
}

fn plan(number: u32, end: &str, workers: usize) -> Result<Plan, Failure> {
    let mut ports = Vec::new();
    for name in ["inside", "outside"] {
        let device: Device = format!("ring:cores-{name}{number},end={end},depth=8192").parse()?;
        let mut port = PortPlan::new("ring", device);
        port.queues = workers as u16;
        ports.push(port);
    }
    let mut plan = Plan::new(ports, workers as u16);
    // First in, first out.
    plan.cache = 0;
    plan.handover = 4096;
    Ok(plan)
}

/// Start DPDK for one rig at a time, of each of these numbers of workers.
pub fn start(workers: &[usize]) -> Result<&'static Eal, Failure> {
    let most = workers.iter().copied().max().unwrap_or(1);
    let mut needs = plan(0, "a", most)?.needs(&[], None);
    // The gateway's, and that of each source.
    needs.bytes *= most + 1;
    Ok(Eal::start(&needs)?)
}

fn plane(steering: Steering, style: Style, workers: usize) -> Result<ControlPlane, Failure> {
    let interfaces = rules::interfaces(Job::Translate)?;
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut policy = Snapshot::new(2, interfaces);
    rules::translate(&mut policy, Job::Translate, style, CAPACITY, false)?;
    let routes = RouteSet::new(&links, &rules::routes(Job::Translate)?)?;
    let spreads = policy
        .nat4
        .pools
        .iter()
        .all(|(_, pool)| sluice_engine::snapshot::steering::spreads(pool));
    let wanted = steering.wanted(spreads, style.blocks);
    let steering = Engine::seeded(SHARDS, &wanted, 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
    let stages = Stages::default();
    let setup = StartParameters {
        owners: ShardOwners::dealt(steering.shards(), &stages.all(Part::Session, workers)).into(),
        stages,
        assist: None,
        steering,
        sessions: [CAPACITY, SHARDS],
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
            most: FLOWS,
            blocks: FLOWS,
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

impl Rig {
    /// A rig whose flows are all established.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        steering: Steering,
        style: Style,
        workers: usize,
    ) -> Result<Self, Failure> {
        let mut plane = plane(steering, style, workers)?;
        let (devices, hands) = Devices::open(eal, &plan(number, "b", workers)?)?;
        let lines = plane.lines().total().next_multiple_of(2);
        let (mut lanes, mut desks) = (Vec::new(), Vec::new());
        let start = tsc::now();
        for (own, io) in hands.into_iter().enumerate() {
            let shards = plane
                .start_parameters()
                .owners
                .iter()
                .filter(|&owner| usize::from(owner) == own)
                .count();
            // Sessions last as long as the process.
            let memory: &'static mut [Line] = Region::new(lines * 64 * shards)?.leak();
            let mut rest = memory.chunks_exact_mut(lines);
            let give = |_| rest.next().unwrap_or_default();
            let (worker, desk) = plane.worker(own as u16, Box::new(io), vec![0, 1], give, tsc::now)?;
            desks.push(desk);
            lanes.push(Lane {
                source: source(eal, number, own, workers)?,
                worker,
                flows: Default::default(),
                publics: Arc::default(),
                start,
                random: Random(88_172_645_463_325_252 ^ (own as u64) << 40),
                done: Done::default(),
                samples: Vec::new(),
            });
        }
        let mut rig = Self {
            plane,
            lanes,
            desks,
            devices,
        };
        let neighbours = rules::neighbours(Job::Translate)?;
        for ((interface, address), mac) in (0..).zip(neighbours).zip([HOST_MAC, ROUTER_MAC]) {
            let request = Request::SetNeighbour {
                interface,
                address,
                mac,
            };
            rig.ask(0, request)?;
        }
        rig.open(steering)?;
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
            let now = lane.now();
            lane.worker.round(now);
            if let Ok(reply) = desk.replies.try_recv() {
                return Ok(reply);
            }
        }
    }

    /// Open all flows as their peers would: each packet by the queue that it comes to.
    fn open(&mut self, steering: Steering) -> Result<(), Failure> {
        let mut publics: Publics = vec![(0, 0); FLOWS as usize];
        for (step, flags, numbers) in [
            (0, flag::SYN, (1, 0)),
            (1, flag::SYN | flag::ACK, (1, 2)),
            (2, flag::ACK, (2, 2)),
        ] {
            let outside = step == 1;
            let flows = self.deal(steering, &publics, outside);
            for (worker, flows) in flows.iter().enumerate() {
                for chunk in flows.chunks(64) {
                    let mut rest = chunk.iter();
                    let port = u16::from(outside);
                    self.lanes[worker]
                        .source
                        .feed(&[(port, chunk.len())], Checksums::Vouched, |_| {
                            let number = *rest.next()?;
                            let public = outside.then(|| publics[number as usize]);
                            Some(Written {
                                flags,
                                numbers,
                                ..data(Hosts::Sixteen, number, public)
                            })
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
                return Err(format!("flow {missing} was not translated").into());
            }
        }
        for (side, outside) in [false, true].into_iter().enumerate() {
            let flows = self.deal(steering, &publics, outside);
            for (lane, flows) in self.lanes.iter_mut().zip(flows) {
                lane.flows[side] = flows;
            }
        }
        let publics = Arc::new(publics);
        for lane in &mut self.lanes {
            lane.publics = publics.clone();
        }
        Ok(())
    }

    /// Which flows' packets come to which worker, from one side.
    fn deal(&self, steering: Steering, publics: &Publics, outside: bool) -> Vec<Vec<u32>> {
        let setup = self.plane.start_parameters();
        let mut dealt = vec![Vec::new(); self.lanes.len()];
        for (number, &public) in (0..).zip(publics) {
            let frame = data(Hosts::Sixteen, number, outside.then_some(public));
            dealt[steering.worker(setup, self.lanes.len(), &ends(Hosts::Sixteen, number), &frame, outside)]
                .push(number);
        }
        dealt
    }

    /// From here on packets find their worker another way, which the engine is not told.
    pub fn steer(&mut self, steering: Steering) {
        let publics = self.lanes[0].publics.clone();
        for (side, outside) in [false, true].into_iter().enumerate() {
            let flows = self.deal(steering, &publics, outside);
            for (lane, flows) in self.lanes.iter_mut().zip(flows) {
                lane.flows[side] = flows;
            }
        }
    }

    /// Rounds of all workers in turn until nothing moves; `look` sees what comes out.
    fn pass(&mut self, mut look: impl FnMut(&[u8])) {
        for _ in 0..3 {
            for lane in &mut self.lanes {
                let now = lane.now();
                lane.worker.round(now);
                for port in [0, 1] {
                    lane.source.drain(port, &mut look);
                }
            }
        }
    }

    /// All lanes for so many cycles, each on its core. Afterwards nothing is under way.
    pub fn run(&mut self, eal: &'static Eal, cores: &[usize], cycles: u64) -> Result<(), Failure> {
        let together = Arc::new(Together::default());
        let count = self.lanes.len();
        let mut threads = Vec::new();
        for (mut lane, &core) in std::mem::take(&mut self.lanes).into_iter().zip(cores) {
            let together = together.clone();
            threads.push(sluice_dpdk::workers::Worker::start(eal, "lane", core, move |_| {
                lane.run(&together, count, cycles);
                lane
            })?);
        }
        for thread in threads {
            self.lanes.push(thread.stop().map_err(|_| "a lane failed")?);
        }
        while self.lanes.iter_mut().map(Lane::settle).sum::<usize>() > 0 {}
        Ok(())
    }

    /// Sum of all sessions' packets.
    pub fn session_packets(&mut self) -> Result<u64, Failure> {
        let mut packets = 0;
        for worker in 0..self.lanes.len() {
            let (mut cursor, mut into) = (Some(Cursor::default()), Vec::with_capacity(4096));
            while let Some(from) = cursor {
                let request = Request::List {
                    cursor: from,
                    filter: Filter::default(),
                    into,
                };
                let Reply::Listed { next, sessions } = self.ask(worker, request)? else {
                    return Err("no list".into());
                };
                packets += sessions.iter().map(|s| s.packets[0] + s.packets[1]).sum::<u64>();
                (cursor, into) = (next, sessions);
                into.clear();
            }
        }
        Ok(packets)
    }

    /// Close the ports.
    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.worker);
            lane.source.close();
        }
        drop(self.devices.close());
    }
}

/// The far end of one worker's queues, with buffers of its own.
fn source(eal: &'static Eal, number: u32, own: usize, workers: usize) -> Result<Source, Failure> {
    let mut plan = plan(number, "a", workers)?;
    plan.buffers = BUFFERS;
    let (devices, hands) = Devices::open(eal, &plan)?;
    let io: DpdkIo = hands.into_iter().nth(own).ok_or("a hand is missing")?;
    Ok(Source::of(io, devices))
}
