//! One core's part of a run: a source if the core receives, its worker, and a sink if the core sends.

use std::sync::Arc;

use sluice_dpdk::tsc;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::packet::time::Now;
use sluice_engine::worker::Worker;

use super::scenario::Draw;
use crate::rig::gateway::Clock;
use crate::rig::lanes::{self, Progress, Together};
use crate::rig::reference::ports;
use crate::rig::slices::Slices;
use crate::rig::{BURST, Samples, Source};

/// Clock of a worker's session timeouts.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// The time is real time.
    Real(Clock),
    /// The time starts at `base` and advances by `step` nanoseconds for each session opened after the first `first`
    /// sessions, so that as many sessions end as are opened.
    Opened { base: u64, step: u64, first: u64 },
}

/// Source, worker and sink of one core.
pub struct Lane<'m> {
    pub own: usize,
    pub worker: Worker<'m>,
    pub counters: Arc<WorkerCounters>,
    /// Source and sink at the opposite ends of this core's queues, if it has queues.
    pub far: Option<Source>,
    /// Generator of the packets sent to this core, if the core receives.
    pub draw: Option<Draw>,
    /// Whether packets leave through this core's queue.
    pub drains: bool,
    /// Index of this core's queue if the packets that the core receives also leave through it; then the sink polls only
    /// that queue.
    pub local: Option<usize>,
    pub progress: Arc<Progress>,
    pub time: Time,
    pub slices: Slices<Done>,
    pub samples: Samples,
}

/// Number of time slices per second.
const SLICES: u64 = 1_000;

pub fn slices() -> Slices<Done> {
    let width = tsc::frequency() / SLICES;
    Slices::new(width, width / 3)
}

/// Results of a lane, with cycles by purpose: writing frames, freeing output frames, and the worker's stages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Number of output frames in the measured time.
    pub counted: u64,
    /// Cycles of the measured time.
    pub cycles: u64,
    pub source: u64,
    pub sink: u64,
    pub stages: [u64; CycleStage::ALL.len()],
}

impl Done {
    /// Million output frames per second.
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
    pub fn now(&self) -> Now {
        match self.time {
            Time::Real(clock) => clock.now(),
            Time::Opened { base, step, first } => Now::at(base + (self.counters.sessions_created.get() - first) * step),
        }
    }

    /// Sends frames of randomly drawn flows; returns the number of frames.
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

    /// Frees the output frames; returns their number.
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

    /// Runs a round in which the source sends nothing; returns the number of packets moved.
    pub fn round(&mut self) -> usize {
        let now = self.now();
        self.worker.round(now) + self.drain()
    }

    /// Runs a round in which the source sends packets, and attributes the cycles to their purposes.
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
            // Pause, so that idle polling by this core does not delay the cores that write to the polled cache lines.
            (0..8).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Runs the lane for a number of cycles, simultaneously with the other lanes.
    pub fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
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
        self.counters.cycles.values()
    }
}
