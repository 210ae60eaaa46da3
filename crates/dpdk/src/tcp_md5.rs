//! TCP-MD5 signatures (RFC 2385), through a socket option of the kernel that no crate supports.

use std::ffi::c_int;
use std::io::{Error, ErrorKind};
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Maximum key length in bytes (TCP_MD5SIG_MAXKEYLEN).
pub const MAX_KEY: usize = 80;

/// `struct tcp_md5sig` of linux/tcp.h.
#[repr(C, align(8))]
struct Md5Signature {
    /// `struct sockaddr_storage`: the family and the port, then the address.
    address: [u8; 128],
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: c_int,
    key: [u8; MAX_KEY],
}

/// Set the key of a peer for signatures, on an IPv4 or IPv6 TCP socket. The kernel signs segments to the peer, and
/// drops segments from the peer without a valid signature. Connections that a listening socket accepts inherit the key.
///
/// # Errors
/// The key is empty or too long, the peer is IPv6 but the socket is IPv4, or the kernel does not support signatures.
pub fn sign(socket: impl AsFd, is_v6: bool, peer: IpAddr, key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut option = Md5Signature {
        address: [0; 128],
        flags: 0,
        prefix_length: 0,
        key_length: key.len() as u16,
        interface: 0,
        key: [0; MAX_KEY],
    };
    option.key[..key.len()].copy_from_slice(key);
    // IPv6 sockets represent IPv4 addresses in ::ffff:0:0/96.
    let (family, at, bytes) = match (peer.to_canonical(), is_v6) {
        (IpAddr::V4(peer), false) => (libc::AF_INET, 4, peer.octets().to_vec()),
        (IpAddr::V4(peer), true) => (libc::AF_INET6, 8, peer.to_ipv6_mapped().octets().to_vec()),
        (IpAddr::V6(peer), true) => (libc::AF_INET6, 8, peer.octets().to_vec()),
        (IpAddr::V6(_), false) => return Err(ErrorKind::InvalidInput.into()),
    };
    option.address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    option.address[at..at + bytes.len()].copy_from_slice(&bytes);
    let length = size_of::<Md5Signature>() as libc::socklen_t;
    // SAFETY: the option reads this structure, which has this length and lives during the call.
    match unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MD5SIG,
            (&raw const option).cast(),
            length,
        )
    } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn structure_is_the_kernels() {
        assert_eq!(216, size_of::<Md5Signature>());
    }

    #[test]
    fn connection_without_the_key_of_the_listener_is_not_made() {
        for (listen, peer) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            let listener = TcpListener::bind(listen).unwrap();
            let (is_v6, peer): (bool, IpAddr) = (listen.starts_with('['), peer.parse().unwrap());
            sign(&listener, is_v6, peer, b"the key").unwrap();
            let port = listener.local_addr().unwrap().port();
            let timeout = std::time::Duration::from_millis(300);
            let unsigned = TcpStream::connect_timeout(&(peer, port).into(), timeout);
            assert_eq!(
                Some(ErrorKind::TimedOut),
                unsigned.err().map(|error| error.kind()),
                "{listen}"
            );
        }
    }

    #[test]
    fn key_that_cannot_be_one_and_peer_of_the_other_family_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let of = |peer: &str, key: &[u8]| {
            sign(&listener, false, peer.parse().unwrap(), key)
                .err()
                .map(|error| error.kind())
        };
        assert_eq!(Some(ErrorKind::InvalidInput), of("127.0.0.1", b""));
        assert_eq!(Some(ErrorKind::InvalidInput), of("127.0.0.1", &[7; MAX_KEY + 1]));
        assert_eq!(Some(ErrorKind::InvalidInput), of("::1", b"key"));
        assert_eq!(None, of("127.0.0.1", &[7; MAX_KEY]));
    }
}
