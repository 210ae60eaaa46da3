//! Decoding of netlink messages about routes and next hops without copying (rtnetlink(7)). Numbers are in the byte
//! order of the sending host. A remote daemon's host must have the byte order of this host; otherwise the daemon's
//! messages are malformed.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Refused;
use crate::{Address, Prefix};

/// A netlink message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// Flags of the message (NLM_F_…).
    pub flags: u16,
    /// Request that caused the message: sequence number, and netlink port of the requesting process.
    pub request: (u32, u32),
    /// The bytes after the message header.
    pub body: &'a [u8],
}

/// Message types.
pub mod kind {
    /// No operation.
    pub const NOOP: u16 = 1;
    /// Error or acknowledgement.
    pub const ERROR: u16 = 2;
    /// End of a dump.
    pub const DONE: u16 = 3;
    /// A route was added or changed.
    pub const NEW_ROUTE: u16 = 24;
    /// A route was deleted.
    pub const DELETE_ROUTE: u16 = 25;
    /// Request for a dump of all routes.
    pub const GET_ROUTE: u16 = 26;
    /// A next hop was added or changed.
    pub const NEW_NEXT_HOP: u16 = 104;
    /// A next hop was deleted.
    pub const DELETE_NEXT_HOP: u16 = 105;
    /// Request for a dump of all next hops.
    pub const GET_NEXT_HOP: u16 = 106;
    /// A link was added or changed.
    pub const NEW_LINK: u16 = 16;
    /// A link was deleted.
    pub const DELETE_LINK: u16 = 17;
    /// An address was added or changed.
    pub const NEW_ADDRESS: u16 = 20;
    /// An address was deleted.
    pub const DELETE_ADDRESS: u16 = 21;
}

/// NLM_F_MULTI: the message is part of a dump.
pub const MULTI: u16 = 2;
/// NLM_F_REPLACE: the route replaces an existing route.
pub const REPLACE: u16 = 0x100;
/// NLM_F_APPEND: the route was inserted after the existing routes.
pub const APPEND: u16 = 0x800;

/// NLM_F_DUMP_INTR: the table changed during a dump.
pub const DUMP_INTERRUPTED: u16 = 0x10;
/// IPv4.
pub const INET: u8 = 2;
/// IPv6.
pub const INET6: u8 = 10;
/// Length of a message header.
pub const HEADER: usize = 16;

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn half(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// Splits `bytes` into messages. A truncated last message results in an error item.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Refused>> {
    std::iter::from_fn(move || {
        let head = std::mem::take(&mut bytes);
        if head.is_empty() {
            return None;
        }
        let message = (|| {
            let length = word(head)? as usize;
            let message = Message {
                kind: half(head.get(4..)?)?,
                flags: half(head.get(6..)?)?,
                request: (word(head.get(8..)?)?, word(head.get(12..)?)?),
                body: head.get(HEADER..length)?,
            };
            bytes = head.get(aligned(length)..).unwrap_or_default();
            Some(message)
        })();
        Some(message.ok_or(Refused::Malformed))
    })
}

/// Splits `bytes` into attributes. Each item consists of the attribute type without flags and the attribute value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Refused>> {
    std::iter::from_fn(move || {
        let head = std::mem::take(&mut bytes);
        if head.is_empty() {
            return None;
        }
        let attribute = (|| {
            let length = usize::from(half(head)?);
            let value = head.get(4..length)?;
            bytes = head.get(aligned(length)..).unwrap_or_default();
            Some((half(head.get(2..)?)? & 0x3fff, value))
        })();
        Some(attribute.ok_or(Refused::Malformed))
    })
}

fn number(value: &[u8]) -> Result<u32, Refused> {
    word(value).ok_or(Refused::Malformed)
}

fn address(family: u8, value: &[u8]) -> Result<Address, Refused> {
    let parsed = match family {
        INET => value
            .try_into()
            .map(|bytes| Address::V4(u32::from_be_bytes(bytes)))
            .ok(),
        INET6 => value
            .try_into()
            .map(|bytes| Address::V6(u128::from_be_bytes(bytes)))
            .ok(),
        _ => None,
    };
    parsed.ok_or(Refused::Malformed)
}

/// Decodes RTA_VIA: an address family and an address.
fn via(value: &[u8]) -> Result<Address, Refused> {
    let family = half(value).and_then(|family| u8::try_from(family).ok());
    address(family.ok_or(Refused::Malformed)?, value.get(2..).unwrap_or_default())
}

/// A single next hop of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NextHopMember {
    /// Gateway of the next hop.
    pub gateway: Option<Address>,
    /// Number of the interface in the kernel; 0 if the message contains no interface.
    pub interface: u32,
    /// Weight of the next hop.
    pub weight: u8,
    /// Whether the next hop encapsulates packets.
    pub wraps: bool,
    /// RTNH_F_ONLINK: the gateway is considered on-link even if no network of the link contains it.
    pub is_onlink: bool,
    /// Whether the next hop is dead: the kernel currently does not use it.
    pub is_dead: bool,
}

/// Type of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Forward packets.
    Unicast,
    /// Drop packets silently.
    Blackhole,
    /// Drop packets and send an ICMP error: unreachable.
    Unreachable,
    /// Drop packets and send an ICMP error: prohibited.
    Prohibit,
    /// End the lookup in this table.
    Throw,
    /// Another type.
    Other,
}

/// A message about a route.
#[derive(Clone, Debug)]
pub struct RouteMessage<'a> {
    /// Destination prefix.
    pub prefix: Prefix,
    /// Number of the routing table.
    pub table: u32,
    /// Routing protocol (RTPROT).
    pub protocol: u8,
    /// Type of the route.
    pub kind: Kind,
    /// Whether the route applies to only some of the packets to the prefix.
    pub is_conditional: bool,
    /// Whether the route is a cached clone instead of an entry of the table.
    pub is_cloned: bool,
    /// Metric of the route.
    pub metric: u32,
    /// Hash of the attributes other than next hops by which the kernel distinguishes routes.
    pub identity: u32,
    /// Flags of the message (NLM_F_…).
    pub flags: u16,
    /// Number of the route's next-hop object or group.
    pub next_hop: Option<u32>,
    /// The next hop of a route without multipath.
    pub leg: NextHopMember,
    family: u8,
    multipath: &'a [u8],
}

const CLONED: u32 = 0x200;
/// RTNH_F_DEAD: the interface is administratively down. The carrier state (RTNH_F_LINKDOWN) is not read from routes,
/// because the kernel sends no route message when the carrier returns. Link messages contain the carrier state.
const DEAD: u8 = 1;
/// RTNH_F_ONLINK: the gateway is considered on-link.
const ONLINK: u8 = 4;

impl<'a> RouteMessage<'a> {
    /// Decodes the body of a message about a route.
    ///
    /// # Errors
    /// The message is malformed, or concerns a different address family.
    pub fn read(
        Message {
            flags: of_message,
            body,
            ..
        }: &Message<'a>,
    ) -> Result<Self, Refused> {
        let &[family, length, source, tos, table, protocol, scope, kind] =
            body.first_chunk().ok_or(Refused::Malformed)?;
        let mut identity = DefaultHasher::new();
        (protocol, scope).hash(&mut identity);
        let flags = number(body.get(8..).unwrap_or_default())?;
        let zero = match family {
            INET => Address::V4(0),
            INET6 => Address::V6(0),
            _ => return Err(Refused::Family),
        };
        if length > zero.bits() {
            return Err(Refused::Malformed);
        }
        let kind = match kind {
            1 => Kind::Unicast,
            6 => Kind::Blackhole,
            7 => Kind::Unreachable,
            8 => Kind::Prohibit,
            9 => Kind::Throw,
            _ => Kind::Other,
        };
        let mut message = Self {
            prefix: Prefix::new(zero, length),
            table: table.into(),
            protocol,
            kind,
            is_conditional: source > 0 || tos > 0,
            is_cloned: flags & CLONED != 0,
            metric: 0,
            identity: 0,
            flags: *of_message,
            next_hop: None,
            leg: NextHopMember {
                weight: 1,
                is_dead: flags as u8 & DEAD != 0,
                is_onlink: flags as u8 & ONLINK != 0,
                ..NextHopMember::default()
            },
            family,
            multipath: &[],
        };
        for attribute in attributes(body.get(12..).unwrap_or_default()) {
            let (name, value) = attribute?;
            match name {
                1 => message.prefix = Prefix::new(address(family, value)?, length),
                6 => message.metric = number(value)?,
                // Attributes: preferred source address, metrics such as the MTU, realm.
                7 | 8 | 11 => (name, value).hash(&mut identity),
                9 => message.multipath = value,
                15 => message.table = number(value)?,
                30 => message.next_hop = Some(number(value)?),
                _ => message.leg.read(family, name, value)?,
            }
        }
        if message.next_hop.is_none() {
            // Exclude the type of a route with a next-hop object, because the object determines the type.
            message.kind.hash(&mut identity);
        }
        message.identity = identity.finish() as u32;
        Ok(message)
    }

    /// Next hops of a route without a next-hop object.
    pub fn legs(&self) -> impl Iterator<Item = Result<NextHopMember, Refused>> {
        let one = self.multipath.is_empty().then_some(Ok(self.leg));
        let (family, mut bytes) = (self.family, self.multipath);
        let group = std::iter::from_fn(move || {
            let head = std::mem::take(&mut bytes);
            if head.is_empty() {
                return None;
            }
            let leg = (|| {
                let length = usize::from(half(head).ok_or(Refused::Malformed)?);
                let (fixed, nested) = head
                    .get(..length)
                    .and_then(|leg| leg.split_at_checked(8))
                    .ok_or(Refused::Malformed)?;
                let mut leg = NextHopMember {
                    interface: number(&fixed[4..])?,
                    weight: fixed[3].saturating_add(1),
                    is_dead: fixed[2] & DEAD != 0,
                    is_onlink: fixed[2] & ONLINK != 0,
                    ..NextHopMember::default()
                };
                for attribute in attributes(nested) {
                    let (name, value) = attribute?;
                    leg.read(family, name, value)?;
                }
                bytes = head.get(aligned(length)..).unwrap_or_default();
                Ok(leg)
            })();
            Some(leg)
        });
        one.into_iter().chain(group)
    }
}

impl NextHopMember {
    /// Decodes an attribute of a route or of a next hop.
    fn read(&mut self, family: u8, name: u16, value: &[u8]) -> Result<(), Refused> {
        match name {
            4 => self.interface = number(value)?,
            5 => self.gateway = Some(address(family, value)?),
            18 => self.gateway = Some(via(value)?),
            // Attributes: MPLS label, encapsulation, encapsulation type. Encapsulation type 0 means no encapsulation.
            19 | 22 => self.wraps = true,
            21 => self.wraps |= half(value).ok_or(Refused::Malformed)? != 0,
            _ => {}
        }
        Ok(())
    }
}

/// A link in a message.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Interface number.
    pub index: u32,
    /// IFF_UP: the link is administratively up, with or without a carrier.
    pub is_up: bool,
}

/// Decodes the body of a message about a link.
pub fn link(body: &[u8]) -> Option<Link> {
    Some(Link {
        index: word(body.get(4..)?)?,
        is_up: word(body.get(8..)?)? & 1 != 0,
    })
}

/// A message about a next-hop object.
#[derive(Clone, Debug)]
pub struct NextHopMessage<'a> {
    /// Number of the object.
    pub id: u32,
    /// Whether the object drops packets.
    pub is_blackhole: bool,
    /// Whether the object is a next hop for bridged Ethernet frames.
    pub is_bridging: bool,
    /// The next hop of an object that is not a group.
    pub leg: NextHopMember,
    group: Option<&'a [u8]>,
}

impl<'a> NextHopMessage<'a> {
    /// Decodes the body of a message about a next-hop object.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn read(body: &'a [u8]) -> Result<Self, Refused> {
        let &[family, _, _, _, flags, _, _, _] = body.first_chunk().ok_or(Refused::Malformed)?;
        let mut message = Self {
            id: 0,
            is_blackhole: false,
            is_bridging: false,
            leg: NextHopMember {
                weight: 1,
                is_dead: flags & DEAD != 0,
                ..NextHopMember::default()
            },
            group: None,
        };
        for attribute in attributes(body.get(8..).unwrap_or_default()) {
            let (name, value) = attribute?;
            match name {
                1 => message.id = number(value)?,
                2 if value.is_empty() || value.len() % 8 > 0 => return Err(Refused::Malformed),
                2 => message.group = Some(value),
                4 => message.is_blackhole = true,
                5 => message.leg.interface = number(value)?,
                6 => message.leg.gateway = Some(address(family, value)?),
                7 => message.leg.wraps |= half(value).ok_or(Refused::Malformed)? != 0,
                8 => message.leg.wraps = true,
                11 => message.is_bridging = true,
                _ => {}
            }
        }
        match message.id {
            0 => Err(Refused::Malformed),
            _ => Ok(message),
        }
    }

    /// Members of a group with their weights; `None` if the object is not a group.
    pub fn group(&self) -> Option<impl Iterator<Item = (u32, u8)>> {
        let member = |member: &[u8; 8]| {
            let &[a, b, c, d, weight, ..] = member;
            (u32::from_ne_bytes([a, b, c, d]), weight.saturating_add(1))
        };
        let (members, _) = self.group?.as_chunks();
        Some(members.iter().map(member))
    }
}
