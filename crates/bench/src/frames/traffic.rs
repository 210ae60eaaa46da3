//! Source and sink of frames whose latency is measured, and who passes them on.
//!
//! The source has to be faster than the engine: it copies headers written before, and stamps each frame's end. What is between
//! them stays in the buffers from a first round, in which all bytes were written.

use sluice_dpdk::{DpdkIo, tsc};
use sluice_wire::Checksums;

use super::filled::{Filled, Filling, Stamped, tail};
use super::pace::{BURST, Measured, Pace, Way, Window, measure};
use super::{FLOWS, Failure};
use crate::nat_path::cross;
use crate::nat_path::flows::{HEADERS, Hosts, Random, data};
use crate::nat_path::rig::{BUFFERS, Gateway, Source};
use crate::nat_path::wire::Wire;

/// Who passes frames on, from port 0 to port 1.
pub trait Path: Send {
    /// A round; how many frames there were.
    fn round(&mut self) -> usize;

    /// Packets that its sessions have counted, where it has such.
    fn counted(&mut self) -> Result<u64, Failure>;
}

impl Path for Gateway<'static> {
    fn round(&mut self) -> usize {
        let now = self.now();
        self.worker.round(now)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        self.session_packets()
    }
}

impl Path for DpdkIo {
    fn round(&mut self) -> usize {
        cross(self, 0)
    }

    fn counted(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }
}

/// Source and sink.
pub struct Traffic {
    /// Where frames come from and go to.
    pub source: Source,
    random: Random,
    filling: Filling,
    /// Headers of all flows.
    heads: Box<[[u8; HEADERS]]>,
    /// Who passes on what it sends, where that shares its core.
    pub own: Option<Box<dyn Path>>,
    /// How that found them, then.
    pub bursts: Bursts,
}

/// How many frames the engine found at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bursts {
    frames: usize,
    rounds: usize,
}

impl Bursts {
    /// A round that found so many.
    pub fn count(&mut self, frames: usize) {
        self.frames += frames;
        self.rounds += usize::from(frames > 0);
    }

    /// Whether more waited than it took at once, most of the time.
    pub fn are_full(self) -> bool {
        self.frames * 4 >= self.rounds * BURST * 3
    }
}

impl Way for Traffic {
    #[inline(always)]
    fn send(&mut self, times: &[u64]) -> usize {
        let (random, heads, mut left) = (&mut self.random, &self.heads, times.iter());
        let length = self.filling.length();
        self.source.feed(&[(0, times.len())], Checksums::Vouched, |_| {
            let tail = *left.next()?;
            let head = &heads[random.below(FLOWS.into()) as usize];
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

/// The headers of every flow's data.
fn heads(filling: &Filling) -> Box<[[u8; HEADERS]]> {
    let mut frame = vec![0; filling.length()];
    let head = |number| {
        let written = data(Hosts::Sixteen, number, None);
        Filled {
            written,
            tail: 0,
            filling,
            kept: false,
        }
        .write(&mut frame);
        frame.first_chunk().copied().unwrap_or([0; HEADERS])
    };
    (0..FLOWS).map(head).collect()
}

impl Traffic {
    /// A source that has to be told the size of its frames.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            random: Random(88_172_645_463_325_252),
            filling: Filling::new(64),
            heads: Box::default(),
            own: None,
            bursts: Bursts::default(),
        }
    }

    /// From now on frames are of another size, and all buffers hold what those have between headers and tails; how many
    /// came meanwhile.
    pub fn resize(&mut self, filling: Filling) -> Result<u64, String> {
        self.heads = heads(&filling);
        self.filling = filling;
        let filling = &self.filling;
        let (mut sent, mut came) = (0, 0);
        let patience = tsc::now() + tsc::frequency();
        while came < 2 * u64::from(BUFFERS) {
            let mut number = 0;
            sent += self.source.feed(&[(0, BURST)], Checksums::Vouched, |_| {
                number += 1;
                let written = data(Hosts::Sixteen, number, None);
                Some(Filled {
                    written,
                    tail: 0,
                    filling,
                    kept: false,
                })
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

    /// Wait for so many frames that are under way; how many came.
    fn settle(&mut self, under_way: u64) -> u64 {
        let (mut came, patience) = (0, tsc::now() + tsc::frequency());
        while came < under_way && tsc::now() < patience {
            came += self.collect(|_| {}) as u64;
        }
        came
    }

    /// As many frames as it takes, for so many cycles; how many came in each cycle, and in all.
    pub fn flood(&mut self, cycles: u64) -> (f64, u64) {
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

    /// Frames at a distance of so many cycles, for so many cycles.
    pub fn paced(&mut self, distance: f64, cycles: u64) -> Measured {
        let (begin, window) = window(cycles);
        measure(self, tsc::now, Pace::new(begin, distance), window)
    }
}

/// When a measurement of so many cycles begins, and when it measures.
pub fn window(cycles: u64) -> (u64, Window) {
    let begin = tsc::now() + tsc::frequency() / 1_000;
    let from = begin + cycles / 10;
    let to = from + cycles;
    let patience = to + tsc::frequency();
    (begin, Window { from, to, patience })
}

/// A way that brings back at once what it takes: the loop looks at the clock and does nothing else, and what its frames
/// wait are the machine's own pauses.
#[derive(Default)]
pub struct Clock(arrayvec::ArrayVec<u64, BURST>);

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
