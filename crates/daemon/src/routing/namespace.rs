//! Creates sockets in another network namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Call `make` in the namespace of a file, on a separate thread. Without a namespace, `make` is called on the calling
/// thread.
pub(crate) fn within<T: Send>(namespace: Option<&Path>, make: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(path) = namespace else { return make() };
    let file = File::open(path)?;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            make()
        });
        there.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}
