//! Lanes: the concurrent work of each core in a run, including source and sink.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluice_dpdk::eal::allowed_cores;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::pin;

use super::LAG;
use super::slices::{Slices, undisturbed};
use crate::rows::Failure;

/// Synchronises lanes, so that they start and end together.
#[derive(Debug, Default)]
pub struct Together {
    ready: AtomicUsize,
    /// Cycle at which the measurement starts; 0 while it is not known.
    begin: AtomicU64,
}

impl Together {
    /// Wait for all `lanes`; returns the cycle at which the measurement starts.
    pub fn meet(&self, lanes: usize) -> u64 {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == lanes {
            // Leave time for some warm-up rounds.
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

/// The given cores, or by default those that this process may use; at most `most`.
pub fn cores(named: &[usize], most: usize) -> Vec<usize> {
    let mut cores = match named {
        [] => allowed_cores(),
        named => named.to_vec(),
    };
    cores.truncate(most);
    cores
}

/// Run the work of all lanes, each on its core.
pub fn on_cores<L: Send>(
    lanes: &mut [L],
    cores: &[usize],
    work: impl Fn(&mut L, &Together) + Sync,
) -> Result<(), Failure> {
    let (together, work) = (&Together::default(), &work);
    std::thread::scope(|scope| {
        let each = |(lane, &core)| {
            scope.spawn(move || {
                pin(core)?;
                work(lane, together);
                Ok::<_, sluice_dpdk::workers::WorkerError>(())
            })
        };
        let threads: Vec<_> = lanes.iter_mut().zip(cores).map(each).collect();
        let mut all = threads.into_iter();
        all.try_for_each(|thread| thread.join().map_err(|_| "a lane failed")?.map_err(Failure::from))
    })
}

/// Run rounds of all lanes in turn until no packet moves any more.
pub fn settle<L>(lanes: &mut [L], mut round: impl FnMut(&mut L) -> usize) {
    let mut idle = 0;
    while idle < 8 {
        let moved: usize = lanes.iter_mut().map(&mut round).sum();
        idle = if moved == 0 { idle + 1 } else { 0 };
    }
}

/// Required number of undisturbed slices, and maximum number of runs to get them.
const ENOUGH: usize = 8;
const TRIES: usize = 50;

/// Results of a slice.
pub trait Done: Copy + Default {
    fn and(self, other: Self) -> Self;
}

/// Run lanes until enough slices were undisturbed; returns the results of each lane in these slices.
pub fn quiet<D: Done>(
    name: &str,
    lanes: usize,
    mut once: impl FnMut() -> Result<Vec<Slices<D>>, Failure>,
) -> Result<Vec<D>, Failure> {
    let (mut done, mut quiet) = (vec![D::default(); lanes], 0);
    for _ in 0..TRIES {
        let slices = once()?;
        let (more, count) = undisturbed(&slices.iter().collect::<Vec<_>>(), D::and);
        done = done.into_iter().zip(more).map(|(done, more)| done.and(more)).collect();
        quiet += count;
        if quiet >= ENOUGH {
            break;
        }
    }
    match quiet {
        0 => Err(format!("{name}: others leave no core alone for a moment").into()),
        _ => Ok(done),
    }
}

/// Maximum number of packets in flight per source: each packet is written about this many packets before it is read.
pub const WINDOW: u64 = LAG as u64;

/// Maximum number of packets between receive and transmit per receiving worker: the default capacity of a ring. Further
/// packets wait in front of the device, as they do when the offered load does not exceed the capacity.
pub const WITHIN: u64 = 512;

/// A counter in separate cache lines, written by one thread.
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

/// Number of packets sent to a gateway, received by it, and returned, by lane.
#[derive(Debug)]
pub struct Progress {
    sent: Vec<Count>,
    received: Vec<Count>,
    came: Vec<Count>,
    sources: u64,
}

impl Progress {
    /// Create for `lanes` lanes, of which `sources` have a source.
    pub fn new(lanes: usize, sources: u64) -> Self {
        let [sent, received, came] = [(); 3].map(|()| (0..lanes).map(|_| Count::default()).collect());
        Self {
            sent,
            received,
            came,
            sources,
        }
    }

    /// Number of packets sent and returned, over all lanes.
    pub fn all(&self) -> (u64, u64) {
        (sum(&self.sent), sum(&self.came))
    }

    /// Whether a lane may receive another burst.
    #[inline(always)]
    pub fn may_receive(&self) -> bool {
        sum(&self.received).wrapping_sub(sum(&self.came)) + 64 <= WITHIN * self.sources
    }

    /// Whether another burst may be in flight: for a lane whose packets come out there, or for all lanes.
    #[inline(always)]
    pub fn may_send(&self, local: Option<usize>) -> bool {
        let (sent, came, sources) = match local {
            Some(lane) => (self.sent[lane].get(), self.came[lane].get(), 1),
            None => (sum(&self.sent), sum(&self.came), self.sources),
        };
        sent.wrapping_sub(came) < WINDOW * sources
    }

    /// Count packets sent by a lane.
    #[inline(always)]
    pub fn send(&self, lane: usize, count: usize) {
        self.sent[lane].add(count);
    }

    /// Count packets that came out at a lane.
    #[inline(always)]
    pub fn come(&self, lane: usize, count: usize) {
        if count > 0 {
            self.came[lane].add(count);
        }
    }

    /// Count packets received by a lane.
    #[inline(always)]
    pub fn receive(&self, lane: usize, count: usize) {
        self.received[lane].add(count);
    }
}
