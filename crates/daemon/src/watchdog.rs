//! Watchdog of the workers. The watchdog reports the core of a worker that does not complete its round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_engine::packet::counters::WorkerCounters;

/// Which workers are stuck. The watchdog updates this value as long as it exists.
#[derive(Debug)]
pub struct Watchdog {
    stuck: Arc<[AtomicBool]>,
    ended: Arc<AtomicBool>,
}

/// Last observed progress of a worker.
#[derive(Clone, Copy, Debug)]
struct Seen {
    rounds: u64,
    at: Instant,
}

impl Watchdog {
    /// Watch the workers on a separate thread. A worker that completes no round within `limit` is stuck.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(counters: Vec<Arc<WorkerCounters>>, cores: Vec<u16>, limit: Duration) -> std::io::Result<Self> {
        let stuck: Arc<[AtomicBool]> = counters.iter().map(|_| AtomicBool::new(false)).collect();
        let ended = Arc::new(AtomicBool::new(false));
        let (marks, end) = (stuck.clone(), ended.clone());
        let interval = (limit / 4).clamp(Duration::from_millis(10), Duration::from_millis(250));
        std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            let now = Instant::now();
            let mut seen: Vec<_> = counters
                .iter()
                .map(|worker| Seen {
                    rounds: worker.rounds.get(),
                    at: now,
                })
                .collect();
            while !end.load(Ordering::Relaxed) {
                std::thread::sleep(interval);
                for (number, (worker, seen)) in counters.iter().zip(&mut seen).enumerate() {
                    let core = cores.get(number).copied().unwrap_or_default();
                    watch(number, core, worker, seen, &marks[number], limit);
                }
            }
        })?;
        Ok(Self { stuck, ended })
    }

    /// Whether a worker is stuck.
    pub fn is_stuck(&self, worker: usize) -> bool {
        self.stuck.get(worker).is_some_and(|mark| mark.load(Ordering::Relaxed))
    }
}

fn watch(number: usize, core: u16, worker: &WorkerCounters, seen: &mut Seen, mark: &AtomicBool, limit: Duration) {
    let rounds = worker.rounds.get();
    if rounds != seen.rounds {
        if mark.swap(false, Ordering::Relaxed) {
            tracing::warn!("core {core} works again: worker {number} was stuck");
        }
        *seen = Seen {
            rounds,
            at: Instant::now(),
        };
    } else if seen.at.elapsed() >= limit && !mark.swap(true, Ordering::Relaxed) {
        let for_so_long = seen.at.elapsed();
        tracing::error!("core {core} is stuck: the loop of worker {number} did not proceed for {for_so_long:?}");
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_that_stands_still_is_stuck_until_it_goes_on() {
        let worker = WorkerCounters::new(1, 1);
        let mark = AtomicBool::new(false);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let mut seen = Seen {
            rounds: 0,
            at: long_ago,
        };
        watch(0, 3, &worker, &mut seen, &mark, Duration::from_secs(1));
        assert!(mark.load(Ordering::Relaxed));
        worker.rounds.add(1);
        watch(0, 3, &worker, &mut seen, &mark, Duration::from_secs(1));
        assert!(!mark.load(Ordering::Relaxed));
    }
}
