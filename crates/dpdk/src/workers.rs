//! Worker threads, which are pinned to cores and registered with DPDK. Idle workers wait for frames.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::eal::{Eal, allowed_cores, error_text};
use crate::sys;

/// Why a worker does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The core does not exist, or this process may not use it.
    #[error(
        "core {core} is not among the cores that this process may use ({allowed:?}): write one of these cores, or \
         extend the CPU set of the process (taskset, CPUAffinity=, cpuset)"
    )]
    NoSuchCore {
        /// Number of the core.
        core: usize,
        /// Cores that this process may use.
        allowed: Vec<usize>,
    },
    /// DPDK can't register another thread.
    #[error("DPDK can't register more threads ({0}): use fewer cores")]
    TooMany(String),
    /// The system can't create another thread.
    #[error("no thread could be created ({0}): raise the limit on threads (ulimit -u)")]
    NoThread(String),
}

/// A running worker.
#[derive(Debug)]
pub struct Worker<T> {
    core: usize,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<T>>,
}

/// Request to stop. The worker checks this request once per iteration of its loop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether a stop of the worker is requested.
    #[inline(always)]
    pub fn is_stop_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Start `run` on a new thread that is pinned to `core` and registered with DPDK.
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
        let stop_handle = Stop(stop.clone());
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // The kernel truncates thread names to 15 bytes.
        let name: String = name.chars().take(15).collect();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let entered = enter(core);
                let failed = entered.is_err();
                let _ = sender.send(entered);
                if failed {
                    return None;
                }
                let result = run(stop_handle);
                // SAFETY: `enter` registered this thread.
                unsafe { sys::sluice_thread_unregister() };
                Some(result)
            })
            .map_err(|error| WorkerError::NoThread(error.to_string()))?;
        receiver
            .recv()
            .unwrap_or_else(|_| Err(WorkerError::NoThread("the worker ended immediately".into())))?;
        Ok(Self { core, stop, thread })
    }

    /// Core to which the worker is pinned.
    pub fn core(&self) -> usize {
        self.core
    }

    /// Request a stop of the worker.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the worker has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Request a stop of the worker, and wait for its end. Returns the worker's result or panic.
    pub fn stop(self) -> std::thread::Result<T> {
        self.request_stop();
        // The worker's result exists, because `start` returns an error instead of a `Worker` that failed to start.
        self.thread
            .join()
            .and_then(|result| result.ok_or_else(|| Box::new("the worker was never started") as _))
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
    // SAFETY: `cpu_set_t` is plain data, and all zeros are a valid value. The core number was checked against the size
    // of the set.
    let error = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if error == 0 { Ok(()) } else { Err(refused()) }
}

fn enter(core: usize) -> Result<(), WorkerError> {
    pin(core)?;
    // SAFETY: the EAL is running (`Worker::start` requires a proof), and each thread registers once.
    match unsafe { sys::sluice_thread_register() } {
        0 => Ok(()),
        error => Err(WorkerError::TooMany(error_text(error))),
    }
}

/// How an idle worker waits. It first spins, then pauses, then sleeps for a short time or until a device wakes it.
#[derive(Debug)]
pub struct Idle {
    waiting: IdlePolicy,
    queues: Queues,
    armed: ArmedQueues,
    rounds: u32,
}

/// Receive queues of a worker. Ports may be attached and detached. From its next sleep on, the worker ignores a
/// detached port.
#[derive(Clone, Debug, Default)]
pub struct Queues(Arc<List>);

#[derive(Debug, Default)]
struct List {
    /// Version of the list, incremented by every change.
    version: AtomicU32,
    /// Each queue, and the version of the list at which the queue was added. The version distinguishes queues with
    /// reused port numbers.
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

/// Queues that can wake the waiting thread.
#[derive(Debug, Default)]
struct ArmedQueues {
    /// Version of the list from which these queues were taken.
    version: u32,
    queues: Vec<sys::sluice_queue>,
    /// Version of the list at which each queue was added.
    came: Vec<u32>,
    /// Whether these queues include every queue of the list.
    all: bool,
}

impl ArmedQueues {
    /// Update the queues from the list, and arm new queues once. Returns whether all queues can wake this thread.
    fn follow(&mut self, queues: &Queues) -> bool {
        let version = queues.0.version.load(Ordering::Acquire);
        if version != self.version {
            let wanted = queues.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut queues, mut came) = (Vec::new(), Vec::new());
            for &(since, queue) in wanted.iter() {
                // SAFETY: the call takes only numbers of this worker's own queues. DPDK rejects queues of ports that
                // are not open.
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

    /// Wait until a queue has frames, but at most `milliseconds`. Returns the number of queues with frames.
    fn wait(&self, milliseconds: i32) -> usize {
        let count = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        // SAFETY: the array has `count` queues, which this thread has armed.
        let woken = unsafe { sys::sluice_interrupt_wait(self.queues.as_ptr(), count, milliseconds) };
        usize::try_from(woken).unwrap_or(0)
    }
}

/// Parameters for the wait of an idle worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Number of empty loop iterations without a pause.
    pub spin: u32,
    /// Number of further empty loop iterations with a processor pause.
    pub pause: u32,
    /// Duration of the sleep after these iterations. `None` means further pauses instead of sleep.
    pub sleep: Option<Duration>,
    /// Whether devices that support interrupts wake the worker earlier. The worker then sleeps for at least a
    /// millisecond.
    pub interrupt: bool,
}

impl Idle {
    /// Create the waiting state of a worker that receives from these queues.
    pub fn new(waiting: IdlePolicy, queues: Queues) -> Self {
        Self {
            waiting,
            queues,
            armed: ArmedQueues::default(),
            rounds: 0,
        }
    }

    /// Record a loop iteration with work.
    #[inline(always)]
    pub fn busy(&mut self) {
        self.rounds = 0;
    }

    /// Whether the next call of [`quiet`](Self::quiet) would sleep. Before a call that sleeps, the caller must mark its
    /// readers offline.
    #[inline(always)]
    pub fn sleeps_next(&self) -> bool {
        self.waiting.sleep.is_some() && self.rounds >= self.waiting.spin.saturating_add(self.waiting.pause)
    }

    /// Record a loop iteration without work, and wait.
    #[inline]
    pub fn quiet(&mut self) {
        self.quiet_within(Duration::MAX);
    }

    /// Like [`quiet`](Self::quiet), but sleep at most for `max`. For callers whose work sources can't wake the thread.
    #[inline]
    pub fn quiet_within(&mut self, max: Duration) {
        if let Some(sleep) = self.waiting.sleep.filter(|_| self.sleeps_next()) {
            self.sleep(sleep.min(max));
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
