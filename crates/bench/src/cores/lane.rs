//! One core's part of a run: a source that writes frames, the worker that they are for, and what takes them at its far end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluice_dpdk::tsc;
use sluice_engine::packet::time::Now;
use sluice_engine::worker::Worker;
use sluice_wire::Checksums;

use crate::nat_path::Publics;
use crate::nat_path::flows::{Hosts, Random, Written, data};
use crate::nat_path::rig::{LAG, Source};
use crate::nat_path::wire::Sample;

/// Rounds between two outputs that are kept to be held against the reference: with 128 packets a round about every
/// thousandth.
const SAMPLING: u64 = 8;

/// Source, worker and sink of one core.
pub struct Lane {
    /// The source and sink.
    pub source: Source,
    /// The worker.
    pub worker: Worker<'static>,
    /// Flows whose packets come to this worker: from inside, from outside.
    pub flows: [Vec<u32>; 2],
    /// Outside addresses and ports of all flows.
    pub publics: Arc<Publics>,
    /// When the engine's clock began, in cycles.
    pub start: u64,
    /// Draws the flows.
    pub random: Random,
    /// What it did in the last run.
    pub done: Done,
    /// Outputs that were kept.
    pub samples: Vec<Sample>,
}

/// What a lane did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Frames given to the worker, in all.
    pub sent: u64,
    /// Frames that came out, in all.
    pub came: u64,
    /// Of these, in the time that was measured.
    pub counted: u64,
    /// Cycles of that time.
    pub cycles: u64,
}

/// Lanes begin together, and end at one moment.
#[derive(Debug, Default)]
pub struct Together {
    ready: AtomicUsize,
    /// Cycle at which the measurement begins; 0 as long as it is not known.
    begin: AtomicU64,
}

impl Together {
    /// Wait for all `lanes`; the cycle at which the measurement begins.
    pub fn meet(&self, lanes: usize) -> u64 {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == lanes {
            // Some rounds to warm up.
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

impl Lane {
    /// The moment by the clock of cycles.
    #[inline(always)]
    pub fn now(&self) -> Now {
        let cycles = tsc::now() - self.start;
        Now::at((u128::from(cycles) * 1_000_000_000 / u128::from(tsc::frequency())) as u64)
    }

    /// Frames of flows drawn anew, 64 from each side that this worker gets some of.
    #[inline(always)]
    fn feed(&mut self) {
        let each = |side: usize| if self.flows[side].is_empty() { 0 } else { 64 };
        let ports = [(0, each(0)), (1, each(1))];
        let (flows, random, publics) = (&self.flows, &mut self.random, &self.publics);
        let fed = self.source.feed(&ports, Checksums::Vouched, |port| {
            let of_side = &flows[usize::from(port)];
            let number = of_side[random.below(of_side.len() as u64) as usize];
            let public = (port == 1).then(|| publics[number as usize]);
            Some::<Written>(data(Hosts::Sixteen, number, public))
        });
        self.done.sent += fed as u64;
    }

    /// A round of the worker, and what came out of it; whether there was anything.
    #[inline(always)]
    pub fn round(&mut self, sample: bool) -> usize {
        let now = self.now();
        self.worker.round(now);
        let mut came = 0;
        for port in [0, 1] {
            let mut sample = sample;
            // What other workers handed over comes out beside what this one received.
            loop {
                let count = match std::mem::take(&mut sample) {
                    true => {
                        let mut first = true;
                        let samples = &mut self.samples;
                        self.source.drain(port, |frame| {
                            if std::mem::take(&mut first) {
                                samples.push(Sample::of(frame));
                            }
                        })
                    }
                    false => self.source.discard(port),
                };
                came += count;
                if count < 64 {
                    break;
                }
            }
        }
        self.done.came += came as u64;
        came
    }

    /// Rounds until nothing comes any more.
    pub fn settle(&mut self) -> usize {
        let mut came = 0;
        let mut idle = 0;
        while idle < 4 {
            match self.round(false) {
                0 => idle += 1,
                count => {
                    came += count;
                    idle = 0;
                }
            }
        }
        came
    }

    /// Packets for so many cycles, together with the others.
    pub fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        self.done = Done::default();
        if self.flows.iter().any(|flows| !flows.is_empty()) {
            for _ in 0..LAG / 128 {
                self.feed();
            }
        }
        let begin = together.meet(lanes);
        while tsc::now() < begin {
            self.feed();
            self.round(false);
        }
        let (start, before) = (tsc::now(), self.done.came);
        let end = begin + cycles;
        let mut rounds = 0u64;
        while tsc::now() < end {
            self.feed();
            self.round(rounds.is_multiple_of(SAMPLING));
            rounds += 1;
        }
        self.done.counted = self.done.came - before;
        self.done.cycles = tsc::now() - start;
    }
}
