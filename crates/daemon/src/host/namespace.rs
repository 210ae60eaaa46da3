//! Network namespaces with names, as `ip netns` knows them.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::LinkNameSpaceType;
use sluice_dpdk::tap::leave_network;

use crate::files;

/// Where their names are.
const FOLDER: &str = "/run/netns";

/// A network namespace that has a name.
#[derive(Debug)]
pub struct Namespace {
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// The namespace of that name, and whether it is new: one that is there is taken over.
    ///
    /// # Errors
    /// This process may not make or enter one.
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

    /// A file is a network namespace where a thread can enter it.
    fn of(path: &Path, file: File) -> Result<Self, Error> {
        let namespace = Self {
            path: path.into(),
            file,
        };
        namespace.within(|| Ok(()))?;
        Ok(namespace)
    }

    /// Do something inside, on a thread of its own.
    ///
    /// # Errors
    /// What it returns, or this process may not enter.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
        in_thread(|| {
            rustix::thread::move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })
    }

    /// Take its name away: it ends with the last process in it.
    ///
    /// # Errors
    /// This process may not.
    pub fn remove(self) -> Result<(), Error> {
        match rustix::mount::unmount(&self.path, UnmountFlags::DETACH) {
            // Nothing is mounted there: somebody has removed it.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Mounts below the folder are seen by all, as `ip netns` does it.
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

/// A thread that has entered another namespace does nothing else afterwards.
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
