//! Threads of the workers, which run rounds until they are stopped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_dpdk::Eal;
use sluice_dpdk::workers::{Idle, IdlePolicy, Queues, Stop, Worker as Thread, WorkerError};
use sluice_engine::packet::counters::WorkerCounters;
use sluice_engine::packet::time::Now;
use sluice_engine::worker::Worker;

/// Maximum time at shutdown for sending packets in flight.
const DRAIN: Duration = Duration::from_millis(500);

/// Maximum sleep of the worker that sends the packets of routers' host stacks. The sleep is limited because host stacks
/// can't wake the worker.
const HOSTS: Duration = Duration::from_millis(1);

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Thread<()>>,
    quiet: Arc<AtomicBool>,
}

impl Workers {
    /// Start each worker on its core. `started_at` is the start of the engine's clock.
    ///
    /// # Errors
    /// A core or thread is not available.
    pub fn start(
        eal: &'static Eal,
        workers: Vec<Worker<'static>>,
        cores: &[u16],
        (waiting, queues): (IdlePolicy, Vec<Queues>),
        started_at: Instant,
    ) -> Result<Self, WorkerError> {
        let quiet = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let served = workers.into_iter().zip(queues).enumerate();
        for ((number, (worker, queues)), &core) in served.zip(cores) {
            let quiet = quiet.clone();
            let body = move |stop| rounds(worker, &stop, &quiet, Idle::new(waiting, queues), started_at);
            let guarded = move |stop| {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(stop))) {
                    fail(number, core, &*panic);
                }
            };
            threads.push(Thread::start(eal, &format!("worker-{number}"), core.into(), guarded)?);
        }
        Ok(Self { threads, quiet })
    }

    /// Stop the workers in this order: stop receiving, send the packets in flight, end the threads. The ended threads
    /// release their buffers.
    pub fn stop(self, counters: &[Arc<WorkerCounters>]) {
        self.quiet.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + DRAIN;
        let rounds = || counters.iter().map(|worker| worker.rounds.get()).collect::<Vec<_>>();
        let packets = || counters.iter().map(|worker| worker.packets.get()).sum::<u64>();
        // The workers are idle once each has completed some rounds without a packet.
        let mut since = (rounds(), packets());
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
            let (now, moved) = (rounds(), packets());
            if moved != since.1 {
                since = (now, moved);
            } else if now.iter().zip(&since.0).all(|(now, then)| now - then > 8) {
                break;
            }
        }
        self.threads.iter().for_each(Thread::request_stop);
        for thread in self.threads {
            // Stopping the thread can't fail, because a panic of a worker aborts the process.
            let _ = thread.stop();
        }
    }
}

/// Abort the process after a worker's panic. A partial data plane is worse than no data plane, and a supervisor
/// restarts the process.
fn fail(number: usize, core: u16, panic: &(dyn Any + Send)) -> ! {
    let texts = (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>());
    let description = texts.0.copied().or(texts.1.map(String::as_str)).unwrap_or("a panic");
    tracing::error!(
        "worker {number} on core {core} failed because of a bug, please report it: {description}; the process ends, because \
         no other worker can take over the sessions of this worker"
    );
    std::process::abort()
}

fn rounds(mut worker: Worker<'static>, stop: &Stop, quiet: &AtomicBool, mut idle: Idle, started_at: Instant) {
    let mut receives = true;
    while !stop.is_stop_requested() {
        if receives && quiet.load(Ordering::Relaxed) {
            worker.stop_receiving();
            receives = false;
        }
        let now = Now::at(started_at.elapsed().as_nanos() as u64);
        if worker.round(now) != 0 || worker.is_answering() {
            idle.busy();
            continue;
        }
        if idle.sleeps_next() {
            worker.sleep();
        }
        match worker.serves_hosts() {
            true => idle.quiet_within(HOSTS),
            false => idle.quiet(),
        }
    }
}
