//! What a frame waits by load: Sluice and `l2fwd` at the same packets per second, shares of the most that Sluice passes on in
//! this set-up. A second core is source and sink, so that the engine polls alone; where there is one core it does both.

use sluice_dpdk::eal::{Eal, allowed_cores};
use sluice_dpdk::workers::Worker;
use sluice_dpdk::{Devices, tsc};

use super::filled::Filling;
use super::pace::{Measured, Pace, measure};
use super::traffic::{Bursts, Clock, Path, Traffic, window};
use super::{FLOWS, Failure, FramesArguments, Model, STYLE, line, row};
use crate::nat_path::Direction;
use crate::nat_path::flows::{Hosts, Written};
use crate::nat_path::opening::{complete, open};
use crate::nat_path::rig::{self, Gateway, Job, Source};
use crate::rows::{Figure, Row, Run};

/// Shares of Sluice's most that are offered.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

/// Traffic, who passes it on, and what was seen.
struct Bench {
    case: &'static str,
    traffic: Traffic,
    path: Box<dyn Path>,
    /// Packets that came since the flows were opened.
    came: u64,
    /// What its sessions had counted then.
    counted: u64,
    devices: Devices,
}

/// The engine's core, and that of source and sink.
#[derive(Clone, Copy, Debug)]
struct Cores {
    engine: usize,
    traffic: usize,
}

impl Cores {
    fn choose(same: bool) -> Result<Self, Failure> {
        let allowed = allowed_cores();
        let engine = *allowed.first().ok_or("this process may use no core")?;
        let traffic = allowed.get(1).copied().filter(|_| !same).unwrap_or(engine);
        Ok(Self { engine, traffic })
    }

    fn one(self) -> bool {
        self.engine == self.traffic
    }

    fn name(self) -> &'static str {
        match self.one() {
            true => "engine's core",
            false => "second core",
        }
    }
}

impl Bench {
    fn sluice(eal: &'static Eal, number: u32) -> Result<Self, Failure> {
        let (mut source, devices, hand) = rig::join(eal, number)?;
        let plane = rig::plane(Job::Translate, STYLE, FLOWS + FLOWS / 16 + 16 * 1024, false)?;
        // Sessions last as long as the process.
        let memory = Box::leak(Box::new(rig::memory(&plane)?));
        let mut gateway = Gateway::new(Job::Translate, plane, hand, memory)?;
        complete(open::<Written>(&mut source, &mut gateway, Hosts::Sixteen, FLOWS))?;
        let counted = gateway.session_packets()?;
        Ok(Self::new("sluice", source, Box::new(gateway), devices, counted))
    }

    fn l2fwd(eal: &'static Eal, number: u32) -> Result<Self, Failure> {
        let (source, devices, hand) = rig::join(eal, number)?;
        Ok(Self::new("l2fwd", source, Box::new(hand), devices, 0))
    }

    fn new(case: &'static str, source: Source, path: Box<dyn Path>, devices: Devices, counted: u64) -> Self {
        Self {
            case,
            traffic: Traffic::new(source),
            path,
            came: 0,
            counted,
            devices,
        }
    }

    /// Let source and sink do something while frames are passed on; what came of it, and how the engine found them.
    fn with<T: Send + 'static>(
        self,
        eal: &'static Eal,
        cores: Cores,
        work: impl FnOnce(&mut Traffic) -> T + Send + 'static,
    ) -> Result<(Self, T, Bursts), Failure> {
        let Self {
            mut traffic, mut path, ..
        } = self;
        let mut engine = None;
        if cores.one() {
            traffic.bursts = Bursts::default();
            traffic.own = Some(path);
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

    fn resized(self, eal: &'static Eal, cores: Cores, bytes: usize) -> Result<Self, Failure> {
        let (mut bench, came, _) = self.with(eal, cores, move |traffic| traffic.resize(Filling::new(bytes)))?;
        bench.came += came?;
        Ok(bench)
    }

    /// Packets per cycle when the source sends all it can, and whether the engine is what limits them.
    fn most(self, eal: &'static Eal, cores: Cores, cycles: u64) -> Result<(Self, f64, bool), Failure> {
        let (mut bench, (rate, came), bursts) = self.with(eal, cores, move |traffic| traffic.flood(cycles))?;
        bench.came += came;
        Ok((bench, rate, bursts.are_full()))
    }

    fn paced(self, eal: &'static Eal, cores: Cores, distance: f64, cycles: u64) -> Result<(Self, Measured), Failure> {
        let (mut bench, measured, _) = self.with(eal, cores, move |traffic| traffic.paced(distance, cycles))?;
        bench.came += measured.came;
        Ok((bench, measured))
    }

    /// Nothing came that the sessions have not counted.
    fn close(mut self) -> Result<(), Failure> {
        let counted = self.path.counted()? - self.counted;
        if counted != self.came && self.case == "sluice" {
            return Err(format!("{} packets came out, the sessions counted {counted}", self.came).into());
        }
        drop(self.path);
        self.traffic.source.close();
        drop(self.devices.close());
        Ok(())
    }
}

/// The runs of a row.
#[derive(Debug, Default)]
struct Runs {
    mpps: Vec<f64>,
    latency: [Vec<f64>; 4],
    late: Vec<f64>,
    lost: Vec<f64>,
}

impl Runs {
    fn add(&mut self, measured: &Measured) {
        let hertz = tsc::frequency() as f64;
        let us = |cycles: u64| cycles as f64 / hertz * 1e6;
        let latency = &measured.latency;
        let times = [0.5, 0.99, 0.999].map(|share| latency.percentile(share));
        let [p50, p99, p999] = times;
        for (runs, cycles) in self.latency.iter_mut().zip([p50, p99, p999, latency.most()]) {
            runs.push(us(cycles));
        }
        self.late.push(us(measured.lateness.percentile(0.99)));
        let seconds = measured.took.max(1) as f64 / hertz;
        self.mpps.push(measured.came as f64 / seconds / 1e6);
        self.lost
            .push((measured.due - measured.came) as f64 / measured.due.max(1) as f64);
    }

    fn row(&self, row: Row) -> Row {
        let mut row = row.figure("mpps", &self.mpps);
        for (name, runs) in ["p50_us", "p99_us", "p999_us", "most_us"]
            .into_iter()
            .zip(&self.latency)
        {
            row = row.figure(name, runs);
        }
        row.figure("source_late_p99_us", &self.late)
            .figure("lost_share", &self.lost)
    }
}

/// Measure all sizes.
pub fn run(run: &mut Run<'_>, eal: &'static Eal, arguments: &FramesArguments) -> Result<(), Failure> {
    if !arguments.directions().contains(&Direction::Up) {
        return Ok(());
    }
    let cores = Cores::choose(arguments.same_core)?;
    let milliseconds = arguments.milliseconds.unwrap_or(if run.quick { 300 } else { 1_000 });
    let cycles = tsc::frequency() / 1_000 * milliseconds.max(1);
    let mut benches = vec![Bench::sluice(eal, 3)?, Bench::l2fwd(eal, 4)?];
    let runs = if run.quick { 3 } else { 5 };
    for bytes in arguments.latency_sizes(run.quick) {
        let resized = benches.into_iter().map(|bench| bench.resized(eal, cores, bytes));
        benches = resized.collect::<Result<_, _>>()?;
        let size = OfSize {
            eal,
            cores,
            cycles,
            runs,
            bytes,
        };
        benches = size.measure(run, benches)?;
    }
    clocks(run, eal, cores, cycles, runs)?;
    benches.into_iter().try_for_each(Bench::close)
}

/// As fast as it goes.
#[derive(Clone, Debug, Default)]
struct Most {
    /// Packets per cycle in each run.
    rates: Vec<f64>,
    /// Runs in which frames waited for the engine.
    full: usize,
}

/// The measurements of one size.
struct OfSize {
    eal: &'static Eal,
    cores: Cores,
    cycles: u64,
    runs: usize,
    bytes: usize,
}

impl OfSize {
    fn measure(&self, run: &mut Run<'_>, mut benches: Vec<Bench>) -> Result<Vec<Bench>, Failure> {
        let mut most = vec![Most::default(); benches.len()];
        for _ in 0..self.runs {
            let mut back = Vec::new();
            for (bench, most) in benches.into_iter().zip(&mut most) {
                let (bench, rate, full) = bench.most(self.eal, self.cores, self.cycles)?;
                most.rates.push(rate);
                most.full += usize::from(full);
                back.push(bench);
            }
            benches = back;
        }
        let sluice = most.first().map_or(0.0, |most| Figure::of(&most.rates).median);
        for share in SHARES {
            let mut runs: Vec<Runs> = benches.iter().map(|_| Runs::default()).collect();
            for _ in 0..self.runs {
                let mut back = Vec::new();
                for (bench, runs) in benches.into_iter().zip(&mut runs) {
                    let distance = 1.0 / (sluice * share);
                    let (bench, measured) = bench.paced(self.eal, self.cores, distance, self.cycles)?;
                    runs.add(&measured);
                    back.push(bench);
                }
                benches = back;
            }
            for ((bench, runs), most) in benches.iter().zip(&runs).zip(&most) {
                (run.row)(self.row(bench.case, share, runs, most));
            }
        }
        Ok(benches)
    }

    fn row(&self, case: &str, share: f64, runs: &Runs, most: &Most) -> Row {
        let hertz = tsc::frequency() as f64;
        let limit = match most.full * 2 > most.rates.len() {
            true => "engine",
            false => "source",
        };
        let most: Vec<f64> = most.rates.iter().map(|rate| rate * hertz / 1e6).collect();
        let gbps: Vec<f64> = runs.mpps.iter().map(|&mpps| line::gbps(mpps, self.bytes)).collect();
        let row = row(case, self.bytes, Direction::Up)
            .key("model", Model::RunToCompletion.name())
            .key("cores", 1)
            .key("checksums", "vouched")
            .key("source_on", self.cores.name())
            .key("most_limited_by", limit)
            .key("load_share", share);
        runs.row(row).figure("gbps", &gbps).figure("most_mpps", &most)
    }
}

/// Looks at the clock alone, a million times a second, on both cores at the same time.
fn clocks(run: &mut Run<'_>, eal: &'static Eal, cores: Cores, cycles: u64, runs: usize) -> Result<(), Failure> {
    let mut on = vec![("engine", cores.engine, Runs::default())];
    if !cores.one() {
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
            runs.add(&worker.stop().map_err(|_| "a clock failed")?);
        }
    }
    for (name, _, runs) in &on {
        (run.row)(runs.row(Row::new("clock").key("core_of", *name)));
    }
    Ok(())
}
