//! Interfaces: ports, VLANs on them, ends of inter-router links, tunnels.

use sluice_route::{Address, RouterIndex, SourceValidation};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Context, Packet, validity};

use crate::packet::io::PortIndex;
use crate::snapshot::tunnels::Tunnel;

/// An interface: a port, or a VLAN on one.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name of the interface in the configuration.
    pub name: String,
    /// Its port. [`crate::packet::io::NO_PORT`] for an end of an inter-router link, and for a tunnel.
    pub port: PortIndex,
    /// Tags of the interface, outermost first; empty if untagged.
    pub tags: Vec<Tag>,
    /// Priority of the tags of sent frames.
    pub priority: Priority,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Maximum length of an L3 datagram in bytes.
    pub mtu: u16,
    /// Addresses and networks of the interface.
    pub link: sluice_route::Interface,
    /// Virtual router of the interface.
    pub router: RouterIndex,
    /// Context of its flows, which separates them from those of other routers.
    pub context: Context,
    /// Packets that arrive here may need sessions, by family: IPv4, IPv6.
    pub stateful: [bool; 2],
    /// Packets to public addresses arrive here.
    pub outside: bool,
    /// Validation of source addresses (BCP 38).
    pub validation: SourceValidation,
    /// Validity checks of headers.
    pub validity: validity::Policy,
    /// Complete checksums that a local sender left to checksum offload; otherwise drop such packets.
    pub complete_checksums: bool,
    /// Neighbour discovery beyond answers for its own addresses.
    pub neighbours: NeighbourSettings,
    /// Router advertisements, if enabled.
    pub advertise: Option<Advertise>,
    /// Upper bound of the MSS option in bytes for IPv4 SYNs that arrive or leave here. For IPv6 it is 20 bytes lower, because
    /// the header is longer.
    pub segment_size: Option<u16>,
    /// The other end, if it is an end of an inter-router link.
    pub peer: Option<u16>,
    /// Tunnel, if the interface is one.
    pub tunnel: Option<Tunnel>,
    /// Its router has a host, which receives packets addressed to the router that Sluice doesn't answer.
    pub host: bool,
    /// Its bridge, if it is one of the two interfaces of a bridge. It belongs to no router then.
    pub bridge: Option<Bridge>,
}

/// Neighbour discovery beyond answers for the addresses of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourSettings {
    /// Proxy for addresses that are reached by other interfaces, for IPv4 (proxy ARP, RFC 1027) and IPv6 (RFC 4861, 7.2.8).
    pub proxy: [bool; 2],
    /// Announce own addresses when they or the MAC address change, or the link comes up (RFC 5227, 2.3; RFC 4861, 7.2.6).
    pub announces: bool,
    /// Send redirects to hosts (RFC 1812, 5.2.7.2; RFC 4861, 8.2).
    pub redirects: bool,
}

/// Priority of the tags of transmitted frames (IEEE 802.1Q, 6.9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// That of the outermost received tag; 0 if the frame had none.
    #[default]
    Keep,
    /// A fixed priority, 0 to 7.
    Set(u8),
}

impl Priority {
    /// The bits in the first byte of a tag's control information that a frame keeps.
    #[inline]
    pub fn kept(self) -> u8 {
        match self {
            Self::Keep => (vlan::PRIORITY >> 8) as u8,
            Self::Set(_) => 0,
        }
    }

    /// The tag for a frame that arrived without tags.
    pub fn of(self, tag: Tag) -> Tag {
        match self {
            Self::Keep => tag.with_priority(0),
            Self::Set(priority) => tag.with_priority(priority),
        }
    }
}

/// The bridge of an interface. All frames received on the interface leave through the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The other interface of the bridge.
    pub peer: u16,
    /// Drop invalid packets; otherwise count and forward them.
    pub drops_invalid: bool,
    /// Forward packets that should be inspected but can't be; otherwise drop them.
    pub fails_open: bool,
}

/// Flag of the contexts of bridges. The tags are added, because different VLANs have different flows.
pub const BRIDGES: Context = 1 << 31;

/// Flag of frames that arrived on the later of a bridge's two interfaces. A flow starts on one side of the bridge. The same
/// addresses from the other side form another flow: a host in between that returns the packet, or a forged source.
pub const LATER_SIDE: Context = 1 << 30;

/// Maximum number of bridges, as a context also holds tags and the side.
pub const MOST_BRIDGES: usize = 1 << 6;

/// The context of a bridge, by its place in the configuration.
pub fn bridge_context(bridge: usize) -> Context {
    BRIDGES | ((bridge % MOST_BRIDGES) as Context) << 24
}

/// The context of frames that arrive on `number`, an interface of a bridge, with these outermost VLANs.
pub fn bridged_context(bridge: &Bridge, context: Context, number: u16, vlans: [u16; 2]) -> Context {
    let side = if number > bridge.peer { LATER_SIDE } else { 0 };
    context | side | Context::from(vlans[0]) << 12 | Context::from(vlans[1])
}

/// Router advertisements of an interface (RFC 4861).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// Seconds between unsolicited advertisements.
    pub interval: u32,
    /// Router lifetime in seconds; 0: not a default router.
    pub lifetime: u16,
    /// Valid lifetime of prefixes in seconds.
    pub valid: u32,
    /// Preferred lifetime of prefixes in seconds.
    pub preferred: u32,
    /// Hosts may configure addresses themselves in prefixes of 64 bits (SLAAC).
    pub autonomous: bool,
    /// Hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub other: bool,
}

impl Interface {
    /// Source address for packets that the gateway sends to `address`.
    pub fn source4(&self, address: u32) -> Option<u32> {
        match self.link.source_towards(Address::V4(address)) {
            Some(Address::V4(source)) => Some(source),
            _ => None,
        }
    }

    /// Source address for packets that the gateway sends to `address`.
    pub fn source6(&self, address: u128) -> Option<u128> {
        match self.link.source_towards(Address::V6(address)) {
            Some(Address::V6(source)) => Some(source),
            _ => None,
        }
    }

    /// Whether it is a point-to-point link, on which neighbours are not resolved.
    pub fn is_pair(&self) -> bool {
        self.tunnel.is_some_and(|tunnel| !tunnel.carries_frames())
    }

    /// Push the interface's tags onto an untagged frame. Returns `false` if there is no room.
    pub fn push_tags(&self, packet: &mut Packet<'_>) -> bool {
        self.push_tags_after(packet, None)
    }

    /// Push the interface's tags onto an untagged frame that had arrived with the outermost tag `before`. Returns `false` if
    /// there is no room.
    pub fn push_tags_after(&self, packet: &mut Packet<'_>, before: Option<Tag>) -> bool {
        let kept = before.map_or(0, |tag| tag.control & u16::from(self.priority.kept()) << 8);
        let mut tags = self.tags.iter().rev().map(|&tag| self.priority.of(tag));
        tags.all(|Tag { protocol, control }| {
            let control = control | kept;
            vlan::push(packet, Tag { protocol, control })
        })
    }
}
