//! The thread of the subscriber service. The thread passes frames from workers and changes of lease files to the
//! service, and processes the service's output.

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
use super::service::{Environment, Mapping, Parameters, SavedState, Service, ServiceOutput};
pub use inbox::{Inbox, InboxReceiver};
use task::Task;

/// The subscriber service can't be started.
#[derive(Debug, thiserror::Error)]
#[error("the subscriber service can't start: {0}; raise the limits on threads and descriptors (ulimit -u -n)")]
pub struct SubscribersError(#[from] std::io::Error);

/// Delivers a frame to the host stack of an interface's router. Returns `false` if the frame can't be delivered.
pub type HostPort = Box<dyn Fn(u16, &[u8]) -> bool + Send>;

/// Queues between the thread and the data plane.
#[derive(Default)]
pub struct SubscriberQueues {
    /// For each worker, the queue of frames to the service.
    pub to_subscribers: Vec<PuntReceiver>,
    /// Queue to the worker that sends the gateway's own packets.
    pub from_subscribers: Option<PuntSender>,
    /// Queue from routers' host stacks.
    pub from_hosts: Option<InboxReceiver>,
    /// Delivery to routers' host stacks.
    pub to_hosts: Option<HostPort>,
}

/// The service, and the writer of the workers' tables.
struct Machine {
    service: Service,
    mapping: Box<dyn Mapping>,
}

/// State shared between the thread and its handle.
struct Shared {
    machine: Mutex<Machine>,
    /// Watchers of the lease files, one for each server.
    watchers: Mutex<Vec<Watcher>>,
    /// Event descriptor that wakes the thread.
    wake: Arc<OwnedFd>,
    ending: AtomicBool,
    parameters: Mutex<Arc<Parameters>>,
    /// Set after contexts of sites have changed. The thread then rebuilds the service.
    moved: AtomicBool,
    started_at: Instant,
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
            now: u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX),
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
        }
    }
}

/// Handle of the service thread, which runs until the handle is dropped.
pub struct Subscribers {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Subscribers {
    /// Start the thread. Workers read the tables that `mapping` writes.
    ///
    /// # Errors
    /// No thread or file descriptor is available.
    pub fn start(
        parameters: Arc<Parameters>,
        mut mapping: Box<dyn Mapping>,
        queues: SubscriberQueues,
    ) -> Result<Self, SubscribersError> {
        let started_at = Instant::now();
        let mut out = ServiceOutput::default();
        let mut environment = Environment {
            present: Present { now: 0, unix: 0 },
            mapping: &mut *mapping,
            out: &mut out,
        };
        let service = Service::new(parameters.clone(), SavedState::default(), &mut environment);
        let wake = match &queues.from_hosts {
            Some(receiver) => receiver.wake.clone(),
            None => Arc::new(wake()?),
        };
        let shared = Arc::new(Shared {
            machine: Mutex::new(Machine { service, mapping }),
            watchers: Mutex::default(),
            wake,
            ending: AtomicBool::new(false),
            parameters: Mutex::new(parameters),
            moved: AtomicBool::new(false),
            started_at,
        });
        let mut task = Task::new(shared.clone(), queues);
        // The watchers are started here, so that the caller gets their errors.
        task.watch()?;
        let thread = std::thread::Builder::new()
            .name("subscribers".into())
            .spawn(move || task.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Apply a change of interfaces. The sites must be unchanged. Mappings remain until their leases are renewed. If
    /// sites have moved to another interface or router, the service is rebuilt.
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

    /// Call a function with the service. The service is locked during the call.
    pub fn with<R>(&self, look: impl FnOnce(&Service) -> R) -> R {
        look(&lock(&self.shared.machine).service)
    }

    /// Status of a server's lease file.
    pub fn status(&self, server: usize) -> Option<leases::WatcherStatus> {
        lock(&self.shared.watchers).get(server).map(Watcher::status)
    }

    /// The current time of the service's clocks.
    pub fn present(&self) -> Present {
        self.shared.present()
    }

    /// Stop the thread. Leases of public addresses are stored for the next start.
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
