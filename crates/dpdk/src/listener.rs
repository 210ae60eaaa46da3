//! Capture of the frames that a kernel interface receives, through a packet socket. The capture sends no frames and
//! changes no settings of the interface.

use std::ffi::{CString, c_int};
use std::io::Error;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Maximum length of a captured frame, including frames that the kernel has merged (GRO).
const MAX_FRAME: usize = 1 << 16;

/// Length in bytes of a VLAN tag, which the kernel removes from the frame.
const TAG: usize = 4;

/// Requested size in bytes of the socket's receive buffer. The kernel may limit the size.
const WAITING: c_int = 16 << 20;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct CapturedFrame<'l> {
    /// Kernel timestamp as duration since the Unix epoch.
    pub at: Duration,
    /// Captured bytes, including VLAN tags.
    pub frame: &'l [u8],
    /// Original length of the frame.
    pub length: u32,
}

/// Ancillary data that the kernel reports together with a frame.
#[derive(Default)]
struct AncillaryData {
    at: Duration,
    /// Protocol identifier and control information of a VLAN tag.
    tag: Option<[u16; 2]>,
}

/// Captures the frames of one interface.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Listener {
    /// Start a capture of the frames that an interface receives.
    ///
    /// # Errors
    /// The interface does not exist or is not Ethernet, or this process may not capture.
    pub fn on(interface: &str) -> Result<Self, Error> {
        let name = CString::new(interface)?;
        // SAFETY: the argument is a C string that is read during the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // A socket with protocol 0 receives no packets before the bind to its interface. SAFETY: the call creates a
        // descriptor or fails.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if socket < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let listener = Self {
            socket,
            buffer: vec![0; TAG + MAX_FRAME],
        };
        listener.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        listener.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        listener.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // Use the system's limit if the process has no permission to exceed this limit.
        if listener.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, WAITING).is_err() {
            listener.set(libc::SOL_SOCKET, libc::SO_RCVBUF, WAITING)?;
        }
        listener.bind(index)?;
        Ok(listener)
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> Result<(), Error> {
        let length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: these options read an integer that lives during the call.
        match unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                length,
            )
        } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }

    fn bind(&self, index: u32) -> Result<(), Error> {
        // SAFETY: `sockaddr_ll` is plain data, and all zeros are a valid value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let socket = self.socket.as_raw_fd();
        // SAFETY: the address has this length, and lives during the call.
        if unsafe { libc::bind(socket, (&raw const address).cast(), length) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: there is room for an address of this length, which lives during the call.
        if unsafe { libc::getsockname(socket, (&raw mut address).cast(), &mut length) } != 0 {
            return Err(Error::last_os_error());
        }
        match address.sll_hatype {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
            _ => Err(Error::other("its frames are not Ethernet's")),
        }
    }

    /// The next queued frame; `None` if no frame is queued.
    ///
    /// # Errors
    /// The interface no longer exists.
    pub fn receive(&mut self) -> Result<Option<CapturedFrame<'_>>, Error> {
        let mut part = libc::iovec {
            iov_base: self.buffer[TAG..].as_mut_ptr().cast(),
            iov_len: MAX_FRAME,
        };
        // The buffer has the alignment of the kernel's control messages.
        let mut control = [0u64; 32];
        // SAFETY: `msghdr` is plain data, and all zeros are a valid value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message points to memory of the stated lengths, which lives during the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let Ok(length) = usize::try_from(length) else {
            let error = Error::last_os_error();
            return match error.raw_os_error() {
                // No frame is queued, or the interface is or was down. The interface may come up again.
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
                _ => Err(error),
            };
        };
        let ancillary = ancillary(&message);
        let kept = length.min(MAX_FRAME);
        let (from, more) = match ancillary.tag {
            Some([protocol, control]) if kept >= 12 => {
                self.buffer.copy_within(TAG..TAG + 12, 0);
                self.buffer[12..14].copy_from_slice(&protocol.to_be_bytes());
                self.buffer[14..16].copy_from_slice(&control.to_be_bytes());
                (0, TAG)
            }
            _ => (TAG, 0),
        };
        Ok(Some(CapturedFrame {
            at: ancillary.at,
            frame: &self.buffer[from..TAG + kept],
            length: (length + more) as u32,
        }))
    }

    /// Number of frames that the kernel dropped since the last call because the socket's buffer was full.
    pub fn missed(&self) -> u64 {
        // SAFETY: `tpacket_stats` is plain data, and all zeros are a valid value.
        let mut counts: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of_val(&counts) as libc::socklen_t;
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let into = (&raw mut counts).cast();
        // SAFETY: this option fills the struct, which lives during the call.
        match unsafe { libc::getsockopt(self.socket.as_raw_fd(), level, option, into, &mut length) } {
            0 => counts.tp_drops.into(),
            _ => 0,
        }
    }
}

/// Timestamp and VLAN tag of a received message.
fn ancillary(message: &libc::msghdr) -> AncillaryData {
    let mut ancillary = AncillaryData::default();
    // SAFETY: the kernel has filled the control memory of this message and set its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the pointer is not null, so it refers to a complete header in the control memory.
        let (header, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: a message of this type contains this struct, possibly unaligned.
                let at = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                ancillary.at = Duration::new(at.tv_sec.max(0) as u64, at.tv_nsec as u32);
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: a message of this type contains this struct, possibly unaligned.
                let found = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                let has = |flag| found.tp_status & flag != 0;
                let protocol = match has(libc::TP_STATUS_VLAN_TPID_VALID) {
                    true => found.tp_vlan_tpid,
                    false => 0x8100,
                };
                ancillary.tag = has(libc::TP_STATUS_VLAN_VALID).then_some([protocol, found.tp_vlan_tci]);
            }
            _ => {}
        }
        // SAFETY: as for the first header.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    ancillary
}

/// Wait until any listener has a frame, but at most for the duration `max`.
pub fn wait(listeners: &[&Listener], max: Duration) {
    let mut wanted: Vec<libc::pollfd> = listeners
        .iter()
        .map(|listener| libc::pollfd {
            fd: listener.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let milliseconds = c_int::try_from(max.as_millis()).unwrap_or(c_int::MAX);
    // Ignore the result, because the caller checks all listeners afterwards. SAFETY: the array has the stated number of
    // descriptors, and lives during the call.
    unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, milliseconds) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_that_is_not_there_is_told() {
        let error = Listener::on("no-such").expect_err("an interface that is not there");
        assert_eq!(Some(libc::ENODEV), error.raw_os_error());
    }
}
