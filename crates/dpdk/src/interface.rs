//! Reads and changes settings of kernel interfaces by ioctl. The drivers of DPDK have no functions for these settings.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `ETHTOOL_GCHANNELS` of linux/ethtool.h.
const GET_CHANNELS: u32 = 0x3c;

#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    maximum: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// A kernel interface in this network namespace.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    name: String,
}

impl Interface {
    /// Create the interface from its name. A missing interface is detected only by the first request.
    pub fn named(name: &str) -> Result<Self, Error> {
        // SAFETY: the call creates a descriptor or fails.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        Ok(Self {
            socket,
            name: name.into(),
        })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: `ifreq` is plain data, and all zeros are a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let max_length = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name[..max_length].iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ioctl(&self, code: libc::c_ulong, request: &mut libc::ifreq) -> Result<(), Error> {
        // SAFETY: the request has the layout that these ioctl codes read and write, and lives during the call.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), code, request) } {
            0.. => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }

    /// MTU: maximum size of an IP packet in bytes.
    pub fn mtu(&self) -> Result<u32, Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: this ioctl fills the field.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Set the MTU if the current MTU differs.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        if self.mtu()? == u32::from(mtu) {
            return Ok(());
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.ioctl(libc::SIOCSIFMTU, &mut request)
    }

    /// Set the MAC address if the current MAC address differs.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: this ioctl fills the field.
        let address = unsafe { &mut request.ifr_ifru.ifru_hwaddr.sa_data };
        let wanted = mac.map(|byte| byte as libc::c_char);
        if address[..6] == wanted {
            return Ok(());
        }
        address[..6].copy_from_slice(&wanted);
        self.ioctl(libc::SIOCSIFHWADDR, &mut request)
    }

    /// Set the interface up or down if its current state differs.
    pub fn set_up(&self, up: bool) -> Result<(), Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: this ioctl fills the field.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let bit = libc::IFF_UP as libc::c_short;
        let wanted = if up { flags | bit } else { flags & !bit };
        if flags == wanted {
            return Ok(());
        }
        request.ifr_ifru.ifru_flags = wanted;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Enable all-multicast mode for the lifetime of the returned value. DPDK's drivers for kernel interfaces can't
    /// enable this mode. Without it, a card would drop messages of neighbour discovery (RFC 4861, section 2.3).
    ///
    /// # Errors
    /// The kernel's error: the interface does not exist, or CAP_NET_RAW is missing.
    pub fn all_multicast(&self) -> Result<AllMulticast, Error> {
        let mut request = self.request();
        self.ioctl(SIOCGIFINDEX, &mut request)?;
        // With protocol 0 the socket receives no packets. SAFETY: the call creates a descriptor or fails.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let membership = libc::packet_mreq {
            // SAFETY: this ioctl fills the field.
            mr_ifindex: unsafe { request.ifr_ifru.ifru_ifindex },
            mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: the membership has the given size, and is read during the call.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const membership).cast(),
                size_of_val(&membership) as libc::socklen_t,
            )
        };
        match set {
            0 => Ok(AllMulticast(socket)),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Whether the interface is up and has a carrier.
    pub fn runs(&self) -> bool {
        let mut request = self.request();
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: this ioctl fills the field.
        self.ioctl(libc::SIOCGIFFLAGS, &mut request).is_ok()
            && unsafe { request.ifr_ifru.ifru_flags } & wanted == wanted
    }

    /// Number of pairs of receive and transmit queues. 1 if the driver does not report the number.
    pub fn queues(&self) -> u16 {
        let mut channels = Channels {
            command: GET_CHANNELS,
            ..Channels::default()
        };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        // The request points to `channels`, which has the layout that this command fills and lives during the call.
        if self.ioctl(SIOCETHTOOL, &mut request).is_err() {
            return 1;
        }
        (channels.combined + channels.receive.min(channels.transmit)).clamp(1, u32::from(u16::MAX)) as u16
    }
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const SIOCGIFINDEX: libc::c_ulong = 0x8933;

/// All-multicast mode of an interface. The kernel ends the mode when the socket is closed, which also happens when the
/// process is killed.
#[derive(Debug)]
pub struct AllMulticast(#[expect(dead_code, reason = "held for what closing it does")] OwnedFd);

/// Whether a kernel interface with this name exists in this network namespace.
pub fn exists(name: &str) -> bool {
    std::ffi::CString::new(name).is_ok_and(|name| {
        // SAFETY: the argument is a C string that is read during the call.
        unsafe { libc::if_nametoindex(name.as_ptr()) != 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_mtu_and_one_queue() {
        assert!(exists("lo"));
        let lo = Interface::named("lo").expect("a socket");
        assert!(lo.mtu().expect("an MTU") >= 1500);
        assert_eq!(1, lo.queues());
    }

    #[test]
    fn interface_that_is_not_there_is_told() {
        assert!(!exists("no-such"));
        assert!(Interface::named("no-such").expect("a socket").mtu().is_err());
    }
}
