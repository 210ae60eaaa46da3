//! One core's part of a run: the worker, a source where it receives, and a sink where it sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Packets};
use sluice_engine::packet::time::Now;
use sluice_engine::worker::Worker;
use sluice_wire::Packet;

use super::traffic::Draw;
use crate::cores::lane::Together;
use crate::nat_path::SAMPLE;
use crate::nat_path::rig::{LAG, Source};
use crate::nat_path::wire::Sample;
use crate::slices::Slices;

/// Packets on the way from one source at most: each was written about so many before it is read.
pub const WINDOW: u64 = LAG as u64;

/// A counter on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Count(AtomicU64);

/// Packets between receive and transmit at most, for each worker that receives: as many as a ring holds by default. More wait
/// in front of the device, as they do where no more is offered than is carried.
pub const WITHIN: u64 = 512;

/// How many packets were sent to a gateway, were received by it, and came out, by lane.
#[derive(Debug)]
pub struct Progress {
    sent: Vec<Count>,
    received: Vec<Count>,
    came: Vec<Count>,
    sources: u64,
}

/// All together.
pub fn sum(counts: &[Count]) -> u64 {
    counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
}

impl Count {
    /// More of what is counted, from the one thread that counts it.
    #[inline(always)]
    pub fn add(&self, count: usize) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
    }
}

impl Progress {
    /// Of so many lanes, some of which have a source.
    pub fn new(lanes: usize, sources: u64) -> Self {
        let counts = || (0..lanes).map(|_| Count::default()).collect();
        Self {
            sent: counts(),
            received: counts(),
            came: counts(),
            sources,
        }
    }

    /// Packets that went in and came out, of all lanes.
    pub fn all(&self) -> (u64, u64) {
        (sum(&self.sent), sum(&self.came))
    }

    /// Whether a lane may receive a burst.
    #[inline(always)]
    pub fn may_receive(&self) -> bool {
        sum(&self.received).wrapping_sub(sum(&self.came)) + 64 <= WITHIN * self.sources
    }

    /// Whether a burst more may be on the way.
    #[inline(always)]
    pub fn may_send(&self) -> bool {
        let (sent, came) = self.all();
        sent.wrapping_sub(came) < WINDOW * self.sources
    }

    /// The same where what a lane sends comes out there.
    #[inline(always)]
    pub fn may_send_own(&self, lane: usize) -> bool {
        let at = |counts: &[Count]| counts.get(lane).map_or(0, |count| count.0.load(Ordering::Relaxed));
        at(&self.sent).wrapping_sub(at(&self.came)) < WINDOW
    }

    /// A lane has sent packets.
    #[inline(always)]
    pub fn send(&self, lane: usize, count: usize) {
        if let Some(sent) = self.sent.get(lane) {
            sent.add(count);
        }
    }

    /// Packets have come out at a lane.
    #[inline(always)]
    pub fn come(&self, lane: usize, count: usize) {
        if let Some(came) = self.came.get(lane).filter(|_| count > 0) {
            came.add(count);
        }
    }

    /// A lane has received packets.
    #[inline(always)]
    pub fn receive(&self, lane: usize, count: usize) {
        if let Some(received) = self.received.get(lane) {
            received.add(count);
        }
    }
}

/// The clock of a worker's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time that passes.
    Real,
    /// From this moment on, so many nanoseconds for each session that is opened after this one: as many end as are opened.
    Opened {
        /// The moment.
        base: u64,
        /// Nanoseconds.
        step: u64,
        /// Sessions opened until then.
        first: u64,
    },
}

/// Source, worker and sink of one core.
pub struct Lane<'m> {
    /// Its number.
    pub own: usize,
    /// The worker.
    pub worker: Worker<'m>,
    /// What it counts.
    pub counters: Arc<WorkerCounters>,
    /// The far end of its queues, where it has some.
    pub far: Option<Source>,
    /// What is sent to it, where it receives.
    pub draw: Option<Draw>,
    /// Whether packets come out by its queue.
    pub drains: bool,
    /// Whether what it receives comes out by its own queue: then it watches only that.
    pub local: bool,
    /// Progress of all lanes.
    pub progress: Arc<Progress>,
    /// When the engine's clock began, in cycles.
    pub start: u64,
    /// The sessions' clock.
    pub clock: Clock,
    /// What it did in each slice of the last run.
    pub slices: Slices<Done>,
    /// Every so manieth frame that came out, where they can be told.
    pub samples: Option<Samples>,
}

/// Frames that were kept of those that came out.
#[derive(Debug, Default)]
pub struct Samples {
    /// These.
    pub kept: Vec<Sample>,
    /// Frames since the last of them.
    since: usize,
}

impl Samples {
    /// Take what came out of a port; the first of it is kept where it is time.
    #[inline(always)]
    fn drain(&mut self, far: &mut Source, port: u16) -> usize {
        let mut due = self.since >= SAMPLE;
        let kept = &mut self.kept;
        let count = match due {
            true => far.drain(port, |frame| {
                if std::mem::take(&mut due) {
                    kept.push(Sample::of(frame));
                }
            }),
            false => far.discard(port),
        };
        self.since = if self.since >= SAMPLE && count > 0 {
            0
        } else {
            self.since + count
        };
        count
    }
}

/// Slices of a second.
const SLICES: u64 = 1_000;

/// Slices for a lane.
pub fn slices() -> Slices<Done> {
    let width = tsc::frequency() / SLICES;
    Slices::new(width, width / 3)
}

/// What a lane did, and what its cycles went into.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Frames that came out in the time that was measured.
    pub counted: u64,
    /// Cycles of that time.
    pub cycles: u64,
    /// Of these, to write frames.
    pub source: u64,
    /// To take what came out.
    pub sink: u64,
    /// By the worker's stages.
    pub stages: [u64; CycleStage::ALL.len()],
}

impl Lane<'_> {
    /// The moment by the clock of the sessions.
    #[inline(always)]
    pub fn now(&self) -> Now {
        match self.clock {
            Clock::Real => {
                let cycles = tsc::now() - self.start;
                Now::at((u128::from(cycles) * 1_000_000_000 / u128::from(tsc::frequency())) as u64)
            }
            Clock::Opened { base, step, first } => {
                Now::at(base + (self.counters.sessions_created.get() - first) * step)
            }
        }
    }

    /// From here on `step` nanoseconds pass for each session opened.
    pub fn pass_by_sessions(&mut self, step: u64) {
        self.clock = Clock::Opened {
            base: self.now().nanoseconds,
            step,
            first: self.counters.sessions_created.get(),
        };
    }

    /// Whether a burst more may be on the way.
    #[inline(always)]
    fn may_send(&self) -> bool {
        match self.local {
            true => self.progress.may_send_own(self.own),
            false => self.progress.may_send(),
        }
    }

    /// Frames of flows drawn anew; how many.
    #[inline(always)]
    fn feed(&mut self) -> usize {
        if !self.may_send() {
            return 0;
        }
        let (Some(far), Some(draw)) = (&mut self.far, &mut self.draw) else {
            return 0;
        };
        let ports = draw.traffic.direction.ports();
        let count = feed(far, ports, |port, packet| {
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
                let count = match &mut self.samples {
                    Some(samples) => samples.drain(far, port),
                    None => far.discard(port),
                };
                came += count;
                if count < 64 {
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
            // Whoever has something to do shall not wait for lines that this one looks at.
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

/// Slices of a run that have to be undisturbed, and runs until there are as many.
pub const ENOUGH: usize = 8;
/// See [`ENOUGH`].
pub const TRIES: usize = 50;

impl Done {
    /// Millions of frames a second that came out.
    pub fn mpps(&self) -> f64 {
        self.counted as f64 * tsc::frequency() as f64 / 1e6 / self.cycles as f64
    }

    /// Both together.
    pub fn and(mut self, other: Self) -> Self {
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

/// Write frames towards ports, as many as are drawn, and send them.
#[inline(always)]
pub fn feed(far: &mut Source, ports: &[(u16, usize)], mut draw: impl FnMut(u16, &mut Packet<'_>) -> bool) -> usize {
    let total = ports.iter().map(|&(_, count)| count).sum();
    let made = far.io.allocate(total);
    let mut used = [0; 2];
    {
        let mut lent = Packets::new();
        far.io.packets(&mut lent);
        let mut packets = lent.iter_mut().take(made);
        for (used, &(port, count)) in used.iter_mut().zip(ports) {
            // Once nothing is drawn any more, nothing is left for the other ports either.
            *used = packets
                .by_ref()
                .take(count)
                .map_while(|packet| draw(port, packet).then_some(()))
                .count();
        }
    }
    let mut first = 0;
    for (used, &(port, _)) in used.iter().zip(ports) {
        let slots: ArrayVec<BufferIndex, BURST_BUFFERS> =
            (first..first + used).map(|slot| slot as BufferIndex).collect();
        far.io.transmit(port, &slots);
        first += used;
    }
    let unused: ArrayVec<BufferIndex, BURST_BUFFERS> = (first..made).map(|slot| slot as BufferIndex).collect();
    far.io.free(&unused);
    far.io.end();
    first
}
