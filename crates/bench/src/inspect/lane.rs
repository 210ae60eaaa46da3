//! One core's part of a run: a source if the core receives, the component under test, and a sink if the core sends.

use std::sync::{Arc, Mutex, MutexGuard};

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::worker::Worker;
use sluice_wire::Checksums;

use super::even::Even;
use super::moving::Moving;
use super::traffic::{Draw, Pages, Seen, read, since, write};
use crate::frames::histogram::Histogram;
use crate::frames::pace::{self, Pace};
use crate::rig::gateway::Clock;
use crate::rig::lanes::{self, Progress, Together};
use crate::rig::slices::Slices;
use crate::rig::{BURST, Source};

/// Number of frames sent per side and call.
const EACH: usize = 32;

/// The component under test: the engine's worker, or the baseline.
pub enum Middle<'s, 'm> {
    /// The engine's worker and its counters.
    Engine(Box<Worker<'m>>, Arc<WorkerCounters>),
    /// The baseline of P3: a flow table shared by all cores, with locks.
    Even(Box<Even<'s, 'm>>),
}

/// Traffic source of one side; it is shared by all cores to which the side's interface may be assigned.
pub type Side = Arc<Mutex<(Draw, Option<Pace>)>>;

/// Source, worker and sink of one core.
pub struct Lane<'s, 'm> {
    pub own: usize,
    pub middle: Middle<'s, 'm>,
    /// Source and sink at the opposite ends of this core's queues, if it has queues.
    pub far: Option<Source>,
    /// Traffic sources of this core, one per side of the bridge.
    pub sides: Vec<Side>,
    pub pages: Arc<Pages>,
    /// Whether packets leave through this core's queue.
    pub drains: bool,
    /// Index of this core's queue if the packets that the core receives also leave through it; then the sink polls only
    /// that queue.
    pub local: Option<usize>,
    pub progress: Arc<Progress>,
    pub clock: Clock,
    /// Results of the lane for each time slice.
    pub slices: Slices<Done>,
    /// Total results of the lane.
    pub done: Done,
    /// Latency of the frames that have a due time.
    pub latency: Histogram,
    /// Latency of the frames in the current time slice.
    pub current: Histogram,
    /// Number of frames that remain to be sent, if the number is limited.
    pub left: Option<usize>,
    /// Current assignment of interfaces to cores, if interfaces are moved between cores.
    pub moving: Option<Arc<Moving>>,
    pub seen: Arc<Mutex<Seen>>,
}

/// Cycles by purpose, and numbers of packets.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Done {
    pub came: u64,
    /// Number of frames that were due, and number of due frames for which the queue had no room.
    pub due: u64,
    pub lost: u64,
    /// Cycles of the measured time.
    pub cycles: u64,
    /// Cycles spent by source and sink: writing frames and freeing output frames.
    pub ends: u64,
    /// Cycles of rounds that moved packets, without those of source and sink.
    pub work: u64,
    /// Number of packets handed over to other workers.
    pub handed: u64,
    /// Cycles spent on hand-overs, by both the sending and the receiving worker.
    pub handing: u64,
    /// Number of packets of shards that this worker took over from another worker by assist.
    pub assisted: u64,
    pub waited: u64,
}

impl Done {
    fn with(self, other: Self, one: impl Fn(u64, u64) -> u64) -> Self {
        let [own, other]: [[u64; 10]; 2] = [self, other].map(bytemuck::cast);
        bytemuck::cast(std::array::from_fn::<_, 10, _>(|at| one(own[at], other[at])))
    }

    pub fn less(self, before: Self) -> Self {
        self.with(before, |a, b| a - b)
    }

    /// Share of the measured time in which the core did work.
    pub fn busy(&self) -> f64 {
        (self.work + self.ends) as f64 / self.cycles.max(1) as f64
    }
}

impl lanes::Done for Done {
    fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }
}

/// Creates time slices for a lane, each long enough for several bursts of the largest frames.
pub fn slices() -> Slices<Done> {
    let millisecond = tsc::frequency() / 1_000;
    Slices::new(2 * millisecond, millisecond)
}

pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Lane<'_, '_> {
    /// Sends frames for each side that is currently assigned to this lane: as many as are due, or as many as the queue
    /// accepts.
    #[inline(always)]
    fn feed(&mut self, now: u64) -> usize {
        let Some(far) = &mut self.far else { return 0 };
        let has_room = self.progress.may_send(self.local);
        let mut sides = ArrayVec::<_, 2>::new();
        let (mut ports, mut times) = (ArrayVec::<(u16, usize), 2>::new(), [[now; EACH]; 2]);
        for side in &self.sides {
            let Ok(mut side) = side.try_lock() else { continue };
            let (draw, pace) = &mut *side;
            if let Some(moving) = &self.moving {
                let comes = moving.is_at(draw.side, self.own);
                // Wait until the core that had the interface before has processed its packets, so that no packet
                // overtakes them.
                if !comes || (draw.at != self.own && !moving.is_empty(draw.side)) {
                    continue;
                }
                draw.at = self.own;
            }
            let count = match pace {
                None => EACH,
                Some(pace) => {
                    let due: ArrayVec<u64, { pace::BURST }> = pace.due(now);
                    let count = due.len().min(EACH);
                    times[usize::from(draw.side)][..count].copy_from_slice(&due[..count]);
                    pace.pass(count);
                    self.done.due += count as u64;
                    self.done.lost += if has_room { 0 } else { count as u64 };
                    count
                }
            };
            let sent: usize = ports.iter().map(|(_, count)| count).sum();
            let count = count.min(self.left.map_or(EACH, |left| left - sent));
            if has_room && count > 0 {
                ports.push((draw.side, count));
                sides.push(side);
            }
        }
        if ports.is_empty() {
            return 0;
        }
        let (pages, mut places) = (&self.pages, [0; 2]);
        let (count, _) = far.send(&ports, |port, packet| {
            let Some(side) = sides.iter_mut().find(|side| side.0.side == port) else {
                return false;
            };
            let place = &mut places[usize::from(port)];
            let (frame, segment, length) = side.0.next(times[usize::from(port)][*place % EACH]);
            *place += 1;
            packet.set_len(length);
            packet.set_checksums(Checksums::Vouched);
            write(packet.bytes_mut(), &frame, segment, pages);
            true
        });
        if let Some(moving) = &self.moving {
            ports
                .iter()
                .for_each(|&(side, count)| moving.sent(side, self.own, count));
        }
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        self.progress.send(self.own, count);
        count
    }

    #[inline(always)]
    fn drain(&mut self, now: u64) -> usize {
        let Some(far) = self.far.as_mut().filter(|_| self.drains) else {
            return 0;
        };
        let (mut came, mut seen) = (0, None);
        for port in [0, 1] {
            loop {
                let current = &mut self.current;
                let count = far.drain(port, |bytes| {
                    let seen = seen.get_or_insert_with(|| locked(&self.seen));
                    if let Some((frame, data)) = read(bytes) {
                        seen.see(&frame, data);
                        current.record(since(frame.due, now));
                    }
                });
                if let Some(moving) = &self.moving {
                    moving.came(1 - port, self.own, count);
                }
                came += count;
                if count < BURST {
                    break;
                }
            }
        }
        self.progress.come(self.own, came);
        came
    }

    /// Runs a round in which the source sends nothing; returns the number of packets moved.
    pub fn round(&mut self) -> usize {
        self.work() + self.drain(tsc::now())
    }

    #[inline(always)]
    fn work(&mut self) -> usize {
        let now = self.clock.now();
        match &mut self.middle {
            Middle::Engine(worker, _) => worker.round(now),
            Middle::Even(even) => even.round(now),
        }
    }

    /// Runs a round in which the source sends packets, and attributes the cycles to their purposes; returns the number
    /// of packets moved.
    #[inline(always)]
    pub fn step(&mut self) -> usize {
        let begin = tsc::now();
        let fed = self.feed(begin);
        let start = tsc::now();
        let worked = self.work();
        let after = tsc::now();
        let came = self.drain(after);
        if fed > 0 {
            self.done.ends += start - begin;
        }
        if worked > 0 {
            self.done.work += after - start;
        }
        if came > 0 {
            self.done.ends += tsc::now() - after;
        }
        self.done.came += came as u64;
        if fed + worked + came == 0 {
            // Pause, so that idle polling by this core does not delay the cores that write to the polled cache lines.
            (0..8).for_each(|_| std::hint::spin_loop());
        }
        fed + worked + came
    }

    /// Runs the lane for a number of cycles, simultaneously with the other lanes; `distance` is the interval in cycles
    /// between frames of one side, if the frames have due times.
    pub fn run(&mut self, together: &Together, lanes: usize, cycles: u64, distance: Option<f64>) {
        let begin = together.meet(lanes);
        for side in &self.sides {
            let mut side = locked(side);
            side.1 = distance.map(|distance| Pace::new(tsc::now(), distance));
        }
        self.latency.clear();
        while tsc::now() < begin {
            self.step();
        }
        self.slices.begin(begin, tsc::now());
        self.current.clear();
        let mut before = self.all();
        while self.slices.go_on(begin + cycles) {
            self.step();
            let now = tsc::now();
            if self.slices.is_late(now) {
                // Skip frames that became due while this core was preempted.
                let paces = self.sides.iter().map(|side| locked(side));
                paces.for_each(|mut side| side.1.iter_mut().for_each(|pace| pace.skip(now)));
            }
            let Some((cycles, is_quiet)) = self.slices.step(now) else {
                continue;
            };
            let after = self.all();
            let mut done = after.less(before);
            done.cycles = cycles;
            if is_quiet {
                self.latency.add(&self.current);
            }
            self.current.clear();
            self.slices.end(done);
            before = after;
        }
        self.sides.iter().for_each(|side| locked(side).1 = None);
    }

    /// Results so far, including those from the worker's own counters.
    fn all(&self) -> Done {
        let mut done = self.done;
        match &self.middle {
            Middle::Engine(_, counters) => {
                let cycles = |stage| counters.cycles[stage as usize].get();
                done.handed = counters.all_handed_off();
                done.handing = cycles(CycleStage::HandOver) + cycles(CycleStage::TakeOver);
                done.assisted = counters.assisted.get();
            }
            Middle::Even(even) => done.waited = even.waited,
        }
        done
    }
}
