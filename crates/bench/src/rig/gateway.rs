//! A gateway with one worker between ring ports, and control requests to workers.

use std::slice::ChunksExactMut;
use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::{Devices, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::packet::io::Handover;
use sluice_engine::packet::reason::Reason;
use sluice_engine::packet::time::Now;
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request, SessionInfo, WorkerHandle};
use sluice_route::Address;
use sluice_table::memory::Line;

use super::lanes::{Done, Middle};
use super::policy::{Job, neighbours};
use super::{Source, join};
use crate::rows::Failure;

/// Clock of sessions, derived from the cycle counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    frequency: u64,
}

impl Clock {
    /// Start the clock now.
    pub fn start() -> Self {
        let (start, frequency) = (tsc::now(), tsc::frequency());
        Self { start, frequency }
    }

    #[inline(always)]
    pub fn now(&self) -> Now {
        let cycles = tsc::now() - self.start;
        Now::at((u128::from(cycles) * 1_000_000_000 / u128::from(self.frequency)) as u64)
    }
}

/// Sends requests to a worker, which processes them in its rounds.
pub struct Desk(pub WorkerHandle);

impl Desk {
    fn send(&self, request: Request) -> Result<(), Failure> {
        Ok(self
            .0
            .requests
            .try_send(request)
            .map_err(|_| "the worker takes no requests")?)
    }

    /// Sends a request, and runs rounds of the worker until it replies.
    pub fn ask(&self, request: Request, mut round: impl FnMut()) -> Result<Reply, Failure> {
        self.send(request)?;
        loop {
            round();
            if let Ok(reply) = self.0.replies.try_recv() {
                return Ok(reply);
            }
        }
    }

    pub fn know(&self, neighbour: (u16, Address, [u8; 6]), round: impl FnMut()) -> Result<(), Failure> {
        let (interface, address, mac) = neighbour;
        match self.ask(
            Request::SetNeighbour {
                interface,
                address,
                mac,
            },
            round,
        )? {
            Reply::Done => Ok(()),
            _ => Err("a neighbour is refused".into()),
        }
    }

    pub fn session_packets(&self, mut round: impl FnMut()) -> Result<u64, Failure> {
        let (mut cursor, mut into, mut packets) = (Some(Cursor::default()), Vec::with_capacity(4096), 0);
        while let Some(from) = cursor {
            let Reply::Listed { next, sessions } = self.ask(list(from, into), &mut round)? else {
                return Err("no list".into());
            };
            packets += sessions.iter().map(|s| s.packets[0] + s.packets[1]).sum::<u64>();
            (cursor, into) = (next, sessions);
            into.clear();
        }
        Ok(packets)
    }
}

fn list(cursor: Cursor, into: Vec<SessionInfo>) -> Request {
    let filter = Filter::default();
    Request::List { cursor, filter, into }
}

/// A gateway with one worker, and the source at the opposite ends of its ports.
pub struct Gateway<'m> {
    pub plane: ControlPlane,
    pub rounds: Rounds<'m>,
    pub source: Source,
    pub devices: Devices,
}

/// Time that starts at `base` and advances by `step` nanoseconds for each session opened after the first `first`
/// sessions, so that as many sessions end as are opened.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub base: u64,
    pub step: u64,
    pub first: u64,
}

/// A gateway's worker; another thread may run it.
pub struct Rounds<'m> {
    pub worker: Worker<'m>,
    desk: Desk,
    pub counters: Arc<WorkerCounters>,
    pub clock: Clock,
    /// Time of the sessions, if it is not the real time.
    pub opened: Option<Opened>,
    /// Number of rounds of the worker in which it receives what the source sends at once.
    pub repeats: usize,
}

impl<'m> Rounds<'m> {
    /// Creates worker `own`, which receives from some ports. The worker's shards get the next parts of [`shards`].
    pub fn new(
        plane: &mut ControlPlane,
        own: usize,
        io: Box<dyn Handover + 'm>,
        receives: Vec<u16>,
        shards: &mut ChunksExactMut<'m, Line>,
    ) -> Result<Self, Failure> {
        let give = |_| shards.next().unwrap_or_default();
        let (worker, desk) = plane.worker(own as u16, io, receives, give, tsc::now)?;
        Ok(Self {
            worker,
            desk: Desk(desk),
            counters: plane.counters()[own].clone(),
            clock: Clock::start(),
            opened: None,
            repeats: 1,
        })
    }

    #[inline(always)]
    pub fn now(&self) -> Now {
        match self.opened {
            None => self.clock.now(),
            Some(Opened { base, step, first }) => Now::at(base + (self.counters.sessions_created.get() - first) * step),
        }
    }

    /// Runs the worker once for what the source sends at once; returns the number of packets moved.
    #[inline(always)]
    pub fn round(&mut self) -> usize {
        (0..self.repeats).map(|_| self.worker.round(self.now())).sum()
    }

    pub fn know(&mut self, neighbour: (u16, Address, [u8; 6])) -> Result<(), Failure> {
        let Self {
            worker, desk, clock, ..
        } = self;
        desk.know(neighbour, || _ = worker.round(clock.now()))
    }

    pub fn session_packets(&mut self) -> Result<u64, Failure> {
        let (worker, clock) = (&mut self.worker, self.clock);
        self.desk.session_packets(|| _ = worker.round(clock.now()))
    }
}

impl Middle for Rounds<'_> {
    #[inline(always)]
    fn round(&mut self) -> usize {
        Rounds::round(self)
    }

    fn count(&self, done: &mut Done) {
        done.count(&self.counters);
    }

    fn session_packets(&mut self) -> Result<Option<u64>, Failure> {
        Rounds::session_packets(self).map(Some)
    }
}

/// Parts of a gateway's memory, one for each shard.
pub fn shards<'m>(plane: &ControlPlane, memory: &'m mut Region) -> ChunksExactMut<'m, Line> {
    memory
        .lines()
        .chunks_exact_mut(plane.lines().total().next_multiple_of(2))
}

impl<'m> Gateway<'m> {
    /// Creates a gateway with two ports that has the default neighbour entries.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        job: Job,
        plane: ControlPlane,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        Self::with_neighbours(join(eal, number, 2, 8192)?, job, plane, memory)
    }

    /// Creates a gateway over two ports that has the default neighbour entries.
    pub fn with_neighbours(
        ends: [Source; 2],
        job: Job,
        plane: ControlPlane,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        let mut gateway = Self::over(ends, plane, vec![0, 1], memory)?;
        neighbours(job)?
            .into_iter()
            .try_for_each(|neighbour| gateway.know(neighbour))?;
        Ok(gateway)
    }

    /// Creates a gateway without neighbour entries that receives from these ports.
    pub fn over(
        [source, Source { io, devices }]: [Source; 2],
        mut plane: ControlPlane,
        receives: Vec<u16>,
        memory: &'m mut Region,
    ) -> Result<Self, Failure> {
        let mut shards = shards(&plane, memory);
        let rounds = Rounds::new(&mut plane, 0, Box::new(io), receives, &mut shards)?;
        Ok(Self {
            plane,
            rounds,
            source,
            devices,
        })
    }

    pub fn now(&self) -> Now {
        self.rounds.now()
    }

    #[inline(always)]
    pub fn round(&mut self) -> usize {
        self.rounds.round()
    }

    pub fn know(&mut self, neighbour: (u16, Address, [u8; 6])) -> Result<(), Failure> {
        self.rounds.know(neighbour)
    }

    pub fn session_packets(&mut self) -> Result<u64, Failure> {
        self.rounds.session_packets()
    }

    /// Starts to list sessions; [`Gateway::listed`] returns the reply.
    pub fn list(&mut self, cursor: Cursor, into: Vec<SessionInfo>) -> Result<(), Failure> {
        self.rounds.desk.send(list(cursor, into))
    }

    /// Returns the reply to [`Gateway::list`], if it has arrived.
    pub fn listed(&mut self) -> Option<(Option<Cursor>, Vec<SessionInfo>)> {
        match self.rounds.desk.0.replies.try_recv() {
            Ok(Reply::Listed { next, sessions }) => Some((next, sessions)),
            _ => None,
        }
    }

    /// Cycles that the worker has spent on each of its stages.
    pub fn stages(&self) -> [u64; CycleStage::ALL.len()] {
        self.rounds.counters.cycles.values()
    }

    /// Bytes of memory per session, if each shard has this number of cache lines.
    pub fn bytes_per_session(plane: &ControlPlane, lines: usize, sessions: u32) -> f64 {
        lines as f64 * 64.0 * plane.start_parameters().owners.len() as f64 / f64::from(sessions)
    }

    pub fn close(self) {
        drop(self.rounds);
        self.source.close();
        drop(self.devices.close());
    }
}

/// Number of packets dropped for a reason, over all workers and interfaces.
pub fn dropped(plane: &ControlPlane, reason: Reason) -> u64 {
    let interfaces = plane.counters().iter().flat_map(|worker| &worker.interfaces);
    interfaces.map(|interface| interface.drops(reason)).sum()
}

/// Number of dropped packets by reason.
pub fn drops(plane: &ControlPlane) -> Vec<(&'static str, u64)> {
    let all = Reason::all().map(|reason| (reason.name(), dropped(plane, reason)));
    all.filter(|&(_, count)| count > 0).collect()
}
