//! Latency of frames by load: Sluice and `l2fwd` at the same packet rates, given as shares of Sluice's maximum rate in
//! this setup. Source and sink run on a second core, so that the engine's core only runs the engine; with a single
//! core, that core runs both.
//!
//! The source must be faster than the engine. Therefore the source copies prepared headers and writes a timestamp at
//! the end of each frame; the bytes in between remain in the buffers from an initial pass that wrote all bytes.

use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::workers::Worker;
use sluice_dpdk::{Devices, DpdkIo, tsc};
use sluice_engine::control::plane::ControlPlane;
use sluice_wire::Checksums;

use super::pace::{BURST, Measured, Pace, Way, Window, measure};
use super::{FLOWS, FramesArguments, Model, STYLE, gbps, row};
use crate::rig::frames::{Filled, Filling, Frame, HEADERS, Hosts, Random, SEED, Stamped, data, tail};
use crate::rig::gateway::{Gateway, Rounds};
use crate::rig::measure::Direction;
use crate::rig::policy::{Job, memory, plane};
use crate::rig::reference::{complete, open};
use crate::rig::{BUFFERS, Source, cross, join};
use crate::rows::{Failure, Figure, Named, Row, Run, Runs};

/// Offered loads as shares of Sluice's maximum rate.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

/// A forwarder of frames from port 0 to port 1.
enum Path {
    Sluice(Box<(ControlPlane, Rounds<'static>)>),
    L2fwd(Box<DpdkIo>),
}

impl Path {
    /// Run one round; returns the number of frames.
    fn round(&mut self) -> usize {
        match self {
            Self::Sluice(gateway) => gateway.1.round(),
            Self::L2fwd(io) => cross(io, 0),
        }
    }

    /// Number of packets counted by the sessions; `None` if the forwarder has no sessions.
    fn counted(&mut self) -> Result<Option<u64>, Failure> {
        match self {
            Self::Sluice(gateway) => gateway.1.session_packets().map(Some),
            Self::L2fwd(_) => Ok(None),
        }
    }
}

/// Source and sink of the frames.
struct Traffic {
    source: Source,
    random: Random,
    filling: Filling,
    heads: Box<[[u8; HEADERS]]>,
    /// The forwarder with its burst statistics, if it runs on the same core.
    own: Option<Path>,
    bursts: Bursts,
}

/// Statistics of the number of frames that the engine received per round.
#[derive(Clone, Copy, Debug, Default)]
struct Bursts {
    frames: usize,
    rounds: usize,
}

impl Bursts {
    /// Records a round with this number of frames.
    fn count(&mut self, frames: usize) {
        self.frames += frames;
        self.rounds += usize::from(frames > 0);
    }

    /// Whether most bursts were full, which means that further frames were waiting.
    fn are_full(self) -> bool {
        self.frames * 4 >= self.rounds * BURST * 3
    }
}

impl Way for Traffic {
    #[inline(always)]
    fn send(&mut self, times: &[u64]) -> usize {
        let (random, heads, mut left) = (&mut self.random, &self.heads, times.iter());
        let length = self.filling.length();
        self.source.feed(&[(0, times.len())], Checksums::Vouched, |_| {
            let (tail, head) = (*left.next()?, random.of(heads));
            Some(Stamped { head, tail, length })
        })
    }

    #[inline(always)]
    fn collect(&mut self, mut each: impl FnMut(u64)) -> usize {
        if let Some(path) = &mut self.own {
            self.bursts.count(path.round());
        }
        self.source.drain(1, |frame| each(tail(frame)))
    }
}

impl Traffic {
    /// Changes the frame size, and writes the bytes between headers and tail into all buffers; returns the number of
    /// frames received meanwhile.
    fn resize(&mut self, bytes: usize) -> Result<u64, String> {
        self.filling = Filling::new(bytes);
        let filled = |number| Filled {
            tail: 0,
            ..Filled::new(data(Hosts::Sixteen, number, None), &self.filling)
        };
        let mut frame = vec![0; self.filling.length()];
        let head = |number| {
            filled(number).write(&mut frame);
            frame.first_chunk().copied().unwrap_or([0; HEADERS])
        };
        self.heads = (0..FLOWS).map(head).collect();
        let (mut sent, mut came, patience) = (0, 0, tsc::now() + tsc::frequency());
        while came < 2 * u64::from(BUFFERS) {
            let mut number = 0;
            sent += self.source.feed(&[(0, BURST)], Checksums::Vouched, |_| {
                number += 1;
                Some(filled(number))
            }) as u64;
            if let Some(path) = &mut self.own {
                path.round();
            }
            came += self.source.drain(1, |_| {}) as u64;
            if tsc::now() > patience {
                return Err(format!("of {sent} frames {came} came"));
            }
        }
        Ok(came + self.settle(sent - came))
    }

    /// Waits until the `under_way` frames in flight are received; returns the number received.
    fn settle(&mut self, under_way: u64) -> u64 {
        let (mut came, patience) = (0, tsc::now() + tsc::frequency());
        while came < under_way && tsc::now() < patience {
            came += self.collect(|_| {}) as u64;
        }
        came
    }

    /// Send frames at maximum rate for a number of cycles; returns the received frames per cycle and in total.
    fn flood(&mut self, cycles: u64) -> (f64, u64) {
        let (begin, warm) = (tsc::now(), cycles / 10);
        let (mut sent, mut came, mut before, mut from) = (0, 0, 0, begin);
        loop {
            let now = tsc::now();
            if now > begin + warm && from == begin {
                (before, from) = (came, now);
            }
            if now > begin + warm + cycles {
                let rate = (came - before) as f64 / (now - from) as f64;
                return (rate, came + self.settle(sent - came));
            }
            sent += self.send(&[0; BURST]) as u64;
            came += self.collect(|_| {}) as u64;
        }
    }
}

/// Start time of a measurement that lasts a number of cycles, and its window.
fn window(cycles: u64) -> (u64, Window) {
    let begin = tsc::now() + tsc::frequency() / 1_000;
    let from = begin + cycles / 10;
    let to = from + cycles;
    let patience = to + tsc::frequency();
    (begin, Window { from, to, patience })
}

/// A path that returns each frame immediately. The loop only reads the clock, so the measured delays are pauses of the
/// machine itself.
#[derive(Default)]
struct Clock(arrayvec::ArrayVec<u64, BURST>);

impl Way for Clock {
    fn send(&mut self, times: &[u64]) -> usize {
        self.0 = times.iter().copied().collect();
        times.len()
    }

    fn collect(&mut self, each: impl FnMut(u64)) -> usize {
        let count = self.0.len();
        self.0.drain(..).for_each(each);
        count
    }
}

/// Core of the engine, and core that runs source and sink.
#[derive(Clone, Copy, Debug)]
struct Cores {
    engine: usize,
    traffic: usize,
}

/// Source and sink, the forwarder, and the results.
struct Bench {
    case: &'static str,
    eal: &'static Eal,
    cores: Cores,
    traffic: Traffic,
    path: Path,
    /// Packets counted by the sessions at the start, and packets received since then.
    counted: Option<u64>,
    came: u64,
    devices: Devices,
}

impl Bench {
    fn sluice(eal: &'static Eal, number: u32, cores: Cores) -> Result<Self, Failure> {
        let plane = plane(Job::Translate, STYLE, FLOWS + FLOWS / 16 + 16 * 1024)?;
        // The session memory is leaked, so it lives as long as the process.
        let memory = Box::leak(Box::new(memory(&plane)?));
        let mut gateway = Gateway::new(eal, number, Job::Translate, plane, memory)?;
        complete(open(&mut gateway, Hosts::Sixteen, FLOWS, |packet, _| packet)?)?;
        let Gateway {
            plane,
            rounds,
            source,
            devices,
        } = gateway;
        Self::new(
            "sluice",
            eal,
            cores,
            (source, devices, Path::Sluice(Box::new((plane, rounds)))),
        )
    }

    fn l2fwd(eal: &'static Eal, number: u32, cores: Cores) -> Result<Self, Failure> {
        let [source, Source { io, devices }] = join(eal, number, 2, 8192)?;
        Self::new("l2fwd", eal, cores, (source, devices, Path::L2fwd(Box::new(io))))
    }

    fn new(
        case: &'static str,
        eal: &'static Eal,
        cores: Cores,
        (source, devices, mut path): (Source, Devices, Path),
    ) -> Result<Self, Failure> {
        let (random, filling, heads) = (Random(SEED), Filling::new(64), Box::default());
        let traffic = Traffic {
            source,
            random,
            filling,
            heads,
            own: None,
            bursts: Bursts::default(),
        };
        let counted = path.counted()?;
        Ok(Self {
            case,
            eal,
            cores,
            traffic,
            path,
            counted,
            came: 0,
            devices,
        })
    }

    /// Runs a function on source and sink while the forwarder runs; returns the function's result and the engine's
    /// burst statistics.
    fn with<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Traffic) -> T + Send + 'static,
    ) -> Result<(Self, T, Bursts), Failure> {
        let Self {
            mut traffic,
            mut path,
            eal,
            cores,
            ..
        } = self;
        let mut engine = None;
        if cores.engine == cores.traffic {
            (traffic.bursts, traffic.own) = (Bursts::default(), Some(path));
        } else {
            engine = Some(Worker::start(eal, "engine", cores.engine, move |stop| {
                let mut bursts = Bursts::default();
                while !stop.is_asked() {
                    bursts.count(path.round());
                }
                (path, bursts)
            })?);
        }
        let worker = Worker::start(eal, "traffic", cores.traffic, move |_| {
            let result = work(&mut traffic);
            (traffic, result)
        })?;
        let (mut traffic, result) = worker.stop().map_err(|_| "source or sink failed")?;
        let (path, bursts) = match engine {
            Some(engine) => engine.stop().map_err(|_| "the engine failed")?,
            None => (traffic.own.take().ok_or("the engine is gone")?, traffic.bursts),
        };
        Ok((Self { traffic, path, ..self }, result, bursts))
    }

    /// Check that every received packet was counted by a session.
    fn close(mut self) -> Result<(), Failure> {
        let counted = self.path.counted()?;
        drop(self.path);
        self.traffic.source.close();
        drop(self.devices.close());
        match counted.zip(self.counted).map(|(now, before)| now - before) {
            Some(counted) if counted != self.came => {
                Err(format!("{} packets came out, the sessions counted {counted}", self.came).into())
            }
            _ => Ok(()),
        }
    }
}

fn add(runs: &mut Runs, measured: &Measured) {
    let hertz = tsc::frequency() as f64;
    let us = |cycles: u64| cycles as f64 / hertz * 1e6;
    let (latency, seconds) = (&measured.latency, measured.took.max(1) as f64 / hertz);
    runs.extend([
        ("mpps", measured.came as f64 / seconds / 1e6),
        ("p50_us", us(latency.percentile(0.5))),
        ("p99_us", us(latency.percentile(0.99))),
        ("p999_us", us(latency.percentile(0.999))),
        ("most_us", us(latency.most())),
        ("source_late_p99_us", us(measured.lateness.percentile(0.99))),
        (
            "lost_share",
            (measured.due - measured.came) as f64 / measured.due.max(1) as f64,
        ),
    ]);
}

pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    if !arguments.directions().contains(&Direction::Up) {
        return Ok(());
    }
    let allowed = allowed_cores();
    let engine = *allowed.first().ok_or("this process may use no core")?;
    let traffic = allowed
        .get(1)
        .copied()
        .filter(|_| !arguments.same_core)
        .unwrap_or(engine);
    let cores = Cores { engine, traffic };
    let milliseconds = arguments.milliseconds.unwrap_or(if run.quick { 300 } else { 1_000 });
    let cycles = tsc::frequency() / 1_000 * milliseconds.max(1);
    let mut benches = vec![Bench::sluice(eal, 3, cores)?, Bench::l2fwd(eal, 4, cores)?];
    let runs = if run.quick { 3 } else { 5 };
    for bytes in arguments.sizes(if run.quick { &[64] } else { &[64, 1518] }) {
        let resized = benches.into_iter().map(|bench| {
            let (mut bench, came, _) = bench.with(move |traffic| traffic.resize(bytes))?;
            bench.came += came?;
            Ok(bench)
        });
        benches = resized.collect::<Result<_, Failure>>()?;
        benches = of_size(run, benches, (bytes, cycles, runs))?;
    }
    clocks(run, eal, cores, cycles, runs)?;
    benches.into_iter().try_for_each(Bench::close)
}

fn of_size(
    run: &mut Run<'_>,
    mut benches: Vec<Bench>,
    (bytes, cycles, runs): (usize, u64, usize),
) -> Result<Vec<Bench>, Failure> {
    // Maximum rates in packets per cycle, and number of runs in which the engine received full bursts.
    let mut most = vec![(Vec::new(), 0); benches.len()];
    for _ in 0..runs {
        let mut back = Vec::new();
        for (bench, (rates, full)) in benches.into_iter().zip(&mut most) {
            let (mut bench, (rate, came), bursts) = bench.with(move |traffic| traffic.flood(cycles))?;
            bench.came += came;
            rates.push(rate);
            *full += usize::from(bursts.are_full());
            back.push(bench);
        }
        benches = back;
    }
    let sluice = Figure::of(&most[0].0).median;
    for share in SHARES {
        let mut all = vec![Runs::default(); benches.len()];
        for _ in 0..runs {
            let mut back = Vec::new();
            for (bench, runs) in benches.into_iter().zip(&mut all) {
                let distance = 1.0 / (sluice * share);
                let (mut bench, measured, _) = bench.with(move |traffic| {
                    let (begin, window) = window(cycles);
                    measure(traffic, tsc::now, Pace::new(begin, distance), window)
                })?;
                bench.came += measured.came;
                add(runs, &measured);
                back.push(bench);
            }
            benches = back;
        }
        for ((bench, own), (rates, full)) in benches.iter().zip(&all).zip(&most) {
            let limit = if full * 2 > rates.len() { "engine" } else { "source" };
            let is_one = bench.cores.engine == bench.cores.traffic;
            let row = row(bench.case, bytes, Direction::Up)
                .key("model", Model::RunToCompletion.name())
                .key("cores", 1);
            let row = row
                .key("checksums", "vouched")
                .key("most_limited_by", limit)
                .key("load_share", share);
            let row = row
                .key("source_on", if is_one { "engine's core" } else { "second core" })
                .runs(own);
            let rates: Vec<f64> = rates.iter().map(|rate| rate * tsc::frequency() as f64 / 1e6).collect();
            let with = row.clone().scaled(&row, "mpps", "gbps", gbps(1.0, bytes));
            (run.row)(with.figure("most_mpps", &rates));
        }
    }
    Ok(benches)
}

/// Measures only the clock, read a million times per second, on both cores simultaneously.
fn clocks(run: &mut Run<'_>, eal: &'static Eal, cores: Cores, cycles: u64, runs: usize) -> Result<(), Failure> {
    let mut on = vec![("engine", cores.engine, Runs::default())];
    if cores.engine != cores.traffic {
        on.push(("source", cores.traffic, Runs::default()));
    }
    for _ in 0..runs {
        let mut workers = Vec::new();
        for &(_, core, _) in &on {
            workers.push(Worker::start(eal, "clock", core, move |_| {
                let (begin, window) = window(cycles);
                let pace = Pace::new(begin, tsc::frequency() as f64 / 1e6);
                measure(&mut Clock::default(), tsc::now, pace, window)
            })?);
        }
        for ((_, _, runs), worker) in on.iter_mut().zip(workers) {
            add(runs, &worker.stop().map_err(|_| "a clock failed")?);
        }
    }
    for (name, _, runs) in &on {
        (run.row)(Row::new("clock").key("core_of", *name).runs(runs));
    }
    Ok(())
}
