//! The thread that follows a lease file.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::watch::Watch;
use super::{Change, Counts, Format, Now, Source};

/// How often a file is looked at when nothing is told of it: leases expire, and inotify may be deaf.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest pause after a panic.
const LONGEST: Duration = Duration::from_secs(30);

/// What a watcher is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lease file; neither it nor its folder need exist yet.
    pub path: PathBuf,
    /// Whose it is.
    pub format: Format,
    /// Leases that it may have at most.
    pub most: usize,
}

/// How a lease file stands, for who asks.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Leases that stand.
    pub leases: usize,
    /// Whether the file is there.
    pub there: bool,
    /// Whether the kernel tells of changes; otherwise it is looked at each second.
    pub told: bool,
    /// Why it can't be read.
    pub error: Option<String>,
    /// What has come of it.
    pub counts: Counts,
    /// Times that inotify's queue was full.
    pub overflows: u64,
    /// Looks at it, what each found having been handed over.
    pub looks: u64,
    /// Panics, after each of which the file was read anew.
    pub panics: u64,
}

/// A lease file that is followed as long as this lives.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ending: Arc<AtomicBool>,
    wake: OwnedFd,
    standing: Mutex<Standing>,
}

impl Shared {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// Follow a file: `hand` gets what has changed, from the thread, first of all the leases that stand.
    ///
    /// # Errors
    /// No thread, or no descriptor.
    pub fn start(settings: Settings, hand: impl FnMut(Vec<Change>) + Send + 'static) -> std::io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            ending: ending.clone(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            standing: Mutex::default(),
        });
        let task = Task {
            watch: Watch::of(&settings.path),
            source: Source::new(&settings.path, settings.format, settings.most, ending),
            hand: Box::new(hand),
            began: Instant::now(),
            patience: PERIOD,
            missing: false,
            shared: shared.clone(),
            settings,
        };
        let thread = std::thread::Builder::new().name("leases".into()).spawn(|| task.run())?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.shared.standing().clone()
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
    settings: Settings,
    shared: Arc<Shared>,
    watch: Watch,
    source: Source,
    hand: Box<dyn FnMut(Vec<Change>) + Send>,
    began: Instant,
    /// The pause after the next panic.
    patience: Duration,
    missing: bool,
}

impl Task {
    fn run(mut self) {
        while !self.shared.ending.load(Ordering::Relaxed) {
            let mut changes = Vec::new();
            let whole = catch_unwind(AssertUnwindSafe(|| self.look(&mut changes))).is_ok();
            // What had changed before a panic has changed.
            let handed = changes.is_empty() || catch_unwind(AssertUnwindSafe(|| (self.hand)(changes))).is_ok();
            if whole && handed {
                self.patience = PERIOD;
                self.shared.standing().looks += 1;
                self.wait(PERIOD);
                continue;
            }
            self.shared.standing().panics += 1;
            tracing::error!(
                "{}: following it panicked, and begins again",
                self.settings.path.display()
            );
            self.source.forget();
            self.pause();
        }
    }

    fn look(&mut self, changes: &mut Vec<Change>) {
        let path = self.settings.path.display();
        // Before the look: what happens in between is told of.
        let overflown = self.watch.take();
        let armed = self.watch.arm();
        let now = Now {
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            monotonic: self.began.elapsed().as_nanos() as u64,
        };
        let looked = self.source.look(now, changes);
        let mut standing = self.shared.standing();
        let error = looked.err().map(|error| error.to_string());
        if error.is_some() && error != standing.error {
            tracing::error!("{}", error.as_deref().unwrap_or_default());
        }
        let missing = !self.source.is_there() && error.is_none();
        if missing && !self.missing {
            tracing::warn!("{path} is not there: leases are read when it comes");
        }
        self.missing = missing;
        let told = self.watch.is_armed();
        if standing.told && !told {
            tracing::warn!("{path} is looked at each second, as nothing tells of changes: {armed:?}");
        }
        standing.leases = self.source.table().len();
        standing.there = self.source.is_there();
        standing.overflows += u64::from(overflown);
        standing.counts = self.source.counts().clone();
        (standing.told, standing.error) = (told, error);
    }

    /// Until something happens, or for so long.
    fn wait(&self, most: Duration) {
        let wake = PollFd::new(&self.shared.wake, PollFlags::IN);
        let told = self.watch.descriptor().filter(|_| self.watch.is_armed());
        let mut waited: Vec<PollFd<'_>> = told
            .map(|told| PollFd::from_borrowed_fd(told, PollFlags::IN))
            .into_iter()
            .collect();
        waited.push(wake);
        let most = Timespec::try_from(most).ok();
        let _ = poll(&mut waited, most.as_ref());
    }

    /// After a panic: nothing but the end is waited for.
    fn pause(&mut self) {
        let mut waited = [PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        let most = Timespec::try_from(self.patience).ok();
        let _ = poll(&mut waited, most.as_ref());
        self.patience = (self.patience * 2).min(LONGEST);
    }
}
