//! A gateway between two ring ports, and the source and sink on their far ends.

use arrayvec::ArrayVec;
use sluice_dpdk::device::Device;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::port::PortPlan;
use sluice_dpdk::tsc;
use sluice_dpdk::{Devices, DpdkIo, Plan};
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::features::virtual_reassembly::Limits;
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Packets};
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::shard_owners::ShardOwners;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::{Steering, SteeringSettings};
use sluice_engine::snapshot::{Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request, WorkerHandle};
use sluice_nat::sites::SiteWriter;
use sluice_route::{Address, Route, RouteSet};
use sluice_table::memory::Line;
use sluice_wire::Checksums;

use super::flows::{HOST_MAC, ROUTER_MAC};
use super::rules::{self, Style};
use super::wire::Wire;
use crate::homes::Homes;

type Failure = Box<dyn std::error::Error>;

/// Buffers of the source: passed first in, first out.
pub const BUFFERS: u32 = 8191;
/// Frames that wait between source and gateway.
pub const LAG: usize = 4096;
/// Shards.
pub const SHARDS: u32 = 16;

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Translation of IPv4 with sessions.
    Translate,
    /// Translation of IPv6 with sessions.
    Translate6,
    /// Forwarding by the routes.
    Forward,
}

/// The far ends of the gateway's ports, and a ring that leads straight back.
pub struct Source {
    /// Ports 0 and 1 lead to the gateway, 2 and 3 back.
    pub io: DpdkIo,
    devices: Option<Devices>,
}

/// Names of rings are the process's: each rig has its own.
fn ring(name: &str, number: u32, end: &str) -> Result<Device, Failure> {
    Ok(format!("ring:{name}{number}{end},depth=8192").parse()?)
}

fn plan(devices: Vec<Device>) -> Plan {
    let ports = devices
        .into_iter()
        .map(|device| PortPlan::new("ring", device))
        .collect();
    let mut plan = Plan::new(ports, 1);
    (plan.buffers, plan.cache) = (BUFFERS, 0);
    plan
}

/// Start DPDK for rigs of which so many are there at one time.
pub fn start(rigs: usize) -> Result<&'static Eal, Failure> {
    let devices = vec![
        ring("a", 0, "")?,
        ring("b", 0, "")?,
        ring("c", 0, "")?,
        ring("d", 0, "")?,
    ];
    let mut needs = plan(devices).needs(&[], None);
    needs.bytes *= 3 * rigs;
    Ok(Eal::start(&needs)?)
}

/// Source and gateway, joined.
pub fn join(eal: &'static Eal, number: u32) -> Result<(Source, Devices, DpdkIo), Failure> {
    let far = vec![
        ring("inside", number, ",end=a")?,
        ring("outside", number, ",end=a")?,
        ring("loop-inside", number, "")?,
        ring("loop-outside", number, "")?,
    ];
    let near = vec![ring("inside", number, ",end=b")?, ring("outside", number, ",end=b")?];
    let (devices, mut hands) = Devices::open(eal, &plan(far))?;
    let io = hands.pop().ok_or("a hand is missing")?;
    let (gateway, mut hands) = Devices::open(eal, &plan(near))?;
    let hand = hands.pop().ok_or("a hand is missing")?;
    Ok((
        Source {
            io,
            devices: Some(devices),
        },
        gateway,
        hand,
    ))
}

/// Source and gateway joined by so many ports: the source's first lead to the gateway, the one behind them straight back.
pub fn join_by(eal: &'static Eal, number: u32, ports: u16, depth: u32) -> Result<(Source, Devices, DpdkIo), Failure> {
    let end = |port, end| Ok(format!("ring:wide{number}-{port},end={end},depth={depth}").parse()?);
    let ends = |which| {
        (0..ports)
            .map(|port| end(port, which))
            .collect::<Result<Vec<_>, Failure>>()
    };
    let mut far = ends("a")?;
    far.push(ring("loop", number, "")?);
    let (devices, mut hands) = Devices::open(eal, &plan(far))?;
    let io = hands.pop().ok_or("a hand is missing")?;
    let (gateway, mut hands) = Devices::open(eal, &plan(ends("b")?))?;
    let hand = hands.pop().ok_or("a hand is missing")?;
    Ok((Source::of(io, devices), gateway, hand))
}

/// A ring that leads straight back, as port 0 of a source.
pub fn looped(eal: &'static Eal, number: u32) -> Result<Source, Failure> {
    let (devices, mut hands) = Devices::open(eal, &plan(vec![ring("loop", number, "")?]))?;
    let io = hands.pop().ok_or("a hand is missing")?;
    Ok(Source {
        io,
        devices: Some(devices),
    })
}

impl Source {
    /// The far ends of a gateway's ports.
    pub fn of(io: DpdkIo, devices: Devices) -> Self {
        Self {
            io,
            devices: Some(devices),
        }
    }

    /// Write up to 64 frames towards each of two ports, as `draw` says for each port, and send them.
    #[inline(always)]
    pub fn feed<W: Wire>(
        &mut self,
        ports: &[(u16, usize)],
        checksums: Checksums,
        mut draw: impl FnMut(u16) -> Option<W>,
    ) -> usize {
        let total: usize = ports.iter().map(|&(_, count)| count).sum();
        let made = self.io.allocate(total);
        let mut used = [0; 2];
        {
            let mut lent = Packets::new();
            self.io.packets(&mut lent);
            let mut packets = lent.iter_mut().take(made);
            for (place, &(port, count)) in ports.iter().enumerate() {
                for _ in 0..count {
                    let (Some(written), Some(packet)) = (draw(port), packets.next()) else {
                        break;
                    };
                    packet.set_len(written.length());
                    packet.set_checksums(checksums);
                    written.write(packet.bytes_mut());
                    used[place] += 1;
                }
            }
        }
        let mut first = 0;
        for (place, &(port, _)) in ports.iter().enumerate() {
            let slots: ArrayVec<BufferIndex, BURST_BUFFERS> =
                (first..first + used[place]).map(|slot| slot as BufferIndex).collect();
            self.io.transmit(port, &slots);
            first += used[place];
        }
        let unused: ArrayVec<BufferIndex, BURST_BUFFERS> = (first..made).map(|slot| slot as BufferIndex).collect();
        self.io.free(&unused);
        self.io.end();
        first
    }

    /// Take what came out of a port and free it; `look` sees each frame.
    #[inline(always)]
    pub fn drain(&mut self, port: u16, mut look: impl FnMut(&[u8])) -> usize {
        let count = self.io.receive(port);
        {
            let mut lent = Packets::new();
            self.io.packets(&mut lent);
            for packet in &lent {
                look(packet.bytes());
            }
        }
        let slots: ArrayVec<BufferIndex, BURST_BUFFERS> = (0..count).map(|slot| slot as BufferIndex).collect();
        self.io.free(&slots);
        self.io.end();
        count
    }

    /// Take what came out of a port and free it, unseen.
    #[inline(always)]
    pub fn discard(&mut self, port: u16) -> usize {
        let count = self.io.receive(port);
        let slots: ArrayVec<BufferIndex, BURST_BUFFERS> = (0..count).map(|slot| slot as BufferIndex).collect();
        self.io.free(&slots);
        self.io.end();
        count
    }

    /// Close the ports.
    pub fn close(mut self) {
        let devices = self.devices.take();
        drop(self.io);
        drop(devices.map(Devices::close));
    }
}

/// A gateway of one worker.
pub struct Gateway<'m> {
    /// Control side.
    pub plane: ControlPlane,
    /// The worker.
    pub worker: Worker<'m>,
    desk: WorkerHandle,
    start: u64,
    frequency: u64,
}

/// A gateway's worker alone.
pub struct Rounds<'m> {
    worker: Worker<'m>,
    /// The worker ends nothing because nobody asks it anything.
    _desk: WorkerHandle,
    start: u64,
    frequency: u64,
}

impl Rounds<'_> {
    /// A round of the worker.
    #[inline(always)]
    pub fn round(&mut self) {
        self.worker.round(moment(self.start, self.frequency));
    }

    /// What tells the moment that the worker is told.
    pub fn clock(&self) -> impl Fn() -> Now + Send + use<> {
        let (start, frequency) = (self.start, self.frequency);
        move || moment(start, frequency)
    }
}

/// The time since a start, by the clock of cycles.
#[inline(always)]
fn moment(start: u64, frequency: u64) -> Now {
    let cycles = tsc::now() - start;
    Now::at((u128::from(cycles) * 1_000_000_000 / u128::from(frequency)) as u64)
}

/// The plane of a gateway with place for `sessions` sessions.
pub fn plane(job: Job, style: Style, sessions: u32, short: bool) -> Result<ControlPlane, Failure> {
    plane_with(job, style, sessions, short, &rules::routes(job)?)
}

/// The same with other routes.
pub fn plane_with(
    job: Job,
    style: Style,
    sessions: u32,
    short: bool,
    routes: &[Route],
) -> Result<ControlPlane, Failure> {
    let interfaces = rules::interfaces(job)?;
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut policy = Snapshot::new(2, interfaces);
    rules::translate(&mut policy, job, style, sessions, short)?;
    if style.filter_rules > 0 {
        rules::filter(&mut policy, style.filter_rules)?;
    }
    let routes = RouteSet::new(&links, routes)?;
    let sessions = match job {
        Job::Translate6 => [SHARDS, sessions],
        _ => [sessions, SHARDS],
    };
    plane_of(policy, &[routes], sessions, short)
}

/// The plane of a gateway that translates and serves sites as well, and who says which terminals they have.
pub fn plane_of_homes(homes: Homes, style: Style, sessions: u32) -> Result<(ControlPlane, SiteWriter), Failure> {
    let interfaces = rules::interfaces(Job::Translate)?;
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut policy = Snapshot::new(2, interfaces);
    rules::translate(&mut policy, Job::Translate, style, sessions, false)?;
    let keeper = homes.serve(&mut policy)?;
    let routes = RouteSet::new(&links, &rules::routes(Job::Translate)?)?;
    Ok((plane_of(policy, &[routes], [sessions, SHARDS], false)?, keeper))
}

/// A plane that forwards by a policy and each router's routes, as good as without sessions.
pub fn plane_of_routers(policy: Snapshot, routes: &[RouteSet]) -> Result<ControlPlane, Failure> {
    plane_of(policy, routes, [SHARDS; 2], false)
}

fn plane_of(policy: Snapshot, routes: &[RouteSet], sessions: [u32; 2], short: bool) -> Result<ControlPlane, Failure> {
    let steering = Steering::seeded(SHARDS, &SteeringSettings::default(), 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
    let (shards, most) = (steering.shards(), sessions[0].max(sessions[1]));
    let setup = StartParameters {
        steering,
        owners: ShardOwners::dealt(shards, &[0]).into(),
        stages: Stages::default(),
        assist: None,
        sessions,
        ports: policy.untagged.len(),
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
        // Hosts have 63 flows each, and half as many where sessions come and go.
        subscribers: SubscriberCapacity {
            most: most / if short { 24 } else { 48 } + 256,
            blocks: most / if short { 24 } else { 48 } + 256,
            ..SubscriberCapacity::default()
        },
    };
    Ok(ControlPlane::new(
        setup,
        policy,
        routes,
        NeighbourLimits::default(),
        1,
        Now::at(0),
    )?)
}

/// Memory for the shards of a plane.
pub fn memory(plane: &ControlPlane) -> Result<Region, Failure> {
    Ok(Region::new(plane.lines().total() * SHARDS as usize * 64)?)
}

impl<'m> Gateway<'m> {
    /// A gateway over its devices and memory.
    pub fn new(job: Job, plane: ControlPlane, io: DpdkIo, memory: &'m mut Region) -> Result<Self, Failure> {
        let mut gateway = Self::over(plane, io, vec![0, 1], memory)?;
        for ((interface, address), mac) in (0..).zip(rules::neighbours(job)?).zip([HOST_MAC, ROUTER_MAC]) {
            gateway.know(interface, address, mac)?;
        }
        Ok(gateway)
    }

    /// A gateway that knows no neighbours yet, and receives by these ports.
    pub fn over(
        mut plane: ControlPlane,
        io: DpdkIo,
        receives: Vec<u16>,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        let lines = plane.lines().total();
        let mut rest: &mut [Line] = memory.lines();
        let give = |_| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(lines);
            rest = others;
            own
        };
        let (worker, desk) = plane.worker(0, Box::new(io), receives, give, tsc::now)?;
        Ok(Self {
            plane,
            worker,
            desk,
            start: tsc::now(),
            frequency: tsc::frequency(),
        })
    }

    /// A neighbour has this MAC address.
    pub fn know(&mut self, interface: u16, address: Address, mac: [u8; 6]) -> Result<(), Failure> {
        self.ask(Request::SetNeighbour {
            interface,
            address,
            mac,
        })?;
        Ok(())
    }

    /// The moment by the clock of cycles.
    #[inline(always)]
    pub fn now(&self) -> Now {
        moment(self.start, self.frequency)
    }

    /// Its control side, and its worker for another thread.
    pub fn apart(self) -> (ControlPlane, Rounds<'m>) {
        let rounds = Rounds {
            worker: self.worker,
            _desk: self.desk,
            start: self.start,
            frequency: self.frequency,
        };
        (self.plane, rounds)
    }

    /// Ask the worker.
    pub fn ask(&mut self, request: Request) -> Result<Reply, Failure> {
        self.desk
            .requests
            .try_send(request)
            .map_err(|_| "the worker takes no requests")?;
        loop {
            let now = self.now();
            self.worker.round(now);
            if let Ok(reply) = self.desk.replies.try_recv() {
                return Ok(reply);
            }
        }
    }

    /// Begin to list sessions: the answer is read by [`Gateway::listed`].
    pub fn list(
        &mut self,
        cursor: Cursor,
        into: Vec<sluice_engine::worker::request::SessionInfo>,
    ) -> Result<(), Failure> {
        let request = Request::List {
            cursor,
            filter: Filter::default(),
            into,
        };
        self.desk
            .requests
            .try_send(request)
            .map_err(|_| "the worker takes no requests")?;
        Ok(())
    }

    /// The answer to [`Gateway::list`], once it is there.
    pub fn listed(&mut self) -> Option<(Option<Cursor>, Vec<sluice_engine::worker::request::SessionInfo>)> {
        match self.desk.replies.try_recv() {
            Ok(Reply::Listed { next, sessions }) => Some((next, sessions)),
            _ => None,
        }
    }

    /// Sum of all sessions' packets.
    pub fn session_packets(&mut self) -> Result<u64, Failure> {
        let (mut cursor, mut packets) = (Cursor::default(), 0);
        let mut into = Vec::with_capacity(4096);
        loop {
            let request = Request::List {
                cursor,
                filter: Filter::default(),
                into,
            };
            let Reply::Listed { next, sessions } = self.ask(request)? else {
                return Err("no list".into());
            };
            packets += sessions.iter().map(|s| s.packets[0] + s.packets[1]).sum::<u64>();
            let Some(next) = next else { return Ok(packets) };
            cursor = next;
            into = sessions;
            into.clear();
        }
    }
}
