//! Named network namespaces, compatible with `ip netns`.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::LinkNameSpaceType;
use sluice_dpdk::tap::leave_network;

use crate::files;

/// Directory of the named namespaces.
const FOLDER: &str = "/run/netns";

/// A named network namespace.
#[derive(Debug)]
pub struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// Open the namespace with this name, or create it. Returns whether the namespace was created.
    ///
    /// # Errors
    /// This process lacks the privilege to create or enter a namespace.
    pub fn named(name: &str) -> Result<(Self, bool), Error> {
        let path = Path::new(FOLDER).join(name);
        if let Ok(file) = File::open(&path)
            && let Ok(namespace) = Self::of(&path, file)
        {
            return Ok((namespace, false));
        }
        prepare()?;
        match files::create_new(&path, 0o600) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let made = in_thread(|| {
            leave_network()?;
            Ok(rustix::mount::mount_bind("/proc/thread-self/ns/net", &path)?)
        });
        if let Err(error) = made {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let file = File::open(&path)?;
        Ok((Self::of(&path, file)?, true))
    }

    /// Use a file as a network namespace. Fails if a thread can't enter the namespace.
    fn of(path: &Path, file: File) -> Result<Self, Error> {
        let namespace = Self {
            path: path.into(),
            file,
        };
        namespace.within(|| Ok(()))?;
        Ok(namespace)
    }

    /// Run a function inside the namespace, on a separate thread.
    ///
    /// # Errors
    /// The function fails, or this process lacks the privilege to enter the namespace.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
        in_thread(|| {
            rustix::thread::move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })
    }

    /// Remove the name of the namespace. The namespace ends when its last process ends.
    ///
    /// # Errors
    /// This process lacks the privilege.
    pub fn remove(self) -> Result<(), Error> {
        match rustix::mount::unmount(&self.path, UnmountFlags::DETACH) {
            // The namespace is no longer mounted, because another process has removed it.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Make mounts below the directory shared, as `ip netns` does.
fn prepare() -> Result<(), Error> {
    fs::create_dir_all(FOLDER)?;
    let share = || rustix::mount::mount_change(FOLDER, MountPropagationFlags::SHARED | MountPropagationFlags::REC);
    match share() {
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(FOLDER, FOLDER)?;
            Ok(share()?)
        }
        shared => Ok(shared?),
    }
}

/// Run a function in a new thread. The thread must end afterwards, because it can't return to its former namespace.
fn in_thread<R: Send>(work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, work)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::other("a fault of the program")))
    })
}
