//! The thread of sites: it hands the service what lease files say and workers hear, and does what comes of it.

mod inbox;
mod task;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, eventfd};
use sluice_engine::packet::punt::{PuntReceiver, PuntSender};

use super::agent::store::Present;
use super::leases::{self, Watcher};
use super::service::{Mapping, Output, Parameters, Remains, Service, Turn};
pub use inbox::{Heard, Inbox};
use task::Task;

/// Why sites can't be served.
#[derive(Debug, thiserror::Error)]
#[error("subscribers' sites can't be served: {0}; raise the limits on threads and descriptors (ulimit -u -n)")]
pub struct SubscribersError(#[from] std::io::Error);

/// Lets the host of an interface's router have a frame. False where it can't be had.
pub type HostPort = Box<dyn Fn(u16, &[u8]) -> bool + Send>;

/// What goes between the thread and others.
#[derive(Default)]
pub struct Queues {
    /// From each worker.
    pub to_subscribers: Vec<PuntReceiver>,
    /// To the one that sends for the gateway.
    pub from_subscribers: Option<PuntSender>,
    /// From routers' hosts.
    pub from_hosts: Option<Heard>,
    /// To routers' hosts.
    pub to_hosts: Option<HostPort>,
}

/// The service, and the entries that it has written.
struct Machine {
    service: Service,
    mapping: Box<dyn Mapping>,
}

/// What the thread shares with who asks.
struct Shared {
    machine: Mutex<Machine>,
    /// By server: who follows its lease file.
    watchers: Mutex<Vec<Watcher>>,
    /// Written to when something has come.
    wake: Arc<OwnedFd>,
    ending: AtomicBool,
    parameters: Mutex<Arc<Parameters>>,
    /// Contexts of sites are others: all of it is to begin anew.
    moved: AtomicBool,
    began: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn parameters(&self) -> Arc<Parameters> {
        lock(&self.parameters).clone()
    }

    fn present(&self) -> Present {
        Present {
            now: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
        }
    }
}

/// Sites that are served as long as this lives.
pub struct Subscribers {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Subscribers {
    /// Serve sites: workers read what is written by `mapping`.
    ///
    /// # Errors
    /// No thread, or no descriptor.
    pub fn start(
        parameters: Arc<Parameters>,
        mut mapping: Box<dyn Mapping>,
        queues: Queues,
    ) -> Result<Self, SubscribersError> {
        let began = Instant::now();
        let mut out = Output::default();
        let mut turn = Turn {
            present: Present { now: 0, unix: 0 },
            mapping: &mut *mapping,
            out: &mut out,
        };
        let service = Service::new(parameters.clone(), Remains::default(), &mut turn);
        let wake = match &queues.from_hosts {
            Some(heard) => heard.wake.clone(),
            None => Arc::new(wake()?),
        };
        let shared = Arc::new(Shared {
            machine: Mutex::new(Machine { service, mapping }),
            watchers: Mutex::default(),
            wake,
            ending: AtomicBool::new(false),
            parameters: Mutex::new(parameters),
            moved: AtomicBool::new(false),
            began,
        });
        let mut task = Task::new(shared.clone(), queues);
        // What can't be had is told to who starts this, and not to the log.
        task.watch()?;
        let thread = std::thread::Builder::new()
            .name("subscribers".into())
            .spawn(move || task.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The same sites, with what follows from interfaces that are others now. What is mapped stays until its lease is renewed;
    /// where sites are behind another interface, or in another router, all of it begins anew.
    pub fn follow(&self, parameters: Parameters) {
        let parameters = Arc::new(parameters);
        let place = |parameters: &Parameters| -> Vec<_> {
            let groups = parameters.subscribers.groups.iter();
            groups.map(|group| (group.router, group.interface)).collect()
        };
        let before = std::mem::replace(&mut *lock(&self.shared.parameters), parameters.clone());
        if place(&before) == place(&parameters) {
            lock(&self.shared.machine).service.follow(parameters);
        } else {
            self.shared.moved.store(true, Ordering::Relaxed);
            wake_up(&self.shared.wake);
        }
    }

    /// Look at the service, which stands still meanwhile.
    pub fn with<R>(&self, look: impl FnOnce(&Service) -> R) -> R {
        look(&lock(&self.shared.machine).service)
    }

    /// How the lease file of a server stands.
    pub fn standing(&self, server: usize) -> Option<leases::Standing> {
        lock(&self.shared.watchers).get(server).map(Watcher::standing)
    }

    /// The present, by the service's clocks.
    pub fn present(&self) -> Present {
        self.shared.present()
    }

    /// End in order: leases of public addresses are kept for the next start.
    pub fn stop(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        wake_up(&self.shared.wake);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        lock(&self.shared.watchers).clear();
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn wake() -> Result<OwnedFd, std::io::Error> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn wake_up(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests;
