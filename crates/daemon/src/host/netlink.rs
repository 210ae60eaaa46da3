//! Netlink requests about links, addresses, routes and rules of a network namespace. Only the requests that host stacks
//! need are implemented. All requests are synchronous.

use std::io::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NetlinkMessage, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeader, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Request};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType};
use sluice_route::feed::netlink::messages;

/// Link group of all links that Sluice creates. A new process recognises the links of an earlier process by their
/// group.
const GROUP: u32 = 0x534c;
/// Protocol (`IFA_PROTO`) of addresses that Sluice sets. Addresses of daemons have other values.
const ORIGIN: AddressProtocol = AddressProtocol::Other(0x53);
/// Routing table that Linux uses last (`RT_TABLE_DEFAULT`). Routing daemons do not use this table.
const LAST_TABLE: u8 = 253;
/// Priority of the rule for the routing table `RT_TABLE_DEFAULT`. All other rules have precedence.
const LAST_RULE: u32 = 32_767;

fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// The result of a request, or `Ok` if the request failed with `expected`.
fn unless(expected: Errno, result: Result<(), Error>) -> Result<(), Error> {
    result.or_else(|error| match Errno::from_io_error(&error) {
        Some(errno) if errno == expected => Ok(()),
        _ => Err(error),
    })
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
        let kind = (
            rustix::net::AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
        );
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Send a request, and pass the body of each reply message to `each`.
    fn ask(&mut self, request: Request, flags: u16, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(request);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            for reply in messages(&buffer[..length]).flatten() {
                match reply.message_type() {
                    _ if reply.sequence_number() != self.sequence => {}
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let reply = ErrorBuffer::new_checked(reply.payload()).map_err(Error::other)?;
                        return reply
                            .code()
                            .map_or(Ok(()), |code| Err(Error::from_raw_os_error(code.get().wrapping_neg())));
                    }
                    _ => each(reply.payload()),
                }
            }
        }
    }

    fn request(&mut self, request: Request, flags: u16) -> Result<(), Error> {
        self.ask(request, NLM_F_ACK | flags, |_| {})
    }

    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        self.ask(Request::GetLink(LinkMessage::default()), NLM_F_DUMP, |body| {
            let Ok(header) = LinkHeader::parse(body) else { return };
            let (mut name, mut managed) = (String::new(), false);
            // Decode the attributes one by one, because an attribute that can't be decoded must not hide the link.
            for attribute in NlasIterator::new(&body[header.buffer_len()..]).flatten() {
                match LinkAttribute::parse_with_param(&attribute, header.interface_family) {
                    Ok(LinkAttribute::IfName(value)) => name = value,
                    Ok(LinkAttribute::Group(group)) => managed = group == GROUP,
                    _ => {}
                }
            }
            let index = header.index;
            links.push(Link { index, name, managed });
        })?;
        Ok(links)
    }

    /// Bring a link up.
    pub fn set_up(&mut self, link: u32) -> Result<(), Error> {
        self.request(Request::NewLink(link_message(link, LinkFlags::Up, Vec::new())), 0)
    }

    /// Set the Ethernet address and MTU of a link, disable ARP, mark the link as created by Sluice, and bring it up.
    pub fn set_link(&mut self, link: u32, mac: [u8; 6], mtu: u16) -> Result<(), Error> {
        let attributes = vec![
            LinkAttribute::Address(mac.into()),
            LinkAttribute::Mtu(mtu.into()),
            LinkAttribute::Group(GROUP),
        ];
        let message = link_message(link, LinkFlags::Up | LinkFlags::Noarp, attributes);
        self.request(Request::NewLink(message), 0)
    }

    /// Delete a link.
    pub fn delete_link(&mut self, link: u32) -> Result<(), Error> {
        self.request(Request::DelLink(link_message(link, LinkFlags::empty(), Vec::new())), 0)
    }

    /// All addresses.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let mut addresses = Vec::new();
        self.ask(Request::GetAddress(AddressMessage::default()), NLM_F_DUMP, |body| {
            let Ok(header) = AddressHeader::parse(body) else { return };
            let (mut address, mut local, mut managed) = (None, None, false);
            for attribute in NlasIterator::new(&body[header.buffer_len()..]).flatten() {
                match AddressAttribute::parse(&attribute) {
                    Ok(AddressAttribute::Address(value)) => address = Some(value),
                    Ok(AddressAttribute::Local(value)) => local = Some(value),
                    Ok(AddressAttribute::Protocol(origin)) => managed = origin == ORIGIN,
                    _ => {}
                }
            }
            if let Some(address) = local.or(address) {
                addresses.push(Address {
                    link: header.index,
                    address: (address, header.prefix_len),
                    managed,
                });
            }
        })?;
        Ok(addresses)
    }

    /// Add an address to a link, without duplicate address detection.
    pub fn add_address(&mut self, link: u32, (address, length): (IpAddr, u8)) -> Result<(), Error> {
        let mut message = address_message(link, (address, length));
        message.attributes.push(AddressAttribute::Protocol(ORIGIN));
        match address {
            IpAddr::V4(own) if length < 31 => {
                let broadcast = own | Ipv4Addr::from(u32::MAX.checked_shr(length.into()).unwrap_or(0));
                message.attributes.push(AddressAttribute::Broadcast(broadcast));
            }
            IpAddr::V4(_) => {}
            IpAddr::V6(_) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
        }
        self.request(Request::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Delete an address from a link.
    pub fn delete_address(&mut self, link: u32, address: (IpAddr, u8)) -> Result<(), Error> {
        self.request(Request::DelAddress(address_message(link, address)), 0)
    }

    /// Set the default route of last resort to a link, or remove it if `link` is `None`.
    pub fn set_last_resort(&mut self, v6: bool, link: Option<u32>) -> Result<(), Error> {
        if v6 {
            // By default, Linux has a rule for this table only for IPv4.
            let mut rule = RuleMessage::default();
            rule.header = RuleHeader {
                family: family(true),
                table: LAST_TABLE,
                action: RuleAction::ToTable,
                ..RuleHeader::default()
            };
            rule.attributes = vec![RuleAttribute::Priority(LAST_RULE)];
            unless(
                Errno::EXIST,
                self.request(Request::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL),
            )?;
        }
        let mut route = RouteMessage::default();
        route.header = RouteHeader {
            address_family: family(v6),
            table: LAST_TABLE,
            protocol: RouteProtocol::Static,
            scope: if v6 { RouteScope::Universe } else { RouteScope::Link },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let Some(link) = link else {
            (route.header.scope, route.header.kind) = (RouteScope::NoWhere, RouteType::Unspec);
            return unless(Errno::SRCH, self.request(Request::DelRoute(route), 0));
        };
        route.attributes = vec![RouteAttribute::Oif(link)];
        self.request(Request::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)
    }
}

/// A message that sets the given flags of a link.
fn link_message(index: u32, flags: LinkFlags, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header = LinkHeader {
        index,
        flags,
        change_mask: flags,
        ..LinkHeader::default()
    };
    message.attributes = attributes;
    message
}

fn address_message(index: u32, (address, prefix_len): (IpAddr, u8)) -> AddressMessage {
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        family: family(address.is_ipv6()),
        prefix_len,
        scope: if is_link_local {
            AddressScope::Link
        } else {
            AddressScope::Universe
        },
        index,
        ..AddressHeader::default()
    };
    message.attributes = vec![AddressAttribute::Address(address), AddressAttribute::Local(address)];
    message
}
