//! One core's part of a run: a source where it receives, what is measured, and a sink where it sends.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_dpdk::tsc;
use sluice_engine::counters::WorkerCounters;
use sluice_engine::io::PortIndex;
use sluice_engine::time::Now;
use sluice_engine::worker::Worker;
use sluice_wire::Checksums;

use super::even::Even;
use super::moving::Moving;
use super::traffic::{Draw, FLOWS, Pages, read, write};
use crate::cores::lane::Together;
use crate::nat_path::rig::Source;
use crate::placement::lane::{Progress, feed};

/// What is measured: the engine, or what it is compared with.
pub enum Middle<'s, 'm> {
    /// The engine's worker, and its counters.
    Engine(Box<Worker<'m>>, Arc<WorkerCounters>),
    /// P3's baseline.
    Even(Box<Even<'s, 'm>>),
}

/// Source, worker and sink of one core.
pub struct Lane<'s, 'm> {
    /// Its number.
    pub own: usize,
    /// What is measured.
    pub middle: Middle<'s, 'm>,
    /// The far end of its queues, where it has some.
    pub far: Option<Source>,
    /// What is sent to it.
    pub draw: Option<Draw>,
    /// What frames carry.
    pub pages: Arc<Pages>,
    /// Whether packets come out by its queue.
    pub drains: bool,
    /// Whether what it receives comes out by its own queue.
    pub local: bool,
    /// Progress of all.
    pub progress: Arc<Progress>,
    /// When the clock began, in cycles.
    pub start: u64,
    /// What it did in the last run.
    pub done: Done,
    /// Which interfaces come to which core, where they move.
    pub moving: Option<Arc<Moving>>,
    /// The order of each flow's frames as they come out, where it is watched.
    pub order: Option<Order>,
}

/// Cycles of a run, and what they went into.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Frames that came out.
    pub came: u64,
    /// Cycles of the time that was measured.
    pub cycles: u64,
    /// Of these, to write frames and to take them.
    pub ends: u64,
    /// In rounds that moved something, without that.
    pub work: u64,
    /// Packets that were handed over to others.
    pub handed: u64,
}

/// The last number of each flow that came out by a side.
#[derive(Debug)]
pub struct Order {
    last: [Vec<u32>; 2],
    /// Frames behind one that was sent after them.
    pub reordered: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            last: [(); 2].map(|()| vec![0; FLOWS as usize]),
            reordered: 0,
        }
    }
}

impl Order {
    fn see(&mut self, port: PortIndex, frame: &[u8]) {
        let Some((flow, number)) = read(frame) else { return };
        if let Some(last) = self.last[usize::from(port)].get_mut(flow as usize) {
            self.reordered += u64::from(number < *last);
            *last = number.max(*last);
        }
    }
}

impl Lane<'_, '_> {
    fn now(&self) -> Now {
        let cycles = tsc::now() - self.start;
        Now::at((u128::from(cycles) * 1_000_000_000 / u128::from(tsc::frequency())) as u64)
    }

    /// A burst to each side that it has flows for.
    #[inline(always)]
    fn feed(&mut self) -> usize {
        let window = match self.local {
            true => self.progress.may_send_own(self.own),
            false => self.progress.may_send_within(),
        };
        let (Some(far), Some(draw)) = (&mut self.far, &mut self.draw) else {
            return 0;
        };
        if !window || draw.flows.is_empty() {
            return 0;
        }
        let mut ports = ArrayVec::<(u16, usize), 2>::new();
        for &side in &draw.sides {
            if self.moving.as_ref().is_none_or(|moving| moving.is_at(side, self.own)) {
                ports.push((side, 32));
            }
        }
        if ports.is_empty() {
            return 0;
        }
        let pages = &self.pages;
        let count = feed(far, &ports, |side, packet| {
            let (flow, length, number) = draw.next(side);
            packet.set_len(length);
            packet.set_checksums(Checksums::Vouched);
            write(packet.bytes_mut(), flow, side, number, pages);
            true
        });
        self.progress.send(self.own, count);
        count
    }

    #[inline(always)]
    fn drain(&mut self) -> usize {
        let Some(far) = self.far.as_mut().filter(|_| self.drains) else {
            return 0;
        };
        let mut came = 0;
        for port in [0, 1] {
            loop {
                let count = match &mut self.order {
                    Some(order) => far.drain(port, |frame| order.see(port, frame)),
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
        self.work() + self.drain()
    }

    #[inline(always)]
    fn work(&mut self) -> usize {
        let now = self.now();
        match &mut self.middle {
            Middle::Engine(worker, _) => worker.round(now),
            Middle::Even(even) => even.round(now),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        let begin = tsc::now();
        let fed = if self.draw.is_some() { self.feed() } else { 0 };
        let mut ends = if fed > 0 { tsc::now() - begin } else { 0 };
        let start = tsc::now();
        let worked = self.work();
        let after = tsc::now();
        if worked > 0 {
            self.done.work += after - start;
        }
        let came = self.drain();
        if came > 0 {
            ends += tsc::now() - after;
        }
        self.done.ends += ends;
        self.done.came += came as u64;
        if fed + worked + came == 0 {
            (0..8).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Packets for so many cycles, together with the others.
    pub fn run(&mut self, together: &Together, lanes: usize, cycles: u64) {
        let begin = together.meet(lanes);
        while tsc::now() < begin {
            self.step();
        }
        let handed = self.handed();
        self.done = Done::default();
        let first = tsc::now();
        while tsc::now() < begin + cycles {
            self.step();
        }
        self.done.cycles = tsc::now() - first;
        self.done.handed = self.handed() - handed;
    }

    fn handed(&self) -> u64 {
        match &self.middle {
            Middle::Engine(_, counters) => counters.handed_over.iter().map(|counter| counter.get()).sum(),
            Middle::Even(_) => 0,
        }
    }
}
