//! Worker threads: pinned to cores, known to DPDK, and quiet when there is nothing to do.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::eal::{Eal, allowed_cores, error_text};
use crate::sys;

/// Why a worker does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// A core that this process may not use, or that does not exist.
    #[error(
        "core {core} is not among the cores that this process may use ({allowed:?}): name one of them, or widen its CPU set (taskset, CPUAffinity=, cpuset)"
    )]
    NoSuchCore {
        /// The core named.
        core: usize,
        /// Cores that may be used.
        allowed: Vec<usize>,
    },
    /// DPDK has no place for one more thread.
    #[error("DPDK takes no more threads ({0}): use fewer cores")]
    TooMany(String),
    /// The system has no place for one more thread.
    #[error("no thread could be made ({0}): raise the limit on threads (ulimit -u)")]
    NoThread(String),
}

/// A running worker.
#[derive(Debug)]
pub struct Worker<T> {
    core: usize,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<T>>,
}

/// Asked once per round by the worker's loop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The worker should end in order.
    #[inline(always)]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Start `run` on a thread of its own, pinned to `core` and registered with DPDK.
    pub fn start(
        _eal: &'static Eal,
        name: &str,
        core: usize,
        run: impl FnOnce(Stop) -> T + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let allowed = allowed_cores();
        if !allowed.contains(&core) {
            return Err(WorkerError::NoSuchCore { core, allowed });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Stop(stop.clone());
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        // The kernel keeps 15 bytes of a thread's name.
        let name: String = name.chars().take(15).collect();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let begun = begin(core);
                let failed = begun.is_err();
                let _ = tell.send(begun);
                if failed {
                    return None;
                }
                let result = run(asked);
                // SAFETY: this thread was registered in `begin`.
                unsafe { sys::sluice_thread_unregister() };
                Some(result)
            })
            .map_err(|error| WorkerError::NoThread(error.to_string()))?;
        told.recv()
            .unwrap_or_else(|_| Err(WorkerError::NoThread("it died at once".into())))?;
        Ok(Self { core, stop, thread })
    }

    /// The core that it runs on.
    pub fn core(&self) -> usize {
        self.core
    }

    /// Ask it to end.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Has it ended?
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ask it to end, wait, and take what it returns; its panic, where it had one.
    pub fn stop(self) -> std::thread::Result<T> {
        self.ask_to_stop();
        // A worker that did not begin was reported by `start`, which then gave out no `Worker`.
        self.thread
            .join()
            .and_then(|result| result.ok_or_else(|| Box::new("the worker never began") as _))
    }
}

/// Pin the calling thread to one core.
pub fn pin(core: usize) -> Result<(), WorkerError> {
    let refused = || WorkerError::NoSuchCore {
        core,
        allowed: allowed_cores(),
    };
    if core >= libc::CPU_SETSIZE as usize {
        return Err(refused());
    }
    // SAFETY: a set of plain bits, all zeros valid; the core was checked against its size.
    let error = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if error == 0 { Ok(()) } else { Err(refused()) }
}

fn begin(core: usize) -> Result<(), WorkerError> {
    pin(core)?;
    // SAFETY: EAL runs (`Worker::start` has its witness); each thread registers once.
    match unsafe { sys::sluice_thread_register() } {
        0 => Ok(()),
        error => Err(WorkerError::TooMany(error_text(error))),
    }
}

/// What an idle worker does: spin, pause, then sleep for short or until a device wakes it.
#[derive(Debug)]
pub struct Idle {
    waiting: IdlePolicy,
    queues: Queues,
    armed: ArmedQueues,
    rounds: u32,
}

/// What a worker receives from. Ports come and go: a port that went is left alone from the worker's next sleep on.
#[derive(Clone, Debug, Default)]
pub struct Queues(Arc<List>);

#[derive(Debug, Default)]
struct List {
    /// Raised by every change.
    version: AtomicU32,
    /// Each with the version that it came with: numbers of ports are used again.
    queues: Mutex<Vec<(u32, sys::sluice_queue)>>,
}

impl Queues {
    pub(crate) fn add(&self, port: u16, queue: u16) {
        self.change(|version, queues| queues.push((version, sys::sluice_queue { port, queue })));
    }

    pub(crate) fn remove(&self, port: u16) {
        self.change(|_, queues| queues.retain(|(_, queue)| queue.port != port));
    }

    fn change(&self, change: impl FnOnce(u32, &mut Vec<(u32, sys::sluice_queue)>)) {
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.0.version.load(Ordering::Relaxed).wrapping_add(1);
        change(version, &mut queues);
        self.0.version.store(version, Ordering::Release);
    }
}

/// Queues that can wake the thread that waits.
#[derive(Debug, Default)]
struct ArmedQueues {
    /// Of the list that they are by.
    version: u32,
    queues: Vec<sys::sluice_queue>,
    /// The versions that these came with.
    came: Vec<u32>,
    /// Every queue of the list is among them.
    all: bool,
}

impl ArmedQueues {
    /// Follow the list: each queue is armed once. Returns whether all of them can wake this thread.
    fn follow(&mut self, queues: &Queues) -> bool {
        let version = queues.0.version.load(Ordering::Acquire);
        if version != self.version {
            let wanted = queues.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut queues, mut came) = (Vec::new(), Vec::new());
            for &(since, queue) in wanted.iter() {
                // SAFETY: numbers alone, of this worker's own queues; DPDK refuses those of ports that are not open.
                let arm = || unsafe { sys::sluice_interrupt_arm(queue) == 0 };
                if self.came.contains(&since) || arm() {
                    queues.push(queue);
                    came.push(since);
                }
            }
            self.all = !wanted.is_empty() && queues.len() == wanted.len();
            (self.queues, self.came) = (queues, came);
            self.version = version;
        }
        self.all
    }

    /// Wait until one has frames, for so many milliseconds at most. Returns how many told so.
    fn wait(&self, milliseconds: i32) -> usize {
        let count = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        // SAFETY: `count` queues lie there; this thread has armed them.
        let rang = unsafe { sys::sluice_interrupt_wait(self.queues.as_ptr(), count, milliseconds) };
        usize::try_from(rang).unwrap_or(0)
    }
}

/// How an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Rounds without a packet that follow one another at once.
    pub spin: u32,
    /// Rounds after these with a pause of the processor between them.
    pub pause: u32,
    /// How long it then sleeps; none: it goes on with pauses.
    pub sleep: Option<Duration>,
    /// It is woken before by devices that can, and sleeps a millisecond at least.
    pub interrupt: bool,
}

impl Idle {
    /// A worker that waits in this way for frames of these queues.
    pub fn new(waiting: IdlePolicy, queues: Queues) -> Self {
        Self {
            waiting,
            queues,
            armed: ArmedQueues::default(),
            rounds: 0,
        }
    }

    /// There was something to do.
    #[inline(always)]
    pub fn busy(&mut self) {
        self.rounds = 0;
    }

    /// Would the next [`quiet`](Self::quiet) sleep? The caller marks itself offline before.
    #[inline(always)]
    pub fn sleeps_next(&self) -> bool {
        self.waiting.sleep.is_some() && self.rounds >= self.waiting.spin.saturating_add(self.waiting.pause)
    }

    /// A round brought nothing.
    #[inline]
    pub fn quiet(&mut self) {
        self.quiet_within(Duration::MAX);
    }

    /// The same where something may come that wakes nobody: it sleeps so long at most.
    #[inline]
    pub fn quiet_within(&mut self, most: Duration) {
        if let Some(sleep) = self.waiting.sleep.filter(|_| self.sleeps_next()) {
            self.sleep(sleep.min(most));
        } else if self.rounds >= self.waiting.spin {
            std::hint::spin_loop();
        }
        self.rounds = self.rounds.saturating_add(1);
    }

    #[cold]
    fn sleep(&mut self, time: Duration) {
        if !self.waiting.interrupt || !self.armed.follow(&self.queues) {
            return std::thread::sleep(time);
        }
        let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        if self.armed.wait(milliseconds.max(1)) > 0 {
            self.rounds = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: IdlePolicy = IdlePolicy {
        spin: 64,
        pause: 256,
        sleep: Some(Duration::from_micros(50)),
        interrupt: true,
    };

    #[test]
    fn idle_worker_sleeps_after_the_spun_and_paused_rounds() {
        let mut idle = Idle::new(WAITING, Queues::default());
        for _ in 0..WAITING.spin + WAITING.pause {
            assert!(!idle.sleeps_next());
            idle.quiet();
        }
        assert!(idle.sleeps_next());
        idle.busy();
        assert!(!idle.sleeps_next());
    }

    #[test]
    fn idle_worker_without_a_sleep_only_pauses() {
        let mut idle = Idle::new(IdlePolicy { sleep: None, ..WAITING }, Queues::default());
        (0..10_000).for_each(|_| idle.quiet());
        assert!(!idle.sleeps_next());
    }

    #[test]
    fn pin_to_a_core_that_is_not_there_is_refused() {
        assert!(matches!(
            pin(100_000),
            Err(WorkerError::NoSuchCore { core: 100_000, .. })
        ));
    }
}
