//! Netlink requests about links, addresses, routes and rules of a network namespace. Only the requests that host stacks
//! need are implemented. All requests are synchronous.

use std::io::Error;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Message types and flags of linux/netlink.h and linux/rtnetlink.h.
mod number {
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const NEW_LINK: u16 = 16;
    pub const DELETE_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const NEW_ADDRESS: u16 = 20;
    pub const DELETE_ADDRESS: u16 = 21;
    pub const GET_ADDRESS: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const DELETE_ROUTE: u16 = 25;
    pub const NEW_RULE: u16 = 32;
    pub const REQUEST: u16 = 1;
    pub const ACKNOWLEDGE: u16 = 4;
    pub const DUMP: u16 = 0x300;
    pub const REPLACE: u16 = 0x100;
    pub const EXCLUSIVE: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
}

const HEADER: usize = 16;
const UP: u32 = 1;
const NO_ARP: u32 = 0x80;
const NO_DETECTION: u32 = 2;

/// Link group of all links that Sluice creates. A new process recognises the links of an earlier process by their
/// group.
const GROUP: u32 = 0x534c;
/// Protocol (`IFA_PROTO`) of addresses that Sluice sets. Addresses of daemons have other values.
const ORIGIN: u8 = 0x53;
/// Routing table that Linux uses last (`RT_TABLE_DEFAULT`). Routing daemons do not use this table.
const LAST_TABLE: u8 = 253;
/// Priority of the rule for the routing table `RT_TABLE_DEFAULT`. All other rules have precedence.
const LAST_RULE: u32 = 32_767;

/// A request under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | number::REQUEST).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    fn with(mut self, attribute: u16, value: &[u8]) -> Self {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&attribute.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Attributes of a message, which follow a body of `body` bytes.
fn attributes(message: &[u8], body: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(body..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let value = rest.get(4..length)?;
        let kind = half(rest, 2)? & 0x3fff;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

fn family(v6: bool) -> u8 {
    (if v6 { AddressFamily::INET6 } else { AddressFamily::INET }).as_raw() as u8
}

/// A link of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index of the link.
    pub index: u32,
    /// Name of the link.
    pub name: String,
    /// Whether Sluice has created the link.
    pub managed: bool,
}

/// An address in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface index of the link to which the address belongs.
    pub link: u32,
    /// Address and prefix length.
    pub address: (IpAddr, u8),
    /// Whether Sluice has set the address.
    pub managed: bool,
}

/// A netlink socket. The socket belongs to the network namespace in which it was created.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Open a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn open() -> Result<Self, Error> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Send a request, and pass the body of each reply message to `each`.
    fn ask(&mut self, request: Request, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        self.sequence += 1;
        let request = request.finish(self.sequence);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let (Some(length), Some(kind), Some(sequence)) = (word(rest, 0), half(rest, 4), word(rest, 8)) {
                let body = rest.get(HEADER..length as usize).unwrap_or_default();
                rest = rest
                    .get((length as usize).next_multiple_of(4).max(HEADER)..)
                    .unwrap_or_default();
                match kind {
                    _ if sequence != self.sequence => {}
                    number::DONE => return Ok(()),
                    number::ERROR => {
                        return match word(body, 0).map(|code| code as i32) {
                            Some(0) => Ok(()),
                            Some(code) => Err(Error::from_raw_os_error(code.wrapping_neg())),
                            None => Err(Error::other("an answer without a number")),
                        };
                    }
                    _ => each(body),
                }
            }
        }
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8], values: &[(u16, &[u8])]) -> Result<(), Error> {
        let request = Request::new(kind, flags | number::ACKNOWLEDGE, body);
        let add = |request: Request, &(attribute, value): &(u16, &[u8])| request.with(attribute, value);
        self.ask(values.iter().fold(request, add), |_| {})
    }

    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        self.ask(Request::new(number::GET_LINK, number::DUMP, &[0; 16]), |message| {
            let Some(index) = word(message, 4) else { return };
            let (mut name, mut managed) = (String::new(), false);
            for (kind, value) in attributes(message, 16) {
                match kind {
                    3 => name = String::from_utf8_lossy(value).trim_end_matches('\0').into(),
                    27 => managed = word(value, 0) == Some(GROUP),
                    _ => {}
                }
            }
            links.push(Link { index, name, managed });
        })?;
        Ok(links)
    }

    /// Bring a link up.
    pub fn set_up(&mut self, link: u32) -> Result<(), Error> {
        self.request(number::NEW_LINK, 0, &link_body(link, UP, UP), &[])
    }

    /// Set the Ethernet address and MTU of a link, disable ARP, mark the link as created by Sluice, and bring it up.
    pub fn set_link(&mut self, link: u32, mac: [u8; 6], mtu: u16) -> Result<(), Error> {
        let values: [(u16, &[u8]); 3] = [
            (1, &mac),
            (4, &u32::from(mtu).to_ne_bytes()),
            (27, &GROUP.to_ne_bytes()),
        ];
        self.request(number::NEW_LINK, 0, &link_body(link, UP | NO_ARP, UP | NO_ARP), &values)
    }

    /// Delete a link.
    pub fn delete_link(&mut self, link: u32) -> Result<(), Error> {
        self.request(number::DELETE_LINK, 0, &link_body(link, 0, 0), &[])
    }

    /// All addresses.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let mut addresses = Vec::new();
        self.ask(Request::new(number::GET_ADDRESS, number::DUMP, &[0; 8]), |message| {
            let (Some(&length), Some(link)) = (message.get(1), word(message, 4)) else {
                return;
            };
            let (mut address, mut local, mut managed) = (None, None, false);
            for (kind, value) in attributes(message, 8) {
                let known = || match value.len() {
                    4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
                    _ => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
                };
                match kind {
                    1 => address = known(),
                    2 => local = known(),
                    11 => managed = value == [ORIGIN],
                    _ => {}
                }
            }
            if let Some(address) = local.or(address) {
                addresses.push(Address {
                    link,
                    address: (address, length),
                    managed,
                });
            }
        })?;
        Ok(addresses)
    }

    /// Add an address to a link, without duplicate address detection.
    pub fn add_address(&mut self, link: u32, (address, length): (IpAddr, u8)) -> Result<(), Error> {
        let value = bytes(address);
        let flags = NO_DETECTION.to_ne_bytes();
        let broadcast = match address {
            IpAddr::V4(own) if length < 31 => {
                Some((own.to_bits() | u32::MAX.checked_shr(length.into()).unwrap_or(0)).to_be_bytes())
            }
            _ => None,
        };
        let mut values: Vec<(u16, &[u8])> = vec![(1, &value), (2, &value), (11, &[ORIGIN])];
        match &broadcast {
            Some(broadcast) => values.push((4, broadcast)),
            None if address.is_ipv6() => values.push((8, &flags)),
            None => {}
        }
        let body = address_body(link, (address, length));
        self.request(number::NEW_ADDRESS, number::CREATE | number::REPLACE, &body, &values)
    }

    /// Delete an address from a link.
    pub fn delete_address(&mut self, link: u32, address: (IpAddr, u8)) -> Result<(), Error> {
        let value = bytes(address.0);
        let values: [(u16, &[u8]); 2] = [(1, &value), (2, &value)];
        self.request(number::DELETE_ADDRESS, 0, &address_body(link, address), &values)
    }

    /// Set the default route of last resort to a link, or remove it if `link` is `None`.
    pub fn set_last_resort(&mut self, v6: bool, link: Option<u32>) -> Result<(), Error> {
        if v6 {
            // By default, Linux has a rule for this table only for IPv4.
            let body = [family(true), 0, 0, 0, LAST_TABLE, 0, 0, 1, 0, 0, 0, 0];
            let create = number::CREATE | number::EXCLUSIVE;
            match self.request(number::NEW_RULE, create, &body, &[(6, &LAST_RULE.to_ne_bytes())]) {
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::EXIST.raw_os_error()) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        let (universe, on_link) = (0, 253);
        let scope = if v6 { universe } else { on_link };
        // Route attributes: protocol static, type unicast.
        let mut body = [family(v6), 0, 0, 0, LAST_TABLE, 4, scope, 1, 0, 0, 0, 0];
        let Some(link) = link else {
            (body[6], body[7]) = (255, 0);
            return match self.request(number::DELETE_ROUTE, 0, &body, &[]) {
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => Err(error),
                _ => Ok(()),
            };
        };
        let create = number::CREATE | number::REPLACE;
        self.request(number::NEW_ROUTE, create, &body, &[(4, &link.to_ne_bytes())])
    }
}

fn link_body(link: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&link.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..].copy_from_slice(&change.to_ne_bytes());
    body
}

fn address_body(link: u32, (address, length): (IpAddr, u8)) -> [u8; 8] {
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let scope = if is_link_local { 253 } else { 0 };
    let [a, b, c, d] = link.to_ne_bytes();
    [family(address.is_ipv6()), length, 0, scope, a, b, c, d]
}
