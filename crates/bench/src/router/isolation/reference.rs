//! Current cost of a packet. Offered rates are relative to this cost, because the speed of a shared machine varies.

use sluice_dpdk::tsc;

use super::clock::{self, Stolen, cycles};
use super::gateway::{Gateway, Shape, frames};
use super::lines::{FarSide, Host, Lines, Sends, Tally};
use super::{PORTS, SLICE, per_packet};
use crate::router::Failure;

/// Length in cycles of an idle loop that measures preemption.
const SPIN: u64 = 30_000;

/// A gateway of the same shape, except that nothing is shared. Its hosts always send as much as the worker receives.
pub struct Reference {
    gateway: Gateway,
    far: FarSide,
    /// Cycles per packet, for each measurement.
    pub seen: Vec<f64>,
    /// Preemption of the idle loop.
    pub spun: Stolen,
}

impl Reference {
    /// Creates the reference for a shape. Also sets the clock's number of cycles of a whole burst.
    pub fn new(shape: &Shape) -> Result<Self, Failure> {
        let plain = Shape {
            weights: None,
            rate: None,
            ..*shape
        };
        let host = |router: usize| Host {
            port: plain.port(router),
            sends: Sends::Always,
            frames: frames(&plain, router),
        };
        let (lines, far) = Lines::new(PORTS, vec![host(0), host(1)]);
        let mut reference = Self {
            gateway: Gateway::new(&plain, lines)?,
            far,
            seen: Vec::new(),
            spun: Stolen::default(),
        };
        (0..256).for_each(|_| _ = reference.look());
        let least = reference.seen.iter().copied().fold(f64::INFINITY, f64::min);
        clock::know((least * sluice_engine::packet::io::BURST_SIZE as f64) as u64);
        reference.seen.clear();
        reference.look();
        Ok(reference)
    }

    /// Measures again, for as long as the measured gateway runs between two measurements, so that both find the caches
    /// filled by the other to the same extent. Returns the cycles per packet.
    pub fn look(&mut self) -> f64 {
        let passed = |tallies: &[Tally]| tallies.iter().map(|tally| tally.passed).sum::<u64>();
        let before = passed(&self.far.get().tallies);
        let (begin, mut now) = (cycles(), 0);
        while now < SLICE {
            self.gateway.round();
            now = cycles() - begin;
        }
        let passed = passed(&self.far.get().tallies) - before;
        let cost = per_packet(now as f64, passed);
        self.seen.push(cost);
        self.spin();
        cost
    }

    fn spin(&mut self) {
        let (watch, begin) = (clock::watch(), tsc::now());
        while tsc::now() - begin < SPIN {
            cycles();
        }
        self.spun.add(watch());
    }
}
