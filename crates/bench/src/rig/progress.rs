//! Numbers of packets in flight, by which sources are limited.

use std::sync::atomic::{AtomicU64, Ordering};

use super::LAG;

/// Maximum number of packets in flight per source. A source therefore writes about this number of packets between the
/// write and the read of a packet.
pub const WINDOW: u64 = LAG as u64;

/// Maximum number of packets between receive and transmit per receiving worker: the default capacity of a ring. Further
/// packets wait in front of the device, as they would if the offered load did not exceed the capacity.
pub const WITHIN: u64 = 512;

/// A counter in a cache line of its own, written by one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub fn add(&self, count: usize) {
        self.0.store(self.get() + count as u64, Ordering::Relaxed);
    }

    #[inline(always)]
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sum of counters.
pub fn sum(counts: &[Count]) -> u64 {
    counts.iter().map(Count::get).sum()
}

/// Packets in flight that limit a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Packets that the same lane sent; all of them return to that lane.
    Lane,
    /// Packets of all lanes together.
    All,
    /// No packets: the source sends in every round, and packets may be lost.
    Unlimited,
}

/// Numbers of packets that were sent to a gateway, received by it, and returned by it, per lane.
#[derive(Debug)]
pub struct Progress {
    sent: Vec<Count>,
    received: Vec<Count>,
    came: Vec<Count>,
    sources: u64,
}

impl Progress {
    /// Creates counters for `lanes` lanes, `sources` of which have a source.
    pub fn new(lanes: usize, sources: u64) -> Self {
        let [sent, received, came] = [(); 3].map(|()| (0..lanes).map(|_| Count::default()).collect());
        Self {
            sent,
            received,
            came,
            sources,
        }
    }

    /// Numbers of packets sent and returned, summed over all lanes.
    pub fn all(&self) -> (u64, u64) {
        (sum(&self.sent), sum(&self.came))
    }

    /// Whether a lane may receive another burst.
    #[inline(always)]
    pub fn may_receive(&self) -> bool {
        sum(&self.received).wrapping_sub(sum(&self.came)) + 64 <= WITHIN * self.sources
    }

    /// Whether a lane may send another burst.
    #[inline(always)]
    pub fn may_send(&self, lane: usize, window: Window) -> bool {
        let (sent, came, sources) = match window {
            Window::Lane => (self.sent[lane].get(), self.came[lane].get(), 1),
            Window::All => (sum(&self.sent), sum(&self.came), self.sources),
            Window::Unlimited => return true,
        };
        sent.wrapping_sub(came) < WINDOW * sources
    }

    /// Counts packets sent by a lane.
    #[inline(always)]
    pub fn send(&self, lane: usize, count: usize) {
        self.sent[lane].add(count);
    }

    /// Counts packets that returned to a lane.
    #[inline(always)]
    pub fn come(&self, lane: usize, count: usize) {
        self.came[lane].add(count);
    }

    /// Counts packets received by a lane's worker.
    #[inline(always)]
    pub fn receive(&self, lane: usize, count: usize) {
        self.received[lane].add(count);
    }
}
