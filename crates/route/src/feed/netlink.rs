//! Decoding of netlink messages about routes and next hops (rtnetlink(7)). Numbers are in the byte order of the sending
//! host. A remote daemon's host must have the byte order of this host; otherwise the daemon's messages are malformed.
//!
//! Attributes of a message are decoded one by one: an attribute that is not needed does not make the message malformed,
//! whatever its value.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use netlink_packet_core::{
    DecodeError, Emitable, NLMSG_ALIGNTO, NetlinkBuffer, NlasIterator, ParseableParametrized, parse_ip, parse_u16,
    parse_u32,
};
pub use netlink_packet_core::{
    NLM_F_APPEND as APPEND, NLM_F_DUMP_INTR as DUMP_INTERRUPTED, NLM_F_MULTIPART as MULTI, NLM_F_REPLACE as REPLACE,
};
use netlink_packet_route::AddressFamily;
pub use netlink_packet_route::route::RouteType;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteNextHop, RouteNextHopFlags, RouteVia,
};

use super::{Refused, writer};
use crate::{Address, Prefix};

/// A netlink message, decoded in place.
pub type Message<'a> = NetlinkBuffer<&'a [u8]>;

/// Message types.
pub mod kind {
    pub use netlink_packet_core::{NLMSG_DONE as DONE, NLMSG_NOOP as NOOP};

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

/// IPv4.
pub const INET: u8 = 2;
/// IPv6.
pub const INET6: u8 = 10;

impl From<DecodeError> for Refused {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Splits `bytes` into messages. A truncated last message results in an error item.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Refused>> {
    std::iter::from_fn(move || {
        let head = std::mem::take(&mut bytes);
        if head.is_empty() {
            return None;
        }
        let message = NetlinkBuffer::new_checked(head);
        if let Ok(message) = &message {
            let length = (message.length() as usize).next_multiple_of(NLMSG_ALIGNTO.into());
            bytes = head.get(length..).unwrap_or_default();
        }
        Some(message.map_err(Refused::from))
    })
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
    /// RTNH_F_DEAD: the interface is administratively down. The carrier state (RTNH_F_LINKDOWN) is not read from
    /// routes, because the kernel sends no route message when the carrier returns. Link messages contain the carrier
    /// state.
    pub is_dead: bool,
}

/// A message about a route.
#[derive(Clone, Debug)]
pub struct RouteMessage {
    /// Destination prefix.
    pub prefix: Prefix,
    /// Number of the routing table.
    pub table: u32,
    /// Routing protocol (RTPROT).
    pub protocol: u8,
    /// Type of the route.
    pub kind: RouteType,
    /// Whether the route applies to only some of the packets to the prefix.
    pub is_conditional: bool,
    /// Whether the route is a cached clone instead of an entry of the table.
    pub is_cloned: bool,
    /// Metric of the route.
    pub metric: u32,
    /// Hash of the attributes by which the kernel distinguishes routes, without the next hops.
    pub identity: u32,
    /// Flags of the message (NLM_F_…).
    pub flags: u16,
    /// Number of the route's next-hop object or group.
    pub next_hop: Option<u32>,
    /// The next hop of a route without multipath.
    leg: NextHopMember,
    multipath: Vec<NextHopMember>,
}

impl RouteMessage {
    /// Decodes a message about a route.
    ///
    /// # Errors
    /// The message is malformed, or concerns a different address family.
    pub fn read(message: &Message<'_>) -> Result<Self, Refused> {
        let body = message.payload();
        let header = RouteHeader::parse(body)?;
        let (family, length) = (header.address_family, header.destination_prefix_length);
        let zero = match family {
            AddressFamily::Inet => Address::V4(0),
            AddressFamily::Inet6 => Address::V6(0),
            _ => return Err(Refused::Family),
        };
        if length > zero.bits() {
            return Err(Refused::Malformed);
        }
        let mut route = Self {
            prefix: Prefix::new(zero, length),
            table: header.table.into(),
            protocol: header.protocol.into(),
            kind: header.kind,
            is_conditional: header.source_prefix_length > 0 || header.tos > 0,
            is_cloned: header.flags.contains(RouteFlags::Cloned),
            metric: 0,
            identity: 0,
            flags: message.flags(),
            next_hop: None,
            leg: NextHopMember {
                weight: 1,
                is_dead: header.flags.contains(RouteFlags::Dead),
                is_onlink: header.flags.contains(RouteFlags::Onlink),
                ..NextHopMember::default()
            },
            multipath: Vec::new(),
        };
        let mut identity = DefaultHasher::new();
        (route.protocol, u8::from(header.scope)).hash(&mut identity);
        for attribute in NlasIterator::new(&body[header.buffer_len()..]) {
            let attribute = attribute?;
            let context = (family, header.kind, RouteLwEnCapType::None);
            match (attribute.kind(), RouteAttribute::parse_with_param(&attribute, context)) {
                // RTA_PREFSRC, RTA_METRICS, RTA_FLOW
                (name @ (7 | 8 | 11), _) => (name, attribute.value()).hash(&mut identity),
                // RTA_NEWDST, RTA_ENCAP
                (19 | 22, _) => route.leg.wraps = true,
                (_, Ok(RouteAttribute::Destination(to))) => route.prefix = Prefix::new(address(&to)?, length),
                (_, Ok(RouteAttribute::Priority(metric))) => route.metric = metric,
                (_, Ok(RouteAttribute::MultiPath(legs))) => {
                    route.multipath = legs.iter().map(NextHopMember::of).collect::<Result<_, _>>()?;
                }
                (_, Ok(RouteAttribute::Table(table))) => route.table = table,
                (_, Ok(RouteAttribute::NhId(id))) => route.next_hop = Some(id),
                (_, Ok(attribute)) => route.leg.read(&attribute)?,
                // The attributes that are read here and in `NextHopMember::read`.
                (1 | 4 | 5 | 6 | 9 | 15 | 18 | 21 | 30, Err(error)) => return Err(error.into()),
                (_, Err(_)) => {}
            }
        }
        if route.next_hop.is_none() {
            // If the route has a next-hop object, the hash excludes the route's type, because the object determines the
            // type.
            u8::from(route.kind).hash(&mut identity);
        }
        route.identity = identity.finish() as u32;
        Ok(route)
    }

    /// Next hops of a route without a next-hop object.
    pub fn legs(&self) -> &[NextHopMember] {
        match &*self.multipath {
            [] => std::slice::from_ref(&self.leg),
            legs => legs,
        }
    }
}

impl NextHopMember {
    /// A next hop of a route with multipath.
    fn of(next_hop: &RouteNextHop) -> Result<Self, Refused> {
        let mut leg = Self {
            interface: next_hop.interface_index,
            weight: next_hop.hops.saturating_add(1),
            is_dead: next_hop.flags.contains(RouteNextHopFlags::Dead),
            is_onlink: next_hop.flags.contains(RouteNextHopFlags::Onlink),
            ..Self::default()
        };
        next_hop
            .attributes
            .iter()
            .try_for_each(|attribute| leg.read(attribute))?;
        Ok(leg)
    }

    fn read(&mut self, attribute: &RouteAttribute) -> Result<(), Refused> {
        match attribute {
            RouteAttribute::Oif(interface) => self.interface = *interface,
            RouteAttribute::Gateway(gateway) => self.gateway = Some(address(gateway)?),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => self.gateway = Some(IpAddr::from(*gateway).into()),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => self.gateway = Some(IpAddr::from(*gateway).into()),
            RouteAttribute::Via(_) => return Err(Refused::Malformed),
            RouteAttribute::NewDestination(_) | RouteAttribute::NewDestinationAddress(_) | RouteAttribute::Encap(_) => {
                self.wraps = true
            }
            RouteAttribute::EncapType(kind) => self.wraps |= *kind != RouteLwEnCapType::None,
            _ => {}
        }
        Ok(())
    }
}

fn address(address: &RouteAddress) -> Result<Address, Refused> {
    match address {
        RouteAddress::Inet(v4) => Ok(IpAddr::from(*v4).into()),
        RouteAddress::Inet6(v6) => Ok(IpAddr::from(*v6).into()),
        _ => Err(Refused::Malformed),
    }
}

/// A message about a next-hop object. `netlink-packet-route` does not know these messages.
#[derive(Clone, Debug)]
pub struct NextHopMessage {
    /// Number of the object.
    pub id: u32,
    /// Whether the object drops packets.
    pub is_blackhole: bool,
    /// Whether the object is a next hop for bridged Ethernet frames.
    pub is_bridging: bool,
    /// The next hop of an object that is not a group.
    pub leg: NextHopMember,
    /// Members of a group with their weights; `None` if the object is not a group.
    pub group: Option<Vec<(u32, u8)>>,
}

impl NextHopMessage {
    /// Decodes the body of a message about a next-hop object.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn read(body: &[u8]) -> Result<Self, Refused> {
        let (&[family, _, _, _, flags, _, _, _], attributes) = body.split_first_chunk().ok_or(Refused::Malformed)?;
        let mut message = Self {
            id: 0,
            is_blackhole: false,
            is_bridging: false,
            leg: NextHopMember {
                weight: 1,
                is_dead: flags & RouteNextHopFlags::Dead.bits() != 0,
                ..NextHopMember::default()
            },
            group: None,
        };
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            let value = attribute.value();
            match attribute.kind() {
                1 => message.id = parse_u32(value)?,
                2 => message.group = Some(group(value)?),
                4 => message.is_blackhole = true,
                5 => message.leg.interface = parse_u32(value)?,
                6 => {
                    let gateway = Address::from(parse_ip(value)?);
                    if writer::family(gateway) != family {
                        return Err(Refused::Malformed);
                    }
                    message.leg.gateway = Some(gateway);
                }
                7 => message.leg.wraps |= parse_u16(value)? != 0,
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
}

/// Decodes NHA_GROUP.
fn group(value: &[u8]) -> Result<Vec<(u32, u8)>, Refused> {
    let (members, rest) = value.as_chunks();
    if members.is_empty() || !rest.is_empty() {
        return Err(Refused::Malformed);
    }
    let member = |&[a, b, c, d, weight, ..]: &[u8; 8]| (u32::from_ne_bytes([a, b, c, d]), weight.saturating_add(1));
    Ok(members.iter().map(member).collect())
}
