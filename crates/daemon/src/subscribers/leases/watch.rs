//! The folder of a lease file: whether something happens there.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Whatever changes what a reader sees.
const MEANT: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Watches a folder by inotify, where the kernel lets it.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
    queue: Option<OwnedFd>,
    watched: bool,
}

impl Watch {
    /// Of the folder that a file is in, or will be.
    pub fn of(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            queue: None,
            watched: false,
        }
    }

    /// Watch the folder, if it is not watched: it may not have been there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn arm(&mut self) -> Result<(), Errno> {
        if self.watched {
            return Ok(());
        }
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        };
        let watched = inotify::add_watch(&queue, &self.folder, MEANT);
        self.queue = Some(queue);
        self.watched = watched.is_ok();
        watched.map(drop)
    }

    /// Whether it is told of what happens.
    pub fn is_armed(&self) -> bool {
        self.watched
    }

    /// What to wait for.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Take what has been told. Gives whether something was lost.
    pub fn take(&mut self) -> bool {
        let Some(queue) = &self.queue else { return false };
        let (mut buffer, mut overflown) = ([MaybeUninit::uninit(); 8192], false);
        let mut events = inotify::Reader::new(queue, &mut buffer);
        // More at a time only puts off the look that takes care of them all.
        for _ in 0..1024 {
            let Ok(event) = events.next() else { break };
            overflown |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
            if event.events().intersects(gone) {
                self.watched = false;
            }
        }
        // A folder that was moved away is still watched, and another one may have its name.
        if !self.watched {
            self.queue = None;
        }
        overflown
    }
}
