//! XDP sockets that DPDK leaves open when it closes a port. An open socket would occupy the interface's queue until the
//! process ends.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// XDP sockets of this process, as descriptor and inode. The inode detects reused descriptor numbers.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<(RawFd, u64)>);

impl Sockets {
    /// The sockets that are currently open.
    pub(super) fn open_now() -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(numbers.filter_map(|number| Some((number, inode(number)?))).collect())
    }

    /// The open sockets that are not in `before`.
    pub(super) fn opened_since(before: &Self) -> Self {
        let mut opened = Self::open_now();
        opened.0.retain(|socket| !before.0.contains(socket));
        opened
    }

    /// Close all sockets of the list that are still open. The sockets must no longer be in use.
    pub(super) fn close(&mut self) {
        for (number, known) in self.0.drain(..) {
            if inode(number) == Some(known) {
                // SAFETY: the descriptor still refers to the socket that the port has opened. The port is closed, so
                // the socket has no other user.
                unsafe { libc::close(number) };
            }
        }
    }
}

/// Inode of a descriptor, if the descriptor is an XDP socket.
fn inode(number: RawFd) -> Option<u64> {
    let (mut domain, mut length) = (0, size_of::<i32>() as libc::socklen_t);
    // SAFETY: an integer and its length are written during the call. The descriptor number may be invalid.
    let requested = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &mut length,
        )
    };
    if requested != 0 || domain != libc::AF_XDP {
        return None;
    }
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the status is read only after a successful call, which has written it.
    unsafe { (libc::fstat(number, status.as_mut_ptr()) == 0).then(|| status.assume_init().st_ino) }
}
