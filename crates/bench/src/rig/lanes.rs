//! Lanes: what each core of a run does, a source and a sink included, all at the same time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sluice_dpdk::eal::allowed_cores;
use sluice_dpdk::tsc;
use sluice_dpdk::workers::pin;

use super::LAG;
use super::slices::{Slices, undisturbed};
use crate::rows::Failure;

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

/// The cores that are named, or where none is those that this process may use; so many at most.
pub fn cores(named: &[usize], most: usize) -> Vec<usize> {
    let mut cores = match named {
        [] => allowed_cores(),
        named => named.to_vec(),
    };
    cores.truncate(most);
    cores
}

/// The work of all lanes, each on its core.
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

/// Rounds of all lanes in turn until nothing moves any more.
pub fn settle<L>(lanes: &mut [L], mut round: impl FnMut(&mut L) -> usize) {
    let mut idle = 0;
    while idle < 8 {
        let moved: usize = lanes.iter_mut().map(&mut round).sum();
        idle = if moved == 0 { idle + 1 } else { 0 };
    }
}

/// Slices of a run that have to be undisturbed, and runs until there are as many.
const ENOUGH: usize = 8;
const TRIES: usize = 50;

/// What is done in slices.
pub trait Done: Copy + Default {
    fn and(self, other: Self) -> Self;
}

/// Runs of lanes until enough slices of them were undisturbed: what each lane did in those.
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

/// Packets on the way from one source at most: each was written about so many before it is read.
pub const WINDOW: u64 = LAG as u64;

/// Packets between receive and transmit at most, for each worker that receives: as many as a ring holds by default. More wait
/// in front of the device, as they do where no more is offered than is carried.
pub const WITHIN: u64 = 512;

/// A counter on lines of its own, which one thread writes.
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

/// All together.
pub fn sum(counts: &[Count]) -> u64 {
    counts.iter().map(Count::get).sum()
}

/// How many packets were sent to a gateway, were received by it, and came out, by lane.
#[derive(Debug)]
pub struct Progress {
    sent: Vec<Count>,
    received: Vec<Count>,
    came: Vec<Count>,
    sources: u64,
}

impl Progress {
    /// Of so many lanes, some of which have a source.
    pub fn new(lanes: usize, sources: u64) -> Self {
        let [sent, received, came] = [(); 3].map(|()| (0..lanes).map(|_| Count::default()).collect());
        Self {
            sent,
            received,
            came,
            sources,
        }
    }

    /// Packets that went in and came out, of all lanes.
    pub fn all(&self) -> (u64, u64) {
        (sum(&self.sent), sum(&self.came))
    }

    /// Whether a lane may receive a burst.
    #[inline(always)]
    pub fn may_receive(&self) -> bool {
        sum(&self.received).wrapping_sub(sum(&self.came)) + 64 <= WITHIN * self.sources
    }

    /// Whether a burst more may be on the way: of a lane whose packets come out there, or of all.
    #[inline(always)]
    pub fn may_send(&self, local: Option<usize>) -> bool {
        let (sent, came, sources) = match local {
            Some(lane) => (self.sent[lane].get(), self.came[lane].get(), 1),
            None => (sum(&self.sent), sum(&self.came), self.sources),
        };
        sent.wrapping_sub(came) < WINDOW * sources
    }

    /// A lane has sent packets.
    #[inline(always)]
    pub fn send(&self, lane: usize, count: usize) {
        self.sent[lane].add(count);
    }

    /// Packets have come out at a lane.
    #[inline(always)]
    pub fn come(&self, lane: usize, count: usize) {
        if count > 0 {
            self.came[lane].add(count);
        }
    }

    /// A lane has received packets.
    #[inline(always)]
    pub fn receive(&self, lane: usize, count: usize) {
        self.received[lane].add(count);
    }
}
