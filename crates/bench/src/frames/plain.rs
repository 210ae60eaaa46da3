//! `l2fwd` on some cores, each with a source and a sink: the most that receive and transmit leave room for.

use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::workers::pin;
use sluice_dpdk::{Devices, DpdkIo, tsc};

use super::{FLOWS, Failure};
use crate::cores::lane::Together;
use crate::nat_path::flows::Random;
use crate::nat_path::rig::{self, LAG, Source};
use crate::nat_path::{Publics, cross};
use crate::placement::lane::{Done, ENOUGH, TRIES, feed, slices};
use crate::placement::traffic::{Draw, Traffic};
use crate::slices::{Slices, undisturbed};

/// One core.
struct Lane {
    source: Source,
    hand: DpdkIo,
    draw: Draw,
    slices: Slices<Done>,
    sent: usize,
    came: usize,
}

impl Lane {
    #[inline(always)]
    fn feed(&mut self) {
        let draw = &mut self.draw;
        let ports = draw.traffic.direction.ports();
        self.sent += feed(&mut self.source, ports, |port, packet| {
            draw.write(port, packet);
            true
        });
    }

    /// Pass on what has come.
    #[inline(always)]
    fn pass(&mut self) {
        for &(port, _) in self.draw.traffic.direction.ports() {
            cross(&mut self.hand, port);
        }
    }

    /// Take what comes out; how much that is.
    #[inline(always)]
    fn drain(&mut self) -> usize {
        let ports = self.draw.traffic.direction.ports().iter();
        let came = ports.map(|&(port, _)| self.source.discard(1 - port)).sum();
        self.came += came;
        came
    }

    #[inline(always)]
    fn step(&mut self, done: &mut Done) {
        let start = tsc::now();
        self.feed();
        let fed = tsc::now();
        self.pass();
        let passed = tsc::now();
        done.counted += self.drain() as u64;
        done.source += fed - start;
        done.sink += tsc::now() - passed;
    }

    fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        for _ in 0..LAG / 128 {
            self.feed();
        }
        let (begin, mut done) = (together.meet(lanes), Done::default());
        while tsc::now() < begin {
            self.step(&mut done);
        }
        done = Done::default();
        self.slices.begin(begin, tsc::now());
        while self.slices.go_on(begin + cycles) {
            self.step(&mut done);
            if let Some((cycles, _)) = self.slices.step(tsc::now()) {
                done.cycles = cycles;
                self.slices.end(std::mem::take(&mut done));
            }
        }
        let mut idle = 0;
        while idle < 8 {
            self.pass();
            idle = if self.drain() == 0 { idle + 1 } else { 0 };
        }
    }
}

/// What a core sends: of all flows, to outside ends that nobody looks at.
fn draw(own: usize, traffic: Traffic, publics: &Arc<Publics>) -> Draw {
    Draw {
        traffic,
        flows: (0..FLOWS).collect(),
        hot: Vec::new(),
        share: 0,
        fresh: Vec::new(),
        publics: publics.clone(),
        random: Random(88_172_645_463_325_252 ^ (own as u64) << 40),
        drawn: 0,
        lengths: traffic.sizes.lengths(),
        homes: None,
    }
}

/// All of its cores.
pub struct Plain {
    lanes: Vec<Lane>,
    devices: Vec<Devices>,
    publics: Arc<Publics>,
}

impl Plain {
    /// On so many cores; names of its rings begin at `number`.
    pub fn new(eal: &'static Eal, number: u32, cores: usize, traffic: Traffic) -> Result<Self, Failure> {
        let publics = Arc::new(
            (0..FLOWS)
                .map(|flow| (0xc612_0000 | flow >> 8, 1024 + flow as u16))
                .collect(),
        );
        let (mut lanes, mut devices) = (Vec::new(), Vec::new());
        for (own, number) in (0..cores).zip(number..) {
            let (source, near, hand) = rig::join(eal, number)?;
            devices.push(near);
            lanes.push(Lane {
                source,
                hand,
                draw: draw(own, traffic, &publics),
                slices: slices(),
                sent: 0,
                came: 0,
            });
        }
        Ok(Self {
            lanes,
            devices,
            publics,
        })
    }

    /// Packets for so many cycles: millions a second, and what each core did.
    pub fn run(&mut self, on: &[usize], traffic: Traffic, cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        for (own, lane) in self.lanes.iter_mut().enumerate() {
            lane.draw = draw(own, traffic, &self.publics);
        }
        let (mut done, mut quiet) = (vec![Done::default(); self.lanes.len()], 0);
        for _ in 0..TRIES {
            self.run_once(on, cycles)?;
            let lanes: Vec<_> = self.lanes.iter().map(|lane| &lane.slices).collect();
            let (more, count) = undisturbed(&lanes, Done::and);
            done = done.into_iter().zip(more).map(|(done, more)| done.and(more)).collect();
            quiet += count;
            if quiet >= ENOUGH {
                break;
            }
        }
        if quiet == 0 {
            return Err("l2fwd: others leave no core alone for a moment".into());
        }
        let rate = done.iter().map(Done::mpps).sum();
        Ok((rate, done))
    }

    /// The same once, whoever disturbs it; how many frames have come out in all.
    pub fn run_once(&mut self, on: &[usize], cycles: u64) -> Result<usize, Failure> {
        let (together, count) = (&Together::default(), self.lanes.len());
        std::thread::scope(|scope| {
            let lanes = self.lanes.iter_mut().zip(on);
            let threads: Vec<_> = lanes
                .map(|(lane, &core)| {
                    scope.spawn(move || {
                        pin(core)?;
                        lane.run(together, count, cycles);
                        Ok::<_, sluice_dpdk::workers::WorkerError>(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a lane failed")?.map_err(Failure::from))
        })?;
        let of = |count: fn(&Lane) -> usize| self.lanes.iter().map(count).sum::<usize>();
        match (of(|lane| lane.sent), of(|lane| lane.came)) {
            (sent, came) if sent == came => Ok(came),
            (sent, came) => Err(format!("l2fwd: {sent} packets went in and {came} came out").into()),
        }
    }

    /// How many cores it is on.
    pub fn cores(&self) -> usize {
        self.lanes.len()
    }

    /// Close the ports.
    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.hand);
            lane.source.close();
        }
        self.devices.into_iter().for_each(|devices| drop(devices.close()));
    }
}
