//! Lanes: the concurrent work of the cores in a run. A lane is one core's source, component under test, and sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::workers::pin;
use sluice_dpdk::{Devices, DpdkIo, tsc};
use sluice_engine::packet::counters::{CycleStage, WorkerCounters};

use super::progress::{Progress, Window};
use super::queues::Queues;
use super::slices::{Slices, undisturbed};
use super::{BURST, LAG, Source};
use crate::rows::Failure;

/// Synchronises lanes, so that they start and end together.
#[derive(Debug, Default)]
pub struct Together {
    ready: AtomicUsize,
    /// Cycle at which the measurement starts; 0 until it is determined.
    begin: AtomicU64,
}

impl Together {
    /// Waits for all `lanes`; returns the cycle at which the measurement starts.
    pub fn meet(&self, lanes: usize) -> u64 {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == lanes {
            // Leave time for several warm-up rounds.
            self.begin.store(tsc::now() + tsc::frequency() / 100, Ordering::Release);
        }
        loop {
            match self.begin.load(Ordering::Acquire) {
                0 => std::hint::spin_loop(),
                begin => return begin,
            }
        }
    }
}

/// The cores given, or by default the cores that this process may use; at most `most` cores.
pub fn cores(named: &[usize], most: usize) -> Vec<usize> {
    let mut cores = match named {
        [] => allowed_cores(),
        named => named.to_vec(),
    };
    cores.truncate(most);
    cores
}

/// Runs the work of all lanes in parallel, each on its own core.
pub fn on_cores<L: Send>(
    lanes: &mut [L],
    cores: &[usize],
    work: impl Fn(&mut L, &Together) + Sync,
) -> Result<(), Failure> {
    let (together, work) = (&Together::default(), &work);
    std::thread::scope(|scope| {
        let each = |(lane, &core)| {
            scope.spawn(move || {
                pin(core)?;
                work(lane, together);
                Ok::<_, sluice_dpdk::workers::WorkerError>(())
            })
        };
        let threads: Vec<_> = lanes.iter_mut().zip(cores).map(each).collect();
        let mut all = threads.into_iter();
        all.try_for_each(|thread| thread.join().map_err(|_| "a lane failed")?.map_err(Failure::from))
    })
}

/// Number of undisturbed time slices required, and maximum number of runs to obtain them.
const ENOUGH: usize = 8;
const TRIES: usize = 50;

/// Runs lanes until enough time slices were undisturbed; returns the results of each lane in these slices.
pub fn quiet(
    name: &str,
    lanes: usize,
    mut once: impl FnMut() -> Result<Vec<Slices<Done>>, Failure>,
) -> Result<Vec<Done>, Failure> {
    let (mut done, mut quiet) = (vec![Done::default(); lanes], 0);
    for _ in 0..TRIES {
        let slices = once()?;
        let (more, count) = undisturbed(&slices.iter().collect::<Vec<_>>(), Done::and);
        done = done.into_iter().zip(more).map(|(done, more)| done.and(more)).collect();
        quiet += count;
        if quiet >= ENOUGH {
            break;
        }
    }
    match quiet {
        0 => Err(format!("{name}: others leave no core alone for a moment").into()),
        _ => Ok(done),
    }
}

/// Results of a lane: numbers of packets, and cycles by purpose.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Done {
    /// Number of output frames.
    pub came: u64,
    /// Number of frames that were due, and number of due frames for which the queue had no room.
    pub due: u64,
    pub lost: u64,
    /// Cycles of the measured time.
    pub cycles: u64,
    /// Cycles spent on writing frames, and on freeing output frames.
    pub source: u64,
    pub sink: u64,
    /// Cycles of rounds that moved packets, without those of source and sink.
    pub work: u64,
    /// Number of packets handed over to other workers, and taken over from them.
    pub handed: u64,
    pub taken: u64,
    /// Number of packets of shards that this worker took over from another worker by assist.
    pub assisted: u64,
    /// Cycles spent waiting for locks.
    pub waited: u64,
    /// Cycles of the worker's stages.
    pub stages: [u64; CycleStage::ALL.len()],
}

const FIELDS: usize = size_of::<Done>() / 8;

impl Done {
    fn with(self, other: Self, one: impl Fn(u64, u64) -> u64) -> Self {
        let [own, other]: [[u64; FIELDS]; 2] = [self, other].map(bytemuck::cast);
        bytemuck::cast(std::array::from_fn::<_, FIELDS, _>(|at| one(own[at], other[at])))
    }

    pub fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    pub fn less(self, before: Self) -> Self {
        self.with(before, |a, b| a - b)
    }

    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), Self::and)
    }

    /// Million output frames per second.
    pub fn mpps(&self) -> f64 {
        self.came as f64 * tsc::frequency() as f64 / 1e6 / self.cycles as f64
    }

    /// Share of the measured time in which the core did work.
    pub fn busy(&self) -> f64 {
        (self.work + self.source + self.sink) as f64 / self.cycles.max(1) as f64
    }

    /// Adds what a worker has counted.
    pub fn count(&mut self, counters: &WorkerCounters) {
        (self.handed, self.taken) = (counters.all_handed_off(), counters.taken_over.get());
        self.assisted = counters.assisted.get();
        self.stages = counters.cycles.values();
    }
}

/// Total throughput in Mpps of independent sources, each of which sends a fixed share of all packets. The source whose
/// rate is lowest relative to its share limits the total.
pub fn sustained(done: &[Done], shares: &[f64]) -> f64 {
    let sources = done.iter().zip(shares).filter(|(_, share)| **share > 0.0);
    sources
        .map(|(done, share)| done.mpps() / share)
        .fold(f64::INFINITY, f64::min)
}

/// The component under test on one core.
pub trait Middle: Send {
    /// Runs a round; returns the number of packets moved.
    fn round(&mut self) -> usize;

    /// Adds what the component itself has counted.
    fn count(&self, _done: &mut Done) {}

    /// Number of packets that sessions have counted; `None` without sessions.
    fn session_packets(&mut self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}

/// Source and sink of one core.
pub trait Traffic: Send {
    /// Sends the frames that are due or, if frames have no due times and there is room, a burst; returns the number of
    /// frames.
    fn send(&mut self, far: &mut Source, has_room: impl Fn() -> bool, now: u64, done: &mut Done) -> usize;

    /// Frees the frames output by a port, at most a burst; returns the number of frames.
    fn receive(&mut self, far: &mut Source, port: u16, now: u64) -> usize;

    /// Called before the lanes warm up.
    fn begin(&mut self) {}

    /// Called if the core was preempted until `now`.
    fn late(&mut self, _now: u64) {}

    /// Called at the end of each time slice, and before the first one; the argument states whether the slice counts.
    fn slice(&mut self, _is_quiet: bool) {}

    /// Called after the last time slice.
    fn end(&mut self) {}
}

/// Source, component under test, and sink of one core.
pub struct Lane<T, M> {
    pub own: usize,
    pub middle: M,
    pub traffic: T,
    /// Source and sink at the opposite ends of this core's queues, if it has queues.
    pub far: Option<Source>,
    /// Whether packets leave through this core's queue.
    pub drains: bool,
    window: Window,
    progress: Arc<Progress>,
    /// Results of the lane for each time slice.
    pub slices: Slices<Done>,
    /// Total results of the lane.
    pub done: Done,
}

impl<T: Traffic, M: Middle> Lane<T, M> {
    /// Sends frames; returns the number of frames.
    #[inline(always)]
    fn feed(&mut self, now: u64) -> usize {
        let Some(far) = &mut self.far else { return 0 };
        let has_room = || self.progress.may_send(self.own, self.window);
        let count = self.traffic.send(far, has_room, now, &mut self.done);
        if count > 0 {
            self.progress.send(self.own, count);
        }
        count
    }

    /// Frees the output frames; returns their number.
    #[inline(always)]
    fn drain(&mut self, now: u64) -> usize {
        let Some(far) = self.far.as_mut().filter(|_| self.drains) else {
            return 0;
        };
        let mut came = 0;
        for port in [0, 1] {
            // The output also contains packets that other workers handed over, in addition to the packets that this
            // worker received.
            loop {
                let count = self.traffic.receive(far, port, now);
                came += count;
                if count < BURST {
                    break;
                }
            }
        }
        if came > 0 {
            self.progress.come(self.own, came);
        }
        came
    }

    /// Runs a round in which the source sends nothing; returns the number of packets moved.
    pub fn round(&mut self) -> usize {
        self.middle.round() + self.drain(tsc::now())
    }

    /// Runs a round in which the source sends packets, and attributes the cycles to their purposes; returns the number
    /// of packets moved.
    #[inline(always)]
    pub fn step(&mut self) -> usize {
        let begin = tsc::now();
        let fed = self.feed(begin);
        let start = tsc::now();
        let worked = self.middle.round();
        let after = tsc::now();
        let came = self.drain(after);
        if fed > 0 {
            self.done.source += start - begin;
        }
        if worked > 0 {
            self.done.work += after - start;
        }
        if came > 0 {
            self.done.sink += tsc::now() - after;
        }
        self.done.came += came as u64;
        if fed + worked + came == 0 {
            // Pause, so that idle polling by this core does not delay the cores that write to the polled cache lines.
            (0..8).for_each(|_| std::hint::spin_loop());
        }
        fed + worked + came
    }

    /// Runs the lane for a number of cycles, simultaneously with the other lanes.
    fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        if self.window == Window::Unlimited {
            (0..LAG / (2 * BURST)).for_each(|_| _ = self.feed(tsc::now()));
        }
        let begin = together.meet(lanes);
        self.traffic.begin();
        while tsc::now() < begin {
            self.step();
        }
        if self.window == Window::Unlimited {
            self.slices = Slices::new(cycles, u64::MAX);
        }
        self.slices.begin(begin, tsc::now());
        self.traffic.slice(false);
        let mut before = self.all();
        while self.slices.go_on(begin + cycles) {
            self.step();
            let now = tsc::now();
            if self.slices.is_late(now) {
                self.traffic.late(now);
            }
            let Some((cycles, is_quiet)) = self.slices.step(now) else {
                continue;
            };
            let after = self.all();
            self.traffic.slice(is_quiet);
            self.slices.end(Done {
                cycles,
                ..after.less(before)
            });
            before = after;
        }
        self.traffic.end();
    }

    /// Results so far, including those that the component has counted.
    pub fn all(&self) -> Done {
        let mut done = self.done;
        self.middle.count(&mut done);
        done
    }
}

/// All lanes of a run, and their ports.
pub struct Lanes<T, M> {
    pub all: Vec<Lane<T, M>>,
    pub progress: Arc<Progress>,
    devices: Vec<Devices>,
}

impl<T: Traffic, M: Middle> Lanes<T, M> {
    /// Creates a lane for each worker of these queues; `make` gets the worker's number, the worker's ports and the
    /// progress of all lanes, and creates the lane's source, sink and component. Each lane has time slices like
    /// `slices`.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        queues: &Queues,
        (window, slices): (Window, &Slices<Done>),
        mut make: impl FnMut(usize, DpdkIo, &Arc<Progress>) -> Result<(T, M), Failure>,
    ) -> Result<Self, Failure> {
        let (devices, ios) = Devices::open(eal, &queues.plan(number, true)?)?;
        let progress = Arc::new(Progress::new(ios.len(), queues.entrances().len() as u64));
        let mut lanes = Self::of(progress, vec![devices]);
        for (own, io) in ios.into_iter().enumerate() {
            let (traffic, middle) = make(own, io, &lanes.progress)?;
            lanes.push((traffic, middle), queues.far(eal, number, own)?, window, slices);
            lanes.all[own].drains = queues.sends(own);
        }
        Ok(lanes)
    }

    fn of(progress: Arc<Progress>, devices: Vec<Devices>) -> Self {
        Self {
            all: Vec::new(),
            progress,
            devices,
        }
    }

    fn push(&mut self, (traffic, middle): (T, M), far: Option<Source>, window: Window, slices: &Slices<Done>) {
        self.all.push(Lane {
            own: self.all.len(),
            middle,
            traffic,
            far,
            drains: true,
            window,
            progress: self.progress.clone(),
            slices: slices.clone(),
            done: Done::default(),
        });
    }

    /// Creates lanes of components that are separate from one another: each has its own ports, with a source.
    pub fn apart(
        count: usize,
        slices: &Slices<Done>,
        mut make: impl FnMut(usize) -> Result<(Source, Devices, T, M), Failure>,
    ) -> Result<Self, Failure> {
        let mut lanes = Self::of(Arc::new(Progress::new(count, count as u64)), Vec::new());
        for own in 0..count {
            let (source, devices, traffic, middle) = make(own)?;
            lanes.devices.push(devices);
            lanes.push((traffic, middle), Some(source), Window::Lane, slices);
        }
        Ok(lanes)
    }

    /// Runs rounds of all lanes in turn until no packet moves.
    pub fn settle(&mut self) {
        let mut idle = 0;
        while idle < 8 {
            let moved: usize = self.all.iter_mut().map(Lane::round).sum();
            idle = if moved == 0 { idle + 1 } else { 0 };
        }
    }

    /// Runs all lanes for a number of cycles, each on its own core. No packets are in flight afterwards.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<(), Failure> {
        let count = self.all.len();
        on_cores(&mut self.all, cores, |lane, together| lane.run(together, count, cycles))?;
        self.settle();
        Ok(())
    }

    /// Results of each lane by time slice.
    pub fn slices(&self) -> Vec<Slices<Done>> {
        self.all.iter().map(|lane| lane.slices.clone()).collect()
    }

    pub fn close(self) {
        for lane in self.all {
            drop(lane.middle);
            lane.far.into_iter().for_each(Source::close);
        }
        self.devices.into_iter().for_each(|devices| drop(devices.close()));
    }
}
