//! TAP interfaces of the kernel, which transfer frames between this process and a network namespace.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// An open TAP interface. The interface is persistent: a closed interface remains without a carrier until its deletion.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Open the TAP interface with this name in the calling thread's network namespace. Creates a missing interface. No
    /// other process may use the interface.
    ///
    /// # Errors
    /// `/dev/net/tun` is missing, this process lacks permission, the name is too long, an interface of another kind has
    /// the name, or another process uses the interface.
    pub fn open(name: &str) -> Result<Self, Error> {
        // SAFETY: `ifreq` is plain data, and all zeros are a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let max_length = request.ifr_name.len() - 1;
        if name.is_empty() || name.len() > max_length {
            return Err(Error::from(ErrorKind::InvalidInput));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open("/dev/net/tun")?;
        // SAFETY: the request has the layout that this ioctl code reads and writes, and lives during the call.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the argument is passed by value.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST as _, 1 as libc::c_int) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { file })
    }

    /// Set the carrier state.
    ///
    /// # Errors
    /// The interface no longer exists.
    pub fn set_carrier(&self, up: bool) -> Result<(), Error> {
        let up = libc::c_int::from(up);
        // SAFETY: this ioctl code reads an integer that lives during the call.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETCARRIER as _, &raw const up) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }

    /// The next frame from the namespace; `None` if there is no frame. The frame is truncated to the length of `into`.
    ///
    /// # Errors
    /// The interface no longer exists.
    pub fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        match (&self.file).read(into) {
            Ok(length) => Ok(Some(length)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deliver a frame to the namespace.
    ///
    /// # Errors
    /// The interface is down or no longer exists, or the kernel is out of memory.
    pub fn send(&self, frame: &[u8]) -> Result<(), Error> {
        (&self.file).write(frame).map(|_| ())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Move the calling thread into a new, empty network namespace.
///
/// # Errors
/// This process lacks permission.
pub fn leave_network() -> Result<(), Error> {
    // SAFETY: the call changes only the network namespace of the calling thread, and does not access memory.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_no_interface_can_have_is_refused() {
        for name in ["", "a-name-of-sixteen"] {
            assert_eq!(ErrorKind::InvalidInput, Tap::open(name).expect_err(name).kind());
        }
    }
}
