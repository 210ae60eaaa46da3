//! The thread that serves hosts: from the workers' queues to TAP interfaces, and back.

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
use super::{Diversion, Queues, lock};

/// How long it sleeps at most: workers don't wake it, for that would be a system call of theirs.
const NAP: Duration = Duration::from_millis(1);

/// The same where there are no hosts.
const LONG_NAP: Duration = Duration::from_millis(20);

/// Frames that one interface or one worker may bring before others have their turn.
const TURN: usize = 64;

/// Longest frame.
const LONGEST: usize = u16::MAX as usize;

/// What the thread shares with who configures.
pub struct Shared {
    taps: Mutex<Taps>,
    /// Links that are down.
    down: Mutex<BTreeMap<u16, bool>>,
    /// Raised whenever the interfaces change.
    version: AtomicU64,
    epoll: OwnedFd,
    /// Who has the first look at what hosts send.
    pub diversion: OnceLock<Diversion>,
    /// The thread is to end.
    pub stop: AtomicBool,
    /// Frames for interfaces that are not there.
    pub strays: AtomicU64,
    /// Faults of the thread.
    pub panics: AtomicU64,
}

impl Shared {
    /// Without any interface.
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

    /// Those of some interfaces.
    pub fn taps_of(&self, indexes: impl Iterator<Item = u16>) -> Taps {
        let taps = lock(&self.taps);
        indexes
            .filter_map(|index| Some((index, taps.get(&index)?.clone())))
            .collect()
    }

    /// Serve these in the place of others.
    pub fn replace(&self, old: impl Iterator<Item = u16>, new: Taps) {
        let mut taps = lock(&self.taps);
        let down = lock(&self.down);
        let gone: Taps = old.filter_map(|index| Some((index, taps.remove(&index)?))).collect();
        for line in gone.values() {
            let _ = epoll::delete(&self.epoll, &line.tap);
        }
        for (index, line) in new {
            // It may have had another place, and another state there.
            let _ = line.tap.set_carrier(!down.get(&index).is_some_and(|&down| down));
            let number = epoll::EventData::new_u64(index.into());
            if let Err(error) = epoll::add(&self.epoll, &line.tap, number, epoll::EventFlags::IN) {
                tracing::warn!("an interface of a host can't be listened to: {error}");
            }
            taps.insert(index, line);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Let a host receive a frame. False where it does not.
    pub fn deliver(&self, index: u16, frame: &[u8]) -> bool {
        let line = lock(&self.taps).get(&index).cloned();
        let Some(line) = line else { return false };
        let sent = line.tap.send(frame).is_ok();
        let counter = if sent { &line.delivered } else { &line.undelivered };
        counter.fetch_add(1, Ordering::Relaxed);
        sent
    }

    /// A link is up or down.
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

/// What the thread works with.
struct Server {
    queues: Queues,
    shared: Arc<Shared>,
    taps: Taps,
    version: u64,
    frame: Vec<u8>,
}

/// Start the thread.
pub fn start(queues: Queues, shared: Arc<Shared>) -> Result<JoinHandle<()>, Error> {
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
                tracing::error!("hosts of routers: a fault of the program, please report it; they go on being served");
            }
        }
    };
    std::thread::Builder::new().name("hosts".into()).spawn(body)
}

impl Server {
    /// Until it is to end.
    fn serve(&mut self) {
        let mut events = Vec::with_capacity(TURN);
        let mut busy = false;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let wait = match (busy, self.taps.is_empty()) {
                (true, _) => Duration::ZERO,
                (false, false) => NAP,
                (false, true) => LONG_NAP,
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
                std::thread::sleep(NAP);
            }
            self.follow();
            busy = self.deliver();
            for event in &events {
                self.collect(event.data.u64() as u16);
            }
        }
    }

    /// Interfaces may have changed.
    fn follow(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.taps = lock(&self.shared.taps).clone();
        }
    }

    /// What workers have for hosts. Returns whether there may be more.
    fn deliver(&mut self) -> bool {
        let mut more = false;
        for queue in &mut self.queues.to_hosts {
            for turn in 0..TURN {
                let Some((index, length)) = queue.head() else { break };
                more |= turn + 1 == TURN;
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

    /// What a host sends by an interface.
    fn collect(&mut self, index: u16) {
        let Some(line) = self.taps.get(&index) else { return };
        for _ in 0..TURN {
            let length = match line.tap.receive(&mut self.frame) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                // It was deleted: nobody asks for it again until it is made anew.
                Err(_) => {
                    let _ = epoll::delete(&self.shared.epoll, &line.tap);
                    return;
                }
            };
            let frame = &self.frame[..length];
            let diverted = self.shared.diversion.get().is_some_and(|taker| taker(index, frame));
            let queue = self.queues.from_hosts.as_mut();
            let given = diverted || queue.is_some_and(|queue| queue.push(index, [frame, &[]]));
            let counter = if given { &line.sent } else { &line.lost };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
