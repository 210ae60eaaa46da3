//! Lanes: the concurrent work of the cores in a run, each with its source and sink.

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
    /// Cycle at which the measurement starts; 0 until it is determined.
    begin: AtomicU64,
}

impl Together {
    /// Waits for all `lanes`; returns the cycle at which the measurement starts.
    pub fn meet(&self, lanes: usize) -> u64 {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == lanes {
            // Leave time for several warm-up rounds.
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

/// The cores given, or by default the cores that this process may use; at most `most` cores.
pub fn cores(named: &[usize], most: usize) -> Vec<usize> {
    let mut cores = match named {
        [] => allowed_cores(),
        named => named.to_vec(),
    };
    cores.truncate(most);
    cores
}

/// Runs the work of all lanes in parallel, each on its own core.
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

/// Runs rounds of all lanes in turn until no packet moves.
pub fn settle<L>(lanes: &mut [L], mut round: impl FnMut(&mut L) -> usize) {
    let mut idle = 0;
    while idle < 8 {
        let moved: usize = lanes.iter_mut().map(&mut round).sum();
        idle = if moved == 0 { idle + 1 } else { 0 };
    }
}

/// Number of undisturbed time slices required, and maximum number of runs to obtain them.
const ENOUGH: usize = 8;
const TRIES: usize = 50;

/// Results of a time slice.
pub trait Done: Copy + Default {
    fn and(self, other: Self) -> Self;
}

/// Runs lanes until enough time slices were undisturbed; returns the results of each lane in these slices.
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

/// Maximum number of packets in flight per source: about as many packets lie between the write and the read of a
/// packet.
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

    /// Whether another burst may be sent: checked for one lane if its packets return there, otherwise for all lanes
    /// together.
    #[inline(always)]
    pub fn may_send(&self, local: Option<usize>) -> bool {
        let (sent, came, sources) = match local {
            Some(lane) => (self.sent[lane].get(), self.came[lane].get(), 1),
            None => (sum(&self.sent), sum(&self.came), self.sources),
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
        if count > 0 {
            self.came[lane].add(count);
        }
    }

    /// Counts packets received by a lane's worker.
    #[inline(always)]
    pub fn receive(&self, lane: usize, count: usize) {
        self.received[lane].add(count);
    }
}
