//! Latency of frames by load: Sluice and `l2fwd` at the same packet rates, given as shares of Sluice's maximum rate in
//! this setup. Source and sink run on a second core, so that the engine's core only runs the engine. If there is only
//! one core, it runs the engine, the source and the sink.
//!
//! The source must be faster than the engine. Therefore the source copies prepared headers and writes a timestamp at
//! the end of each frame; the bytes in between remain in the buffers from an initial pass that wrote all bytes.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::{Devices, tsc};
use sluice_wire::Checksums;

use super::pace::{BURST, Measured, Pace, Way, Window, measure};
use super::{FLOWS, FramesArguments, Model, STYLE, gbps, row};
use crate::rig::frames::{Filled, Filling, Frame, HEADERS, Hosts, Random, SEED, Stamped, data, tail};
use crate::rig::gateway::Gateway;
use crate::rig::lanes::{Middle, on_cores};
use crate::rig::measure::Direction;
use crate::rig::policy::{Job, memory, plane};
use crate::rig::reference::{complete, open};
use crate::rig::{BUFFERS, L2fwd, Source, join};
use crate::rows::{Failure, Figure, Named, Row, Run, Runs};

/// Offered loads as shares of Sluice's maximum rate.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

/// Forwards frames from port 0 to port 1, and counts the frames that it receives per round.
struct Engine {
    path: Box<dyn Middle>,
    frames: usize,
    rounds: usize,
}

impl Engine {
    fn round(&mut self) {
        let frames = self.path.round();
        self.frames += frames;
        self.rounds += usize::from(frames > 0);
    }

    /// Whether most bursts since the last call were full, which means that further frames were waiting.
    fn was_full(&mut self) -> bool {
        let [frames, rounds] = [&mut self.frames, &mut self.rounds].map(std::mem::take);
        frames * 4 >= rounds * BURST * 3
    }
}

/// Source and sink of the frames.
struct Traffic {
    source: Source,
    random: Random,
    filling: Filling,
    heads: Box<[[u8; HEADERS]]>,
}

/// Source and sink, and the forwarder, if it runs on the same core.
struct Loop<'b>(&'b mut Traffic, Option<&'b mut Engine>);

impl Way for Loop<'_> {
    #[inline(always)]
    fn send(&mut self, times: &[u64]) -> usize {
        let (random, heads, mut left) = (&mut self.0.random, &self.0.heads, times.iter());
        let length = self.0.filling.length();
        self.0.source.feed(&[(0, times.len())], Checksums::Vouched, |_| {
            let (tail, head) = (*left.next()?, random.of(heads));
            Some(Stamped { head, tail, length })
        })
    }

    #[inline(always)]
    fn collect(&mut self, mut each: impl FnMut(u64)) -> usize {
        if let Some(engine) = &mut self.1 {
            engine.round();
        }
        self.0.source.drain(1, |frame| each(tail(frame)))
    }
}

impl Loop<'_> {
    /// Changes the frame size, and writes the bytes between headers and tail into all buffers; returns the number of
    /// frames received meanwhile.
    fn resize(&mut self, bytes: usize) -> Result<u64, String> {
        self.0.filling = Filling::new(bytes);
        let filling = self.0.filling.clone();
        let filled = |number| Filled {
            tail: 0,
            ..Filled::new(data(Hosts::Sixteen, number, None), &filling)
        };
        let mut frame = vec![0; filling.length()];
        let head = |number| {
            filled(number).write(&mut frame);
            frame.first_chunk().copied().unwrap_or([0; HEADERS])
        };
        self.0.heads = (0..FLOWS).map(head).collect();
        let (mut sent, mut came, patience) = (0, 0, tsc::now() + tsc::frequency());
        while came < 2 * u64::from(BUFFERS) {
            let mut number = 0;
            sent += self.0.source.feed(&[(0, BURST)], Checksums::Vouched, |_| {
                number += 1;
                Some(filled(number))
            }) as u64;
            came += self.collect(|_| {}) as u64;
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

/// Source and sink, the forwarder, and the results.
struct Bench {
    case: &'static str,
    /// Core of the engine, and core that runs source and sink.
    cores: [usize; 2],
    traffic: Traffic,
    engine: Engine,
    /// Packets counted by the sessions at the start, and packets received since then.
    counted: Option<u64>,
    came: u64,
    devices: Devices,
}

impl Bench {
    fn sluice(eal: &'static Eal, number: u32, cores: [usize; 2]) -> Result<Self, Failure> {
        let plane = plane(Job::Translate, STYLE, FLOWS + FLOWS / 16 + 16 * 1024)?;
        // Control plane and session memory are leaked, so they live as long as the process.
        let memory = Box::leak(Box::new(memory(&plane)?));
        let mut gateway = Gateway::new(eal, number, Job::Translate, plane, memory)?;
        complete(open(&mut gateway, Hosts::Sixteen, FLOWS, |packet, _| packet)?)?;
        let Gateway {
            plane,
            rounds,
            source,
            devices,
        } = gateway;
        Box::leak(Box::new(plane));
        Self::new("sluice", cores, source, devices, Box::new(rounds))
    }

    fn l2fwd(eal: &'static Eal, number: u32, cores: [usize; 2]) -> Result<Self, Failure> {
        let [source, Source { io, devices }] = join(eal, number, 2, 8192)?;
        let direction = Direction::Up;
        Self::new("l2fwd", cores, source, devices, Box::new(L2fwd { io, direction }))
    }

    fn new(
        case: &'static str,
        cores: [usize; 2],
        source: Source,
        devices: Devices,
        mut path: Box<dyn Middle>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            case,
            cores,
            traffic: Traffic {
                source,
                random: Random(SEED),
                filling: Filling::new(64),
                heads: Box::default(),
            },
            counted: path.session_packets()?,
            engine: Engine {
                path,
                frames: 0,
                rounds: 0,
            },
            came: 0,
            devices,
        })
    }

    fn is_on_one_core(&self) -> bool {
        self.cores[0] == self.cores[1]
    }

    /// Runs a function on source and sink while the forwarder runs.
    fn with<T: Send>(&mut self, work: impl Fn(&mut Loop<'_>) -> T + Sync) -> Result<T, Failure> {
        let (one, stop, mut result) = (self.is_on_one_core(), AtomicBool::new(false), None);
        let mut lanes: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
        if one {
            lanes.push(Box::new(|| {
                result = Some(work(&mut Loop(&mut self.traffic, Some(&mut self.engine))));
            }));
        } else {
            lanes.push(Box::new(|| {
                while !stop.load(Ordering::Relaxed) {
                    self.engine.round();
                }
            }));
            lanes.push(Box::new(|| {
                result = Some(work(&mut Loop(&mut self.traffic, None)));
                stop.store(true, Ordering::Relaxed);
            }));
        }
        on_cores(&mut lanes, &self.cores, |lane, _| lane())?;
        drop(lanes);
        result.ok_or_else(|| "source or sink failed".into())
    }

    /// Check that every received packet was counted by a session.
    fn close(mut self) -> Result<(), Failure> {
        let counted = self.engine.path.session_packets()?;
        drop(self.engine);
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
    let cores = [engine, traffic];
    let milliseconds = arguments.milliseconds.unwrap_or(if run.quick { 300 } else { 1_000 });
    let cycles = tsc::frequency() / 1_000 * milliseconds.max(1);
    let mut benches = [Bench::sluice(eal, 3, cores)?, Bench::l2fwd(eal, 4, cores)?];
    let runs = if run.quick { 3 } else { 5 };
    for bytes in arguments.sizes(if run.quick { &[64] } else { &[64, 1518] }) {
        for bench in &mut benches {
            bench.came += bench.with(|traffic| traffic.resize(bytes))??;
        }
        of_size(run, &mut benches, (bytes, cycles, runs))?;
    }
    clocks(run, cores, cycles, runs)?;
    benches.into_iter().try_for_each(Bench::close)
}

fn of_size(
    run: &mut Run<'_>,
    benches: &mut [Bench; 2],
    (bytes, cycles, runs): (usize, u64, usize),
) -> Result<(), Failure> {
    // Maximum rates in packets per cycle, and number of runs in which the engine received full bursts.
    let mut most = [(); 2].map(|()| (Vec::new(), 0));
    for _ in 0..runs {
        for (bench, (rates, full)) in benches.iter_mut().zip(&mut most) {
            bench.engine.was_full();
            let (rate, came) = bench.with(|traffic| traffic.flood(cycles))?;
            bench.came += came;
            rates.push(rate);
            *full += usize::from(bench.engine.was_full());
        }
    }
    let sluice = Figure::of(&most[0].0).median;
    for share in SHARES {
        let mut all = [(); 2].map(|()| Runs::default());
        for _ in 0..runs {
            for (bench, runs) in benches.iter_mut().zip(&mut all) {
                let distance = 1.0 / (sluice * share);
                let measured = bench.with(|traffic| {
                    let (begin, window) = window(cycles);
                    measure(traffic, tsc::now, Pace::new(begin, distance), window)
                })?;
                bench.came += measured.came;
                add(runs, &measured);
            }
        }
        for ((bench, own), (rates, full)) in benches.iter().zip(&all).zip(&most) {
            let limit = if full * 2 > rates.len() { "engine" } else { "source" };
            let on = if bench.is_on_one_core() {
                "engine's core"
            } else {
                "second core"
            };
            let row = row(bench.case, bytes, Direction::Up)
                .key("model", Model::RunToCompletion.name())
                .key("cores", 1)
                .key("checksums", "vouched")
                .key("most_limited_by", limit)
                .key("load_share", share)
                .key("source_on", on)
                .runs(own);
            let rates: Vec<f64> = rates.iter().map(|rate| rate * tsc::frequency() as f64 / 1e6).collect();
            let with = row.clone().scaled(&row, "mpps", "gbps", gbps(1.0, bytes));
            (run.row)(with.figure("most_mpps", &rates));
        }
    }
    Ok(())
}

/// Measures only the clock, read a million times per second, on both cores simultaneously.
fn clocks(run: &mut Run<'_>, cores: [usize; 2], cycles: u64, runs: usize) -> Result<(), Failure> {
    let names = ["engine", "source"];
    let mut on: Vec<_> = names.map(|name| (name, Runs::default())).into();
    on.truncate(if cores[0] == cores[1] { 1 } else { 2 });
    for _ in 0..runs {
        on_cores(&mut on, &cores, |(_, runs), _| {
            let (begin, window) = window(cycles);
            let pace = Pace::new(begin, tsc::frequency() as f64 / 1e6);
            add(runs, &measure(&mut Clock::default(), tsc::now, pace, window));
        })?;
    }
    for (name, runs) in &on {
        (run.row)(Row::new("clock").key("core_of", *name).runs(runs));
    }
    Ok(())
}
