//! Main loop of the subscriber service's thread.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_config::schema::LeaseFormat;
use sluice_engine::packet::punt::ROUTED;

use super::{Machine, Shared, SubscriberQueues, lock, wake_up};
use crate::subscribers::Site;
use crate::subscribers::agent::PublicLease;
use crate::subscribers::agent::store::{Present, Store};
use crate::subscribers::leases::{self, Change, Format, Watcher};
use crate::subscribers::service::{Count, Delivery, Environment, Frame, SavedState, Service, ServiceOutput};

/// Maximum sleep of the thread. Workers don't wake the thread, because the system call would delay their packets.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of frames that are read from one worker before the next worker is served.
const FRAMES: usize = 64;

/// Maximum number of lease file changes per turn.
const CHANGES: usize = 512;

/// Pause after the first panic, and maximum pause after further panics.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// Maximum frame length in bytes.
const LONGEST_FRAME: usize = u16::MAX as usize;

/// Queue of lease file changes: index of the server, and its changes.
type Changes = Receiver<(usize, Vec<Change>)>;

/// Public leases, each with the MAC of its site.
type StoredLeases = Vec<([u8; 6], PublicLease)>;

pub struct Task {
    shared: Arc<Shared>,
    queues: SubscriberQueues,
    changes: Option<Changes>,
    /// Received changes that have not been applied yet.
    pending: VecDeque<(usize, std::vec::IntoIter<Change>)>,
    /// Whether all lease files have been read since the service was built.
    settled: bool,
    /// Persistent storage of the leases of each DHCP client.
    stores: Vec<Option<Store>>,
    /// Numbers of frames that could not be sent. The service's counters do not include these numbers yet.
    lost: [(Count, u64); 2],
    buffer: Vec<u8>,
    next: Option<u64>,
}

impl Task {
    pub fn new(shared: Arc<Shared>, queues: SubscriberQueues) -> Self {
        let (present, parameters) = (shared.present(), shared.parameters());
        let mut stores = Vec::new();
        for (place, client) in parameters.subscribers.public.iter().enumerate() {
            let store = client.state.as_ref().map(|path| {
                let (store, loaded) = Store::load(path, present);
                if let Some(problem) = loaded.problem {
                    tracing::warn!("{problem}");
                }
                let (kept, expired) = (loaded.leases.len(), loaded.expired);
                tracing::info!(
                    "{}: {kept} stored public leases are still valid, {expired} have expired",
                    path.display()
                );
                lock(&shared.machine).service.restore(place, loaded.leases);
                store
            });
            stores.push(store);
        }
        Self {
            shared,
            queues,
            changes: None,
            pending: VecDeque::new(),
            settled: true,
            stores,
            lost: [(Count::FrameLost, 0), (Count::HostLost, 0)],
            buffer: vec![0; LONGEST_FRAME],
            next: None,
        }
    }

    /// Start reading all lease files from their beginnings.
    ///
    /// # Errors
    /// No thread or file descriptor is available.
    pub fn watch(&mut self) -> io::Result<()> {
        // Stop the old watchers first, so that their changes are not applied to the new service.
        lock(&self.shared.watchers).clear();
        self.pending.clear();
        let (sender, changes) = channel();
        self.changes = Some(changes);
        let mut watchers = Vec::new();
        let parameters = self.shared.parameters();
        for (place, server) in parameters.subscribers.servers.iter().enumerate() {
            let settings = leases::WatcherSettings {
                path: server.leases.clone(),
                format: match server.format {
                    LeaseFormat::Kea => Format::Kea,
                    LeaseFormat::Dhcpd => Format::Dhcpd,
                },
                limit: parameters.subscribers.terminals as usize,
            };
            let (sender, wake) = (sender.clone(), self.shared.wake.clone());
            watchers.push(Watcher::start(settings, move |changes| {
                let _ = sender.send((place, changes));
                wake_up(&wake);
            })?);
        }
        *lock(&self.shared.watchers) = watchers;
        Ok(())
    }

    /// Run until the thread is requested to end. A panic causes a restart of the service.
    pub fn run(mut self) {
        let mut retry_pause = PAUSE;
        let mut whole = true;
        while !self.shared.ending.load(Ordering::Relaxed) {
            let started_at = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| {
                if !whole {
                    self.rebuild()?;
                }
                self.serve()
            }));
            match ended {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => tracing::error!(
                    "the service for subscribers' sites failed: {error}; the service is \
                     started again"
                ),
                Err(_) => {
                    tracing::error!(
                        "the service for subscribers' sites failed because of a bug and is restarted: please report it"
                    );
                }
            }
            whole = false;
            if started_at.elapsed() > LONGEST {
                retry_pause = PAUSE;
            }
            self.pause(retry_pause);
            retry_pause = (retry_pause * 2).min(LONGEST);
        }
        // Store the leases that were last reported.
        let present = self.shared.present();
        for client in 0..self.stores.len() {
            self.store(client, present, true);
        }
    }

    /// Replace the service after a panic. Lease files are read again, and public leases are restored as last reported.
    /// The workers' tables remain unchanged until both steps are complete.
    fn rebuild(&mut self) -> io::Result<()> {
        {
            let mut machine = lock(&self.shared.machine);
            let Machine { service, mapping } = &mut *machine;
            let mut saved = catch_unwind(AssertUnwindSafe(|| service.saved())).unwrap_or_default();
            saved.counts.add(Count::Panics);
            let mut out = ServiceOutput::default();
            let mut environment = Environment {
                present: self.shared.present(),
                mapping: &mut **mapping,
                out: &mut out,
            };
            *service = Service::new(self.shared.parameters(), saved, &mut environment);
        }
        self.settled = false;
        self.next = None;
        self.watch()
    }

    /// Rebuild the service after contexts of sites have changed, and remove all old mappings.
    fn restart(&mut self) -> io::Result<()> {
        {
            let mut machine = lock(&self.shared.machine);
            let Machine { service, mapping } = &mut *machine;
            let parameters = self.shared.parameters();
            for site in 0..parameters.subscribers.sites() {
                mapping.clear_site(site);
            }
            let SavedState { leases, counts, .. } = service.saved();
            let saved = SavedState {
                leases,
                counts,
                ..SavedState::default()
            };
            let mut out = ServiceOutput::default();
            let mut environment = Environment {
                present: self.shared.present(),
                mapping: &mut **mapping,
                out: &mut out,
            };
            *service = Service::new(parameters, saved, &mut environment);
        }
        self.next = None;
        self.watch()
    }

    /// Serve until the thread is requested to end.
    fn serve(&mut self) -> io::Result<()> {
        let mut busy = true;
        while !self.shared.ending.load(Ordering::Relaxed) {
            if self.shared.moved.swap(false, Ordering::Relaxed) {
                self.restart()?;
            }
            let wait = match busy {
                true => Duration::ZERO,
                false => {
                    let now = self.shared.present().now;
                    let due = self
                        .next
                        .map_or(POLL_INTERVAL, |next| Duration::from_nanos(next.saturating_sub(now)));
                    due.min(POLL_INTERVAL)
                }
            };
            self.pause(wait);
            busy = self.environment();
        }
        Ok(())
    }

    /// Sleep until a wake-up, or for the given time.
    fn pause(&self, limit: Duration) {
        let mut waited = [PollFd::new(&*self.shared.wake, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        if poll(&mut waited, limit.as_ref()).is_ok_and(|ready| ready > 0) && !self.shared.ending.load(Ordering::Relaxed)
        {
            let _ = rustix::io::read(&*self.shared.wake, &mut [0; 8]);
        }
    }

    /// Perform all pending work. Returns whether more work may be pending.
    fn environment(&mut self) -> bool {
        let present = self.shared.present();
        let (mut out, mut more) = (ServiceOutput::default(), false);
        {
            let shared = self.shared.clone();
            let mut machine = lock(&shared.machine);
            let Machine { service, mapping } = &mut *machine;
            let mut environment = Environment {
                present,
                mapping: &mut **mapping,
                out: &mut out,
            };
            for (count, times) in &mut self.lost {
                service.count(*count, std::mem::take(times));
            }
            more |= self.apply(service, &mut environment);
            more |= self.receive_frames(service, &mut environment);
            self.next = service.poll(&mut environment);
        }
        self.send(&out.frames);
        for note in &out.notes {
            tracing::warn!("{}", note.text(|site| self.name(site)));
        }
        for (client, event) in &out.events {
            event.log(
                present.now,
                |site| self.name(site),
                |site| self.shared.parameters().mac(site),
            );
            if let Some(Some(store)) = self.stores.get_mut(*client) {
                store.note(event, present.now);
            }
        }
        for client in 0..self.stores.len() {
            self.store(client, present, false);
        }
        more
    }

    /// Apply changes of lease files. Returns whether more changes are pending.
    fn apply(&mut self, service: &mut Service, environment: &mut Environment<'_>) -> bool {
        // Check the watchers before the queue is drained, so that all changes of their first reading are included.
        let looked = !self.settled
            && lock(&self.shared.watchers)
                .iter()
                .all(|watcher| watcher.status().looks > 0);
        let received_changes = self.changes.iter().flat_map(Receiver::try_iter);
        self.pending
            .extend(received_changes.map(|(server, changes)| (server, changes.into_iter())));
        let mut remaining = CHANGES;
        while let Some((server, changes)) = self.pending.front_mut() {
            for change in changes.by_ref().take(remaining) {
                remaining -= 1;
                service.change(*server, &change, environment);
            }
            if remaining == 0 {
                return true;
            }
            self.pending.pop_front();
        }
        if looked {
            self.settled = true;
            service.settle(environment);
        }
        false
    }

    /// Process frames from workers and host stacks. Returns whether more frames may be queued.
    fn receive_frames(&mut self, service: &mut Service, environment: &mut Environment<'_>) -> bool {
        let mut more = false;
        for queue in &mut self.queues.to_subscribers {
            for taken in 0..FRAMES {
                let Some((interface, length)) = queue.head() else { break };
                more |= taken + 1 == FRAMES;
                let Some(frame) = self.buffer.get_mut(..length) else {
                    break;
                };
                queue.pop(frame);
                service.frame(interface, frame, environment);
            }
        }
        let receiver = self
            .queues
            .from_hosts
            .iter()
            .flat_map(|receiver| receiver.frames.try_iter().take(FRAMES));
        for (interface, frame) in receiver {
            more = true;
            service.frame(interface, &frame, environment);
        }
        more
    }

    fn send(&mut self, frames: &[Frame]) {
        for Frame {
            interface,
            delivery,
            bytes,
        } in frames
        {
            let enqueue = |queues: &mut SubscriberQueues, interface: u16| {
                let queue = queues.from_subscribers.as_mut();
                queue.is_some_and(|queue| queue.push(interface, [bytes, &[]]))
            };
            let (sent, lost) = match delivery {
                Delivery::Unchanged => (enqueue(&mut self.queues, *interface), 0),
                Delivery::Routed => (enqueue(&mut self.queues, *interface | ROUTED), 0),
                Delivery::Host => {
                    let port = self.queues.to_hosts.as_ref();
                    (port.is_some_and(|port| port(*interface, bytes)), 1)
                }
            };
            if let Some((_, times)) = self.lost.get_mut(lost).filter(|_| !sent) {
                *times += 1;
            }
        }
    }

    /// Store a client's leases if a write is due, or if `last` states that the thread ends.
    fn store(&mut self, client: usize, present: Present, last: bool) {
        let Some(Some(store)) = self.stores.get_mut(client) else {
            return;
        };
        let due = store.is_due(present) || (last && store.due().is_some());
        if !due {
            return;
        }
        let leases: StoredLeases = lock(&self.shared.machine).service.public_leases(client).collect();
        if let Err(error) = store.write(leases.into_iter(), present) {
            tracing::error!("{error}");
        }
    }

    fn name(&self, site: Site) -> String {
        self.shared.parameters().subscribers.name(site.0)
    }
}
