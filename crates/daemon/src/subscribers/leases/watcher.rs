//! The thread that reads a lease file continuously.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::watch::Watch;
use super::{Change, Format, LeaseFileCounters, Lost, Now, Reason, Source};

/// Interval between checks without a notification. Checks without a notification are needed because leases expire, and
/// because inotify may be unavailable.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum pause after a panic.
const LONGEST: Duration = Duration::from_secs(30);

/// Settings of a watcher.
#[derive(Clone, Debug)]
pub struct WatcherSettings {
    /// Path of the lease file. Neither the file nor its directory needs to exist yet.
    pub path: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// Maximum number of leases.
    pub limit: usize,
}

/// Status of a lease file.
#[derive(Clone, Debug, Default)]
pub struct WatcherStatus {
    /// Number of current leases.
    pub leases: usize,
    /// Whether the file exists.
    pub there: bool,
    /// Whether inotify reports changes. If inotify is unavailable, the file is checked every second.
    pub watched: bool,
    /// Why the file can't be read.
    pub error: Option<String>,
    /// Counters of the file.
    pub counts: LeaseFileCounters,
    /// Number of overflows of inotify's queue.
    pub overflows: u64,
    /// Number of completed checks, whose changes have all been delivered.
    pub looks: u64,
    /// Number of panics. After each panic, the file was read again.
    pub panics: u64,
}

impl WatcherStatus {
    /// Counters by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        let changes = [
            ("lease-entries", counts.entries),
            ("lease-gained", counts.gained),
            ("lease-changed", counts.changed),
            ("lease-renewed", counts.renewed),
            ("lease-readings", counts.readings),
            ("lease-rotations", counts.rotations),
            ("lease-overflows", self.overflows),
            ("lease-panics", self.panics),
        ];
        let lost = Lost::ALL.map(Lost::name).into_iter().zip(counts.lost);
        let faults = Reason::ALL.map(Reason::name).into_iter().zip(counts.faults);
        changes.into_iter().chain(lost).chain(faults).collect()
    }
}

/// Handle of the watcher thread, which runs until the handle is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ending: Arc<AtomicBool>,
    wake: OwnedFd,
    status: Mutex<WatcherStatus>,
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, WatcherStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// Watch a file. The thread passes changes to `deliver`, beginning with all existing leases.
    ///
    /// # Errors
    /// No thread or file descriptor is available.
    pub fn start(
        settings: WatcherSettings,
        deliver: impl FnMut(Vec<Change>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            ending: ending.clone(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            status: Mutex::default(),
        });
        let task = Task {
            watch: Watch::of(&settings.path),
            source: Source::new(&settings.path, settings.format, settings.limit, ending),
            deliver: Box::new(deliver),
            started_at: Instant::now(),
            patience: PERIOD,
            missing: None,
            shared: shared.clone(),
            settings,
        };
        let thread = std::thread::Builder::new().name("leases".into()).spawn(|| task.run())?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }

    /// Status of the lease file.
    pub fn status(&self) -> WatcherStatus {
        self.shared.status().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Task {
    settings: WatcherSettings,
    shared: Arc<Shared>,
    watch: Watch,
    source: Source,
    deliver: Box<dyn FnMut(Vec<Change>) + Send>,
    started_at: Instant,
    /// Length of the pause after the next panic.
    patience: Duration,
    /// Monotonic time since which the file is missing, and whether its absence has been logged.
    missing: Option<(u64, bool)>,
}

impl Task {
    fn run(mut self) {
        while !self.shared.ending.load(Ordering::Relaxed) {
            let mut changes = Vec::new();
            let is_completed = catch_unwind(AssertUnwindSafe(|| self.look(&mut changes))).is_ok();
            // Changes made before a panic have taken effect in the table, so they must still be delivered.
            let delivered = changes.is_empty() || catch_unwind(AssertUnwindSafe(|| (self.deliver)(changes))).is_ok();
            if is_completed && delivered {
                self.patience = PERIOD;
                self.shared.status().looks += 1;
                self.wait(PERIOD);
                continue;
            }
            self.shared.status().panics += 1;
            tracing::error!(
                "{}: reading the lease file failed because of a bug and is restarted",
                self.settings.path.display()
            );
            self.source.forget();
            self.pause();
        }
    }

    fn look(&mut self, changes: &mut Vec<Change>) {
        let path = self.settings.path.display();
        // Drain notifications before the check, so that a later change of the file causes another check.
        let overflown = self.watch.take();
        let armed = self.watch.arm();
        let now = Now {
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            monotonic: self.started_at.elapsed().as_nanos() as u64,
        };
        let looked = self.source.look(now, changes);
        let mut status = self.shared.status();
        let error = looked.err().map(|error| error.to_string());
        if error.is_some() && error != status.error {
            tracing::error!("{}", error.as_deref().unwrap_or_default());
        }
        self.missing = match self.missing {
            _ if self.source.exists() || error.is_some() => None,
            Some((since, false)) if now.monotonic - since >= PERIOD.as_nanos() as u64 => {
                tracing::warn!("the lease file {path} does not exist: leases are read as soon as the file exists");
                Some((since, true))
            }
            // Kea renames its file shortly before it creates the next file, so a short absence is not logged.
            missing => missing.or(Some((now.monotonic, false))),
        };
        let watched = self.watch.is_armed();
        if status.watched && !watched {
            tracing::warn!("{path} is checked once per second, because the kernel reports no changes: {armed:?}");
        }
        status.leases = self.source.table().len();
        status.there = self.source.exists();
        status.overflows += u64::from(overflown);
        status.counts = self.source.counts().clone();
        (status.watched, status.error) = (watched, error);
    }

    /// Wait for a notification, or for the given time.
    fn wait(&self, limit: Duration) {
        let wake = PollFd::new(&self.shared.wake, PollFlags::IN);
        let watched = self.watch.descriptor().filter(|_| self.watch.is_armed());
        let mut waited: Vec<PollFd<'_>> = watched
            .map(|watched| PollFd::from_borrowed_fd(watched, PollFlags::IN))
            .into_iter()
            .collect();
        waited.push(wake);
        let limit = Timespec::try_from(limit).ok();
        let _ = poll(&mut waited, limit.as_ref());
    }

    /// Pause after a panic. Only a request to end the thread interrupts the pause.
    fn pause(&mut self) {
        let mut waited = [PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(self.patience).ok();
        let _ = poll(&mut waited, limit.as_ref());
        self.patience = (self.patience * 2).min(LONGEST);
    }
}
