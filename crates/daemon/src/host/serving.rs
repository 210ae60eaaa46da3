//! The thread that moves frames between the workers' queues and the TAP interfaces of host stacks.

use std::collections::BTreeMap;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::epoll;

use super::links::Taps;
use super::{Diversion, HostQueues, lock};

/// Maximum sleep of the thread. Workers don't wake the thread, because the system call would delay their packets.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum sleep while no host stack exists.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of frames that are read from one interface or worker before the next one is served.
const BUDGET: usize = 64;

/// Maximum frame length in bytes.
const LONGEST: usize = u16::MAX as usize;

/// State shared with the thread that applies configurations.
pub struct Shared {
    taps: Mutex<Taps>,
    /// Interfaces whose link is down.
    down: Mutex<BTreeMap<u16, bool>>,
    /// Incremented whenever the set of interfaces changes.
    version: AtomicU64,
    epoll: OwnedFd,
    /// Callback that gets all frames from host stacks first.
    pub diversion: OnceLock<Diversion>,
    /// Request to end the thread.
    pub stop: AtomicBool,
    /// Number of frames for interfaces that do not exist.
    pub strays: AtomicU64,
    /// Number of panics of the thread.
    pub panics: AtomicU64,
}

impl Shared {
    /// Create the state without interfaces.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            taps: Mutex::default(),
            down: Mutex::default(),
            version: AtomicU64::new(1),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            diversion: OnceLock::new(),
            stop: AtomicBool::new(false),
            strays: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        })
    }

    /// Returns the TAP interfaces with the given indexes.
    pub fn taps_of(&self, indexes: impl Iterator<Item = u16>) -> Taps {
        let taps = lock(&self.taps);
        indexes
            .filter_map(|index| Some((index, taps.get(&index)?.clone())))
            .collect()
    }

    /// Replace the interfaces `old` by `new`.
    pub fn replace(&self, old: impl Iterator<Item = u16>, new: Taps) {
        let mut taps = lock(&self.taps);
        let down = lock(&self.down);
        let removed: Taps = old.filter_map(|index| Some((index, taps.remove(&index)?))).collect();
        for line in removed.values() {
            let _ = epoll::delete(&self.epoll, &line.tap);
        }
        for (index, line) in new {
            // The index of the interface, and with it the recorded link state, may have changed.
            let _ = line.tap.set_carrier(!down.get(&index).is_some_and(|&down| down));
            let number = epoll::EventData::new_u64(index.into());
            if let Err(error) = epoll::add(&self.epoll, &line.tap, number, epoll::EventFlags::IN) {
                tracing::warn!("packets from an interface of a router's host can't be received: {error}");
            }
            taps.insert(index, line);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Deliver a frame to a host stack. Returns `false` if the frame can't be delivered.
    pub fn deliver(&self, index: u16, frame: &[u8]) -> bool {
        let line = lock(&self.taps).get(&index).cloned();
        let Some(line) = line else { return false };
        let sent = line.tap.send(frame).is_ok();
        let counter = if sent { &line.delivered } else { &line.undelivered };
        counter.fetch_add(1, Ordering::Relaxed);
        sent
    }

    /// Set the link state of an interface.
    pub fn set_link(&self, index: u16, up: bool) {
        let mut down = lock(&self.down);
        if down.get(&index).copied().unwrap_or(false) != up {
            return;
        }
        down.insert(index, !up);
        drop(down);
        if let Some(line) = lock(&self.taps).get(&index) {
            let _ = line.tap.set_carrier(up);
        }
    }
}

/// State of the thread.
struct Server {
    queues: HostQueues,
    shared: Arc<Shared>,
    taps: Taps,
    version: u64,
    frame: Vec<u8>,
}

/// Start the thread.
pub fn start(queues: HostQueues, shared: Arc<Shared>) -> Result<JoinHandle<()>, Error> {
    let mut server = Server {
        queues,
        shared,
        taps: Taps::new(),
        version: 0,
        frame: vec![0; LONGEST],
    };
    let body = move || {
        while !server.shared.stop.load(Ordering::Relaxed) {
            if catch_unwind(AssertUnwindSafe(|| server.serve())).is_err() {
                server.shared.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    "the service for hosts of routers failed because of a bug and continues: please \
                     report it"
                );
            }
        }
    };
    std::thread::Builder::new().name("hosts".into()).spawn(body)
}

impl Server {
    /// Serve host stacks until the flag `stop` is set.
    fn serve(&mut self) {
        let mut events = Vec::with_capacity(BUDGET);
        let mut busy = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let wait = match (busy, self.taps.is_empty()) {
                (true, _) => Duration::ZERO,
                (false, false) => POLL_INTERVAL,
                (false, true) => IDLE_INTERVAL,
            };
            let wait = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: wait.as_nanos() as i64,
            };
            events.clear();
            let found = epoll::wait(
                &self.shared.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            );
            if let Err(error) = found
                && error != rustix::io::Errno::INTR
            {
                std::thread::sleep(POLL_INTERVAL);
            }
            self.follow();
            busy = self.deliver();
            for event in &events {
                self.collect(event.data.u64() as u16);
            }
        }
    }

    /// Reload the interfaces if they have changed.
    fn follow(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.taps = lock(&self.shared.taps).clone();
        }
    }

    /// Deliver queued frames of the workers to host stacks. Returns whether more frames may be queued.
    fn deliver(&mut self) -> bool {
        let mut more = false;
        for queue in &mut self.queues.to_hosts {
            for round in 0..BUDGET {
                let Some((index, length)) = queue.head() else { break };
                more |= round + 1 == BUDGET;
                let frame = &mut self.frame[..length];
                queue.pop(frame);
                let counter = match self.taps.get(&index) {
                    Some(line) if line.tap.send(frame).is_ok() => &line.delivered,
                    Some(line) => &line.undelivered,
                    None => &self.shared.strays,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        more
    }

    /// Read frames that a host stack has sent on an interface.
    fn collect(&mut self, index: u16) {
        let Some(line) = self.taps.get(&index) else { return };
        for _ in 0..BUDGET {
            let length = match line.tap.receive(&mut self.frame) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                // The interface was deleted, so it is not polled until it is created again.
                Err(_) => {
                    let _ = epoll::delete(&self.shared.epoll, &line.tap);
                    return;
                }
            };
            let frame = &self.frame[..length];
            let diverted = self.shared.diversion.get().is_some_and(|taker| taker(index, frame));
            let queue = self.queues.from_hosts.as_mut();
            let is_delivered = diverted || queue.is_some_and(|queue| queue.push(index, [frame, &[]]));
            let counter = if is_delivered { &line.sent } else { &line.lost };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
