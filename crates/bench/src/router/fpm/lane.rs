//! A worker that forwards packets while routes change, with source and sink on its core. The port through which a
//! packet leaves shows whether its route existed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluice_dpdk::tsc;
use sluice_dpdk::workers::Stop;
use sluice_wire::Checksums;

use crate::rig::Source;
use crate::rig::frames::{Hosts, Random, SEED, Written, data, mark};
use crate::rig::gateway::Rounds;

/// Destination of the probe packets, which belongs to a route that is added and removed: a documentation address within
/// no other route of the table.
pub const PROBE: u32 = 0xcb00_7105;
/// Flow number of probe packets.
const MARK: u32 = u32::MAX;
/// Number of packets per burst; the first packet of each burst is a probe.
const BURST: usize = 64;

/// State of the lane that other threads read.
#[derive(Debug, Default)]
pub struct Sight {
    /// Number of packets sent, not counting probes.
    pub sent: AtomicU64,
    /// Number of packets that were forwarded by the daemon's routes.
    pub routed: AtomicU64,
    /// Number of packets that were forwarded by the default route.
    pub astray: AtomicU64,
    /// Whether the last probe was forwarded by the daemon's route.
    pub found: AtomicBool,
    /// Cycle counter when `found` last changed.
    pub changed: AtomicU64,
    /// Set when no further packets are to be sent.
    pub drains: AtomicBool,
}

impl Sight {
    pub fn packets(&self) -> [u64; 3] {
        [&self.sent, &self.routed, &self.astray].map(|counter| counter.load(Ordering::Acquire))
    }

    fn see(&self, found: bool) {
        if self.found.load(Ordering::Relaxed) != found {
            self.changed.store(tsc::now(), Ordering::Relaxed);
            self.found.store(found, Ordering::Release);
        }
    }
}

pub struct Lane {
    pub source: Source,
    pub rounds: Rounds<'static>,
    /// Destination addresses within the daemon's routes.
    pub destinations: Arc<[u32]>,
    pub sight: Arc<Sight>,
}

impl Lane {
    pub fn run(mut self, stop: &Stop) -> Self {
        let mut random = Random(SEED);
        while !stop.is_stop_requested() {
            self.round(&mut random);
        }
        self
    }

    fn round(&mut self, random: &mut Random) {
        let sight = &self.sight;
        if !sight.drains.load(Ordering::Acquire) {
            let destinations = &self.destinations;
            let mut first = true;
            let draw = |_| {
                let is_probe = std::mem::take(&mut first);
                let data = data(Hosts::Sixteen, random.below(8_000), None);
                let destination = match is_probe {
                    true => PROBE,
                    false => *random.of(destinations),
                };
                Some(Written {
                    destination: (destination, data.destination.1),
                    mark: if is_probe { MARK } else { data.mark },
                    ..data
                })
            };
            let sent = self.source.feed(&[(0, BURST)], Checksums::Vouched, draw);
            sight.sent.fetch_add(sent.saturating_sub(1) as u64, Ordering::Release);
        }
        self.rounds.round();
        for (port, counter) in [(0, &sight.astray), (1, &sight.routed)] {
            let (mut came, mut probes) = (0, 0);
            self.source.drain(port, |frame| {
                came += 1;
                probes += u64::from(mark(frame) == MARK);
            });
            if probes > 0 {
                sight.see(port == 1);
            }
            counter.fetch_add(came - probes, Ordering::Release);
        }
    }
}
