//! Inotify watch on the directory of a lease file.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Events after which a reader may find changed content.
const WATCHED_EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Watches a directory with inotify, if the kernel permits it.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
    queue: Option<OwnedFd>,
    watched: bool,
}

impl Watch {
    /// Create a watch on the directory of a file. The directory need not exist yet.
    pub fn of(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            queue: None,
            watched: false,
        }
    }

    /// Watch the directory if it is not watched yet. The directory may not have existed at the previous call.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub fn arm(&mut self) -> Result<(), Errno> {
        if self.watched {
            return Ok(());
        }
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        };
        let watched = inotify::add_watch(&queue, &self.folder, WATCHED_EVENTS);
        self.queue = Some(queue);
        self.watched = watched.is_ok();
        watched.map(drop)
    }

    /// Whether the watch is active.
    pub fn is_armed(&self) -> bool {
        self.watched
    }

    /// Descriptor to poll for events.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Drain the events. Returns whether the kernel has dropped events.
    pub fn take(&mut self) -> bool {
        let Some(queue) = &self.queue else { return false };
        let (mut buffer, mut overflown) = ([MaybeUninit::uninit(); 8192], false);
        let mut events = inotify::Reader::new(queue, &mut buffer);
        // The next check of the file covers all events. The number of drained events is limited, so that a flood of
        // events does not delay the check.
        for _ in 0..1024 {
            let Ok(event) = events.next() else { break };
            overflown |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let removed = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
            if event.events().intersects(removed) {
                self.watched = false;
            }
        }
        // Inotify continues to watch a directory that was renamed, so a new queue is created for the directory that now
        // has the name.
        if !self.watched {
            self.queue = None;
        }
        overflown
    }
}
