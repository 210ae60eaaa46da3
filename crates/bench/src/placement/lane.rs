//! One core's part of a run: a source where it receives, its worker, and a sink where it sends.

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

/// The clock of a worker's sessions.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    /// The time that passes.
    Real(Clock),
    /// From this moment on, so many nanoseconds for each session opened after the first so many: as many end as are opened.
    Opened { base: u64, step: u64, first: u64 },
}

/// Source, worker and sink of one core.
pub struct Lane<'m> {
    pub own: usize,
    pub worker: Worker<'m>,
    pub counters: Arc<WorkerCounters>,
    /// The far end of its queues, where it has some.
    pub far: Option<Source>,
    /// What is sent to it, where it receives.
    pub draw: Option<Draw>,
    /// Whether packets come out by its queue.
    pub drains: bool,
    /// Where what it receives comes out by its own queue, it watches only that.
    pub local: Option<usize>,
    pub progress: Arc<Progress>,
    pub time: Time,
    pub slices: Slices<Done>,
    pub samples: Samples,
}

/// Slices of a second.
const SLICES: u64 = 1_000;

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
    pub fn now(&self) -> Now {
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
    pub fn round(&mut self) -> usize {
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
        CycleStage::ALL.map(|stage| self.counters.cycles[stage as usize].get())
    }
}
